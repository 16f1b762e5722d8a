"""Tries other defaults of reading: ``python -m benchmarks.sweep [--rounds 3] [--latency 12,60] [--only NAME]``.

One value at a time differs from the defaults. Each trial has a process of its own, and all take turns within a round.
The table shows each value's figures by those of the default of the same round (the median of these ratios).
"""

from __future__ import annotations

import argparse
import importlib
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.case import Contestant, Job, Sample
from benchmarks.cases import p2_read_and_write, p3_ranges, p4_parquet
from benchmarks.runner import _in_child, _make_bucket, _Prepared
from benchmarks.servers import LATENCY_MS, open_servers

MIB = 2**20
LATENCIES_MS = f"{LATENCY_MS},60"
WORKS: dict[str, tuple[Contestant, Any]] = {
    "256 MiB": (p2_read_and_write.ours_cold, p2_read_and_write.prepare_cold),
    "100 ranges": (p3_ranges.ours_cat_ranges, p3_ranges.prepare),
    "1 column": (p4_parquet.ours_column, p4_parquet.prepare),
    "scan": (p4_parquet.ours_scan, p4_parquet.prepare),
}


@dataclass(frozen=True)
class Trial:
    """Values that differ from the defaults, and the works on which they may tell."""

    name: str
    works: tuple[str, ...]
    options: dict[str, Any] = field(default_factory=dict)
    """Of the filesystem."""
    constants: dict[str, int] = field(default_factory=dict)
    """Of modules: ``"module:NAME"``."""


DEFAULT = "default"
RANGES = ("100 ranges",)
COLUMNS = ("1 column", "scan")
WHOLE = ("256 MiB",)
_PREFETCH = "rollingfs.segment.read.prefetch"
_READ_BUFFER = "rollingfs.fs.read_buffer:PREFETCH_RANGE_BYTES"
TRIALS = (
    Trial(DEFAULT, tuple(WORKS)),
    *(Trial(f"max_concurrency {count}", (*RANGES, *WHOLE), {"max_concurrency": count}) for count in (16, 32, 100)),
    *(Trial(f"max_memory {count} MiB", WHOLE, {"max_memory": count * MIB}) for count in (32, 64, 96, 128)),
    *(
        Trial(
            f"ranges fetched ahead of {count} MiB",
            WHOLE,
            constants={f"{_PREFETCH}:PREFETCH_RANGE_BYTES": count * MIB, _READ_BUFFER: count * MIB},
        )
        for count in (4, 16)
    ),
    *(Trial(f"AHEAD_FACTOR {count}", WHOLE, constants={f"{_PREFETCH}:AHEAD_FACTOR": count}) for count in (2, 8)),
    *(
        Trial(
            f"ranges of {count} MiB within a read",
            COLUMNS,
            constants={"rollingfs.segment.read.ranges:RANGE_BYTES_MIN": count * MIB},
        )
        for count in (1, 4)
    ),
)


@dataclass(frozen=True)
class _Tried:
    """A contestant under a trial's values."""

    trial: Trial
    work: str

    def __call__(self, job: Job) -> None:
        for place, value in self.trial.constants.items():
            module, _, name = place.partition(":")
            setattr(importlib.import_module(module), name, value)
        contestant, _ = WORKS[self.work]
        module_of = importlib.import_module(contestant.__module__)
        connect = module_of.rolling
        module_of.rolling = lambda job, **given: connect(job, **given, **self.trial.options)
        contestant(job)


def run(rounds: int, latency_ms: int, trials: Sequence[Trial]) -> dict[tuple[str, str], list[Sample]]:
    """The samples of all trials, by trial and work, in the order of the rounds."""
    found: dict[tuple[str, str], list[Sample]] = {}
    with open_servers(latency_ms) as servers:
        _in_child(_make_bucket, Job(servers, True, 0, {}))
        given: dict[Any, Any] = {}
        works = [work for work in WORKS if any(work in trial.works for trial in trials)]
        for work in works:
            prepare = WORKS[work][1]
            if prepare not in given:
                given[prepare] = _asked(_Prepared(prepare), Job(servers, False, rounds, {}))
        for nth in range(rounds):
            for work in works:
                of_work = [trial for trial in trials if work in trial.works]
                for trial in of_work[nth % len(of_work) :] + of_work[: nth % len(of_work)]:
                    job = Job(servers, False, nth, given[WORKS[work][1]])
                    sample = _asked(_Tried(trial, work), job)
                    print(f"{latency_ms} ms: {work}: {trial.name}: {sample.wall_s:.2f} s", file=sys.stderr, flush=True)
                    found.setdefault((trial.name, work), []).append(sample)
    return found


def _asked(contestant: Any, job: Job) -> Any:
    status, answer = _in_child(contestant, job)
    if status != "done":
        raise RuntimeError(answer)
    return answer


def table(found: dict[tuple[str, str], list[Sample]], latency_ms: int) -> str:
    """Markdown: time, requests and memory by those of the default."""
    lines = [
        f"| at {latency_ms} ms | work | time / default | CPU / default | requests | memory MiB |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for (name, work), samples in found.items():
        defaults = found[DEFAULT, work]
        time, cpu = (
            statistics.median(
                getattr(one, what) / getattr(base, what) for one, base in zip(samples, defaults, strict=True)
            )
            for what in ("wall_s", "cpu_s")
        )
        requests = statistics.median(sum(one.requests.values()) for one in samples)
        memory = statistics.median(one.memory_bytes for one in samples) / MIB
        lines.append(f"| {name} | {work} | {time:.2f} | {cpu:.2f} | {requests:.0f} | {memory:.0f} |")
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sweep", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--latency", default=LATENCIES_MS, help="milliseconds of each request, comma-separated")
    parser.add_argument("--only", default="", help="trials whose name contains this")
    options = parser.parse_args(arguments)
    trials = [trial for trial in TRIALS if trial.name == DEFAULT or options.only in trial.name]
    for latency_ms in map(int, options.latency.split(",")):
        print(table(run(options.rounds, latency_ms, trials), latency_ms), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
