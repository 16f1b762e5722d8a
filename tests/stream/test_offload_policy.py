"""Offload of streams by policies, whose nearest level wins field by field; what a retention forbids is refused."""

import itertools

import fsspec
import pytest

from rollingfs import OffloadPolicy, RetentionPolicy, RollingFileSystem, UnknownTierError
from rollingfs.format import names
from rollingfs.format.header import Header
from rollingfs.stream.follow import StreamOffloaded
from rollingfs.stream.ledger import policies_of
from rollingfs.stream.ledger_codec import Ledger
from tests.support.places import tiered

VALUES = {
    "tier": ("a", "b", "c"),
    "after_bytes": (1, 2, 3),
    "after_age": (1.0, 2.0, 3.0),
    "deletion_lag": (4.0, 5.0, 6.0),
}


@pytest.fixture
def folder(root: str) -> str:
    return f"{root}/stream"


@pytest.fixture
def fs(folder: str) -> RollingFileSystem:
    fs = tiered(folder, inline_bytes=0)
    for name in "ab":
        fs.create(f"{folder}/{name}")
        for _ in range(5):
            fs.append(f"{folder}/{name}", b"x" * 100)
    return fs


def moved(did: StreamOffloaded) -> dict[str, int]:
    assert did.failed == {}
    return {path.rpartition("/")[2]: one.files for path, one in did.moved.items()}


@pytest.mark.parametrize("field", VALUES)
def test_each_field_comes_from_nearest_level_that_has_it(field):
    for present in itertools.product([True, False], repeat=3):
        levels = [
            OffloadPolicy(**{field: value}) if has else None for has, value in zip(present, VALUES[field], strict=True)
        ]
        header = Header("", 1, offload=levels[0])
        found = policies_of("/f/s", header, Ledger(offload=levels[1]), levels[2]).offload
        expected = next((value for has, value in zip(present, VALUES[field], strict=True) if has), None)
        assert (getattr(found, field) if found is not None else None) == expected


def test_stream_offloads_by_segment_folder_then_filesystem_policy(fs, folder):
    with pytest.raises(ValueError, match="nothing was moved"):
        fs.stream(folder).offload()
    fs.set_policy(folder, OffloadPolicy("cold", after_bytes=300))
    fs.set_policy(f"{folder}/a", OffloadPolicy(after_bytes=100))
    assert moved(fs.stream(folder).offload()) == {"a": 1, "b": 1}
    fs.set_policy(folder, OffloadPolicy(""))
    fs.set_policy(f"{folder}/b", OffloadPolicy("far", after_bytes=0))
    assert moved(fs.stream(folder).offload()) == {"b": 1}
    fs.set_policy(folder, None)
    fs.set_policy(f"{folder}/a", None)
    assert moved(tiered(folder, offload_policy={"tier": "cold"}).stream(folder).offload()) == {"a": 1}


def test_impossible_policy_is_reported_for_its_segment_only(fs, folder):
    fs.set_policy(folder, OffloadPolicy("cold"))
    fs.set_policy(f"{folder}/a", OffloadPolicy("far"))
    other = RollingFileSystem("memory", tiers={"cold": f"/archive{folder}"}, skip_instance_cache=True)
    did = other.stream(folder).offload()
    assert list(did.moved) == [f"{folder}/b"]
    assert "'far' is not configured" in did.failed[f"{folder}/a"]


CONFLICTS = [
    (RetentionPolicy.by_time("1h"), OffloadPolicy("cold"), r"deletion_lag by its policy is 14400 s.* 3600 s"),
    (RetentionPolicy.by_time("5h"), OffloadPolicy("cold", after_age="6h"), r"after 21600 s.* 18000 s"),
    (RetentionPolicy.by_size(1000), OffloadPolicy("cold", 1000), r"1000 bytes before the end.*only 1000 bytes"),
    # without subscribers, `max` keeps nothing
    (RetentionPolicy.by_time("1h", "30d"), OffloadPolicy("cold"), r"deletion_lag by its policy is 14400 s.* 3600 s"),
    (RetentionPolicy.by_time("5h", "30d"), OffloadPolicy("cold", after_age="6h"), r"after 21600 s.* 18000 s"),
    (RetentionPolicy.by_size(1000, 9000), OffloadPolicy("cold", 1000), r"1000 bytes before the end.*only 1000 bytes"),
]


