"""`set_policy` and `get_policy`: policies of live segments, plain files and folders."""

import fsspec
import pytest

from rollingfs import FencedError, Follower, OffloadPolicy, RollingFileSystem, RollingPolicy, UnknownTierError
from rollingfs.folders import folders, listing, moving
from rollingfs.segment.verbs.create import create
from tests.support.places import tiered


@pytest.fixture
def path(root: str) -> str:
    return f"{root}/s"


@pytest.fixture
def fs(root: str, path: str) -> RollingFileSystem:
    fs = tiered(root, inline_bytes=50)
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


def test_a_change_that_says_what_is_there_commits_nothing(fs, path):
    fs.set_policy(path, OffloadPolicy("cold"), max_bytes=30)
    version = fs.segment(path).version
    fs.set_policy(path, OffloadPolicy("cold"), max_bytes=30)
    assert fs.segment(path).version == version


def test_plain_file_becomes_segment_and_missing_does_not(fs, path):
    fsspec.filesystem("memory").pipe_file(f"{path}-plain", b"plain")
    assert fs.get_policy(f"{path}-plain").rolling == RollingPolicy(100, None, 50)
    fs.set_policy(f"{path}-plain", max_bytes=7)
    assert fs.get_policy(f"{path}-plain").rolling.max_bytes == 7
    assert fs.cat_file(f"{path}-plain") == b"plain"
    for verb in (fs.get_policy, lambda path: fs.set_policy(path, max_bytes=1)):
        with pytest.raises(FileNotFoundError):
            verb(f"{path}-none")


@pytest.fixture
def levels(fs, path) -> tuple[str, str, str]:
    """Three folders, each in the one before, with a segment in each, and the policies of the upper two."""
    top = path.rpartition("/")[0]
    found = (top, f"{top}/b", f"{top}/b/c")
    for folder in found:
        fs.create(f"{folder}/old")
    fs.set_policy(found[0], OffloadPolicy("cold", after_age="1h"), max_bytes=40, max_age="1h", inline_bytes=0)
    fs.set_policy(found[1], OffloadPolicy(after_age="2h"), max_bytes=20, consolidate=False)
    return found


def lengths(fs, path) -> list[int]:
    return [chunk.length for chunk in fs.segment(path).chunks]


def test_segment_field_comes_from_the_nearest_folder_with_it(fs, levels):
    top, middle, low = levels
    for name in ("old", "new"):
        for folder in levels:
            if name == "old":
                fs.append(f"{folder}/old", b"x" * 80)
            else:
                fs.pipe_file(f"{folder}/new", b"x" * 80)
        assert lengths(fs, f"{top}/{name}") == [40, 40]
        assert lengths(fs, f"{middle}/{name}") == lengths(fs, f"{low}/{name}") == [20] * 4
        found = fs.get_policy(f"{low}/{name}")
        assert found.rolling == RollingPolicy(20, 3600, 0, consolidate=False) == fs.segment(f"{low}/{name}").policy
        assert found.offload == OffloadPolicy("cold", after_age="2h")
        assert found.sources["rolling"] == {
            "max_bytes": middle, "max_age": top, "inline_bytes": top, "consolidate": middle
        }  # fmt: skip
        assert found.sources["offload"] == {"tier": top, "after_age": middle}
    assert fs.get_policy(low).rolling == RollingPolicy(20, 3600, 0, consolidate=False), "what a new one would have"


def test_dropped_field_is_inherited_and_own_fields_stay(fs, levels):
    _top, middle, low = levels
    path, own = f"{low}/old", f"{middle}/old"
    fs.set_policy(own, max_bytes=20)  # the same value, but its own
    fs.set_policy(middle, inherit="max_bytes")
    fs.append(path, b"x" * 80)
    fs.append(own, b"x" * 80)
    assert (lengths(fs, path), lengths(fs, own)) == ([40, 40], [20] * 4)
    assert fs.get_policy(own).sources["rolling"]["max_bytes"] == "segment"
    fs.set_policy(own, inherit=["max_bytes"])
    fs.append(own, b"x" * 40)
    assert lengths(fs, own) == [20] * 4 + [40]
    fs.set_policy(levels[0], None, inherit=["max_bytes", "max_age", "inline_bytes"])
    found = fs.get_policy(path)
    assert found.rolling == RollingPolicy(100, None, 50, consolidate=False), "those of the filesystem"
    assert found.sources["rolling"]["max_bytes"] == "filesystem"
    assert found.offload == OffloadPolicy(after_age="2h")
    with pytest.raises(ValueError, match="inherit names after_age"):
        fs.set_policy(path, inherit="after_age")


