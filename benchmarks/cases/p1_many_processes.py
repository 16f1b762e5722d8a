"""P1e, P13: many processes append to one segment, of the local disk, or of a store through a server near them."""

from __future__ import annotations

import contextlib
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

from benchmarks.case import Case, Goal, Job, figure, ratio
from benchmarks.clients import BUCKET, rolling, serving
from benchmarks.content import content

SIZE = 4096
FULL_S, QUICK_S = 12.0, 0.5
"""All append for so long: the first appends, in which they find each other, are less than one in a hundred."""
STAT = Path("/proc/stat")
IDLE = slice(3, 5)
"""The times, in the first line of `STAT`, in which nothing ran."""


@dataclass(frozen=True)
class Crowd:
    """Who appends."""

    processes: int
    pause_s: float = 0.0
    on_disk: bool = False
    has_server: bool = False
    """Whether they append through one `rollingfs serve` on this machine."""
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
        with serving(job) if crowd.has_server else contextlib.nullcontext() as url:
            _measure(crowd, job, f"{BUCKET}/p1-{job.name}", url and f"{url}{BUCKET}")


def _open(crowd: Crowd, job: Job, url: str | None) -> Any:
    if crowd.on_disk:
        import fsspec

        return fsspec.filesystem("rolling", target_protocol="file", skip_instance_cache=True)
    return rolling(job, append_via=url)


def _measure(crowd: Crowd, job: Job, path: str, url: str | None = None) -> None:
    fs = _open(crowd, job, url)
    fs.create(path)
    context = multiprocessing.get_context("forkserver")
    count = crowd.processes
    barrier, answers = context.Barrier(count + 1), context.Queue()
    workers = [
        context.Process(target=_append, args=(crowd, job, path, nth, barrier, answers, url)) for nth in range(count)
    ]
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
    sample.latencies_s = [latency_s for latencies in found for latency_s in latencies]
    sample.count = len(sample.latencies_s)
    assert segment.length == SIZE * sample.count, "what was acknowledged is not what is there"
    counts = [len(latencies) for latencies in found]
    sample.extra = {
        "least_share": min(counts) / statistics.fmean(counts),
        "largest_share": max(counts) / statistics.fmean(counts),
    } | ({"processors_busy": busy / ticks} if ticks else {})


def _append(crowd: Crowd, job: Job, path: str, nth: int, barrier: Any, answers: Any, url: str | None) -> None:
    if crowd.turns:
        from benchmarks import other_turns
        from rollingfs.segment.commit import turns

        turns.Turns = getattr(other_turns, crowd.turns)  # type: ignore[misc]
    pauses = random.Random(f"{job.nth} {nth}")  # the same for all contestants of a round
    fs, data, latencies = _open(crowd, job, url), content(0, SIZE), []
    fs.append(f"{path}-other", b"") if fs.exists(f"{path}-other") else fs.touch(f"{path}-other")  # probes the store
    barrier.wait()
    until = time.perf_counter() + (QUICK_S if job.quick else FULL_S)
    while time.perf_counter() < until:
        if crowd.pause_s:
            time.sleep(pauses.expovariate(1 / crowd.pause_s))
        began = time.perf_counter()
        fs.append(path, data)
        latencies.append(time.perf_counter() - began)
    answers.put(latencies)


def _processors() -> tuple[int, int]:
    """How many ticks the processors of this machine have been busy, and have been; 0 where nothing tells it."""
    if not STAT.exists():
        return 0, 0
    ticks = [int(field) for field in STAT.read_text().split("\n", 1)[0].split()[1:9]]
    return sum(ticks) - sum(ticks[IDLE]), sum(ticks)


def _contestants(*crowds: tuple[str, Crowd]) -> dict[str, Callable[[Job], None]]:
    return {name: partial(appended, crowd) for name, crowd in crowds}


SHOWN = ("rate_per_s", "unit_s", "p99_s", "requests", "least_share", "largest_share")
CASES = (
    Case(
        "P13",
        "4 KiB appended by many processes, by turns, or through a server on the same machine",
        _contestants(
            ("1 process", Crowd(1)),
            ("8 processes", Crowd(8)),
            ("1, server", Crowd(1, has_server=True)),
            ("8, server", Crowd(8, has_server=True)),
            ("32, server", Crowd(32, has_server=True)),
        ),
        (
            Goal("8, server / 1 process", ratio("rate_per_s", "8, server", "1 process"), at_least=4),
            Goal("32, server / 1 process", ratio("rate_per_s", "32, server", "1 process"), at_least=8),
            Goal("8, server: least share", figure("least_share", "8, server"), at_least=0.5),
        ),
        shown=SHOWN[:4],
    ),
    Case(
        "P1e",
        "4 KiB appended to a local disk by many processes",
        _contestants(("1 process", Crowd(1, on_disk=True)), ("8 processes", Crowd(8, on_disk=True))),
        (
            Goal("8 processes / 1", ratio("rate_per_s", "8 processes", "1 process"), at_least=2),
            Goal("8 processes: least share", figure("least_share", "8 processes"), at_least=0.5),
        ),
        needs_servers=False,
        shown=tuple(figure for figure in SHOWN if figure != "requests"),
    ),
)
