"""Export to each kind of store and to odd targets, beside a second export to the same name, by a cancelled caller."""

import asyncio
import os
import stat
import threading
from dataclasses import asdict
from typing import Any

import fsspec
import pytest

from rollingfs import ConflictError, RollingFileSystem, RollingPolicy
from rollingfs.backend.contract import Over
from rollingfs.backend.generic import GenericBackend
from rollingfs.backend.local import disk as local_disk
from rollingfs.backend.memory import MemoryBackend
from rollingfs.fs.target import open_export_target
from rollingfs.runtime.concurrency import drive
from rollingfs.segment.verbs import export
from rollingfs.spark.maintain import maintain
from tests.support.backends import raises
from tests.support.life import World
from tests.support.schedules import eventually

MIB = 2**20
POLICY = RollingPolicy(max_bytes=1000, inline_bytes=10)
FOREIGN = b"of another program"


def made(fs: RollingFileSystem, path: str) -> bytes:
    """What is retained of a new segment of some chunks and a tail."""
    fs.create(path, POLICY)
    for number in range(6):
        fs.append(path, bytes([65 + number]) * 500)
    fs.append(path, b"tail")
    fs.truncate(path, 250)
    return fs.cat_file(path)


@pytest.fixture
def fs() -> RollingFileSystem:
    return RollingFileSystem("file", sync=True, skip_instance_cache=True)


# -- what a target means ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "target", ["/out/a::b", "/out/std::memory", "memory:///out/a::b", "rolling::memory:///out/a::b"]
)
def test_name_with_two_colons_is_name_on_own_store(target):
    own = RollingFileSystem("memory", skip_instance_cache=True)._backend
    backend, name = open_export_target(own, target)
    assert backend is own
    assert name == f"/out/{target.rpartition('/')[2]}"


def test_two_colons_stay_on_another_store_chains_stay_chains(fs):
    backend, name = open_export_target(fs._backend, "memory:///out/a::b")
    assert isinstance(backend.inner, MemoryBackend)
    assert name == "/out/a::b"
    backend, name = open_export_target(fs._backend, "simplecache::memory://out/b")
    assert isinstance(backend.inner, GenericBackend)
    assert name == "/out/b"


def test_a_pipe_is_not_replaced(fs, tmp_path):
    made(fs, f"{tmp_path}/log")
    os.mkfifo(tmp_path / "pipe")
    for overwrite in (False, True):
        with pytest.raises(FileExistsError, match="not a regular file"):
            fs.export(f"{tmp_path}/log", f"{tmp_path}/pipe", overwrite=overwrite)
    assert stat.S_ISFIFO(os.stat(tmp_path / "pipe").st_mode)
    assert not (tmp_path / "pipe$chunks").exists()


def test_a_private_file_that_is_replaced_stays_private(fs, tmp_path):
    content = made(fs, f"{tmp_path}/log")
    target = tmp_path / "file"
    target.write_bytes(FOREIGN)
    target.chmod(0o600)
    fs.export(f"{tmp_path}/log", str(target), overwrite=True)
    assert (target.read_bytes(), stat.S_IMODE(target.stat().st_mode)) == (content, 0o600)


# -- another export to the same name ---------------------------------------------------------------------------


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("kind", ["local", "generic"])
def test_an_export_that_another_one_ended_says_so(kind, overwrite, fs, tmp_path, monkeypatch):
    content = made(fs, f"{tmp_path}/log")
    target = fs._backend if kind == "local" else GenericBackend(fsspec.filesystem("file", auto_mkdir=True))
    view, ask = drive(fs._client.headers.view(f"{tmp_path}/log")), export.still_there

    async def run() -> Any:
        return await export.export(fs._client, view, target, f"{tmp_path}/out/file", overwrite=overwrite)

    async def after_another(*args: Any) -> Any:
        monkeypatch.setattr(export, "still_there", ask)
        await run()
        return await ask(*args)

    monkeypatch.setattr(export, "still_there", after_another)
    with pytest.raises((ConflictError, FileExistsError), match=r"another (export to|writer)") as caught:
        drive(run())
    assert f"{tmp_path}/out/file" in str(caught.value)
    assert "again" in str(caught.value) or "overwrite it" in str(caught.value)
    assert [entry.name for entry in (tmp_path / "out").iterdir()] == ["file"]
    assert (tmp_path / "out/file").read_bytes() == content


