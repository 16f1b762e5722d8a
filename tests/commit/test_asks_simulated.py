"""Shared commits, simulated: what users get of the real client in virtual time, with fixed seeds.

No test looks at a clock. `python -m benchmarks.simulated` prints the table of which these are bounds. Every run checks
its history: no append is lost or doubled, and the order agrees with real time.
"""

import asyncio
import functools
from typing import Any
from unittest import mock

import pytest

from rollingfs.commit.sharing.files import AskFiles
from tests.support.examples import nightly, slowly
from tests.support.simulation import FAR, NEAR, Figures, Latencies, Load, NoTurns, simulate

EQUAL = Latencies(60, jitter_ms=0.01, slow_share=0)
"""Whoever commits back to back wins every race, and does not learn from a lost one that others wait."""
LEAST_SHARE_MIN = 0.5
"""The appends of the writer with the fewest, over the mean."""
PAUSING_RATIO_MAX = 1.75
"""Writers that pause wait at most this many times as long as with plain compare-and-swap."""

run = functools.cache(simulate)


def turns(writers: int, latencies: Latencies = NEAR, duration_s: float = 20, **load: float) -> Figures:
    return run(Load(writers, latencies=latencies, duration_s=duration_s, **load))  # type: ignore[arg-type]


sharing = functools.partial(turns, shares=True)


@pytest.mark.parametrize(
    ("writers", "latencies", "duration_s", "gain_min", "spread_max", "requests_max"),
    [
        *((4, NEAR, 5, 1.2, 4, 4), (8, NEAR, 8, 2, 4, 4), (8, EQUAL, 6, 2, 5, 5), (16, EQUAL, 6, 2, 5, 6)),
        *slowly((16, FAR, 60, 3, 4, 5), (100, NEAR, 6, 5, 20, 10)),
        *nightly((32, NEAR, 30, 5, 3, 5), (60, NEAR, 6, 5, 3, 8), (70, NEAR, 8, 5, 4, 8)),
    ],
)
def test_many_writers_commit_more_than_one_and_each_gets_its_share(
    writers: int, latencies: Latencies, duration_s: float, gain_min: float, spread_max: float, requests_max: float
) -> None:
    one, found = turns(1, latencies, duration_s), sharing(writers, latencies, duration_s)
    assert not found.errors
    assert found.rate_per_s >= gain_min * one.rate_per_s
    assert found.p99_ms <= spread_max * found.median_ms
    assert found.least_share >= LEAST_SHARE_MIN
    assert found.requests <= requests_max


@pytest.mark.parametrize(("pause_s", "requests_max"), [(0.0, 1.02), *slowly((0.3, 1.07))])
def test_a_lone_writer_sends_one_request_for_each_append(pause_s: float, requests_max: float) -> None:
    found = sharing(1, pause_s=pause_s)
    assert found.requests <= requests_max, "of 63 appends with pauses, three may look who else asks"
    assert found.median_ms == pytest.approx(turns(1, pause_s=pause_s).median_ms, rel=0.06)


def test_two_writers_are_quicker_than_by_turns_and_neither_waits_for_long() -> None:
    found, by_turns = sharing(2, duration_s=10), turns(2, duration_s=10)
    assert found.rate_per_s >= 1.2 * by_turns.rate_per_s
    assert found.p99_ms <= 3 * found.median_ms
    assert found.least_share >= LEAST_SHARE_MIN


@pytest.mark.slow
@pytest.mark.parametrize(
    ("writers", "pause_s", "latencies"), [(2, 0.3, NEAR), (8, 0.3, NEAR), (8, 1, NEAR), (8, 4, FAR)]
)
def test_writers_that_pause_wait_little_longer_than_with_compare_and_swap(
    writers: int, pause_s: float, latencies: Latencies
) -> None:
    loads = [Load(writers, pause_s, shares=shares, latencies=latencies, duration_s=120) for shares in (True, False)]
    found, plain = run(loads[0]), run(loads[1], NoTurns)
    assert found.median_ms <= PAUSING_RATIO_MAX * plain.median_ms
    assert found.p99_ms <= PAUSING_RATIO_MAX * plain.p99_ms


@pytest.mark.slow
def test_writers_that_do_not_share_get_their_turns_beside_those_that_do() -> None:
    found = sharing(8, alone=2, duration_s=30)
    assert not found.errors
    assert found.least_share >= 0.2


@pytest.mark.slow
def test_guarded_appends_beside_writers_that_share_wait_at_most_thrice_as_long_as_beside_turns() -> None:
    found, by_turns = sharing(9, guarded=1, duration_s=30), turns(9, guarded=1, duration_s=30)
    assert not found.errors
    assert found.of(slice(8, 9)).median_ms <= 3 * by_turns.of(slice(8, 9)).median_ms


@pytest.mark.parametrize("name", ["find", "read"])
@pytest.mark.parametrize("error", [ValueError("a bug"), RuntimeError("another")])
def test_whatever_goes_wrong_beside_a_commit_its_outcome_is_that_of_the_commit(name: str, error: Exception) -> None:
    calls = []

    async def fails(*args: Any, **options: Any) -> None:
        if name == "read" and not options:
            return  # it is not beside a commit
        calls.append(name)
        await asyncio.sleep(0.001)
        raise error

    with mock.patch.object(AskFiles, name, fails):
        found = simulate(Load(2, shares=True, duration_s=4, latencies=NEAR))
    assert calls
    assert not found.errors
