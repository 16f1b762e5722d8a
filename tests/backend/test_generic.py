"""The generic backend: the contract, over filesystems that promise nothing: a disk, a memory, an async one."""

from __future__ import annotations

import datetime
import os
import uuid
from pathlib import Path
from typing import Any

import pytest
from fsspec import AbstractFileSystem
from fsspec.asyn import AsyncFileSystem
from fsspec.implementations.asyn_wrapper import AsyncFileSystemWrapper
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem

from rollingfs.backend.contract import Backend
from rollingfs.backend.generic import GenericBackend
from rollingfs.errors import ConflictError, UnsafeBackendError
from rollingfs.testing import BackendContract, run


def _private_memory() -> MemoryFileSystem:
    return MemoryFileSystem(global_store=False, skip_instance_cache=True)


class GenericContract(BackendContract):
    claims_atomicity = False

    def make_fs(self) -> AbstractFileSystem:
        raise NotImplementedError

    @pytest.fixture(autouse=True)
    def fs(self) -> AbstractFileSystem:
        self._fs = self.make_fs()
        return self._fs

    @pytest.fixture
    def backend(self, fs: AbstractFileSystem) -> Backend:
        return GenericBackend(fs, single_writer=True)

    def raw_read(self, path: str) -> bytes:
        data: bytes = self._fs.cat_file(path)
        return data

    def raw_write(self, path: str, data: bytes) -> None:
        self._fs.makedirs(self._fs._parent(path), exist_ok=True)
        self._fs.pipe_file(path, data)

    @pytest.fixture
    def folder(self) -> str:
        return f"/{uuid.uuid4().hex}"

    def spawn_arguments(self) -> None:
        return None


class TestGenericBackendInMemory(GenericContract):
    def make_fs(self) -> AbstractFileSystem:
        return _private_memory()


class TestGenericBackendOnDisk(GenericContract):
    # a file overwritten in place within one tick of the clock has the same date
    tokens_tell_equal_bytes = False

    def make_fs(self) -> AbstractFileSystem:
        return LocalFileSystem()

    @pytest.fixture
    def folder(self, tmp_path: Path) -> str:
        return f"{tmp_path}/fresh"


class AsyncMemoryFileSystem(AsyncFileSystemWrapper):
    """An async filesystem; fsspec's wrapper forwards neither `open` nor `rmdir`."""

    def _open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        return self.sync_fs._open(path, mode, **options)

    def rmdir(self, path: str) -> None:
        self.sync_fs.rmdir(path)


class TestGenericBackendOverAnAsyncFilesystem(GenericContract):
    def make_fs(self) -> AbstractFileSystem:
        return AsyncMemoryFileSystem(_private_memory(), asynchronous=False)


def test_without_a_single_writer_it_reads_and_does_not_write() -> None:
    fs = _private_memory()
    fs.pipe_file("/x$header", b"old")
    backend = GenericBackend(fs)
    blob = run(backend, backend.read("/x$header"))
    assert not backend.can_write
    with pytest.raises(UnsafeBackendError, match="single_writer=True"):
        run(backend, backend.create("/y$header", b"new"))
    with pytest.raises(UnsafeBackendError, match="single_writer=True"):
        run(backend, backend.replace("/x$header", b"new", blob.token))
    assert (fs.find("/"), fs.cat_file("/x$header")) == (["/x$header"], b"old")


class CoarseFileSystem(MemoryFileSystem):
    """A filesystem whose dates are whole days: only the bytes tell two contents apart."""

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        return {**super().info(path, **options), "created": datetime.datetime(2026, 11, 20)}


def test_headers_of_one_length_and_one_date_are_told_apart() -> None:
    backend = GenericBackend(CoarseFileSystem(global_store=False, skip_instance_cache=True), single_writer=True)
    old = run(backend, backend.create("/x$header", b"version 1"))
    new = run(backend, backend.replace("/x$header", b"version 2", old))
    blob = run(backend, backend.read_if_changed("/x$header", old))
    assert blob is not None
    assert (blob.data, blob.token) == (b"version 2", new)
    assert run(backend, backend.list("")).entries[0].token is None
    with pytest.raises(ConflictError):
        run(backend, backend.replace("/x$header", b"version 3", old))


