"""Single cases of runs of retention: several runners, clocks that differ, what one run cannot read."""

from dataclasses import replace
from unittest import mock

import pytest

from rollingfs import RollingPolicy, Stream
from rollingfs.errors import FencedError
from rollingfs.format import names
from rollingfs.runtime.concurrency import drive
from rollingfs.segment.verbs.change import acquire
from rollingfs.stream.cut import StreamCut
from rollingfs.stream.retention import RetentionPolicy
from tests.support.backends import Scripted, raises
from tests.support.life import CHUNKS, NOON_S, Turned, World, cut_of

A, B = "/stream/a", "/stream/b"
DAY_S = 86_400.0


@pytest.fixture
def world() -> World:
    world = World(policy=CHUNKS)
    for path in (A, B):
        world.create(path, [path[-1:].encode() * 100])
    return world


@pytest.fixture
def stream(world: World) -> Stream:
    return world.stream()


# -- clocks --------------------------------------------------------------------------------------------------


def test_wrongly_dated_tail_becomes_a_chunk_by_age() -> None:
    world = World(policy=RollingPolicy(max_bytes=1000, max_age=60, inline_bytes=100))
    world.create(A)
    World(world.backend, CHUNKS, Turned(NOON_S + 365 * DAY_S)).append(A, b"one")
    world.append(A, b"two")
    assert [entry.length for entry in world.header(A).entries] == [6]


