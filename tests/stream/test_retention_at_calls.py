"""A run of retention, with something else at each of its calls: another policy, a dead move, a new subscriber."""

import contextlib
from functools import partial

import pytest

from rollingfs import RollingPolicy
from rollingfs.format import names
from rollingfs.runtime.concurrency import drive
from rollingfs.stream.cut import StreamCut
from rollingfs.stream.ledger import Ledgers
from rollingfs.stream.retention import RetentionPolicy
from tests.support.examples import slowly, some
from tests.support.faults import CLOCK, CRASHES, Crashed, DenyingStore, Fault, Faulty, Store
from tests.support.life import World

pytestmark = pytest.mark.usefixtures("hurried")
FOLDER = "/stream"
NAMES = tuple(f"{FOLDER}/{letter}" for letter in "abcde")
SMALL = RollingPolicy(max_bytes=24, inline_bytes=10)


def due(store: Store) -> World:
    """A stream of which the next run drops 80 bytes."""
    world = World(Faulty(store), SMALL, CLOCK.time)
    for name in NAMES[:2]:
        world.create(name, [b"0123456789"] * 4)
    world.stream().retention = RetentionPolicy.by_size(10, every=0)
    world.stream().retain()
    for name in NAMES[:2]:
        world.append(name, b"9876543210")
    world.backend.prepare()
    return world


def calls() -> list[tuple[str, object]]:
    """The calls of that run."""
    world = due(Store())
    assert world.stream().retain().bytes == 80
    return world.backend.trace


@pytest.mark.exhaustive
@pytest.mark.parametrize("policy", [None, RetentionPolicy.by_size(1000), RetentionPolicy.by_time("1d")])
def test_policy_that_changes_before_commit_of_run_counts(policy: RetentionPolicy | None) -> None:
    trace = [(verb, str(what)) for verb, what in calls()]
    commit = next(i for i, (verb, what) in enumerate(trace) if verb == "replace" and names.LEDGER_NAME in what)
    for index in some(range(commit + 1)):
        store = Store()
        world, other = due(store), World(Faulty(store), SMALL, CLOCK.time)
        world.backend.prepare(between={index: partial(setattr, other.stream(), "retention", policy)})
        with contextlib.suppress(ValueError):  # there is none any more
            assert world.stream().retain().bytes == 0, index
        assert other.stream().size() == 100


@pytest.mark.parametrize("crash", [CRASHES[0], *slowly(*CRASHES[1:])])
@pytest.mark.parametrize("target", [NAMES[1], NAMES[2], "/aside/x"])
def test_leftovers_of_a_killed_move_are_counted_once(target: str, crash: Fault) -> None:
    for index in range(26):
        store = Store()
        world = World(Faulty(store), SMALL, CLOCK.time)
        for name in NAMES[:2]:
            world.create(name, [b"0123456789"] * 9)
        world.seal(NAMES[0])
        stream = world.stream()
        stream.retention = RetentionPolicy.by_size(120, every=0)
        stream.retain()
        mover = World(Faulty(store), SMALL, CLOCK.time)
        mover.backend.prepare({index: crash})
        with contextlib.suppress(Crashed):
            if target == NAMES[1]:
                mover.concat(target, [NAMES[0]])
            else:
                mover.rename(NAMES[0], target)
        store.land()
        whole = stream.size()
        assert whole == 180 or (whole == 90 and target == "/aside/x"), index
        world.append(NAMES[1], b"9876543210")
        assert stream.retain(dry_run=True).size >= min(120, whole), index
        assert stream.retain().size >= min(120, whole), index
        assert stream.size() >= min(120, whole), index


@pytest.mark.exhaustive
@pytest.mark.parametrize("joins", ["subscribe", "publish"])
def test_dead_runs_decision_yields_to_a_new_subscriber(joins: str) -> None:
    for index in some(range(len(calls()))):
        store = Store()
        world, other = due(store), World(Faulty(store), SMALL, CLOCK.time)
        cut = StreamCut({}, CLOCK.time(), 0)
        world.backend.prepare({index: CRASHES[0]})
        with contextlib.suppress(Crashed):
            world.stream().retain()
        other.stream().subscribe("new") if joins == "subscribe" else other.stream().publish("new", cut)
        size = other.stream().size()
        assert other.stream().retain().bytes == 0, index
        assert other.stream().size() == size


def test_a_subscriber_joins_although_a_trim_cannot_be_finished() -> None:
    store = Store()
    world = due(store)
    world.backend.prepare({1 + [verb for verb, _ in calls()].index("replace"): CRASHES[0]})
    with contextlib.suppress(Crashed):
        world.stream().retain()
    for name in NAMES[:2]:
        store._put(names.header_path(name), b"rollingfs 9\n\n")
    other = World(Faulty(store), SMALL, CLOCK.time)
    other.stream().subscribe("new")
    assert [*other.stream().subscribers()] == ["new"]
    assert not drive(Ledgers(other.client).load(FOLDER)).is_trimmed


def test_a_minimum_above_is_looked_for_again() -> None:
    for call in range(100):
        store = DenyingStore()
        world = World(Faulty(store), SMALL, CLOCK.time)
        world.create("/stream/sub/a", [b"0123456789"] * 4)
        world.stream().retention = RetentionPolicy(min_age="forever")
        stream = World(Faulty(store), SMALL, CLOCK.time).stream("/stream/sub")
        stream.retention = RetentionPolicy(max_bytes=10, every=0)
        stream.retain()
        (other := World(Faulty(store), SMALL, CLOCK.time)).backend.prepare({call: Fault.DENIED})
        with contextlib.suppress(OSError, ValueError):
            other.stream("/stream/sub").retain()
        assert stream.size() == 40, other.backend.trace[call]
        if call >= len(other.backend.trace):
            return
    raise AssertionError("a run has an end")
