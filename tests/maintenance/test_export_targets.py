"""Export against its surroundings: odd targets, a second export to the same name, a caller that is cancelled."""

from __future__ import annotations

import asyncio
import os
import stat
import threading
from pathlib import Path
from typing import Any

import fsspec
import pytest

from rollingfs import ConflictError, RollingFileSystem, RollingPolicy
from rollingfs.backend.generic import GenericBackend
from rollingfs.backend.local import upload as local_upload
from rollingfs.backend.memory import MemoryBackend
from rollingfs.fs.export_verb import open_export_target
from rollingfs.maintenance import export
from rollingfs.runtime.concurrency import drive
from rollingfs.spark.maintain import maintain

MIB = 2**20
POLICY = RollingPolicy(max_bytes=1000, inline_bytes=10)
FOREIGN = b"of another program"


def made(fs: RollingFileSystem, path: str, policy: RollingPolicy = POLICY) -> bytes:
    fs.create(path, policy)
    for number in range(6):
        fs.append(path, bytes([65 + number]) * 500)
    return fs.cat_file(path)


@pytest.fixture
def fs() -> RollingFileSystem:
    return RollingFileSystem("file", sync=True, skip_instance_cache=True)


# -- what a target means ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "target", ["/out/a::b", "/out/std::memory", "memory:///out/a::b", "rolling::memory:///out/a::b"]
)
def test_a_name_with_two_colons_is_a_name_on_the_own_store(target: str) -> None:
    own = RollingFileSystem("memory", skip_instance_cache=True)._backend
    backend, name = open_export_target(own, target)
    assert backend is own
    assert name == f"/out/{target.rpartition('/')[2]}"


def test_a_name_with_two_colons_stays_on_another_store_and_a_chain_is_a_chain(fs: RollingFileSystem) -> None:
    backend, name = open_export_target(fs._backend, "memory:///out/a::b")
    assert isinstance(backend.inner, MemoryBackend)  # type: ignore[attr-defined]
    assert name == "/out/a::b"
    backend, name = open_export_target(fs._backend, "simplecache::memory://out/b")
    assert isinstance(backend.inner, GenericBackend)  # type: ignore[attr-defined]
    assert name == "/out/b"


def test_a_pipe_is_not_replaced(fs: RollingFileSystem, tmp_path: Path) -> None:
    made(fs, f"{tmp_path}/log")
    os.mkfifo(tmp_path / "pipe")
    for overwrite in (False, True):
        with pytest.raises(FileExistsError, match="not a regular file"):
            fs.export(f"{tmp_path}/log", f"{tmp_path}/pipe", overwrite=overwrite)
    assert stat.S_ISFIFO(os.stat(tmp_path / "pipe").st_mode)
    assert not (tmp_path / "pipe$chunks").exists()


def test_a_private_file_that_is_replaced_stays_private(fs: RollingFileSystem, tmp_path: Path) -> None:
    content = made(fs, f"{tmp_path}/log")
    target = tmp_path / "file"
    target.write_bytes(FOREIGN)
    target.chmod(0o600)
    fs.export(f"{tmp_path}/log", str(target), overwrite=True)
    assert (target.read_bytes(), stat.S_IMODE(target.stat().st_mode)) == (content, 0o600)


# -- another export to the same name ---------------------------------------------------------------------------


