"""Upkeep: retention, offload and collection below a folder, beside failures; the simulation lets rounds crash."""

import asyncio
import contextlib
import itertools
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from rollingfs import OffloadPolicy, RetentionPolicy, RollingPolicy
from rollingfs.backend.tiers import TieredBackend, TierStore
from rollingfs.format import names
from rollingfs.format.header import GRACE_S, Page
from rollingfs.format.policies import PolicyChange
from rollingfs.runtime.bridge import Bridge
from rollingfs.runtime.concurrency import drive
from rollingfs.segment.commit import header_cache
from rollingfs.segment.verbs.change import change
from rollingfs.segment.verbs.consolidate import READERS_GRACE_S
from rollingfs.segment.verbs.delete import delete
from rollingfs.stream.upkeep import COLLECT, LOOK_AGAIN_S, OFFLOAD, Upkeep, Upkept, total
from tests.support import backends
from tests.support.backends import LOOKS, Counting, Scripted
from tests.support.faults import CLOCK, Store, TieredStore
from tests.support.life import World, pieces_of
from tests.support.small import SMALL, a_round, client, shrink_pages, verbs

pytestmark = pytest.mark.usefixtures("hurried")
A, B, LONE = "/root/stream/a", "/root/stream/b", "/root/lone/c"
STREAM = "/root/stream"
DATA = bytes(range(200))
KEPT_BYTES = 150
"""What retention keeps of the 400 bytes of the stream, at least."""


@pytest.fixture
def world(store: Store) -> World:
    """A stream of two segments with a retention and an offload policy, and a segment with a policy of its own."""
    world = client(store)
    for path in (A, B, LONE):
        world.create(path, pieces_of(DATA, [20] * 10))
    drive(verbs(world, STREAM).set_retention(RetentionPolicy.by_size(KEPT_BYTES, every=0)))
    drive(verbs(world, STREAM).set_offload_policy(OffloadPolicy("cold", after_bytes=40, deletion_lag=0)))
    policy = PolicyChange(OffloadPolicy("cold", after_bytes=100, deletion_lag=0))
    drive(change(world.client, LONE, policy.of))
    drive(verbs(world, STREAM).retain())  # it takes a cut at the end; the next drops up to it what is more than is kept
    for path in (A, B):
        for piece in pieces_of(DATA, [20] * 10):
            world.append(path, piece)
    return world


def keep(world: World, root: str = "/root", **how: object) -> list[Upkept]:
    return a_round(Upkeep(world.client, grace_s=0, **how), root)


def test_round_does_all_upkeep_and_the_next_nothing(world):
    stream, lone = sorted(keep(world), key=lambda one: one.path, reverse=True)
    assert (stream.path, stream.is_stream, stream.dropped_bytes) == ("/root/stream", True, 400)
    assert (stream.offloaded.chunks, lone.offloaded.chunks) == (16, 5)
    assert (lone.path, lone.is_stream, lone.has_policy, lone.failed) == (LONE, False, True, {})
    again = total(keep(world))
    assert (again.dropped_bytes, again.offloaded.files, again.files, again.failed) == (0, 0, 0, {})


def test_max_age_closes_idle_and_sealed_tails_only():
    world = World(policy=RollingPolicy(max_bytes=200, inline_bytes=50, max_age=3600))
    paths = [world.create(f"/root/{name}", [b"tail"]) for name in "ab"]
    world.seal(paths[1])
    plain = world.create("/root/never", [b"tail"], policy=RollingPolicy(max_bytes=200, inline_bytes=50))
    upkeep = Upkeep(world.client)
    assert kept_again(upkeep).rolled == 0
    world.clock.now_s += 1800
    young = world.create("/root/young", [b"tail"])
    world.clock.now_s += 1801
    assert (kept_again(upkeep).rolled, kept_again(upkeep).rolled) == (2, 0)
    tails = {path: world.header(path).tail for path in [*paths, young, plain]}
    assert tails == {paths[0]: b"", paths[1]: b"", young: b"tail", plain: b"tail"}
    assert [world.content(path) for path in tails] == [b"tail"] * 4


def kept_again(upkeep: Upkeep) -> Upkept:
    """One more round of the same upkeep."""
    return total(a_round(upkeep))


def test_folder_of_a_deleted_segments_name_is_kept():
    world = World(policy=RollingPolicy(max_bytes=200, inline_bytes=50, max_age=3600))
    world.create("/root", [b"x"])
    drive(delete(world.client, "/root"))
    world.create("/root/a", [b"tail"])
    world.clock.now_s += 3601
    assert kept_again(Upkeep(world.client)).rolled == 1