@pytest.mark.parametrize("chunk", [6 * MIB, MIB])
def test_export_on_s3_that_another_one_ended_says_so(chunk, s3_options, bucket, monkeypatch):
    fs = RollingFileSystem("s3", s3_options, skip_instance_cache=True)
    fs.create(f"{bucket}/log", RollingPolicy(max_bytes=chunk, inline_bytes=0))
    fs.append(f"{bucket}/log", b"a" * (18 * MIB))
    backend, call = fs._backend, fs._backend.call

    async def hooked(verb: str, **arguments: Any) -> Any:
        if verb in ("upload_part", "upload_part_copy") and arguments["PartNumber"] == 1:
            for pending in await backend.list_uploads(bucket, "file"):
                await backend.abort_upload(pending)
        return await call(verb, **arguments)

    monkeypatch.setattr(backend, "call", hooked)
    with pytest.raises(ConflictError, match="another export"):
        fs.export(f"{bucket}/log", f"{bucket}/file")


def test_export_writes_nothing_through_chunk_folder_that_is_link(fs, tmp_path):
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


def test_abort_never_meets_write_that_thread_still_does(s3_options, bucket, tmp_path, monkeypatch):
    """Otherwise the write could go on into whatever file gets the closed descriptor's number."""
    fs = RollingFileSystem("s3", s3_options, skip_instance_cache=True)
    made(fs, f"{bucket}/log")
    begun, may_end, seen = threading.Event(), threading.Event(), []
    write_all, abort = local_disk.write_all, local_disk.LocalUpload.abort

    def slowly(descriptor: int, data: Any) -> None:
        seen.append("begins")
        begun.set()
        may_end.wait(10)
        write_all(descriptor, data)
        seen.append("ends")

    async def noted(self: local_disk.LocalUpload) -> None:
        seen.append("abort")
        await abort(self)

    monkeypatch.setattr(local_disk, "write_all", slowly)
    monkeypatch.setattr(local_disk.LocalUpload, "abort", noted)

    async def main() -> None:
        task = asyncio.create_task(fs._export(f"{bucket}/log", f"file://{tmp_path}/file"))
        await asyncio.to_thread(begun.wait)
        task.cancel()
        await asyncio.sleep(0.1)
        may_end.set()
        await asyncio.gather(task, return_exceptions=True)
        # the export itself runs on the loop of s3fs
        await asyncio.to_thread(eventually, lambda: "abort" in seen and not list(tmp_path.iterdir()))

    asyncio.run(main())
    assert seen == ["begins", "ends", "abort"]
    assert list(tmp_path.iterdir()) == []


# -- many at once ----------------------------------------------------------------------------------------------


def test_dotted_key_stays_in_the_target_folder(tmp_path):
    fs = RollingFileSystem("memory", skip_instance_cache=True)
    other = fsspec.filesystem("memory")  # rollingfs itself writes no such key
    keys = ["/attacked/good", "/attacked/../../evil", "/attacked/x/.."]
    fs.pipe_file(keys[0], b"data")
    for key in keys[1:]:
        other.pipe_file(f"{key}$header", other.cat_file(f"{keys[0]}$header"))
    rows = maintain(None, "memory:///attacked", "export", target=f"file://{tmp_path}/a/b/out")
    assert {row.path: row.done for row in rows} == {keys[0]: True, keys[1]: False, keys[2]: False}
    assert all(row.done or "was not exported" in str(row.error) for row in rows)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [tmp_path / "a/b/out/good"]


def test_export_over_segments_themselves_is_not_called_done(fs, tmp_path):
    (tmp_path / "plain").write_bytes(b"data")
    [row] = maintain(None, f"{tmp_path}/plain", "export", target=str(tmp_path))
    assert "own name" in str(row.error)
    made(fs, f"{tmp_path}/in/log")
    content = made(fs, f"{tmp_path}/out/log")
    (tmp_path / "out/log").write_bytes(content)  # hidden by the segment of that name
    [row] = maintain(None, f"{tmp_path}/in", "export", target=f"{tmp_path}/out")
    assert "is a segment" in str(row.error)


