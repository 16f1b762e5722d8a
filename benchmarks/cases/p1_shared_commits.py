"""P1d, P1e: many processes append to one segment, and share commits or take turns; on a store, on the local disk."""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.case import Case, Goal, Job, Medians, figure, ratio
from benchmarks.clients import BUCKET, rolling
from benchmarks.content import content

SIZE = 4096
FULL_S, QUICK_S = 12.0, 0.5
"""All append for so long: the first appends, in which they find each other, are less than one in a hundred."""
STAT = Path("/proc/stat")
IDLE = slice(3, 5)
"""The times, in the first line of `STAT`, in which nothing ran."""
BESIDE = 8
"""Plain writers beside the one that is measured."""


@dataclass(frozen=True)
class Crowd:
    """Who appends."""

    processes: int
    shares: bool = False
    pause_s: float = 0.0
    guarded: int = 0
    """So many more append at the length that they have just seen; if there are any, only they are measured."""
    on_disk: bool = False
    turns: str = ""
    """The class of `benchmarks.other_turns` by which they take turns; by default they do as the library does."""


def appended(crowd: Crowd, job: Job) -> None:
    """Let all append for some seconds, and measure each append."""
    if crowd.on_disk:
        folder = tempfile.mkdtemp(prefix="rollingfs-bench-", dir=os.environ.get("ROLLINGFS_BENCH_DIR"))
        try:
            _measure(crowd, job, f"{folder}/log")
        finally:
            shutil.rmtree(folder)
    else:
        _measure(crowd, job, f"{BUCKET}/p1d-{job.name}")


def _open(crowd: Crowd, job: Job) -> Any:
    options = {"share_commits": True} if crowd.shares else {}
    if crowd.on_disk:
        import fsspec

        return fsspec.filesystem("rolling", target_protocol="file", skip_instance_cache=True, **options)
    return rolling(job, **options)


def _measure(crowd: Crowd, job: Job, path: str) -> None:
    fs = _open(crowd, job)
    fs.create(path)
    context = multiprocessing.get_context("forkserver")
    count = crowd.processes + crowd.guarded
    barrier, answers = context.Barrier(count + 1), context.Queue()
    workers = [context.Process(target=_append, args=(crowd, job, path, nth, barrier, answers)) for nth in range(count)]
    for worker in workers:
        worker.start()
    barrier.wait()
    before = _processors()
    with job.measured() as sample:  # a worker answers when its time is over
        found = [answers.get() for _ in workers]
    busy, ticks = (now - then for now, then in zip(_processors(), before, strict=True))
    for worker in workers:
        worker.join()
    segment = fs.segment(path)
    segment.refresh()
    appends = [latencies for _, latencies in found]
    assert segment.length == SIZE * sum(map(len, appends)), "what was acknowledged is not what is there"
    shown = [latencies for is_guarded, latencies in found if is_guarded == bool(crowd.guarded)]
    sample.latencies_s = [latency_s for latencies in shown for latency_s in latencies]
    sample.count = sum(map(len, appends))
    counts = [len(latencies) for latencies in shown]
    sample.extra = {
        "least_share": min(counts) / statistics.fmean(counts),
        "largest_share": max(counts) / statistics.fmean(counts),
    } | ({"processors_busy": busy / ticks} if ticks else {})


def _append(crowd: Crowd, job: Job, path: str, nth: int, barrier: Any, answers: Any) -> None:
    from rollingfs.errors import BadOffsetError

    if crowd.turns:
        from benchmarks import other_turns
        from rollingfs.commit import fairness

        fairness.Turns = getattr(other_turns, crowd.turns)  # type: ignore[misc]
    is_guarded = nth >= crowd.processes
    pauses = random.Random(f"{job.nth} {nth}")  # the same for all contestants of a round
    fs, data, latencies = _open(crowd, job), content(0, SIZE), []
    fs.append(f"{path}-other", b"") if fs.exists(f"{path}-other") else fs.touch(f"{path}-other")  # probes the store
    segment = fs.segment(path)
    barrier.wait()
    until = time.perf_counter() + (QUICK_S if job.quick else FULL_S)
    while time.perf_counter() < until:
        if crowd.pause_s:
            time.sleep(pauses.expovariate(1 / crowd.pause_s))
        began = time.perf_counter()
        while True:
            try:
                fs.append(path, data, expected_offset=_length(segment) if is_guarded else None)
                break
            except BadOffsetError:
                continue
        latencies.append(time.perf_counter() - began)
    answers.put((is_guarded, latencies))


def _length(segment: Any) -> int:
    segment.refresh()
    return int(segment.length)


def _processors() -> tuple[int, int]:
    """How many ticks the processors of this machine have been busy, and have been; 0 where nothing tells it."""
    if not STAT.exists():
        return 0, 0
    ticks = [int(field) for field in STAT.read_text().split("\n", 1)[0].split()[1:9]]
    return sum(ticks) - sum(ticks[IDLE]), sum(ticks)


def _spread(name: str) -> Callable[[Medians], float]:
    return lambda medians: medians[name]["p99_s"] / medians[name]["unit_s"]


def _contestants(*crowds: tuple[str, Crowd]) -> dict[str, Callable[[Job], None]]:
    return {name: partial(appended, crowd) for name, crowd in crowds}


SHOWN = ("rate_per_s", "unit_s", "p99_s", "requests", "least_share", "largest_share")
CASES = (
    Case(
        "P1d",
        "4 KiB appended by many processes that share commits, or take turns",
        _contestants(
            ("1 process", Crowd(1)),
            ("1, sharing", Crowd(1, shares=True)),
            ("2 processes", Crowd(2)),
            ("2, sharing", Crowd(2, shares=True)),
            ("8 processes", Crowd(8)),
            ("8, sharing", Crowd(8, shares=True)),
            ("16 processes", Crowd(16)),
            ("16, sharing", Crowd(16, shares=True)),
            ("guarded, alone", Crowd(0, guarded=1)),
            ("guarded, beside 8 that share", Crowd(BESIDE, shares=True, guarded=1)),
        ),
        (
            Goal("8, sharing / 1", ratio("rate_per_s", "8, sharing", "1 process"), at_least=2),
            Goal("8, sharing, p99 / median", _spread("8, sharing"), at_most=3),
            Goal("16, sharing / 1", ratio("rate_per_s", "16, sharing", "1 process"), at_least=3),
            Goal("2, sharing / 2", ratio("rate_per_s", "2, sharing", "2 processes"), at_least=1),
            Goal("1, sharing / 1, latency", ratio("unit_s", "1, sharing", "1 process"), at_most=1.05),
            Goal("1, sharing, requests each", figure("requests", "1, sharing"), at_most=1.02),
            Goal("8, sharing: least share", figure("least_share", "8, sharing"), at_least=0.5),
            Goal("8, sharing: largest share", figure("largest_share", "8, sharing"), at_most=2),
            Goal(
                "guarded, beside 8 / alone, latency",
                ratio("unit_s", "guarded, beside 8 that share", "guarded, alone"),
                at_most=5,
            ),
        ),
        shown=SHOWN,
    ),
    Case(
        "P1e",
        "4 KiB appended to a local disk by many processes",
        _contestants(
            ("1 process", Crowd(1, on_disk=True)),
            ("8 processes", Crowd(8, on_disk=True)),
        ),
        (
            Goal("8 processes / 1", ratio("rate_per_s", "8 processes", "1 process"), at_least=2),
            Goal("8 processes: least share", figure("least_share", "8 processes"), at_least=0.5),
        ),
        needs_servers=False,
        shown=tuple(figure for figure in SHOWN if figure != "requests"),
    ),
)