def idle_world() -> tuple[World, Upkeep, list[str]]:
    """Segments in folders, some with a memory of a stream, that two rounds have found in order."""
    world = World(Counting(TieredStore()), RollingPolicy(max_bytes=200, inline_bytes=50), CLOCK.time)
    paths = [world.create(f"/root/d{nth % 6}/s{nth:03}", [b"x" * 60, b"y" * 10]) for nth in range(60)]
    for path in paths[::7]:
        world.seal(path)
    for folder in ("/root", "/root/d1", "/root/d2"):
        drive(verbs(world, folder).set_offload_policy(OffloadPolicy("cold", after_bytes=2**20)))
    upkeep = Upkeep(world.client)
    for _ in range(3):
        assert not kept_again(upkeep).failed
        CLOCK.sleep(READERS_GRACE_S + 1)
    world.backend.calls.clear()
    return world, upkeep, paths


CALLS = 7 + 3 + 4
"""Listings of the folders, looks at the root and above, reads of three memories of streams: the root's twice."""


def test_idle_segments_cost_round_listing_and_nothing_else():
    world, upkeep, _ = idle_world()
    for _ in range(3):
        world.backend.calls.clear()
        assert kept_again(upkeep).is_idle
        listed = ["/", "/root", *(f"/root/d{nth}" for nth in range(6))]
        asked = {path for verb, path in world.backend.calls if verb != "list" or path not in listed}
        # of the root: that it is no segment, and what it inherits; the memories of streams here are chunks
        of_root = {"/root$header", "/root$chunks", "/$stream$header"}
        assert {path for path in asked if "/$stream$chunks/" not in path} <= of_root
        assert len(world.backend.calls) <= CALLS


def test_segments_beyond_the_cache_of_headers_rest_too(monkeypatch):
    monkeypatch.setattr(header_cache, "HEADERS_CACHED_MAX", 4)
    world = World(Counting(TieredStore()), SMALL, CLOCK.time)
    for nth in range(20):
        world.create(f"/root/{nth}", [b"x" * 60])
    upkeep = Upkeep(world.client)
    assert kept_again(upkeep).is_idle
    world.backend.calls.clear()
    assert kept_again(upkeep).is_idle
    assert not [path for _, path in world.backend.calls if path.startswith("/root/")]


def test_first_round_by_max_delay_loads_each_header_once():
    world = World(Counting(TieredStore()), RollingPolicy(max_bytes=200, inline_bytes=50), CLOCK.time)
    paths = [world.create(f"/root/{nth}", [b"x" * 60]) for nth in range(5)]
    drive(verbs(world).set_offload_policy(OffloadPolicy("cold", max_delay=1000)))
    world.backend.calls.clear()
    assert kept_again(Upkeep(world.client, (OFFLOAD,))).has_policy
    looks = [path for verb, path in world.backend.calls if verb.startswith("read") and "stream" not in path]
    assert looks == ["/root$header", *map(names.header_path, paths)]


def test_change_of_policy_above_ends_rest_of_all_below():
    world, upkeep, paths = idle_world()
    drive(verbs(world).set_policies(PolicyChange(max_age=60)))
    CLOCK.sleep(61)
    assert kept_again(upkeep).rolled == len(paths)
    drive(verbs(world, "/root/d1").set_offload_policy(OffloadPolicy("cold", after_bytes=0, deletion_lag=0)))
    assert kept_again(upkeep).offloaded.bytes == 10 * 70
    assert kept_again(upkeep).offloaded.bytes == 0


def test_policy_of_age_ends_rest_of_segment_in_time():
    world, upkeep, _ = idle_world()
    drive(verbs(world).set_policies(PolicyChange(max_age=3600)))
    drive(verbs(world).set_offload_policy(OffloadPolicy("cold", after_age=7200, deletion_lag=0)))
    for folder in ("/root/d1", "/root/d2"):
        drive(verbs(world, folder).set_offload_policy(None))
    seen = []
    for _ in range(12):
        did = kept_again(upkeep)
        seen.append((did.rolled, did.offloaded.chunks))
        CLOCK.sleep(1000)
    rolled, moved = zip(*seen, strict=True)
    assert rolled == (0, 0, 60, *[0] * 9), "not before its time, and not a round later"
    assert moved == (0, 0, 0, 0, 0, 0, 51, 0, 0, 0, 60, 0), "a chunk of a tail has the date of its roll"


@pytest.mark.parametrize("early_s", [0.0, 0.5])
def test_what_becomes_due_in_a_round_waits(early_s: float):
    store = Scripted(TieredStore())
    world = World(store, RollingPolicy(max_bytes=200, inline_bytes=50, max_age=60), CLOCK.time)
    path = world.create("/root/a", [b"x"])
    upkeep = Upkeep(world.client)
    CLOCK.sleep(world.header(path).tail_at_ms / 1000 + 60 - early_s - CLOCK.time())
    store.plan("list", "a$chunks", after=lambda: CLOCK.sleep(2 * early_s))
    assert kept_again(upkeep).is_idle
    CLOCK.sleep(1)
    assert kept_again(upkeep).rolled == 1


