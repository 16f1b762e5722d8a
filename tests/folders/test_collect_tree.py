"""Collection of a tree: all garbage below a folder, and no more."""

import uuid

import pytest

from rollingfs import RollingPolicy
from rollingfs.backend.local.backend import LocalBackend
from rollingfs.folders.collect_tree import collect_tree
from rollingfs.format import names
from rollingfs.format.header import GRACE_S
from rollingfs.format.side_files import Pin, format_pin
from rollingfs.runtime.concurrency import drive
from rollingfs.segment.files.survey import CHUNK, DROPPED, LEFTOVER, PIN, PLAIN, PROBE, STAGED, TOMBSTONE
from rollingfs.segment.verbs.delete import delete
from tests.support.backends import Scripted, Shifted, private_memory
from tests.support.life import World

SMALL = RollingPolicy(max_bytes=50, inline_bytes=0)


@pytest.fixture
def world():
    return World(Shifted(private_memory()), SMALL)


def collect(world, path="/tree", **options):
    return drive(collect_tree(world.client, path, **options))


def files(world):
    return set(world.backend.inner.fs.store)


def test_tree_loses_exactly_its_garbage_older_than_the_grace(world):
    """Live segments, what a concat left, a tombstone, a chunk folder without a header; outside, more garbage."""
    for path in ("/tree/a", "/tree/deep", "/tree/deep/er/b", "/outside/c"):
        world.create(path, [path.encode() * 4])
    world.create("/tree/source", [b"s" * 100])
    world.concat("/tree/a", ["/tree/source"])
    world.truncate("/tree/a", 28 + 50)
    world.create("/tree/gone", [b"g" * 10])
    world.delete("/tree/gone")
    orphans = [world.orphan(path) for path in ("/tree/a", "/tree/deep/er/b", "/tree/deep", "/tree/headless")]
    outside = world.orphan("/outside/c")
    contents = {path: world.content(path) for path in ("/tree/a", "/tree/deep/er/b", "/tree/deep")}
    assert collect(world).files == ()
    world.backend.shift_s = GRACE_S + 60
    before = files(world)
    dry = collect(world, dry_run=True)
    assert set(dry.files) >= set(orphans)
    assert set(dry.reasons) == set(dry.files)
    assert files(world) == before
    result = collect(world)
    assert set(orphans) <= set(result.files)
    assert {path: result.reasons[path] for path in dry.files} == dict(dry.reasons)
    assert not set(orphans) & files(world)
    assert outside in files(world)
    assert {path: world.content(path) for path in contents} == contents
    assert result.failures == ()
    below = ("a", "deep", "deep/er/b", "source", "gone", "headless")
    assert {f"/tree/{name}" for name in below} == {*result.segments}
    world.backend.shift_s *= 2
    collect(world)
    chunks = [path for path in files(world) if path.startswith("/tree/") and "$chunks/" in path]
    named = [names.resolve(path, entry.file) for path in contents for entry in world.header(path).entries]
    assert sorted(path for path in chunks if "/pin-" not in path) == sorted(named)
    assert not any("gone" in path or "headless" in path for path in files(world))


def test_one_segment_is_a_tree_and_nothing_is_none(world):
    world.create("/one", [b"x"])
    assert collect(world, "/one").segments == ("/one",)
    drive(world.backend.make_folder("/empty"))
    assert collect(world, "/empty").segments == ()
    with pytest.raises(FileNotFoundError):
        collect(world, "/nothing")


def test_reason_of_each_file_equals_the_dry_runs(world):
    path = world.create("/tree/a", [b"a" * 50, b"b" * 50, b"c" * 50])
    folder = names.chunks_folder(path)
    expected = {f"{folder}/tmp-1": LEFTOVER, f"{folder}/probe-1$header": PROBE, f"{folder}/pin-1": PIN}
    expected |= {world.orphan(path): CHUNK, "/tree/plain": PLAIN, "/tree/removed$header": TOMBSTONE}
    for file in (f"{folder}/tmp-1", f"{folder}/probe-1$header", "/tree/plain"):
        world.write(file, b"x")
    pin = Pin(str(uuid.uuid4()), "/tree/removed", path, str(uuid.uuid4()))
    world.write(f"{folder}/pin-1", format_pin(pin, folder))
    expected[world.stage(path, b"s" * 20).chunks[0].path] = STAGED
    drive(delete(world.client, world.create("/tree/removed", [b"r"])))
    world.append("/tree/plain", b"more")
    world.backend.shift_s = GRACE_S + 60
    undeleting = Scripted(world.backend)
    undeleting.plan("delete", instead=lambda paths: None, times=None)
    World(undeleting, SMALL, world.clock).truncate(path, 100)
    expected |= {names.resolve(path, drop.file): DROPPED for drop in world.header(path).drops}
    assert collect(world, dry_run=True).reasons == expected
    result = collect(world)
    assert result.reasons == expected
    assert sorted(result.files) == sorted(expected)
    assert not set(result.files) & files(world)
    assert world.content(path) == b"c" * 50


def test_what_an_interrupted_probe_left_on_a_disk_goes(tmp_path):
    world = World(Shifted(LocalBackend(sync=False)), SMALL)
    path = world.create(f"{tmp_path}/a", [b"a"])
    left = f"{names.chunks_folder(path)}/probe-1$chunks"
    for name in (names.LOCK_NAME, "tmp-1"):
        world.write(f"{left}/{name}", b"x")
    assert collect(world, str(tmp_path)).young == 1
    world.backend.shift_s = GRACE_S + 60
    assert left in collect(world, str(tmp_path), dry_run=True).files
    assert left in collect(world, str(tmp_path)).files
    assert not drive(world.backend.is_folder(left))