@pytest.mark.parametrize(("retention", "policy", "said"), CONFLICTS)
def test_policy_that_retention_forbids_is_refused_whichever_comes_last(fs, folder, retention, policy, said):
    stream = fs.stream(folder)
    stream.retention = retention
    for path in (folder, f"{folder}/a"):
        with pytest.raises(ValueError, match=f"{said}.*nothing was written"):
            fs.set_policy(path, policy)
    with pytest.raises(ValueError, match=said):
        stream.offload_policy = policy
    with pytest.raises(ValueError, match=said):
        fs.segment(f"{folder}/a").set_policy(policy)
    assert (stream.offload_policy, fs.get_policy(f"{folder}/a").offload) == (None, None)
    stream.retention = None
    stream.offload_policy = policy
    with pytest.raises(ValueError, match=f"{said}.*nothing was written"):
        stream.retention = retention
    assert stream.retention is None


def test_with_a_subscriber_a_policy_must_go_with_max(fs, folder):
    stream = fs.stream(folder)
    stream.subscribe("reader")
    stream.retention = RetentionPolicy.by_size(1000, 9000)
    stream.offload_policy = OffloadPolicy("cold", 8999)
    with pytest.raises(ValueError, match=r"9000 bytes before the end.*only 9000 bytes"):
        stream.offload_policy = OffloadPolicy("cold", 9000)
    stream.retention = RetentionPolicy.by_size(1000)
    stream.offload_policy = OffloadPolicy("cold", 9000)


@pytest.mark.parametrize(("retention", "policy", "said"), CONFLICTS)
def test_late_changes_are_refused_when_carried_out(fs, folder, retention, policy, said):
    """The policy of a client is not known to others, and a segment's is not looked at when a retention is set."""
    fs.set_policy(f"{folder}/a", policy)
    fs.stream(folder).retention = retention
    did = fs.stream(folder).offload()
    assert did.moved == {}
    assert list(did.failed) == [f"{folder}/a"]
    default = tiered(folder, offload_policy=policy)
    assert set(default.stream(folder).offload().failed) == {f"{folder}/a", f"{folder}/b"}
    assert not any("/tier-" in path for path in fsspec.filesystem("memory").find(f"/archive{folder}"))


def test_unknown_tiers_are_refused_when_a_policy_is_set(fs, folder):
    for path in (folder, f"{folder}/a"):
        with pytest.raises(UnknownTierError, match="'warm'"):
            fs.set_policy(path, OffloadPolicy("warm"))
    with pytest.raises(ValueError, match="'warm'"):
        tiered(folder, offload_policy=OffloadPolicy("warm"))
    with pytest.raises(TypeError, match="offload_policy"):
        tiered(folder, offload_policy={"teir": "cold"})


def test_folder_policy_stays_with_its_streams_memory(fs, folder):
    stream = fs.stream(folder)
    stream.retention = RetentionPolicy.by_size(10_000)
    stream.offload_policy = OffloadPolicy("cold", after_bytes=300)
    stream.publish("billing", stream.cut())
    stream.retain()
    assert fs.streams(folder) == [folder]
    assert fs.stream(folder).offload_policy == OffloadPolicy("cold", after_bytes=300)
    stream.offload_policy = OffloadPolicy()
    assert stream.offload_policy is None
    with pytest.raises(TypeError, match="must be an OffloadPolicy"):
        stream.offload_policy = {"tier": "cold"}


# -- an offload of a stream as it is asked for --------------------------------------------------------------------


def test_all_segments_are_offloaded_and_plain_files_stay(fs, folder):
    fsspec.filesystem("memory").pipe_file(f"{folder}/plain", b"a plain file")
    did = fs.stream(folder).offload(after_bytes=200)
    assert {path: moved.files for path, moved in did.moved.items()} == {f"{folder}/a": 1, f"{folder}/b": 1}
    assert did.failed == {}
    assert fs.cat_file(f"{folder}/a") == b"x" * 500
    assert fs.stream(folder).offload(after_bytes=200).moved == {}
    with pytest.raises(UnknownTierError):
        fs.stream(folder).offload("warm")


def test_unmovable_segment_is_reported_and_others_continue(fs, folder):
    memory = fsspec.filesystem("memory")
    chunk = next(path for path in memory.find(names.chunks_folder(f"{folder}/a")) if "$chunks/0" in path)
    memory.pipe_file(chunk, b"damaged")
    did = fs.stream(folder).offload("cold")
    assert list(did.moved) == [f"{folder}/b"]
    assert "damaged" in did.failed[f"{folder}/a"]


def test_offload_against_retention_is_refused_with_both_numbers(fs, folder):
    """`CONFLICTS` has the numbers of each kind."""
    stream = fs.stream(folder)
    stream.retention = RetentionPolicy.by_time("1h", "3h")
    for offload in (stream.offload, lambda **how: fs.offload(f"{folder}/a", **how), fs.segment(f"{folder}/a").offload):
        with pytest.raises(ValueError, match=r"deletion_lag is 14400 s.*keeps bytes for 3600 s"):
            offload(deletion_lag="4h")
    assert not any("/tier-" in path for path in fsspec.filesystem("memory").find(f"/archive{folder}"))