# -- stores ----------------------------------------------------------------------------------------------------


def rolling(protocol: str, **options: Any) -> RollingFileSystem:
    return RollingFileSystem(protocol, policy=POLICY, skip_instance_cache=True, **options)


def test_export_on_a_disk_is_an_independent_copy(tmp_path):
    fs, path = rolling("file"), f"{tmp_path}/log"
    content = made(fs, path)
    callback = fsspec.Callback()
    done = fs.export(path, f"{tmp_path}/new/file", callback=callback)
    assert (done.joined_bytes, done.copied_bytes) == (len(content) - 4, 4)
    assert (callback.size, callback.value) == (len(content),) * 2
    fs.rm(path)
    fs.collect(str(tmp_path), recursive=True, grace=0)
    assert (tmp_path / "new/file").read_bytes() == content
    assert (tmp_path / "new/file").stat().st_nlink == 1
    assert fs.cat_file(f"{tmp_path}/new/file") == content
    assert [entry.name for entry in (tmp_path / "new").iterdir()] == ["file"]
    fs.append(f"{tmp_path}/new/file", b"more")  # it is a plain file like any other, and so a segment
    assert fs.cat_file(f"{tmp_path}/new/file") == content + b"more"


def test_a_disk_without_hard_links_takes_exports(tmp_path, monkeypatch):
    fs, path, target = rolling("file"), f"{tmp_path}/log", f"{tmp_path}/file"
    content = made(fs, path)
    monkeypatch.setattr("rollingfs.backend.local.system.link", raises(PermissionError(1, "Operation not permitted")))
    fs.export(path, target)
    assert (tmp_path / "file").read_bytes() == content
    upload = drive(fs._backend.open_write(target, Over.NOTHING))
    with pytest.raises(FileExistsError):
        drive(upload.finish())
    assert not (tmp_path / "file$chunks").exists()


@pytest.mark.parametrize("source", ["file", "memory"])
@pytest.mark.parametrize("target", ["file", "memory"])
def test_from_a_store_to_another(source, target, tmp_path, root):
    check_export(source, target, {"file": f"file://{tmp_path}", "memory": f"memory://{root}"})


@pytest.mark.parametrize(
    ("source", "target"), [("file", "s3"), ("memory", "s3"), ("s3", "file"), ("s3", "memory"), ("s3", "s3")]
)
def test_from_s3_and_to_s3(source, target, tmp_path, bucket, s3_options, root):
    places = {"file": f"file://{tmp_path}", "memory": f"memory://{root}", "s3": f"s3://{bucket}"}
    check_export(source, target, places, s3_options)


def check_export(source: str, target: str, places: dict[str, str], s3_options: dict[str, Any] | None = None) -> None:
    options = {"s3": {"target_options": s3_options}}
    fs = rolling(source, **options.get(source, {}))
    path, url = f"{places[source]}/log", f"{places[target]}/out/file"
    content = made(fs, path)
    given: dict[str, Any] = {} if source == target else options.get(target, {})
    done = fs.export(path, url, **given)
    other = fsspec.filesystem(target, **((s3_options or {}) if target == "s3" else {}), skip_instance_cache=True)
    assert other.cat_file(url) == content
    is_joined = source == target and source != "s3"  # too small for a part
    assert (done.joined_bytes > 0) == is_joined
    with pytest.raises(FileExistsError):
        fs.export(path, url, **given)
    assert asyncio.run(fs._export(path, url, overwrite=True, **given)).size == len(content)
    rolling(target, **options.get(target, {})).create(f"{places[target]}/live")
    with pytest.raises(FileExistsError, match="is a segment"):
        fs.export(path, f"{places[target]}/live", overwrite=True, **given)
    assert [name.rpartition("/")[2] for name in other.ls(f"{places[target]}/out", detail=False)] == ["file"]


def test_options_make_another_store_of_the_same_protocol(tmp_path):
    fs, path = rolling("file"), f"{tmp_path}/log"
    content = made(fs, path)
    done = fs.export(path, f"{tmp_path}/file", target_protocol="local", target_options={"auto_mkdir": True})
    assert (done.joined_bytes, (tmp_path / "file").read_bytes()) == (0, content)
    assert fs.export(path, f"{tmp_path}/2", target_protocol="local").joined_bytes > 0
    assert asdict(fs.export(path, f"rolling::file://{tmp_path}/3"))["joined_bytes"] > 0


