"""How a header changes: who is refused, which lines stay. `tests/simulation` lives whole lives, down to each file."""

import dataclasses
import uuid

import pytest
from hypothesis import given, strategies as st

from rollingfs.errors import FencedError
from rollingfs.format import invariants, merging, transitions
from rollingfs.format.codec import format_header
from rollingfs.format.header import COMMITS_MAX, Adopted, Header, MergeOutcome, Phase
from rollingfs.format.transitions import Guard, MarksFullError, stamp
from rollingfs.policy import RollingPolicy
from tests.support.strategies import WORDS, headers

TXN = str(uuid.UUID(int=8))
EMPTY = Header(str(uuid.UUID(int=7)), 1)
NOW_MS = 1_795_168_800_000


# -- stamp ---------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, COMMITS_MAX + 9), min_size=1, max_size=300))
def test_stamp_keeps_64_writers_and_the_newest_evicted_version(writers):
    header, newest = None, {}
    for version, writer in enumerate(writers, start=1):
        header = stamp(header or EMPTY, header, f"w{writer}", version, NOW_MS)
        newest[f"w{writer}"] = version
        assert header.version == version
    lines = {line.writer: line.version for line in header.commits}
    by_age = sorted(newest, key=newest.get)
    assert set(lines) == set(by_age[-COMMITS_MAX:])
    assert all(newest[writer] == version for writer, version in lines.items())
    lost = [newest[writer] for writer in by_age[:-COMMITS_MAX]]
    assert header.evicted >= max(lost, default=0)
    # never newer than the oldest line that is kept: so long, each kept line's writer can be sure of its verdict
    assert header.evicted < min(lines.values())


# -- checks --------------------------------------------------------------------------------------------------


def test_an_epoch_that_was_released_fences_its_old_handle():
    with pytest.raises(FencedError):
        transitions.check(dataclasses.replace(EMPTY, epoch=3), Guard(epoch=3), "s")


@given(headers(live=True))
def test_marks_are_settled_singly_and_keep_the_header(header):
    if header.merges or header.aborts:
        for transition in (transitions.tombstone, lambda found: transitions.create(found, TXN, RollingPolicy(), 1)):
            with pytest.raises(MarksFullError):
                transition(header)
    marks = [*header.merges, *header.aborts]
    for mark in marks:
        header = merging.settle(header, [mark])
        assert mark not in [*header.merges, *header.aborts]
    assert merging.settle(header, [MergeOutcome(TXN, "of another")]) == header
    grave = transitions.tombstone(header)
    assert grave.deleted
    invariants.check(grave)


@given(headers(live=True), WORDS)
def test_a_new_incarnation_continues_version_epoch_and_commit_lines(header, owner):
    held = transitions.acquire(header, owner)
    assert (held.epoch, held.owner) == (header.epoch + 1, owner)
    released = transitions.release(held)
    assert (released.epoch, released.owner) == (held.epoch, None)
    assert transitions.acquire(released, owner).epoch > held.epoch
    bare = dataclasses.replace(header, merges=(), aborts=())
    made = stamp(transitions.create(bare, TXN, RollingPolicy(), NOW_MS), bare, "me", 1, NOW_MS)
    assert made.version == header.version + 1
    assert made.epoch > header.epoch
    assert {line.writer for line in header.commits} <= {line.writer for line in made.commits}
    assert (made.start, made.size, made.attrs, made.owner, made.phase) == (0, 0, {}, None, Phase.OPEN)
    format_header(made)


@pytest.mark.parametrize(
    "attrs", [{"": "x"}, {str(index): "" for index in range(65)}, {"k": "v" * 4096}, {"é" * 2048: "x"}, {"k": "\ud800"}]
)
def test_attributes_beyond_the_limits_are_refused(attrs):
    with pytest.raises(ValueError):  # noqa: PT011 - each has its own words
        transitions.with_attrs(EMPTY, attrs)


def test_an_attribute_of_none_goes_and_the_order_stays():
    found = transitions.with_attrs(EMPTY, {"a": "1", "b": "2", "c": "3"})
    changed = transitions.with_attrs(found, {"d": "4", "b": None, "a": "5"})
    assert list(changed.attrs.items()) == [("a", "5"), ("c", "3"), ("d", "4")]


def test_a_tombstone_keeps_the_adoption_and_newer_lines():
    header = dataclasses.replace(EMPTY, adopted=Adopted("etag", 5), unknown=("colour blue",), epoch=4)
    grave = transitions.tombstone(header, merged=TXN)
    assert (grave.adopted, grave.unknown, grave.epoch, grave.merged) == (header.adopted, header.unknown, 4, TXN)
    assert transitions.create(grave, TXN, RollingPolicy(), 1).adopted == header.adopted
