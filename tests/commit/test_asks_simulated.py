"""Shared commits, simulated: the real client in virtual time, with fixed seeds. No test looks at a clock.

`python -m benchmarks.simulated` prints the table of which these are bounds. Every run checks its history.
"""

from __future__ import annotations

import functools

import pytest

from tests.support.simulation import Figures, Latencies, Load, simulate

NEAR, FAR = Latencies(12), Latencies(60)
FAIR = (0.5, 2)
"""The least and the largest share of a writer, over its fair one."""

run = functools.cache(simulate)


def sharing(writers: int, latencies: Latencies = NEAR, duration_s: float = 20, **load: float) -> Figures:
    return run(Load(writers, latencies=latencies, duration_s=duration_s, shares=True, **load))  # type: ignore[arg-type]


def turns(writers: int, latencies: Latencies = NEAR, duration_s: float = 20, **load: float) -> Figures:
    return run(Load(writers, latencies=latencies, duration_s=duration_s, **load))  # type: ignore[arg-type]


def check_fair(found: Figures) -> None:
    assert not found.errors
    assert found.least_share >= FAIR[0]
    assert found.largest_share <= FAIR[1]


def test_eight_writers_together_are_twice_as_quick_as_one_and_each_gets_its_share() -> None:
    found = sharing(8, duration_s=8, from_start=True)
    assert found.rate_per_s >= 2 * turns(1, duration_s=8).rate_per_s
    assert found.p99_ms <= 3 * found.median_ms
    check_fair(found)


@pytest.mark.parametrize("pause_s", [0.0, pytest.param(0.3, marks=pytest.mark.slow)])
def test_a_writer_alone_sends_one_request_for_each_append(pause_s: float) -> None:
    found = sharing(1, pause_s=pause_s)
    assert found.requests <= (1.04 if pause_s else 1.02), "of 63 appends with pauses, two may look who else asks"
    assert found.median_ms == pytest.approx(turns(1, pause_s=pause_s).median_ms, rel=0.05)


@pytest.mark.slow
def test_two_writers_are_quicker_than_by_turns_and_neither_waits_for_long() -> None:
    found, by_turns = sharing(2), turns(2)
    assert found.rate_per_s >= 1.2 * by_turns.rate_per_s
    assert found.p99_ms <= 3 * found.median_ms
    check_fair(found)


@pytest.mark.slow
def test_sixteen_writers_far_away_are_three_times_as_quick_as_one() -> None:
    found = sharing(16, FAR, 60)
    assert found.rate_per_s >= 3 * turns(1, FAR, 60).rate_per_s
    check_fair(found)


@pytest.mark.slow
def test_thirty_two_writers_are_five_times_as_quick_as_one() -> None:
    found = sharing(32, duration_s=30)
    assert found.rate_per_s >= 5 * turns(1).rate_per_s
    check_fair(found)


@pytest.mark.slow
@pytest.mark.parametrize(("writers", "duration_s", "requests_max"), [(70, 8, 8), (100, 6, 8), (200, 6, 28)])
def test_of_many_writers_nobody_starves_and_no_outcome_is_unknown(
    writers: int, duration_s: float, requests_max: float
) -> None:
    found = sharing(writers, duration_s=duration_s)
    assert not found.errors
    assert found.least_share >= FAIR[0]
    assert found.requests <= requests_max, "in the first two seconds, 200 that begin together read each other's asks"


@pytest.mark.slow
def test_of_more_writers_than_there_are_lines_no_outcome_is_unknown() -> None:
    assert not sharing(300, duration_s=3).errors


@pytest.mark.slow
def test_writers_that_do_not_share_get_their_turns_beside_those_that_do() -> None:
    found = sharing(8, alone=2, duration_s=30)
    assert not found.errors
    assert found.least_share >= 0.2


@pytest.mark.slow
def test_guarded_appends_beside_writers_that_share_wait_no_longer_than_beside_turns() -> None:
    found, by_turns = sharing(9, guarded=1, duration_s=30), turns(9, guarded=1, duration_s=30)
    assert not found.errors
    assert found.of(slice(8, 9)).median_ms <= 1.1 * by_turns.of(slice(8, 9)).median_ms
