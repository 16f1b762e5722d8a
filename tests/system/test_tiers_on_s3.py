"""Tiers with an object store on either side, or on both."""

import uuid
from pathlib import Path

import pytest

from rollingfs import Follower, OffloadStatus, RollingFileSystem
from rollingfs.format import names
from rollingfs.format.header import GRACE_S

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
