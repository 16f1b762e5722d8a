"""The life of a segment on an object store: joined by the server, trimmed, followed, collected."""

import dataclasses
import re
import uuid
from pathlib import Path

import pytest

from rollingfs import Follower, OffloadStatus, RollingFileSystem
from rollingfs.backend.contract import Over
from rollingfs.format import names
from rollingfs.format.header import GRACE_S
from tests.support.backends import Scripted
from tests.support.schedules import eventually

MIB = 2**20


@pytest.fixture
def fs(s3_options):
    below = RollingFileSystem("s3", s3_options, skip_instance_cache=True)._backend
    options = {"max_bytes": 16 * MIB, "inline_bytes": 0, "skip_instance_cache": True}
    return RollingFileSystem(backend=Scripted(below), **options)


@pytest.mark.parametrize("overwrite", [False, True])
def test_export_that_died_is_aborted_by_next_one(fs, bucket, overwrite):
    path, target = f"{bucket}/log", f"{bucket}/file"
    fs.create(path)
    fs.append(path, b"x" * 1000)
    uploads = [fs._bridge.run(fs._backend.open_write(name, Over.NOTHING)) for name in (target, f"{target}-beside")]
    for upload in uploads:
        fs._bridge.run(upload.write(bytes(17 * MIB)))
    fs.export(path, target, overwrite=overwrite)
    with pytest.raises(OSError, match="file"):
        fs._bridge.run(uploads[0].finish())
    fs._bridge.run(uploads[0].abort())
    fs._bridge.run(uploads[1].finish())
    assert fs.cat_file(target) == b"x" * 1000


def write_later(fs, path, data):
    """Write a file as another tool does, in a later second of the store's clock than the last write."""
    before = fs.info(path)["mtime"] if fs.exists(path) else 0.0
    fs._bridge.run(fs._backend.delete([path]))
    eventually(lambda: fs._bridge.run(fs._backend.now(path)) > before)
    fs._bridge.run(fs._backend.write(path, [data]))


def test_plain_file_of_a_stream_is_cut_and_trimmed(fs, bucket):
    """Some stores give milliseconds in listings, and whole seconds for a single file."""
    path = f"{bucket}/stream/plain"
    write_later(fs, path, b"0123456789")
    stream = fs.stream(f"{bucket}/stream")
    early, late = stream.cut(), stream.cut()
    fs.append(path, b"more")
    assert stream.trim(early).bytes == 10
    assert fs.cat_file(path) == b"more"
    assert stream.trim(late).bytes == 0
    fs.rm(path)
    write_later(fs, path, b"0123456789")
    assert stream.trim(late).bytes == 0
    assert fs.cat_file(path) == b"0123456789"


@pytest.mark.parametrize("s3_options", ["seaweed"], indirect=True)  # MinIO tells of uploads by their exact key only
def test_old_unfinished_uploads_in_the_chunk_folder_are_aborted(fs, bucket):
    path = f"{bucket}/log"
    fs.create(path)
    chunk, beside = f"{path}$chunks/{names.new_chunk_name(0)}", f"{bucket}/not-ours"
    uploads = [fs._bridge.run(fs._backend.open_write(name)) for name in (chunk, beside)]
    for upload in uploads:
        fs._bridge.run(upload.write(bytes(17 * MIB)))
    assert fs.collect(path).young == 1

    def older(found):
        return [dataclasses.replace(upload, began=upload.began - GRACE_S - 1) for upload in found]

    fs._backend.plan("list_uploads", answers=older, times=None)
    assert fs.collect(path, dry_run=True).reasons == {chunk: "unfinished upload"}
    assert fs.collect(path).reasons == {chunk: "unfinished upload"}
    with pytest.raises(OSError, match=re.escape(chunk)):
        fs._bridge.run(uploads[0].finish())
    fs._bridge.run(uploads[1].finish())
    assert fs.size(beside) == 17 * MIB


# -- tiers with an object store on either side, or on both -----------------------------------------------------


