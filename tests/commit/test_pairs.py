"""Two writers that share, and who comes beside them: newcomers, clients that do not share, readings that go wrong."""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import Any
from unittest import mock

import pytest

from rollingfs.commit.ask_files import AskFiles
from rollingfs.commit.carry import Carrier
from rollingfs.commit.fairness import Turns
from rollingfs.commit.sharing import LIST_COMMITS_FIRST, LIST_COMMITS_SHARED, Sharing
from rollingfs.format.header import Commit, Header
from tests.support.simulation import Latencies, Load, simulate

ME = "me"
SEGMENT = str(uuid.UUID(int=7))
NEAR = Latencies(12)
WAIT_MS_MAX = 1500


def header(version: int, *lines: tuple[str, int], floor: int) -> Header:
    """A header with a line of each of these writers, in these versions; commits after the floor are plain appends."""
    commits = tuple(Commit(writer, 1, at, None) for writer, at in lines)
    return Header(SEGMENT, version, commits=commits, asks=floor if floor < version else None)


@pytest.fixture
def sharing(monkeypatch: pytest.MonkeyPatch) -> Sharing:
    monkeypatch.setattr(time, "monotonic", lambda: 100.0)
    turns = Turns(ME)
    turns.commit_s = 0.02
    return Sharing(turns)


def test_who_was_alone_when_it_found_a_newcomer_soon_lists_again(sharing: Sharing) -> None:
    """It may win every race from then on, and must not learn of the next newcomer after hundreds of commits."""
    version = 1
    for version in range(1, LIST_COMMITS_FIRST):
        assert not sharing.lists(header(version, (ME, version), floor=0))
        sharing.committed(header(version, (ME, version), floor=0), 0)
    sharing.listed(header(version, (ME, version), floor=0), [ME, "new"])
    for _ in range(LIST_COMMITS_SHARED):
        version += 1
        sharing.committed(header(version, (ME, version), ("new", version - 1), floor=0), 1)
    assert sharing.lists(header(version, (ME, version), ("new", version - 1), floor=0))


def test_the_asks_of_newcomers_are_read_although_others_were_read_ahead(sharing: Sharing) -> None:
    now = header(8, (ME, 8), ("known", 7), floor=0)
    sharing.committed(now, 1)
    sharing.read_ahead(8)
    assert sharing.has_read_ahead(now)
    sharing.listed(header(7, (ME, 7), floor=0), [ME, "new"])
    assert not sharing.has_read_ahead(now)


def test_beside_one_writer_that_does_not_share_nobody_shares(sharing: Sharing) -> None:
    """Its commits void all asks, and make themselves the floor."""
    sharing.lost()
    assert sharing.is_shared(header(20, (ME, 20), ("sharer", 19), floor=5))
    assert sharing.is_shared(header(20, (ME, 19), ("sharer", 20), floor=5))
    assert not sharing.is_shared(header(20, (ME, 20), ("other", 19), floor=19))
    assert not sharing.is_shared(header(20, (ME, 19), ("other", 20), floor=20))
    assert sharing.is_shared(header(20, (ME, 18), ("sharer", 19), ("other", 20), floor=20))


@pytest.mark.slow
def test_a_sharer_waits_no_longer_beside_one_that_does_not_share_than_by_turns() -> None:
    sharing, by_turns = (
        [simulate(Load(2, alone=1, shares=shares, duration_s=20, latencies=NEAR), seed=seed) for seed in (1, 2, 3)]
        for shares in (True, False)
    )
    assert sum(found.p99_ms for found in sharing) <= 1.5 * sum(found.p99_ms for found in by_turns)
    assert max(found.of(slice(0, 1)).max_ms for found in sharing) <= WAIT_MS_MAX


@pytest.mark.parametrize(("owner", "name"), [(AskFiles, "find"), (Carrier, "_read_ahead")])
@pytest.mark.parametrize("error", [ValueError("a bug"), RuntimeError("another")])
def test_whatever_goes_wrong_beside_a_commit_its_outcome_is_that_of_the_commit(
    owner: type, name: str, error: Exception
) -> None:
    calls = []

    async def fails(*args: Any, **options: Any) -> None:
        calls.append(name)
        await asyncio.sleep(0.001)
        raise error

    with mock.patch.object(owner, name, fails):
        found = simulate(Load(2, shares=True, duration_s=4, latencies=NEAR))
    assert calls
    assert not found.errors
