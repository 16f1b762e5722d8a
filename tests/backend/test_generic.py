"""The generic backend: the contract, over filesystems that promise nothing: a disk, a memory, an async one."""

import datetime
import os
from collections.abc import Callable
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
from rollingfs.testing.reading import ODD_NAMES
from tests.backend.test_memory import OverFsspec
from tests.support.backends import private_memory, raises
from tests.support.driven import Driven
from tests.support.forks import needs_posix, require_name


class GenericContract(OverFsspec):
    claims_atomicity = False

    @pytest.fixture
    def backend(self, fs: AbstractFileSystem) -> Backend:
        return GenericBackend(fs, single_writer=True)


class TestGenericBackendInMemory(GenericContract):
    """Over fsspec's own."""


class TestGenericBackendOnDisk(GenericContract):
    # a file overwritten in place within one tick of the clock has the same date
    tokens_tell_equal_bytes = False
    make_fs = staticmethod(LocalFileSystem)

    @pytest.mark.parametrize("name", ODD_NAMES)
    def test_odd_names_are_names(self, backend: Backend, folder: str, name: str) -> None:
        require_name(name)  # fsspec lets Windows change it
        super().test_odd_names_are_names(backend, folder, name)

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
    make_fs = staticmethod(lambda: AsyncMemoryFileSystem(private_memory().fs, asynchronous=False))


def test_without_single_writer_it_replaces_nothing():
    fs = private_memory().fs
    fs.pipe_file("/x$header", b"old")
    backend = Driven(GenericBackend(fs))
    with pytest.raises(UnsafeBackendError, match="single_writer=True"):
        backend.replace("/x$header", b"new", backend.read("/x$header").token)
    assert (fs.find("/"), fs.cat_file("/x$header")) == (["/x$header"], b"old")


class Telling(MemoryFileSystem):
    """A filesystem that tells of its files what a test wants."""

    cachable = False

    def __init__(self, changed: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        super().__init__(global_store=False)
        self.changed = changed

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        info: dict[str, Any] = super().info(path, **options)
        return info if info["type"] == "directory" else self.changed(info)


def test_headers_of_equal_length_and_date_are_told_apart():
    fs = Telling(lambda info: {**info, "created": datetime.datetime(2026, 11, 20)})  # the clock counts days
    backend = Driven(GenericBackend(fs, single_writer=True))
    old = backend.create("/x$header", b"version 1")
    new = backend.replace("/x$header", b"version 2", old)
    blob = backend.read_if_changed("/x$header", old)
    assert blob is not None
    assert (blob.data, blob.token) == (b"version 2", new)
    assert backend.list("").entries[0].token is None
    with pytest.raises(ConflictError):
        backend.replace("/x$header", b"version 3", old)


def test_tag_saves_body_of_what_has_not_changed():
    fs = Telling(lambda info: {**info, "ETag": "etag"})
    backend = Driven(GenericBackend(fs, single_writer=True))
    token = backend.create("/x$header", b"x")
    fs.cat_file = None  # type: ignore[method-assign]
    assert backend.read_if_changed("/x$header", token) is None


def test_failing_store_is_not_taken_for_empty_one():
    fs = Telling(raises(OSError(5, "the network is down")))
    fs.pipe_file("/x$header", b"old")
    backend = Driven(GenericBackend(fs, single_writer=True))
    with pytest.raises(OSError, match="network is down"):
        backend.create("/x$header", b"new")
    with pytest.raises(OSError, match="network is down"):
        backend.is_folder("/x$header")
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


def test_a_refused_range_is_empty_only_beyond_the_end():
    fs = StrictRangeFileSystem(global_store=False, skip_instance_cache=True)
    fs.pipe_file("/x", b"0123456789")
    backend = Driven(GenericBackend(fs))
    assert backend.read_range("/x", 10, 20) == b""
    with pytest.raises(StrictRangeFileSystem.RangeError, match="500"):
        backend.read_range("/x", 3, 20)


def test_a_filesystem_made_for_asynchronous_use_is_driven_synchronously():
    class Asynchronous(AsyncFileSystem):
        protocol = "asynchronous-test"

        async def _info(self, path: str, **_options: Any) -> dict[str, Any]:
            return {"name": path, "size": 3, "type": "file"}

        async def _cat_file(self, path: str, start: Any = None, end: Any = None, **_options: Any) -> bytes:
            return b"abc"[start:end]

    assert Driven(GenericBackend(Asynchronous(asynchronous=True))).read("x").data == b"abc"


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
def test_dates_of_every_kind_are_seconds(date, seconds):
    fs = Telling(lambda info: {**info, "created": None, "LastModified": date})
    fs.pipe_file("/x", b"1")
    assert Driven(GenericBackend(fs)).stat("/x").modified == seconds


@needs_posix
def test_an_odd_name_deletes_no_other_file(tmp_path):
    for name in ("a*", "ab", "a[bc]", "ac"):
        (tmp_path / name).write_bytes(b"x")
    backend = Driven(GenericBackend(LocalFileSystem(), single_writer=True))
    backend.delete([f"{tmp_path}/a*", f"{tmp_path}/a[bc]"])
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


def test_interrupted_replace_leaves_the_old_header_whole_for_readers(tmp_path):
    fs = BrokenOff()
    backend = Driven(GenericBackend(fs, single_writer=True))
    header = f"{tmp_path}/x$header"
    token = backend.create(header, b"the old header")
    for _ in range(2):
        fs.breaks = True
        with pytest.raises(OSError, match="No space left"):
            backend.replace(header, b"the new header", token)
        fs.breaks = False
        assert Path(header).read_bytes() == b"the old header"
    backend.replace(header, b"the new header", token)
    assert Path(header).read_bytes() == b"the new header"


@pytest.mark.parametrize("moves", [0, 1])
def test_server_without_moves_is_written_in_place_unless_new(tmp_path, moves, caplog):
    fs = BrokenOff()
    fs.moves_left = moves
    backend = Driven(GenericBackend(fs, single_writer=True))
    header = f"{tmp_path}/x$header"
    token = backend.create(header, b"old")
    if moves:
        with pytest.raises(OSError, match="unsupported"):
            backend.replace(header, b"new", token)
        assert Path(header).read_bytes() == b"old"
        return
    token = backend.replace(header, b"new", token)
    assert Path(header).read_bytes() == b"new"
    assert len(caplog.records) == 1  # one warning only
    assert "overwritten" in caplog.text
    assert os.listdir(tmp_path / "x$chunks") == []


def test_new_file_is_dated_now_and_leaves_nothing():
    fs = Telling(lambda info: {**info, "created": info["created"] - datetime.timedelta(days=1)})
    backend = Driven(GenericBackend(fs, single_writer=True))
    backend.write("/a/chunk", [b"x"])
    assert abs(backend.now("/a/log") - backend.stat("/a/chunk").modified) < 600
    assert fs.ls("/a", detail=False) == ["/a/chunk"]


def test_without_dates_time_stands_still_and_readers_write_nothing():
    fs = Telling(lambda info: {**info, "created": None})
    backend = Driven(GenericBackend(fs, single_writer=True))
    assert backend.now("/log") == 0.0 == backend.now("/log")
    fs.pipe_file = None  # type: ignore[method-assign]
    assert Driven(GenericBackend(fs)).now("/log") > 0.0