DATA = bytes(range(256)) * 400


def write(fs: RollingFileSystem, path: str) -> None:
    fs.create(path)
    for start in range(0, len(DATA), 20_000):
        fs.append(path, DATA[start : start + 20_000])


def check_life(fs: RollingFileSystem, path: str, *, by_server: bool) -> None:
    """Offload a part, read everything, truncate, bring back, delete."""
    write(fs, path)
    moved = fs.offload(path, upto=60_000, deletion_lag=0, block_bytes=1)
    assert (moved.files, moved.bytes, moved.server_bytes) == (3, 60_000, 60_000 * by_server)
    fs.append(path, b"more")
    assert fs.cat_file(path) == DATA + b"more"
    assert fs.cat_file(path, start=59_990, end=60_010) == DATA[59_990:60_010]
    with fs.open(path) as file:
        assert file.read() == DATA + b"more"
    assert all(row.ok for row in fs.segment(path).verify())
    fs.truncate(path, 30_000)
    fs.collect(path, grace=0)
    assert fs.cat_file(path) == DATA[30_000:] + b"more"
    assert fs.onload(path, deletion_lag=0).files == 2
    assert fs.cat_file(path) == DATA[30_000:] + b"more"
    fs.offload(path)
    fs.rm(path)
    fs.collect(path, grace=0)


def options(s3_options: dict[str, object]) -> dict[str, object]:
    return {"target_options": s3_options, "max_bytes": 20_000, "inline_bytes": 100, "skip_instance_cache": True}


@pytest.mark.slow
def test_tiers_work_between_s3_and_disk_in_both_directions(s3_options, bucket, tmp_path):
    fs = RollingFileSystem("s3", tiers={"cold": f"file://{tmp_path}/archive"}, **options(s3_options))
    check_life(fs, f"{bucket}/logs/s", by_server=False)
    assert [path.name for path in Path(tmp_path).rglob("*") if path.is_file()] == [names.TIER_MARK]
    tier = {"protocol": "s3", "root": f"{bucket}/archive", "options": s3_options}
    disk = RollingFileSystem("file", tiers={"cold": tier}, sync=False, **options({}))
    check_life(disk, f"{tmp_path}/logs/s", by_server=False)


@pytest.mark.parametrize("where", ["disk", pytest.param("bucket", marks=pytest.mark.slow)])
def test_follower_moves_a_sealed_segment_of_a_bucket(s3_options, bucket, tmp_path, where):
    root = f"s3://{bucket}/archive" if where == "bucket" else f"file://{tmp_path}/archive"
    fs = RollingFileSystem("s3", tiers={"cold": root}, **options(s3_options))
    path = f"{bucket}/logs/s"
    write(fs, path)
    fs.append(path, b"tail")
    fs.seal(path)
    follower = Follower(path, "cold", 50_000, fs=fs, deletion_lag=0)
    follower.run()
    assert follower.status()[path] == OffloadStatus(len(DATA) + 4, 0, 0.0, None)
    assert {chunk.tier for chunk in fs.segment(path).chunks} == {"cold"}
    assert fs.cat_file(path) == DATA + b"tail"


@pytest.mark.slow
def test_tier_grace_uses_the_clock_of_its_store(s3_options, bucket):
    fs = RollingFileSystem("s3", tiers={"cold": f"s3://{bucket}/archive"}, **options(s3_options))
    path = f"{bucket}/logs/s"
    write(fs, path)
    fs.offload(path, upto=20_000, deletion_lag=0)
    key = next(line for line in fs._client.headers.seen(path).header.tiers).key
    below = f"{bucket}/archive/{path}$chunks/tier-{key}-{0:020d}-{uuid.uuid4().hex[:12]}"
    fs._bridge.run(fs._backend.inner.write(below, [b"of a crash"]))
    assert fs.collect(path).young == 1
    assert fs.collect(path, grace=GRACE_S - 3600).files == ()
    assert len(fs.collect(path, grace=0).files) == 1
    assert fs.cat_file(path) == DATA
