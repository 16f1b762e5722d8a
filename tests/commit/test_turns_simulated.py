"""Turns of many writers, simulated: the real client in virtual time, with fixed seeds. No test looks at a clock."""

import functools

import pytest

from rollingfs.segment.commit.turns import Turns
from tests.support.examples import nightly, slowly
from tests.support.simulation import FAR, NEAR, Load, NoTurns, simulate

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