def beside(monkeypatch: pytest.MonkeyPatch, other: Any) -> None:
    """Let another export happen before the first one that asks for its end."""
    ask, calls = export.still_there, []

    async def hooked(*args: Any) -> Any:
        calls.append(args)
        if len(calls) == 1:
            await other()
        return await ask(*args)

    monkeypatch.setattr(export, "still_there", hooked)


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("kind", ["local", "generic"])
def test_an_export_that_another_one_ended_says_so(
    kind: str, overwrite: bool, fs: RollingFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = made(fs, f"{tmp_path}/log")
    target = fs._backend if kind == "local" else GenericBackend(fsspec.filesystem("file", auto_mkdir=True))
    view = drive(fs._client.lookup.view(f"{tmp_path}/log"))

    async def run() -> Any:
        return await fs._client.exporter.export(view, target, f"{tmp_path}/out/file", overwrite=overwrite)

    beside(monkeypatch, run)
    with pytest.raises((ConflictError, FileExistsError), match=r"another export|has this name"):
        drive(run())
    assert [entry.name for entry in (tmp_path / "out").iterdir()] == ["file"]
    assert (tmp_path / "out/file").read_bytes() == content


@pytest.mark.parametrize("chunk", [6 * MIB, MIB])
def test_an_export_on_s3_that_another_one_ended_says_so(
    chunk: int, s3_options: dict[str, Any], bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs = RollingFileSystem("s3", s3_options, skip_instance_cache=True)
    fs.create(f"{bucket}/log", RollingPolicy(max_bytes=chunk, inline_bytes=0))
    fs.append(f"{bucket}/log", b"a" * (18 * MIB))
    backend, call = fs._backend, fs._backend.call  # type: ignore[attr-defined]

    async def hooked(verb: str, **arguments: Any) -> Any:
        if verb in ("upload_part", "upload_part_copy") and arguments["PartNumber"] == 1:
            for pending in await backend.list_uploads(bucket, "file"):
                await backend.abort_upload(pending)
        return await call(verb, **arguments)

    monkeypatch.setattr(backend, "call", hooked)  # type: ignore[attr-defined]
    with pytest.raises(ConflictError, match="another export"):
        fs.export(f"{bucket}/log", f"{bucket}/file")


def test_an_export_writes_nothing_through_a_chunk_folder_that_is_a_link(fs: RollingFileSystem, tmp_path: Path) -> None:
    """On a disk the file grows in that folder, and a link would let it grow, and delete, elsewhere."""
    made(fs, f"{tmp_path}/log")
    (tmp_path / "other").mkdir()
    (tmp_path / "file$chunks").symlink_to(tmp_path / "other")
    with pytest.raises(PermissionError, match=r"'file\$chunks' is a symbolic link.*nothing was written"):
        fs.export(f"{tmp_path}/log", f"{tmp_path}/file")
    assert not (tmp_path / "file").exists()
    assert (tmp_path / "file$chunks").is_symlink()
    assert list((tmp_path / "other").iterdir()) == []


# -- a caller that is cancelled --------------------------------------------------------------------------------


def test_an_abort_never_meets_a_write_that_a_thread_still_does(
    s3_options: dict[str, Any], bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the write could go on into whatever file gets the closed descriptor's number."""
    fs = RollingFileSystem("s3", s3_options, skip_instance_cache=True)
    made(fs, f"{bucket}/log")
    begun, may_end, seen = threading.Event(), threading.Event(), []
    write_all, abort = local_upload.disk.write_all, local_upload.HiddenUpload.abort

    def slowly(descriptor: int, data: Any) -> None:
        seen.append("begins")
        begun.set()
        may_end.wait(10)
        write_all(descriptor, data)
        seen.append("ends")

    async def noted(self: local_upload.HiddenUpload) -> None:
        seen.append("abort")
        await abort(self)

    monkeypatch.setattr(local_upload.disk, "write_all", slowly)
    monkeypatch.setattr(local_upload.HiddenUpload, "abort", noted)

    async def main() -> None:
        task = asyncio.create_task(fs._export(f"{bucket}/log", f"file://{tmp_path}/file"))
        await asyncio.to_thread(begun.wait)
        task.cancel()
        await asyncio.sleep(0.1)
        may_end.set()
        await asyncio.gather(task, return_exceptions=True)
        for _ in range(3000):  # the export itself runs on the loop of s3fs
            if "abort" in seen and not list(tmp_path.iterdir()):
                break
            await asyncio.sleep(0.02)

    asyncio.run(main())
    assert seen == ["begins", "ends", "abort"]
    assert list(tmp_path.iterdir()) == []


# -- many at once ----------------------------------------------------------------------------------------------


def test_a_key_with_dots_does_not_lead_out_of_the_target_folder(tmp_path: Path) -> None:
    fs = RollingFileSystem("memory", skip_instance_cache=True)
    other = fsspec.filesystem("memory")  # rollingfs itself writes no such key
    keys = ["/attacked/good", "/attacked/../../evil", "/attacked/x/.."]
    try:
        fs.pipe_file(keys[0], b"data")
        for key in keys[1:]:
            other.pipe_file(f"{key}$header", other.cat_file(f"{keys[0]}$header"))
        rows = maintain(None, "memory:///attacked", "export", target=f"file://{tmp_path}/a/b/out")
    finally:
        other.rm("/attacked", recursive=True)
    assert {row.path: row.done for row in rows} == {keys[0]: True, keys[1]: False, keys[2]: False}
    assert all(row.done or "was not exported" in str(row.error) for row in rows)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [tmp_path / "a/b/out/good"]


def test_an_export_over_the_segments_themselves_is_not_called_done(fs: RollingFileSystem, tmp_path: Path) -> None:
    (tmp_path / "plain").write_bytes(b"data")
    [row] = maintain(None, f"{tmp_path}/plain", "export", target=str(tmp_path))
    assert "own name" in str(row.error)
    made(fs, f"{tmp_path}/in/log")
    content = made(fs, f"{tmp_path}/out/log")
    (tmp_path / "out/log").write_bytes(content)  # hidden by the segment of that name
    [row] = maintain(None, f"{tmp_path}/in", "export", target=f"{tmp_path}/out")
    assert "is a segment" in str(row.error)
