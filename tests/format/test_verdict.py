"""What a lost answer means: every course of events of a small world, and what nobody can know."""

import dataclasses
import itertools
import uuid

import pytest

from rollingfs.format import commit_lines, transitions
from rollingfs.format.header import Commit, Header
from rollingfs.format.transitions import stamp
from rollingfs.format.verdict import Verdict, judge
from rollingfs.policy import RollingPolicy

SEGMENT = str(uuid.UUID(int=7))
EMPTY = Header(SEGMENT, 1)
NOW_MS = 1_795_168_800_000


# -- judge: every course of events of a small world ----------------------------------------------------------
#
# Writer "me" sends one attempt, conditioned on the header that is there at the beginning. It lands at any moment,
# or never; before and after it others commit, each time replacing what is there. Two commit lines fit a header,
# so that mine is soon evicted, or 64, which evict none. After every event the verdict is held against what happened.

ME, NUMBER = "me", 5
OTHERS = ("a", "b", "c")


def other_commit(header, writer, number):
    """What another writer makes of the header: a change, a deletion, or a new incarnation."""
    wanted = header or EMPTY
    if number % 3 == 1 and header is not None and not header.deleted:
        wanted = transitions.tombstone(header)
    elif number % 3 == 2:
        wanted = transitions.create(header, str(uuid.UUID(int=number)), RollingPolicy(), NOW_MS)
    return stamp(wanted, header, writer, number, NOW_MS)


def bases():
    """Headers that an attempt may be conditioned on: none, new, and with commit lines of mine and of others."""
    yield None
    yield EMPTY
    yield dataclasses.replace(EMPTY, version=9, commits=(Commit(ME, NUMBER - 1, 9),))
    yield dataclasses.replace(EMPTY, version=9, commits=(Commit("a", 1, 8), Commit("b", 1, 9)), evicted=7)
    yield dataclasses.replace(EMPTY, version=9, commits=(Commit(ME, NUMBER - 1, 8), Commit("b", 1, 9)), evicted=6)


def courses(events_max):
    """All orders of events: which other commits (or where my attempt lands, at most once)."""
    for count in range(events_max + 1):
        for others in itertools.product(OTHERS, repeat=count):
            for landing in [None, *range(count + 1)]:
                yield [*others[:landing], ME, *others[landing:]] if landing is not None else list(others)


@pytest.mark.parametrize(("lines_max", "events_max"), [(2, 5), (64, 4)])
def test_judge_never_says_what_is_not_so_and_knows_all_where_nothing_was_evicted(monkeypatch, lines_max, events_max):
    monkeypatch.setattr(commit_lines, "COMMITS_MAX", lines_max)
    seen = dict.fromkeys(Verdict, 0)
    for base, course in itertools.product(bases(), courses(events_max)):
        current, took_place, since = base, False, set()
        numbers = itertools.count(100)
        for writer in course:
            if writer != ME:
                current = other_commit(current, writer, next(numbers))
                since.add(writer)
            elif current is base:  # the condition holds: the attempt takes place
                current, took_place = stamp(base or EMPTY, base, ME, NUMBER, NOW_MS), True
                since = set()
        verdict = judge(base, current is base, current, ME, NUMBER)
        seen[verdict] += 1
        if verdict is Verdict.UNKNOWN:  # only a line that may have been evicted is a reason not to know
            assert since
            assert current.evicted > (base.version if base else 0)
            continue
        assert (verdict is Verdict.MINE) == took_place, course
        assert (verdict is Verdict.SAME) == (current is base), "versions never repeat: it cannot take place any more"
    assert all(seen.values()) or (lines_max > 2 and not seen[Verdict.UNKNOWN]), seen


@pytest.mark.parametrize(
    ("current", "why"),
    [
        (None, "the header is gone"),
        (dataclasses.replace(EMPTY, version=11, commits=(Commit(ME, NUMBER + 1, 11),)), "a higher number of mine"),
        (dataclasses.replace(EMPTY, version=99, evicted=11), "a line newer than the base was evicted"),
        (dataclasses.replace(EMPTY, version=10), "the version did not grow: another header of the same number"),
        (dataclasses.replace(EMPTY, version=1), "it was removed and made again from nothing"),
    ],
)
def test_judge_says_unknown_where_nothing_can_be_known(current, why):
    base = dataclasses.replace(EMPTY, version=10)
    assert judge(base, False, current, ME, NUMBER) is Verdict.UNKNOWN, why


@pytest.mark.parametrize("evicted", [0, 9, 10])
def test_judge_is_sure_if_what_was_evicted_is_no_newer_than_the_base(evicted):
    base = dataclasses.replace(EMPTY, version=10)
    current = dataclasses.replace(EMPTY, version=99, evicted=evicted, commits=(Commit(ME, NUMBER - 1, 9),))
    assert judge(base, False, current, ME, NUMBER) is Verdict.NOT_MINE