def test_clock_that_goes_back_ends_rest_of_all():
    world, upkeep, paths = idle_world()
    CLOCK.sleep(-30 * 24 * 3600)
    left = world.orphan(paths[3])
    for _ in range(2):
        kept_again(upkeep)
        CLOCK.sleep(LOOK_AGAIN_S + 1)
    assert not [file for file in world.files(paths[3]) if left.endswith(file)]


@pytest.mark.parametrize("policy", [OffloadPolicy("cold", after_age=3600), OffloadPolicy("cold", max_delay=3600)])
def test_due_chunk_of_an_index_page_moves_next_round(policy, monkeypatch):
    shrink_pages(monkeypatch)
    world = World(TieredStore(), RollingPolicy(max_bytes=100, inline_bytes=0), CLOCK.time)
    path = world.create("/root/a", [b"x" * 60] * 3)
    policy = replace(policy, deletion_lag=0)
    drive(verbs(world).set_offload_policy(policy))
    CLOCK.sleep(3000)
    for _ in range(3):
        world.append(path, b"y" * 60)
    assert isinstance(world.header(path).entries[0], Page)
    upkeep = Upkeep(world.client)
    for _ in range(3):
        assert kept_again(upkeep).offloaded.chunks == 0
    CLOCK.sleep(601)
    assert kept_again(upkeep).offloaded.chunks >= 3
    assert world.content(path) == b"x" * 180 + b"y" * 180


def test_crashed_writers_leftovers_go_within_a_day():
    world, upkeep, paths = idle_world()
    left = world.orphan(paths[3])
    for _ in range(3):
        assert kept_again(upkeep).is_idle
        assert drive(world.backend.stat(left)).size
        CLOCK.sleep(LOOK_AGAIN_S / 3 + 1)
    assert kept_again(upkeep).files == 1
    assert kept_again(upkeep).files == 0


def test_round_with_changes_or_young_files_looks_again():
    world, upkeep, _ = idle_world()
    upkeep.grace_s = 0
    consolidated = world.create("/root/d0/many", policy=RollingPolicy(max_bytes=1000, inline_bytes=0))
    for _ in range(40):
        world.append(consolidated, b"12345")
    assert kept_again(upkeep).consolidated.replaced == 40
    assert world.header(consolidated).drops, "they wait for readers"
    for _ in range(2):
        world.backend.calls.clear()
        assert kept_again(upkeep).consolidated.replaced == 0
        assert any(path.startswith(consolidated) for _, path in world.backend.calls)
    CLOCK.sleep(700)
    kept_again(upkeep)
    kept_again(upkeep)
    assert not world.header(consolidated).drops
    assert len(world.files(consolidated)) == 1
    world.backend.calls.clear()
    assert kept_again(upkeep).is_idle
    assert len(world.backend.calls) <= CALLS


@pytest.mark.parametrize("is_own", [False, True])
def test_inherited_retention_leaves_plain_files_beside_segments_alone(is_own: bool):
    world = client(TieredStore())
    path = world.create("/root/stream/a", pieces_of(DATA, [20] * 10))
    world.write("/root/stream/table.csv", DATA)
    drive(verbs(world).set_retention(RetentionPolicy(max_bytes=0, every=0)))
    if is_own:
        drive(verbs(world, STREAM).set_retention(RetentionPolicy(every=0)))
    assert not total(keep(world) + keep(world)).failed
    assert world.header(path).start == len(DATA)
    cut = drive(verbs(world, STREAM).cuts())[-1]
    if is_own:
        assert set(cut) == {path, "/root/stream/table.csv"}
        assert world.header("/root/stream/table.csv").start == len(DATA)
    else:
        assert set(cut) == {path}
        assert drive(world.client.headers.view("/root/stream/table.csv")).header is None


def test_folder_keeps_all_forever_below_one_that_drops_all():
    world = client(TieredStore())
    paths = [world.create(f"/root/{name}/a", pieces_of(DATA, [20] * 10)) for name in ("stream", "other")]
    drive(verbs(world).set_retention(RetentionPolicy(max_bytes=0, max_age=0, every=0)))
    drive(verbs(world, STREAM).set_retention(RetentionPolicy(min_age="forever")))
    assert not total([*keep(world), *keep(world)]).failed
    assert [world.header(path).start for path in paths] == [0, len(DATA)]
    assert drive(verbs(world, STREAM).cuts()) == [], "upkeep needs no cuts of what stays"
    assert drive(verbs(world, STREAM).retain()).bytes == drive(verbs(world, STREAM).retain()).bytes == 0