def test_store_clock_replaces_those_of_clients(world: World) -> None:
    """It tells whole seconds."""
    store, now_s = Scripted(world.backend, has_clock=True, date_step_s=1.0), NOON_S + 0.9
    store.plan("now", instead=lambda _: now_s // 1, times=None, probes=True)
    store.plan("list", answers=lambda found: replace(found, now=now_s // 1), times=None, probes=True)
    for skew_s in (365 * DAY_S, -50 * 365 * DAY_S):
        stream = World(store, CHUNKS, Turned(NOON_S + skew_s)).stream()
        stream.retention = RetentionPolicy.by_time("1h", every=0)
        report = stream.retain()
        assert (report.bytes, report.taken and report.taken.at) == (0, now_s // 1 + 1)
        now_s += 3600
        assert stream.retain().bytes == 0  # the cut may be of the end of its second
        now_s += 1
        assert stream.retain().bytes == (200 if skew_s > 0 else 100)
        world.append(A, b"x" * 100)
        now_s += 2


# -- several runners -----------------------------------------------------------------------------------------


def scripted(world: World) -> tuple[World, Scripted]:
    store = Scripted(world.backend)
    return World(store, CHUNKS, world.clock), store


def due(world: World) -> None:
    world.stream().retention = RetentionPolicy.by_size(0, every="1h")
    world.stream().publish("reader", StreamCut({}, NOON_S, 0))
    world.stream().retain()
    world.stream().unsubscribe("reader")


def record_a_trim(stream: Stream, offsets: dict[str, int]) -> None:
    """A trim that dies before it drops anything."""
    with mock.patch("rollingfs.stream.trim._trim", side_effect=RuntimeError), pytest.raises(RuntimeError):
        stream.trim(cut_of(stream, offsets))


def ledger_header(folder: str = "/stream") -> str:
    return names.header_path(names.ledger_path(folder))


def test_goal_of_segment_that_older_listing_lacks_stays(world: World) -> None:
    due(world)
    slow, store = scripted(world)

    def meanwhile() -> None:
        world.create("/stream/new", [b"n" * 10])
        record_a_trim(world.stream(), {"/stream/new": 10})

    store.plan("replace", ledger_header(), before=meanwhile)
    slow.stream().retain()
    assert world.header("/stream/new").start == 10


def test_overtaken_run_drops_nothing_by_older_reads(world: World, stream: Stream) -> None:
    stream.retention = RetentionPolicy.by_size(1000, every=0)
    stream.retain()
    world.append(B, b"b" * 150)
    stream.retain()
    world.append(A, b"a" * 100)
    stream.retention = RetentionPolicy.by_size(200, every=0)
    slow, store = scripted(world)
    store.plan("replace", ledger_header(), before=stream.retain)
    slow.stream().retain()
    assert stream.size() == 250


def test_owner_that_comes_between_look_and_commit_stops_nothing(world: World) -> None:
    due(world)
    slow, store = scripted(world)
    store.plan("replace", names.header_path(A), before=lambda: drive(acquire(world.client, A, "owner")))
    assert slow.stream().retain().bytes == 200
    assert world.header(A).owner == "owner"
    with pytest.raises(FencedError):
        world.append(A, b"x")


def test_a_dry_run_counts_a_recorded_trim(stream: Stream) -> None:
    record_a_trim(stream, {A: 60})
    assert stream.trim(cut_of(stream, {B: 10}), dry_run=True).bytes == 70
    stream.retention = RetentionPolicy.by_size(1000)
    for dry_run in (True, False):
        did = stream.retain(dry_run)
        assert (did.bytes, did.size, dict(did.dropped)) == (60, 140, {A: 60})


def test_subscriber_joins_in_one_change_or_raises(stream: Stream, world: World) -> None:
    stream.subscribe("reader")
    stream.retention = RetentionPolicy.by_size(0, every=0)
    assert stream.retain().bytes == 0
    stream.publish("reader", stream.cut())
    stream.subscribe("reader")
    assert stream.retain().bytes == 200
    other, store = scripted(world)
    store.plan("replace", ledger_header(), before=raises(PermissionError(13, "not permitted")), times=None)
    with pytest.raises(PermissionError, match="not permitted"):
        other.stream().subscribe("another")
    with pytest.raises(ValueError, match="needs a name"):
        stream.subscribe("")


def test_unreadable_upper_memory_is_silent_for_new_readers(world: World) -> None:
    world.create("/stream/sub/c", [b"c" * 100])
    world.stream().retention = RetentionPolicy(min_age="forever")
    world.stream("/stream/sub").retention = RetentionPolicy(max_age="1h", every=0)
    assert world.stream("/stream/sub").retain().bytes == 0
    stranger, others = scripted(world)
    others.plan("read", ledger_header(), before=raises(PermissionError(13, "not permitted")), times=None)
    world.clock.now_s += DAY_S
    assert stranger.stream("/stream/sub").retain().bytes == 100


@pytest.mark.parametrize(("at", "verb"), [("/stream", "read"), ("/stream/mid", "read"), ("/stream", "read_if_changed")])
def test_refusal_above_hides_no_minimum_that_was_seen_before(world: World, at: str, verb: str) -> None:
    path = world.create("/stream/mid/sub/c", [b"c" * 100])
    world.stream().retention = RetentionPolicy(min_age="forever")
    world.stream("/stream/mid/sub").retention = RetentionPolicy(max_age="1h", every=0)
    reader, its = scripted(world)
    assert reader.stream("/stream/mid/sub").retain().bytes == 0
    if verb == "read":
        reader.client.headers.forget()  # as a full cache does
    its.plan(verb, ledger_header(at), before=raises(PermissionError(13, "not permitted")), times=None)
    world.clock.now_s += DAY_S
    with pytest.raises(PermissionError, match="not permitted"):
        reader.stream("/stream/mid/sub").retain()
    assert world.header(path).start == 0


# -- what is there -------------------------------------------------------------------------------------------


def test_uncut_empty_sealed_segment_waits_for_concat(stream, world):
    stream.retention = RetentionPolicy.by_time("1d", every="1h")
    stream.retain()
    world.clock.now_s += 2 * DAY_S
    world.seal(world.create("/stream/empty"))
    stream.retain()
    assert "/stream/empty" in stream.segments()
    world.clock.now_s += 2 * DAY_S
    assert stream.retain().deleted == ("/stream/empty",)


def test_segment_unread_in_a_run_keeps_its_offsets(stream: Stream, world: World) -> None:
    stream.retention = RetentionPolicy.by_time("30d", every="1d")
    for day in range(20):
        world.append(A, b"%03d\n" % day)
        world.clock.now_s += DAY_S
        stream.retain()
    path = names.header_path(A)
    content = world.backend.fs.store[path].getvalue()
    world.backend._put(path, b"rollingfs 9\n\n")
    world.clock.now_s += DAY_S
    assert list(stream.retain().failed) == [A]
    world.backend._put(path, content)
    for _ in range(21):
        world.clock.now_s += DAY_S
        stream.retain()
    assert len(world.content(A).split()) <= 9
