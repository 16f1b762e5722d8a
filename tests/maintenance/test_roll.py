"""Roll: the inline tail becomes a chunk; `test_at_each_call.py` has crashes, faults and other clients."""

from __future__ import annotations

import pytest

from rollingfs import RollingPolicy
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