def test_round_sets_folder_policies_and_no_client_policy():
    world = World(policy=RollingPolicy(max_bytes=200, inline_bytes=10))
    path = world.create("/root/stream/a", [bytes(300)])
    drive(verbs(world).set_policies(PolicyChange(max_age=60)))
    other = World(world.backend, RollingPolicy(max_bytes=999), world.clock)
    a_round(Upkeep(other.client))
    assert other.header(path).policy == RollingPolicy(200, 60, 10)


def test_single_segment_follows_its_folders_policy(world):
    [did] = keep(world, A)
    assert (did.path, did.offloaded.chunks, did.dropped_bytes) == (A, 18, 0)
    assert {chunk.tier for chunk in world.chunks(B)} == {""}
    with pytest.raises(FileNotFoundError):
        keep(world, "/root/none")


def test_failing_stream_is_named_and_others_continue(store, world):
    for path in (A, "/root/stream/$stream"):
        store.fs.pipe_file(names.header_path(path), b"rubbish")
    world = client(store)
    [stream] = [one for one in keep(world) if one.is_stream]
    assert set(stream.failed) == {"read the memory of /root/stream", f"collect {A}", "collect /root/stream/$stream"}
    assert stream.offloaded.files == stream.dropped_bytes == 0, "what the policies are is not known"
    assert total(keep(world)).offloaded.files == 0
    assert {chunk.tier for chunk in world.chunks(LONE)} == {"", "cold"}


def test_retention_removed_during_a_round_is_no_failure(store, world):
    other = World(Scripted(store))
    remove = partial(verbs(world, STREAM).set_retention, None)
    other.backend.plan("read_range", lambda path: f"{STREAM}/$stream$chunks/" in path, after=remove)
    assert not total(keep(other)).failed
    assert not other.backend.plans


def test_stopped_round_finishes_its_step_and_reports_it(world):
    def after(count: int) -> Callable[[], bool]:
        asked = itertools.count()
        return lambda: next(asked) >= count

    assert total(keep(world, is_stopped=after(0))) == total(keep(world, is_stopped=after(0)))
    did = total(keep(world, is_stopped=after(3)))
    assert did.offloaded.files + did.files + did.dropped_bytes > 0
    assert not total(keep(world)).failed


def test_collection_begins_after_all_blocks_of_a_folder(monkeypatch):
    monkeypatch.setattr(backends, "FINISH_S", 0)
    store, policy = TieredStore(), RollingPolicy(max_bytes=200, inline_bytes=0)
    world = World(store, policy, CLOCK.time)
    target, source = world.create("/root/a", [b"0" * 60]), world.create("/root/b", [b"1" * 60])
    world.concat(target, [source])  # its chunk stays where the files of the source's next incarnation go
    world.create(source, [b"2" * 60])
    drive(verbs(world).set_offload_policy(OffloadPolicy("cold", deletion_lag=0)))
    slow = Scripted(store, suspends=True)

    async def wait() -> None:
        CLOCK.sleep(1)
        for _ in range(1000):  # all that the others may do meanwhile
            await asyncio.sleep(0)

    slow.plan(LOOKS, lambda path: "cold" in path and "/b$chunks" in path, after=wait)
    upkeep, bridge = Upkeep(World(slow, policy, CLOCK.time).client, grace_s=0), Bridge(slow)
    [folder] = bridge.run(upkeep.folders("/root"))
    assert not total(bridge.run(upkeep.keep(folder))).failed
    assert [world.content(path) for path in (target, source)] == [b"0" * 60 + b"1" * 60, b"2" * 60]


# -- the root of a tier, and a tier that fails -----------------------------------------------------------------


def over_two(hot: Store, cold: Store) -> World:
    return World(TieredBackend(hot, {"cold": TierStore(cold, "/archive")}), SMALL, CLOCK.time)


def test_missing_tier_root_never_looks_empty():
    hot, cold = Store(), Store()
    world = over_two(hot, cold)
    world.create(LONE, pieces_of(DATA, [20] * 10))
    world.offload(LONE)
    assert "/archive/$tier" in cold.files()
    world.delete(LONE)
    crowd = {path: bytes(file) for path, file in cold.snapshot().items()}
    cold.fs.store.clear()  # not mounted
    hot.lapse(2 * GRACE_S)
    for _ in range(2):
        [did] = keep(over_two(hot, cold), steps=(COLLECT,))
        assert "its mark is missing at /archive/$tier" in did.failed[f"collect {LONE}"]
        assert "Nothing was dropped" in did.failed[f"collect {LONE}"]
    assert names.header_path(LONE) in hot.files()
    for path, data in crowd.items():
        cold.fs.pipe_file(path, data)  # mounted again
    keep(over_two(hot, cold), steps=(COLLECT,))
    hot.lapse(2 * GRACE_S)
    with contextlib.suppress(FileNotFoundError):
        keep(over_two(hot, cold), steps=(COLLECT,))
    assert hot.files() == set()
    assert cold.files() == {"/archive/$tier"}
