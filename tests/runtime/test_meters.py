"""Counting: exact beside threads, coroutines, signals and forks; times in buckets."""

import asyncio
import itertools
import threading
from time import perf_counter_ns

import pytest
from hypothesis import given, strategies as st

from rollingfs.errors import ConflictError
from rollingfs.runtime import meters
from rollingfs.runtime.meters import BUCKETS, NS_MIN, STEPS, Meters, Tally, bounds_ns
from tests.support.forks import is_so_in_child, needs_fork
from tests.support.schedules import Caller, beside, in_threads

THREADS, CALLS = 8, 500


def test_buckets_have_no_gap_and_bounded_width():
    bounds = [bounds_ns(index) for index in range(3 * STEPS, BUCKETS)]
    assert bounds[0][0] == NS_MIN
    for before, after in itertools.pairwise(bounds):
        assert before[1] == after[0]
    assert all(end - start <= start / STEPS for start, end in bounds)


@given(st.integers(NS_MIN, 2**62))
def test_a_call_counts_in_its_bucket(ns):
    counted = Meters()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(meters, "perf_counter_ns", lambda: ns + 7)
        counted.count("x", 7)
    tally = counted.total()["x"]
    [index] = [index for index, count in enumerate(tally.buckets) if count]
    start, end = bounds_ns(index)
    assert start <= ns < end
    assert tally.ns == ns


def test_calls_of_no_measurable_time_are_counted():
    counted = Meters()
    counted.count("x", perf_counter_ns() + 10**9)  # a clock that goes back
    assert (counted.total()["x"].count, counted.total()["x"].ns) == (1, NS_MIN)


def test_threads_lose_no_count_while_others_ask():
    counted, stop, seen = Meters(), threading.Event(), [0]

    def count() -> None:
        for _ in range(CALLS):
            counted.count("x", perf_counter_ns(), 3)
            counted.failed("x", perf_counter_ns(), OSError())

    def ask() -> None:
        while not stop.is_set():
            now = counted.total().get("x")
            if now is not None:
                assert now.count >= seen[0]
                seen[0] = now.count

    asker = Caller(ask)
    asker.start()
    assert in_threads(*[count] * THREADS) == [None] * THREADS
    stop.set()
    asker.join()
    assert asker.outcome is None
    total, calls = counted.total()["x"], THREADS * CALLS
    assert (total.count, total.errors, total.refusals, total.bytes) == (2 * calls, calls, 0, 3 * calls)


def test_counts_of_ended_threads_stay():
    counted = Meters()
    for _ in range(THREADS):
        in_threads(lambda: counted.note("x"))
    assert counted.total()["x"].count == THREADS


def test_a_nested_question_loses_no_count():
    """As in the handler of a signal."""
    counted = Meters()
    for _ in range(3):
        in_threads(lambda: counted.note("x"))
    within = []

    def interrupt(*_: object) -> None:
        if len(within) < 2:
            within.append(None)
            counted.note("x")
            counted.total()

    with pytest.MonkeyPatch.context() as patch:
        beside(patch, Tally, "copy", interrupt)
        counted.total()
    assert counted.total()["x"].count == 3 + len(within)


def test_coroutines_of_a_loop_are_all_counted():
    counted = Meters()

    async def call(error: BaseException | None) -> None:
        await asyncio.sleep(0)
        if error is not None:
            raise error

    async def main() -> None:
        errors = [None, FileNotFoundError(), FileExistsError(), ConflictError("x"), OSError(), asyncio.CancelledError()]
        calls = [counted.measure("x", call(error), 5) for error in errors * 20]
        await asyncio.gather(*calls, return_exceptions=True)

    asyncio.run(main())
    total = counted.total()["x"]
    assert (total.count, total.refusals, total.errors, total.bytes) == (120, 60, 40, 100)


def counts(counted: Meters) -> dict[str, int]:
    return {name: tally.count for name, tally in counted.total().items()}


@needs_fork
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_child_process_counts_from_zero_whoever_had_lock():
    counted = Meters()
    counted.note("x")

    def counts_anew() -> bool:
        counted.after_fork()
        counted.note("y")
        return counts(counted) == {"y": 1}

    with counted._lock:
        assert is_so_in_child(counts_anew)
    assert counts(counted) == {"x": 1}