class TaggedFileSystem(MemoryFileSystem):
    """A filesystem with ETags, which counts the bodies that it sends."""

    bodies = 0

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        info = super().info(path, **options)
        return info if info["type"] == "directory" else {**info, "ETag": f"etag-{id(self.store[info['name']])}"}

    def cat_file(self, path: str, *args: Any, **options: Any) -> bytes:
        self.bodies += 1
        data: bytes = super().cat_file(path, *args, **options)
        return data


def test_a_tag_saves_the_body_of_what_has_not_changed() -> None:
    fs = TaggedFileSystem(global_store=False, skip_instance_cache=True)
    backend = GenericBackend(fs, single_writer=True)
    token = run(backend, backend.create("/x$header", b"x"))
    assert run(backend, backend.read_if_changed("/x$header", token)) is None
    assert fs.bodies == 0


class FailingFileSystem(MemoryFileSystem):
    def info(self, path: str, **options: Any) -> dict[str, Any]:
        raise OSError(5, "the network is down")


def test_a_failing_store_is_not_taken_for_an_empty_one() -> None:
    fs = FailingFileSystem(global_store=False, skip_instance_cache=True)
    fs.pipe_file("/x$header", b"old")
    backend = GenericBackend(fs, single_writer=True, has_folders=False)
    with pytest.raises(OSError, match="network is down"):
        run(backend, backend.create("/x$header", b"new"))
    with pytest.raises(OSError, match="network is down"):
        run(backend, backend.is_folder("/x"))
    assert fs.cat_file("/x$header") == b"old"


class StrictRangeFileSystem(MemoryFileSystem):
    """Refuses ranges as HTTP servers do, with an error that is no `OSError`."""

    class RangeError(Exception):
        pass

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> bytes:
        if start is not None and start >= self.info(path)["size"]:
            raise self.RangeError("416")
        if start == 3:
            raise self.RangeError("500")
        data: bytes = super().cat_file(path, start, end, **options)
        return data


def test_a_refused_range_is_empty_only_beyond_the_end() -> None:
    fs = StrictRangeFileSystem(global_store=False, skip_instance_cache=True)
    fs.pipe_file("/x", b"0123456789")
    backend = GenericBackend(fs)
    assert run(backend, backend.read_range("/x", 10, 20)) == b""
    with pytest.raises(StrictRangeFileSystem.RangeError, match="500"):
        run(backend, backend.read_range("/x", 3, 20))


def test_a_filesystem_made_for_asynchronous_use_is_driven_synchronously() -> None:
    class Asynchronous(AsyncFileSystem):
        protocol = "asynchronous-test"

        async def _info(self, path: str, **_options: Any) -> dict[str, Any]:
            return {"name": path, "size": 3, "type": "file"}

        async def _cat_file(self, path: str, start: Any = None, end: Any = None, **_options: Any) -> bytes:
            return b"abc"[start:end]

    backend = GenericBackend(Asynchronous(asynchronous=True))
    assert run(backend, backend.read("x")).data == b"abc"


@pytest.mark.parametrize(
    ("date", "seconds"),
    [
        (12.5, 12.5),
        (datetime.datetime(1970, 1, 1, 0, 1), 60.0),
        (datetime.datetime(1970, 1, 1, 0, 1, tzinfo=datetime.UTC), 60.0),
        ("1970-01-01T00:01:00Z", 60.0),
        (None, 0.0),
    ],
)
def test_dates_of_every_kind_are_seconds(date: Any, seconds: float) -> None:
    class Dated(MemoryFileSystem):
        def info(self, path: str, **options: Any) -> dict[str, Any]:
            return {**super().info(path, **options), "created": None, "LastModified": date}

    fs = Dated(global_store=False, skip_instance_cache=True)
    fs.pipe_file("/x", b"1")
    backend = GenericBackend(fs)
    assert run(backend, backend.stat("/x")).modified == seconds


