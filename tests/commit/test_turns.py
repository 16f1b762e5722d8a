"""The rules by which a writer waits for others, and slots of one client: what it remembers.

Rules of the protocol: P5.18 to P5.26.
"""

import dataclasses
import random
import time
from typing import Any

import pytest

from rollingfs import RollingPolicy
from rollingfs.format.header import Commit, Header
from rollingfs.runtime.concurrency import drive
from rollingfs.segment.at import At
from rollingfs.segment.commit import turns as turns_module
from rollingfs.segment.commit.turns import CLAIMED_S_MAX, Turns
from rollingfs.segment.verbs.create import create
from rollingfs.segment.verbs.delete import delete
from tests.support.backends import private_memory
from tests.support.segment_verbs import append

SEGMENT = "7b0c2f6e-4d11-4c53-9b0e-0d3a5f9c1e27"


def _header(version: int, **versions: int) -> Header:
    return Header(SEGMENT, version, commits=tuple(Commit(writer, 1, found) for writer, found in versions.items()))


def turn_wait_s(turns: Turns, header: Header | None) -> float:
    """The pause before another look at a header that was just read; 0 if there is no need for one."""
    return turns.turn_wait_s(header, fresh=True) or 0.0


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> Turns:
    """Of commits that take 20 ms and looks that take 10; no pause gets more than it must, and nobody stays."""
    monkeypatch.setattr(random, "uniform", lambda least, most: least or most)
    monkeypatch.setattr(random, "random", lambda: 0.99)
    turns = Turns("me")
    turns.took(0.02, 1)
    turns.looked(None, None, 0.01)
    turns.pause_s(_header(9, other=9), 1)  # it has just lost a race
    return turns


def test_the_longest_waiter_goes_at_once(turns: Turns) -> None:
    assert turn_wait_s(turns, _header(9, me=7, a=8, b=9)) == 0
    assert turn_wait_s(turns, _header(9, a=7, me=8, b=9)) == pytest.approx(0.02)
    assert turn_wait_s(turns, _header(9, a=7, b=8, me=9)) == pytest.approx(0.05)


def test_commits_within_a_tick_are_a_tick_apart(monkeypatch: Any) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 7.0)
    monkeypatch.setattr(turns_module, "TICK_S", 0.0156)
    turns = Turns("me")
    for version in (1, 2, 9):
        turns.took(0.0, version)
    assert turns.believed_s == turns_module.COMMITS_MAX / 2 / 6 * 0.0156


def test_an_asker_is_waited_for_a_short_time(turns: Turns, monkeypatch: Any) -> None:
    asked = dataclasses.replace(_header(9, other=9), turn="other")
    now_s = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    assert turns.is_claimed(asked)
    now_s += CLAIMED_S_MAX - 0.1
    assert turns.is_claimed(asked)
    now_s += 0.2
    assert not turns.is_claimed(asked)
    assert turns.is_claimed(dataclasses.replace(asked, version=10)), "it has asked once more"
    assert not turns.is_claimed(_header(9, other=9))
    assert not turns.is_claimed(None)
    assert not turns.is_claimed(dataclasses.replace(asked, turn="me"))


# -- slots -----------------------------------------------------------------------------------------------------


def test_segments_that_are_deleted_are_not_remembered_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns_module, "SLOTS_MAX", 3)
    client = At.of(private_memory(), RollingPolicy(max_bytes=10, inline_bytes=0))
    for number in range(10):
        drive(create(client, f"/folder/{number}"))
        drive(append(client, f"/folder/{number}", b"x" * 30))
        drive(delete(client, f"/folder/{number}"))
    assert len(client.slots._slots) == 3
    drive(create(client, "/folder/9"))
    drive(create(client, "/folder/0"))
    assert drive(append(client, "/folder/0", b"again")) == 0
