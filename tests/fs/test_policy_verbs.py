"""`set_policy` and `get_policy`: policies of live segments, plain files and folders."""

from __future__ import annotations

import uuid

import fsspec
import pytest

from rollingfs import FencedError, Follower, OffloadPolicy, RollingFileSystem, RollingPolicy


@pytest.fixture
def path() -> str:
    return f"/{uuid.uuid4().hex}/s"


@pytest.fixture
def fs(path: str) -> RollingFileSystem:
    tiers = {"cold": f"/archive{path}"}
    fs = RollingFileSystem("memory", max_bytes=100, inline_bytes=50, tiers=tiers, skip_instance_cache=True)
    fs.pipe_file(path, b"x" * 120)
    return fs


def test_only_what_is_given_changes_and_the_bytes_stay(fs, path):
    fs.set_policy(path, max_bytes=30)
    fs.set_policy(path, OffloadPolicy("cold", after_age="7d"))
    fs.set_policy(path, max_age="1h")
    found = fs.get_policy(path)
    assert found.rolling == RollingPolicy(30, 3600, 50)
    assert found.segment == found.offload == OffloadPolicy("cold", after_age="7d")
    assert (found.folder, found.filesystem) == (None, None)
    fs.set_policy(path, None, max_age=None, inline_bytes=0)
    assert fs.get_policy(path).rolling == RollingPolicy(30, None, 0)
    assert fs.get_policy(path).offload is None
    assert fs.cat_file(path) == b"x" * 120


def test_the_next_append_keeps_to_the_new_policy_also_with_a_longer_tail_from_before(fs, path):
    assert [chunk.length for chunk in fs.segment(path).chunks] == [100]
    fs.set_policy(path, max_bytes=15)
    assert fs.cat_file(path) == b"x" * 120, "the tail of 20 bytes stays in the header"
    fs.append(path, b"y")
    assert fs.cat_file(path) == b"x" * 120 + b"y"
    assert max(chunk.length for chunk in fs.segment(path).chunks[1:]) <= 15


def test_a_change_that_says_what_is_there_commits_nothing(fs, path):
    fs.set_policy(path, OffloadPolicy("cold"), max_bytes=30)
    version = fs.segment(path).version
    fs.set_policy(path, OffloadPolicy("cold"), max_bytes=30)
    assert fs.segment(path).version == version


def test_policies_stay_over_a_rename_and_an_overwrite_and_go_with_the_segment(fs, path):
    fs.set_policy(path, OffloadPolicy("cold"), max_bytes=30)
    fs.mv(path, f"{path}2")
    fs.pipe_file(f"{path}2", b"new")
    found = fs.get_policy(f"{path}2")
    assert (found.segment, found.rolling.max_bytes) == (OffloadPolicy("cold"), 30)
    fs.rm(f"{path}2")
    fs.pipe_file(f"{path}2", b"anew")
    assert fs.get_policy(f"{path}2").segment is None


def test_a_plain_file_becomes_a_segment_and_nothing_at_all_is_not_found(fs, path):
    fsspec.filesystem("memory").pipe_file(f"{path}-plain", b"plain")
    assert fs.get_policy(f"{path}-plain").rolling == RollingPolicy(100, None, 50)
    fs.set_policy(f"{path}-plain", max_bytes=7)
    assert fs.get_policy(f"{path}-plain").rolling.max_bytes == 7
    assert fs.cat_file(f"{path}-plain") == b"plain"
    for verb in (fs.get_policy, lambda path: fs.set_policy(path, max_bytes=1)):
        with pytest.raises(FileNotFoundError):
            verb(f"{path}-none")


def test_a_sealed_segment_takes_an_offload_policy_and_an_exclusive_owner_alone_sets_it(fs, path):
    fs.seal(path)
    fs.set_policy(path, OffloadPolicy("cold"))
    held = fs.segment(path).acquire("me")
    with pytest.raises(FencedError, match="nothing was written"):
        fs.set_policy(path, OffloadPolicy("cold", 5))
    held.set_policy(OffloadPolicy("cold", 7), max_bytes=9)
    assert held.policy.max_bytes == 9
    assert fs.get_policy(path).segment == OffloadPolicy("cold", 7)


def test_a_handle_sets_the_policy_of_its_own_segment_and_of_no_other_of_that_name(fs, path):
    segment = fs.segment(path)
    fs.rm(path)
    fs.pipe_file(path, b"another")
    with pytest.raises(FileNotFoundError):
        segment.set_policy(OffloadPolicy("cold"))
    assert fs.get_policy(path).segment is None


def test_a_folder_has_an_offload_policy_and_no_rolling_policy(fs, path):
    folder = path.rpartition("/")[0]
    fs.set_policy(folder, OffloadPolicy("cold", after_bytes=5))
    assert fs.get_policy(folder).offload == OffloadPolicy("cold", after_bytes=5)
    assert fs.get_policy(path).folder == OffloadPolicy("cold", after_bytes=5)
    with pytest.raises(TypeError, match=r"is a folder.*nothing was written"):
        fs.set_policy(folder, max_bytes=5)


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({}, TypeError, "give offload"),
        ({"offload": "cold"}, TypeError, "must be an OffloadPolicy"),
        ({"max_bytes": 0}, ValueError, "max_bytes is 0"),
        ({"max_age": -1}, ValueError, "max_age is -1"),
        ({"inline_bytes": "2MiB"}, ValueError, "inline_bytes"),
    ],
)
def test_what_cannot_be_meant_is_refused_and_nothing_is_written(fs, path, given, error, said):
    before = fs.segment(path).version
    with pytest.raises(error, match=said):
        fs.set_policy(path, **given)
    assert fs.segment(path).version == before


def test_the_memory_of_a_stream_never_gets_a_policy_to_move(fs, path):
    folder = path.rpartition("/")[0]
    fs.set_policy(folder, OffloadPolicy("cold"))
    with pytest.raises(ValueError, match="never moves"):
        fs.set_policy(f"{folder}/$stream", OffloadPolicy("cold"))


def test_the_memory_of_a_stream_is_neither_offloaded_nor_followed(fs, path):
    folder = path.rpartition("/")[0]
    fs.set_policy(folder, OffloadPolicy("cold"))
    ledger = f"{folder}/$stream"
    fs.roll(ledger)
    with pytest.raises(ValueError, match="never moves; nothing was moved"):
        fs.offload(ledger, "cold")
    with pytest.raises(ValueError, match="never moves"):
        fs.segment(ledger).offload("cold")
    with pytest.raises(ValueError, match="never moves"):
        Follower(ledger, fs=fs)