def test_moved_or_removed_folder_gives_no_policy_any_longer(fs, monkeypatch):
    fs.mkdirs("/one/low")
    fs.set_policy("/one", max_bytes=77)
    fs.create("/one/low/old")
    listed = listing.tree

    async def beside_a_create(*args: object, **more: object) -> object:
        await create(fs._client, "/one/low/meanwhile")
        return await listed(*args, **more)

    for module in (folders, moving):
        monkeypatch.setattr(module, "tree", beside_a_create)
    fs.mv("/one", "/two", recursive=True)
    fs.create("/one/low/new")
    fs.create("/two/low/new")
    fs.rm("/two", recursive=True)
    fs.create("/two/low/new2")
    assert fs.segment("/one/low/new").policy.max_bytes == fs.segment("/two/low/new2").policy.max_bytes != 77


@pytest.mark.parametrize("how", ["stream", "half"])
def test_partly_deleted_memory_gives_no_policy_any_longer(fs, path, how):
    top = path.rpartition("/")[0]
    fs.set_policy(top, max_bytes=77)
    fs.create(f"{top}/old")
    if how == "stream":
        fs.stream(top).delete()
    else:
        fs.segment(path).acquire("me")
        with pytest.raises(FencedError):
            fs.rm(top, recursive=True)
    fs.create(f"{top}/new")
    assert fs.segment(f"{top}/new").policy.max_bytes == 100


@pytest.mark.parametrize("text", ['{"max_bytes": -1}', '{"max_age": 1%s}' % ("0" * 400), "[" * 4000])
def test_damaged_policy_of_folder_hinders_no_new_segment(fs, levels, text):
    top, middle, _low = levels
    fs.segment(f"{middle}/$stream").append(b"", attrs={"rollingfs.rolling": text})
    other = RollingFileSystem("memory", max_bytes=100, inline_bytes=50, skip_instance_cache=True)
    other.pipe_file(f"{middle}/c/new", b"x" * 80)
    assert [chunk.length for chunk in other.segment(f"{middle}/c/new").chunks] == [40, 40], top
    with pytest.raises(OSError, match="rolling policy of the folder cannot be read"):
        other.get_policy(f"{middle}/c/new")


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({}, TypeError, "give offload"),
        ({"offload": "cold"}, TypeError, "must be an OffloadPolicy"),
        ({"max_bytes": 0}, ValueError, "max_bytes is 0"),
    ],
)
def test_invalid_policy_is_refused_and_nothing_is_written(fs, path, given, error, said):
    before = fs.segment(path).version
    with pytest.raises(error, match=said):
        fs.set_policy(path, **given)
    assert fs.segment(path).version == before


def test_refused_policy_leaves_other_fields_of_a_folder(fs, path):
    folder = path.rpartition("/")[0]
    before = fs.get_policy(folder)
    with pytest.raises(UnknownTierError):
        fs.set_policy(folder, OffloadPolicy("warm"), max_bytes=77)
    assert fs.get_policy(folder) == before
    fs.set_policy(folder, OffloadPolicy("cold"), max_bytes=77)
    assert (fs.get_policy(folder).folder.tier, fs.segment(path).policy.max_bytes) == ("cold", 77)


def test_stream_memory_is_neither_moved_offloaded_nor_followed(fs, path):
    folder = path.rpartition("/")[0]
    fs.set_policy(folder, OffloadPolicy("cold"))
    ledger = f"{folder}/$stream"
    fs.roll(ledger)
    for move, said in (
        (lambda: fs.set_policy(ledger, OffloadPolicy("cold")), ""),
        (lambda: fs.offload(ledger, "cold"), "; nothing was moved"),
        (lambda: Follower(ledger, fs=fs), ""),
    ):
        with pytest.raises(ValueError, match=f"never moves{said}"):
            move()
