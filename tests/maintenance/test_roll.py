"""Roll: the inline tail becomes a chunk; `test_at_each_call.py` has crashes, faults and other clients."""

from __future__ import annotations

import pytest

from tests.support.faults import Store
from tests.support.small import filled, is_whole

pytestmark = pytest.mark.usefixtures("hurried")
A = "/stream/a"


@pytest.fixture
def world():
    """A segment of one chunk and a tail."""
    return filled(Store(), [b"c" * 60])


def test_the_tail_becomes_a_chunk_by_one_commit_and_nothing_else_changes(world):
    before = world.header(A)
    world.backend.prepare()
    assert world.roll(A) == 64
    verbs = [verb for verb, _ in world.backend.trace]
    assert (verbs.count("write"), verbs.count("replace")) == (1, 1)
    after = world.header(A)
    assert (after.tail, after.start, after.length, after.phase) == (b"", 0, 64, before.phase)
    assert (after.attrs, after.epoch, after.owner, after.version) == (before.attrs, 0, None, before.version + 1)
    assert [(entry.start, entry.length) for entry in after.entries] == [(0, 60), (60, 4)]
    assert world.content(A) == b"c" * 60 + b"tail"
    assert is_whole(world)
    assert world.append(A, b"more") == 64


def test_where_nothing_is_inline_nothing_is_committed(world):
    world.roll(A)
    before = world.header(A)
    world.backend.prepare()
    assert world.roll(A) == 64
    assert world.header(A) == before
    assert {verb for verb, _ in world.backend.trace} == {"read_if_changed"}
