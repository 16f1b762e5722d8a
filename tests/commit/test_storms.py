"""Storms: writers die, lose answers, are answered late, fence and seal, in virtual time. Each seed is a course."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.support.storm import Weather, rage

WEATHERS = {
    "as usual": Weather(),
    "all share": Weather(shares=1, owners=0, guarded=0, deaths=6),
    "half share": Weather(shares=0.5),
    "many faults": Weather(fault_share=0.15, deaths=8),
    "owners and guards": Weather(owners=2, guarded=2, deaths=6),
    "never sealed, far away": Weather(is_sealed=False, way_ms=60, duration_s=12),
    "a crowd": Weather(writers=20, pause_s=0.0, deaths=10, owners=0),
}
SEEDS = 12


def rage_all(weather: Weather, seeds: range) -> Counter[str]:
    counts: Counter[str] = Counter()
    for seed in seeds:
        storm = rage(seed, weather)
        counts += Counter(call.told for call in storm.calls)
        counts["died"] += weather.deaths
        counts["faults"] += sum(sum(writer.backend.met.values()) for writer in storm.writers.values())
    return counts


def test_a_storm_loses_nothing_and_doubles_nothing() -> None:
    counts = rage_all(Weather(duration_s=2, deaths=2), range(1))
    assert counts["ok"] > 0
    assert counts["faults"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("weather", WEATHERS.values(), ids=list(WEATHERS))
def test_storms_lose_nothing_and_double_nothing(weather: Weather) -> None:
    counts = rage_all(weather, range(1, SEEDS + 1))
    assert min(counts["ok"], counts["unknown"], counts["failed"], counts["faults"]) > 0, counts