def test_an_odd_name_deletes_no_other_file(tmp_path: Path) -> None:
    for name in ("a*", "ab", "a[bc]", "ac"):
        (tmp_path / name).write_bytes(b"x")
    backend = GenericBackend(LocalFileSystem(), single_writer=True)
    run(backend, backend.delete([f"{tmp_path}/a*", f"{tmp_path}/a[bc]"]))
    assert sorted(os.listdir(tmp_path)) == ["ab", "ac"]


class BrokenOff(LocalFileSystem):
    """A filesystem that fails in the middle of its next write, or refuses to move after a number of moves."""

    cachable = False
    breaks = False
    moves_left = 1000

    def pipe_file(self, path: str, value: bytes, *args: Any, **options: Any) -> None:
        if not self.breaks:
            super().pipe_file(path, value, *args, **options)
            return
        super().pipe_file(path, value[: len(value) // 2])
        raise OSError(28, "No space left on device")

    def mv(self, path1: str, path2: str, *args: Any, **options: Any) -> None:
        if not self.moves_left:
            raise OSError("Operation unsupported")
        self.moves_left -= 1
        super().mv(path1, path2, *args, **options)


def test_a_replace_that_is_broken_off_leaves_the_old_header_and_no_reader_meets_half_of_the_new(tmp_path: Path) -> None:
    fs = BrokenOff()
    backend = GenericBackend(fs, single_writer=True)
    header = f"{tmp_path}/x$header"
    token = run(backend, backend.create(header, b"the old header"))
    for _ in range(2):
        fs.breaks = True
        with pytest.raises(OSError, match="No space left"):
            run(backend, backend.replace(header, b"the new header", token))
        fs.breaks = False
        assert Path(header).read_bytes() == b"the old header"
    run(backend, backend.replace(header, b"the new header", token))
    assert Path(header).read_bytes() == b"the new header"


@pytest.mark.parametrize("moves", [0, 1])
def test_a_server_that_cannot_move_is_written_in_place_unless_it_could_before(
    tmp_path: Path, moves: int, caplog: pytest.LogCaptureFixture
) -> None:
    fs = BrokenOff()
    fs.moves_left = moves
    backend = GenericBackend(fs, single_writer=True)
    header = f"{tmp_path}/x$header"
    token = run(backend, backend.create(header, b"old"))
    if moves:
        with pytest.raises(OSError, match="unsupported"):
            run(backend, backend.replace(header, b"new", token))
        assert Path(header).read_bytes() == b"old"
        return
    token = run(backend, backend.replace(header, b"new", token))
    assert Path(header).read_bytes() == b"new"
    assert len(caplog.records) == 1  # one warning only
    assert "overwritten" in caplog.text
    assert os.listdir(tmp_path / "x$chunks") == []


def test_now_is_the_date_of_a_new_file_and_nothing_is_left_of_it(tmp_path: Path) -> None:
    class Yesterday(LocalFileSystem):
        cachable = False

        def info(self, path: str, **options: Any) -> dict[str, Any]:
            info = super().info(path, **options)
            return {**info, "mtime": info["mtime"] - 86_400}

    backend = GenericBackend(Yesterday(), single_writer=True)
    run(backend, backend.write(f"{tmp_path}/chunk", [b"x"]))
    now = run(backend, backend.now(f"{tmp_path}/log"))
    assert abs(now - run(backend, backend.stat(f"{tmp_path}/chunk")).modified) < 600
    assert os.listdir(tmp_path) == ["chunk"]


def test_without_dates_the_time_stands_still_and_who_only_reads_writes_nothing() -> None:
    class Undated(MemoryFileSystem):
        def info(self, path: str, **options: Any) -> dict[str, Any]:
            return {**super().info(path, **options), "created": None}

    fs = Undated(global_store=False, skip_instance_cache=True)
    backend = GenericBackend(fs, single_writer=True)
    assert run(backend, backend.now("/log")) == 0.0 == run(backend, backend.now("/log"))
    fs.pipe_file = None  # type: ignore[method-assign]
    assert run(backend, GenericBackend(fs).now("/log")) > 0.0
