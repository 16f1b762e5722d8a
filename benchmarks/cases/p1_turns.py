"""P1c, P1f, P1g: 8 processes that append to one segment, and pause, or not: by turns, or without."""

from __future__ import annotations

from functools import partial

from benchmarks.case import Case, Goal, ratio
from benchmarks.cases.p1_many_processes import Crowd, appended

PROCESSES = 8
SHOWN = ("rate_per_s", "unit_s", "p99_pooled_s", "requests", "processors_busy")


def _crowd(pause_s: float, *, turns: str = "") -> Crowd:
    return Crowd(PROCESSES, pause_s, turns=turns)


def _paused(case_id: str, pause_s: float) -> Case:
    return Case(
        case_id,
        f"4 KiB appended by {PROCESSES} processes that pause {pause_s:g} s between two appends",
        {"neither": partial(appended, _crowd(pause_s, turns="NoTurns")), "turns": partial(appended, _crowd(pause_s))},
        tuple(
            Goal(f"pauses of {pause_s:g} s, turns / neither, {text}", ratio(figure, "turns", "neither"), at_most=1.3)
            for text, figure in (("median", "unit_s"), ("p99", "p99_pooled_s"))
        ),
        rounds_min=3,
        shown=SHOWN,
    )


CASES = (
    _paused("P1c", 0.3),
    _paused("P1f", 1.0),
    Case(
        "P1g",
        f"4 KiB appended by {PROCESSES} processes that never pause, by the turns of two releases",
        {
            "neither": partial(appended, _crowd(0, turns="NoTurns")),
            "turns of 0.1": partial(appended, _crowd(0, turns="EarlierTurns")),
            "turns": partial(appended, _crowd(0)),
        },
        (
            Goal("no pauses, turns / turns of 0.1, rate", ratio("rate_per_s", "turns", "turns of 0.1"), at_least=0.97),
            Goal("no pauses, turns / turns of 0.1, p99", ratio("p99_pooled_s", "turns", "turns of 0.1"), at_most=1.1),
        ),
        rounds_min=3,
        shown=SHOWN,
    ),
)
