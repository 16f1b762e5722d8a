"""A crash at every backend call of trim, retention, consolidation and collection: the next run finishes it."""

import contextlib

import pytest

from rollingfs.folders.collect_tree import TreeCollector
from rollingfs.format import names
from rollingfs.maintenance.consolidate import Consolidator
from rollingfs.maintenance.verify import Verifier
from rollingfs.runtime.concurrency import drive
from rollingfs.stream.retention import RetentionPolicy
from tests.support.examples import some
from tests.support.faults import CHANGING, Crashed, Fault, Store
from tests.support.life import cut_of
from tests.support.small import client

pytestmark = pytest.mark.usefixtures("hurried")
A, B, C = "/stream/a", "/stream/b", "/stream/c"
CALLS_MAX = 200


def fill(store):
    """A sealed segment, an open one with garbage of a concat, one with a tail; an orphan; a retention policy."""
    world = client(store)
    for path in (A, B, C, "/stream/source"):
        world.create(path, [path[-1:].encode() * 20] * 25)
    world.append(C, b"tail")
    for path in (A, "/stream/source"):
        world.seal(path)
    drive(world.client.concats.concat(B, ["/stream/source"]))
    world.truncate(B, 510)
    drive(store.write(f"{names.chunks_folder(C)}/{names.new_chunk_name(0)}", [b"orphan"]))
    world.stream().retention = RetentionPolicy.by_size(300, every=60)
    world.stream().retain()
    world.append(C, b"r" * 320)
    store.lapse(3600)
    return world


def trim(world):
    stream = world.stream()
    stream.trim(cut_of(stream, {A: 500, B: 600, C: 504}))


def retain(world):
    assert world.stream().retain().size == 320


def consolidate(world):
    for path in (A, B, C):
        drive(Consolidator(world.client.commits, world.client.fetcher).consolidate(path))


def collect(world):
    drive(TreeCollector(world.client).collect("/stream", grace_s=0))


def contents(world):
    return {path: (info["start_offset"], world.content(path)) for path, info in world.stream().infos().items()}


def check_whole(world, expected):
    assert contents(world) == expected
    for path in expected:
        assert all(row.ok for row in drive(Verifier(world.client.fetcher).verify(path)))


def outcome(action):
    """What a run without a fault leaves, and how many calls it makes."""
    store = Store()
    fill(store)
    world = client(store)
    before = contents(world)
    fresh = client(store)
    fresh.backend.prepare()
    action(fresh)
    return before, contents(client(store)), changing(fresh.backend.trace)


def changing(trace):
    """The calls that change something, but for the probe of the store, which no fault befalls."""
    assert len(trace) <= CALLS_MAX
    return [index for index, (verb, path) in enumerate(trace) if verb in CHANGING and "/probe-" not in str(path)]


@pytest.mark.exhaustive
@pytest.mark.parametrize("crash", [Fault.CRASH_BEFORE, pytest.param(Fault.CRASH_AFTER, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "action",
    [pytest.param(trim, marks=pytest.mark.slow), pytest.param(retain, marks=pytest.mark.slow), consolidate, collect],
)
def test_what_a_crash_breaks_off_the_next_run_finishes(action, crash):
    before, after, calls = outcome(action)
    for index in some(calls):
        store = Store()
        fill(store)
        broken = client(store)
        broken.backend.prepare({index: crash})
        with pytest.raises(Crashed):
            action(broken)
        store.lapse(60)
        if action in (consolidate, collect):
            check_whole(client(store), before)
        healer = client(store)
        action(healer)
        check_whole(healer, after)
        collect(healer)
        check_whole(client(store), after)
        check_no_garbage(client(store), after)


def check_no_garbage(world, paths):
    """After the grace of readers, and a collection, only what is named is left."""
    world.backend.inner.lapse(3600)
    collect(world)
    collect(world)
    named = set()
    for path in paths:
        chunks = drive(world.client.pages.unfold(path, world.header(path).entries))
        named |= {names.resolve(path, chunk.file) for chunk in chunks if chunk.end > world.header(path).start}
        named |= {names.resolve(path, entry.file) for entry in world.header(path).entries}
    there = {path for path in world.backend.inner.files() if "$chunks/" in path and "/$stream" not in path}
    assert {path for path in there if "/pin-" not in path and "/index-" not in path} == named


@pytest.mark.slow
@pytest.mark.parametrize("fault", [Fault.BEFORE, Fault.AFTER, Fault.LOST, Fault.CONFLICT, Fault.BUSY, Fault.LATE])
@pytest.mark.parametrize("action", [trim, consolidate, collect])
def test_any_fault_is_ridden_out_or_finished_by_the_next_run(action, fault):
    _, after, calls = outcome(action)
    for index in calls:
        store = Store()
        fill(store)
        world = client(store)
        world.backend.prepare({index: fault})
        with contextlib.suppress(OSError):
            action(world)
        assert world.backend.met.total() == 1
        store.lapse(60)
        action(client(store))
        check_whole(client(store), after)
