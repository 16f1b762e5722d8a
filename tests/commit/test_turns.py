"""Turns of many writers, simulated: the real client in virtual time, with fixed seeds. No test looks at a clock."""

from __future__ import annotations

import functools

import pytest

from rollingfs.commit.fairness import Turns
from tests.support.examples import nightly, slowly
from tests.support.other_turns import EarlierTurns, NoTurns
from tests.support.simulation import Figures, Latencies, Load, simulate

NEAR, FAR = Latencies(12), Latencies(60)
UNSATURATED = (
    Load(8, 1.0, latencies=NEAR),
    Load(2, 0.3, is_fixed=True, latencies=NEAR),
    Load(4, 1.0, latencies=FAR),
)
MORE_UNSATURATED = (
    Load(8, 0.3, latencies=NEAR),
    Load(4, 0.3, latencies=NEAR),
    Load(8, 0.3, is_fixed=True, latencies=NEAR),
    Load(16, 1.0, latencies=NEAR),
    Load(8, 4.0, latencies=FAR, duration_s=400),
    Load(24, 4.0, latencies=NEAR, duration_s=360),
)
MANY_UNSATURATED = (Load(60, 4.0, latencies=NEAR), Load(60, 10.0, latencies=NEAR, duration_s=200))
SATURATED = (Load(8, latencies=NEAR),)
MORE_SATURATED = (
    Load(2, latencies=NEAR, duration_s=200),
    Load(16, latencies=NEAR),
    Load(8, latencies=FAR, duration_s=300),
)
NEARLY_SATURATED = (Load(8, 0.1, latencies=NEAR),)
"""The pauses are shorter than the time in which all others commit."""
MORE_NEARLY_SATURATED = (Load(16, 0.3, latencies=NEAR), Load(8, 0.3, latencies=FAR, duration_s=150))
UNSATURATED_RATIO_MAX = 1.3
SATURATED_RATE_RATIO_MIN = 0.97
SATURATED_P99_RATIO_MAX = 1.1

run = functools.cache(simulate)


def _name(load: Load) -> str:
    pauses = "fixed" if load.is_fixed else "random"
    return f"{load.writers} writers, {pauses} pauses of {load.pause_s} s, {load.latencies.way_ms} ms"


def _each(quick: tuple[Load, ...], slow: tuple[Load, ...], many: tuple[Load, ...] = ()) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("load", [*quick, *slowly(*slow), *nightly(*many)], ids=_name)


def check_unsaturated(turns: type[Turns], load: Load) -> None:
    """Writers that pause wait hardly longer than with plain compare-and-swap."""
    found, plain = run(load, turns), run(load, NoTurns)
    assert found.median_ms <= UNSATURATED_RATIO_MAX * plain.median_ms
    assert found.p99_ms <= UNSATURATED_RATIO_MAX * plain.p99_ms
    assert found.requests <= plain.requests * 1.02, "it looks before it tries, rather than to lose"


def check_saturated(turns: type[Turns], load: Load) -> None:
    """Writers that never pause commit as often as in release 0.1, and the slowest wait no longer."""
    found, earlier = run(load, turns), run(load, EarlierTurns)
    assert found.rate_per_s >= SATURATED_RATE_RATIO_MIN * earlier.rate_per_s
    assert found.p99_ms <= SATURATED_P99_RATIO_MAX * earlier.p99_ms


@_each(UNSATURATED, MORE_UNSATURATED, MANY_UNSATURATED)
def test_who_pauses_waits_hardly_longer_than_with_plain_compare_and_swap(load: Load) -> None:
    check_unsaturated(Turns, load)


@pytest.mark.slow
@_each(NEARLY_SATURATED, (*SATURATED, *MORE_SATURATED, *MORE_NEARLY_SATURATED))
def test_who_saturates_commits_as_often_as_ever_and_waits_no_longer(load: Load) -> None:
    check_saturated(Turns, load)


@pytest.mark.slow
@_each(NEARLY_SATURATED, MORE_NEARLY_SATURATED)
def test_where_pauses_are_short_turns_win_over_both(load: Load) -> None:
    found = run(load, Turns)
    assert found.rate_per_s > run(load, EarlierTurns).rate_per_s
    assert found.p99_ms < run(load, NoTurns).p99_ms


def test_turns_that_ignore_pauses_are_found_out() -> None:
    with pytest.raises(AssertionError):
        check_unsaturated(EarlierTurns, UNSATURATED[0])


@pytest.mark.slow
def test_writers_that_take_no_turns_are_found_out() -> None:
    with pytest.raises(AssertionError):
        check_saturated(NoTurns, NEARLY_SATURATED[0])


def test_a_writer_alone_sends_one_request_for_each_append() -> None:
    for pause_s in (0.0, 0.3):
        assert run(Load(1, pause_s, duration_s=20), Turns).requests == pytest.approx(1, abs=0.01)


@_each(NEARLY_SATURATED, (*SATURATED, *MORE_SATURATED))
def test_every_writer_gets_its_share(load: Load) -> None:
    assert run(load, Turns).least_share > 0.8


@pytest.mark.slow
@pytest.mark.parametrize(("busy", "pause_s"), [(1, 0.3), pytest.param(4, 0.3, marks=pytest.mark.slow)])
def test_who_pauses_gets_through_beside_those_who_never_pause(busy: int, pause_s: float) -> None:
    load = Load(8, pause_s, busy=busy, duration_s=40)
    found, earlier, plain = (_pausing(load, turns) for turns in (Turns, EarlierTurns, NoTurns))
    assert found.p99_ms < earlier.p99_ms < plain.p99_ms
    assert found.median_ms < earlier.median_ms


def _pausing(load: Load, turns: type[Turns]) -> Figures:
    return run(load, turns).of(slice(load.busy, None))


@pytest.mark.slow
@pytest.mark.parametrize("writers", [24, *nightly(60, 100)])
def test_a_crowd_starves_nobody(writers: int) -> None:
    found, earlier, plain = (run(Load(writers, duration_s=30), turns) for turns in (Turns, EarlierTurns, NoTurns))
    assert found.rate_per_s >= SATURATED_RATE_RATIO_MIN * earlier.rate_per_s
    assert found.max_ms < plain.max_ms
    assert found.least_share > plain.least_share


@pytest.mark.slow
@pytest.mark.parametrize("load", [Load(4, 0.1, duration_s=10), Load(20, shares=True, duration_s=2)])
def test_equal_seeds_give_equal_runs(load: Load) -> None:
    assert simulate(load, seed=3) == simulate(load, seed=3)
    assert simulate(load, seed=3) != simulate(load, seed=4)


@pytest.mark.parametrize("latencies", [NEAR, FAR])
def test_an_append_alone_takes_the_time_of_the_table(latencies: Latencies) -> None:
    expected_ms = latencies.way_ms + latencies.jitter_ms + latencies.write_ms
    assert run(Load(1, latencies=latencies, duration_s=20), Turns).median_ms == pytest.approx(expected_ms, rel=0.1)
