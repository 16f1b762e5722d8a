"""Roll: the inline tail becomes a chunk; `test_at_each_call.py` has crashes, faults and other clients."""

from __future__ import annotations

import pytest

from rollingfs import RollingPolicy
from rollingfs.errors import SegmentSealedError
from rollingfs.format.transitions import Guard
from rollingfs.maintenance.roll import Roller
from rollingfs.runtime.concurrency import drive
from tests.support.faults import CLOCK, Faulty, Store
from tests.support.life import World
from tests.support.small import is_whole

pytestmark = pytest.mark.usefixtures("hurried")
SMALL = RollingPolicy(max_bytes=200, inline_bytes=50)
A = "/stream/a"
WHOLE = b"c" * 60 + b"tail"


def client(store: Store) -> World:
    return World(Faulty(store), SMALL, CLOCK.time)


def fill(store: Store) -> World:
    """A segment of one chunk and a tail."""
    world = client(store)
    world.create(A, [b"c" * 60])
    world.append(A, b"tail")
    return world


@pytest.fixture
def store():
    return Store()


@pytest.fixture
def world(store):
    return fill(store)


def roll(world: World) -> int:
    return drive(Roller(world.client.commits).roll(A))


def test_the_tail_becomes_a_chunk_by_one_commit_and_nothing_else_changes(world):
    before = world.header(A)
    world.backend.prepare()
    assert roll(world) == 64
    verbs = [verb for verb, _ in world.backend.trace]
    assert (verbs.count("write"), verbs.count("replace")) == (1, 1)
    after = world.header(A)
    assert (after.tail, after.start, after.length, after.phase) == (b"", 0, 64, before.phase)
    assert (after.attrs, after.epoch, after.owner, after.version) == (before.attrs, 0, None, before.version + 1)
    assert [(entry.start, entry.length) for entry in after.entries] == [(0, 60), (60, 4)]
    assert world.content(A) == WHOLE
    assert is_whole(world)
    assert world.append(A, b"more") == 64


def test_where_nothing_is_inline_nothing_is_committed(world):
    roll(world)
    before = world.header(A)
    world.backend.prepare()
    assert roll(world) == 64
    assert world.header(A) == before
    assert {verb for verb, _ in world.backend.trace} == {"read_if_changed"}


def test_a_head_that_was_truncated_within_the_tail_stays_away(world):
    world.truncate(A, 62)
    assert roll(world) == 64
    assert world.content(A) == b"il"
    assert world.header(A).start == 62


def test_a_sealed_segment_is_rolled_and_stays_sealed(world):
    world.seal(A)
    roll(world)
    assert world.header(A).sealed
    assert not world.header(A).tail
    assert world.content(A) == WHOLE
    with pytest.raises(SegmentSealedError):
        world.append(A, b"x")


def test_a_segment_that_an_owner_holds_is_rolled_and_the_owner_goes_on(store, world):
    other = client(store)
    held = drive(world.client.segments.acquire(A, "me"))
    roll(other)
    guard = Guard(epoch=held.epoch, expected_offset=64)
    assert drive(world.client.segments.append(A, [b"mine"], guard=guard)) == 64
    assert other.header(A).owner == "me"
    assert other.content(A) == WHOLE + b"mine"


def test_a_segment_that_is_gone_or_of_another_incarnation_is_not_rolled(world):
    old = world.header(A).segment
    drive(world.client.segments.overwrite(A, [b"new"]))
    with pytest.raises(FileNotFoundError):
        drive(Roller(world.client.commits).roll(A, old))
    assert world.header(A).tail == b"new"
    drive(world.client.segments.delete(A))
    with pytest.raises(FileNotFoundError):
        roll(world)
