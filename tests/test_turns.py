"""Turns among writers: who waits, and for how long at most."""

from __future__ import annotations

import random

import pytest

from rollingfs.header import Commit, Header
from rollingfs.turns import RIVAL_VERSIONS, Turns, rivals

SEGMENT = "7b0c2f6e-4d11-4c53-9b0e-0d3a5f9c1e27"


def _header(version: int, **versions: int) -> Header:
    return Header(SEGMENT, version, commits=tuple(Commit(writer, 1, found) for writer, found in versions.items()))


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> Turns:
    """Of commits that take 20 ms; every pause is the longest."""
    monkeypatch.setattr(random, "uniform", lambda _, most: most)
    turns = Turns()
    turns.took(0.02)
    return turns


def test_a_writer_alone_never_waits(turns: Turns) -> None:
    assert turns.way_s(_header(9, me=9), "me") == 0
    assert turns.way_s(_header(99, me=99, other=99 - RIVAL_VERSIONS), "me") == 0, "who stopped long ago is no rival"
    assert turns.way_s(None, "me") == 0


def test_who_was_last_makes_way_for_others(turns: Turns) -> None:
    assert turns.way_s(_header(9, me=9, other=8), "me") == pytest.approx(0.02)
    assert turns.way_s(_header(9, me=8, other=9), "me") == 0


def test_who_loses_waits_for_all_others_and_less_each_time(turns: Turns) -> None:
    header = _header(9, me=9, a=8, b=7, c=6)
    assert rivals(header, "me") == 3
    assert [turns.pause_s(header, "me", losses) for losses in (1, 2, 3)] == pytest.approx([0.06, 0.03, 0.02])