@pytest.mark.parametrize("protocol", ["dir", "generic"])
def test_a_store_that_only_fsspec_knows_takes_exports_whole(protocol, tmp_path, root):
    world, content = World(policy=POLICY), b"x" * 3000
    dirs = fsspec.filesystem("dir", path=str(tmp_path), target_protocol="file")
    below, name = (fsspec.filesystem("memory"), f"{root}/[file]*") if protocol == "generic" else (dirs, "out/[file]*")
    target = GenericBackend(below)
    view = drive(world.client.headers.view(world.create("/log", [content])))
    for is_over in (False, True):
        drive(export.export(world.client, view, target, name, overwrite=is_over))
        assert below.cat_file(name) == content
        assert [entry["name"].rpartition("/")[2] for entry in below.ls(name.rpartition("/")[0])] == ["[file]*"]
    upload = drive(target.open_write(f"{name}2", Over.NOTHING))
    drive(upload.write(b"half"))
    drive(upload.abort())
    assert not below.exists(f"{name}2")
    with pytest.raises(FileExistsError):
        drive(export.export(world.client, view, target, name))


@pytest.mark.parametrize(
    ("chunk", "count", "joined"),
    [
        pytest.param(1000, 3, 0, id="one request"),
        pytest.param(6 * MIB, 2, 12 * MIB, id="joined"),
        pytest.param(3 * MIB, 6, 0, id="uploaded in parts", marks=pytest.mark.slow),
    ],
)
def test_foreign_file_before_the_end_survives_on_s3(s3_options, bucket, chunk, count, joined):
    path, target = f"{bucket}/log", f"{bucket}/file"
    fs = RollingFileSystem("s3", s3_options, skip_instance_cache=True)
    s3 = fsspec.filesystem("s3", **s3_options, skip_instance_cache=True, use_listings_cache=False)
    content = b"".join(bytes([65 + number]) * chunk for number in range(count))
    fs.create(path, policy=RollingPolicy(max_bytes=chunk, inline_bytes=0))
    fs.append(path, content)
    requests, files = fs._backend, fs._backend.buckets[bucket]
    call, put = requests.call, files.put

    async def another_puts(key: str) -> None:
        if key == "file":
            requests.call, files.put = call, put
            await put(key, [FOREIGN])

    async def hooked_call(name: str, **arguments: Any) -> Any:
        if name == "complete_multipart_upload":
            await another_puts(arguments["Key"])
        return await call(name, **arguments)

    async def hooked_put(key: str, *arguments: Any, **options: Any) -> Any:
        await another_puts(key)
        return await put(key, *arguments, **options)

    requests.call, files.put = hooked_call, hooked_put
    with pytest.raises(FileExistsError, match="made no new file"):
        fs.export(path, target)
    assert s3.cat_file(target) == FOREIGN
    assert fs._bridge.run(fs._backend.list_uploads(bucket, "file")) == []
    assert fs.export(path, target, overwrite=True).joined_bytes == joined
    assert s3.cat_file(target) == content


def test_unconditional_store_is_looked_at_immediately_before(bucket, s3_options):
    from rollingfs.backend.objects.request_errors import Refusal

    fs = RollingFileSystem("s3", s3_options, skip_instance_cache=True)
    fs.pipe_file(f"{bucket}/log", b"data")
    files = fs._backend.buckets[bucket]
    put, is_there = files.put, False

    async def hooked(key: str, data: Any, over: Any = None, *more: Any) -> Any:
        if over is Over.NOTHING and key.startswith("file"):
            if is_there:
                await put(key, [FOREIGN])
            raise Refusal(501, "NotImplemented", "")
        return await put(key, data, over, *more)

    files.put = hooked
    fs.export(f"{bucket}/log", f"{bucket}/file1")
    assert fs.cat_file(f"{bucket}/file1") == b"data"
    is_there = True
    with pytest.raises(FileExistsError):
        fs.export(f"{bucket}/log", f"{bucket}/file2")
    assert fs.cat_file(f"{bucket}/file2") == FOREIGN
