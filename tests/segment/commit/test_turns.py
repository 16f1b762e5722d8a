"""The rules by which a writer waits for others, and slots of one client: what it remembers.

Rules of the protocol: P5.18 to P5.26.
"""

import dataclasses
import functools
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
from tests.support.examples import nightly, slowly
from tests.support.segment_verbs import append
from tests.support.simulation import FAR, NEAR, Load, NoTurns, simulate

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


UNSATURATED = (
    *(Load(8, 1.0, latencies=NEAR), Load(2, 0.3, is_fixed=True, latencies=NEAR), Load(4, 1.0, latencies=FAR)),
    *slowly(Load(8, 0.3, latencies=NEAR)),
    *nightly(Load(8, 0.3, is_fixed=True, latencies=NEAR), Load(16, 1.0, latencies=NEAR)),
    *nightly(Load(8, 4.0, latencies=FAR, duration_s=400), Load(24, 4.0, latencies=NEAR, duration_s=360)),
    *nightly(Load(60, 4.0, latencies=NEAR), Load(60, 10.0, latencies=NEAR, duration_s=200)),
)
NEARLY_SATURATED = (
    Load(8, 0.1, latencies=NEAR),
    *nightly(Load(16, 0.3, latencies=NEAR), Load(8, 0.3, latencies=FAR, duration_s=150)),
)
"""The pauses are shorter than the time in which all others commit."""
TWO_SATURATED = nightly(Load(2, latencies=NEAR, duration_s=200))
SATURATED = [
    *slowly(Load(8, latencies=NEAR)),
    *nightly(Load(16, latencies=NEAR), Load(8, latencies=FAR, duration_s=300)),
]
RATIO_MAX = 1.3

run = functools.cache(simulate)


def _name(load: Load) -> str:
    pauses = "fixed" if load.is_fixed else "random"
    return f"{load.writers} writers, {pauses} pauses of {load.pause_s} s, {load.latencies.way_ms} ms"


@pytest.mark.parametrize("load", UNSATURATED, ids=_name)
def test_a_writer_that_pauses_waits_hardly_longer(load: Load) -> None:
    found, plain = run(load, Turns), run(load, NoTurns)
    assert found.median_ms <= RATIO_MAX * plain.median_ms
    assert found.p99_ms <= RATIO_MAX * plain.p99_ms
    assert found.requests <= plain.requests * 1.02, "it looks before it tries, rather than to lose"


@pytest.mark.parametrize("load", [*NEARLY_SATURATED, *SATURATED, *TWO_SATURATED], ids=_name)
def test_under_load_each_gets_its_share(load: Load) -> None:
    assert run(load, Turns).least_share > 0.8


@pytest.mark.parametrize("load", [*NEARLY_SATURATED, *SATURATED], ids=_name)
def test_under_load_the_slowest_wait_less(load: Load) -> None:
    assert run(load, Turns).p99_ms < run(load, NoTurns).p99_ms


def test_a_writer_alone_sends_one_request_for_each_append() -> None:
    for pause_s in (0.0, 0.3):
        assert run(Load(1, pause_s, duration_s=20), Turns).requests == pytest.approx(1, abs=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("busy", [1, 4])
def test_who_pauses_gets_through_beside_those_who_never_pause(busy: int) -> None:
    load = Load(8, 0.3, busy=busy, duration_s=40)
    found, plain = (run(load, turns).of(slice(busy, None)) for turns in (Turns, NoTurns))
    assert found.p99_ms < plain.p99_ms


@pytest.mark.slow
@pytest.mark.parametrize("writers", [24, *nightly(60, 100)])
def test_a_crowd_starves_nobody(writers: int) -> None:
    found, plain = (run(Load(writers, duration_s=30), turns) for turns in (Turns, NoTurns))
    assert found.max_ms < plain.max_ms
    assert found.least_share > plain.least_share
