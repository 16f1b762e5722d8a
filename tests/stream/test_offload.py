"""The offload of a whole stream, and of a segment of it, in keeping with the stream's retention."""

from __future__ import annotations

import uuid

import fsspec
import pytest

from rollingfs import RetentionPolicy, RollingFileSystem, UnknownTierError
from rollingfs.format import names


@pytest.fixture
def folder() -> str:
    return f"/{uuid.uuid4().hex}/stream"


@pytest.fixture
def fs(folder: str) -> RollingFileSystem:
    tiers = {"cold": f"/archive{folder}"}
    fs = RollingFileSystem("memory", max_bytes=100, inline_bytes=0, tiers=tiers, skip_instance_cache=True)
    for name in "ab":
        fs.create(f"{folder}/{name}")
        for _ in range(5):
            fs.append(f"{folder}/{name}", b"x" * 100)
    return fs


def test_all_segments_are_offloaded_and_plain_files_stay(fs, folder):
    fsspec.filesystem("memory").pipe_file(f"{folder}/plain", b"a plain file")
    did = fs.stream(folder).offload(after_bytes=200)
    assert {path: moved.files for path, moved in did.moved.items()} == {f"{folder}/a": 1, f"{folder}/b": 1}
    assert did.failed == {}
    assert fs.cat_file(f"{folder}/a") == b"x" * 500
    assert fs.stream(folder).offload(after_bytes=200).moved == {}
    with pytest.raises(UnknownTierError):
        fs.stream(folder).offload("warm")


def test_a_segment_that_cannot_be_moved_is_reported_and_the_others_go_on(fs, folder):
    memory = fsspec.filesystem("memory")
    chunk = next(path for path in memory.find(names.chunks_folder(f"{folder}/a")) if "$chunks/0" in path)
    memory.pipe_file(chunk, b"damaged")
    did = fs.stream(folder).offload("cold")
    assert list(did.moved) == [f"{folder}/b"]
    assert "damaged" in did.failed[f"{folder}/a"]


def test_an_offload_that_does_not_go_with_the_retention_is_refused_with_both_numbers(fs, folder):
    """`test_offload_policy.py` has the numbers of each kind."""
    stream = fs.stream(folder)
    stream.retention = RetentionPolicy.by_time("1h", "3h")
    for offload in (stream.offload, lambda **how: fs.offload(f"{folder}/a", **how), fs.segment(f"{folder}/a").offload):
        with pytest.raises(ValueError, match=r"deletion_lag is 14400 s.*keeps bytes for 3600 s"):
            offload(deletion_lag="4h")
    assert not any("/tier-" in path for path in fsspec.filesystem("memory").find(f"/archive{folder}"))
