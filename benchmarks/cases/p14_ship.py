"""P14: `ship` of a large log, of a log that grows, and of logs that rest."""

from __future__ import annotations

import contextlib
import itertools
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.case import Case, Goal, Job, Sample, figure, ratio
from benchmarks.clients import BUCKET, rolling
from rollingfs.ship import Shipper

LINE_BYTES = 150
MIB = 2**20
LINES_PER_S, TICK_S = 1000, 0.01
COMMIT_S = 1.0
IDLE_FILES, IDLE_S = 200, 20
REST_S = 6.0
"""After so long without a change, a file is looked at by its status alone."""


@contextlib.contextmanager
def log_of(size: int) -> Iterator[Path]:
    """A file of numbered lines."""
    with tempfile.TemporaryDirectory() as folder:
        path, count = Path(folder, "app.log"), 10_000
        with path.open("wb") as file:
            for first in range(0, size // LINE_BYTES, count):
                file.writelines(b"%0*d\n" % (LINE_BYTES - 1, number) for number in range(first, first + count))
        yield path


def large(job: Job) -> int:
    return job.pick(1024, 32) * MIB


def probed(job: Job) -> Any:
    """Return a filesystem that has committed to the store, so that the store is probed."""
    fs = rolling(job)
    fs.pipe_file(f"{BUCKET}/probed-{job.name}", b"x")
    return fs


def ship(job: Job) -> None:
    with log_of(large(job)) as path:
        shipper = Shipper(probed(job), [str(path)], f"{BUCKET}/ship-{job.name}")
        with job.measured() as sample:
            shipper.once()
        sample.byte_count = path.stat().st_size
        assert shipper.bytes == sample.byte_count


def put_file(job: Job) -> None:
    with log_of(large(job)) as path:
        fs = probed(job)
        with job.measured() as sample:
            fs.put_file(str(path), f"{BUCKET}/put-{job.name}")
        sample.byte_count = path.stat().st_size


def checksum(job: Job) -> None:
    """Measure the CPU of `cat FILE | sha256sum`, the children of the shell included."""
    with log_of(large(job)) as path, job.measured() as sample:
        began = _children_s()
        subprocess.run(["sh", "-c", f"cat {path} | sha256sum"], check=True, stdout=subprocess.DEVNULL)
        spent_s = _children_s() - began
    sample.cpu_s = spent_s


def _children_s() -> float:
    import resource

    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@contextlib.contextmanager
def following(job: Job, shipper: Shipper, rest_s: float = COMMIT_S) -> Iterator[Sample]:
    """Measure a shipper that follows its files until the block ends, from some time after its first commits on."""
    shipper.step(flush=True)
    stop = threading.Event()
    thread = threading.Thread(target=shipper.follow, args=(stop.is_set,))
    thread.start()
    time.sleep(rest_s)
    before = shipper.commits
    try:
        with job.measured() as sample:
            yield sample
        sample.count = max(1, shipper.commits - before)
    finally:
        stop.set()
        thread.join()


def growing(job: Job) -> None:
    """Measure the requests of a commit, and the time until a line is readable."""
    path, seconds = f"{BUCKET}/grow-{job.name}", job.pick(30, 6)
    written: list[float] = []
    with tempfile.TemporaryDirectory() as folder, Path(folder, "app.log").open("ab", buffering=0) as log:
        log.write(b"%0*d\n" % (LINE_BYTES - 1, 0))
        fs = probed(job)
        shipper = Shipper(fs, [log.name], path, commit_on=f"{COMMIT_S}s")
        seen: list[tuple[float, int]] = []
        step = shipper.step

        def noted(*, flush: bool = False) -> bool:
            before, found = shipper.bytes, step(flush=flush)
            if shipper.bytes != before:
                seen.append((time.perf_counter(), shipper.bytes // LINE_BYTES))
            return found

        shipper.step = noted  # type: ignore[method-assign]
        with following(job, shipper) as sample:
            begin = time.perf_counter()
            for tick in range(int(seconds / TICK_S)):
                time.sleep(max(0.0, begin + tick * TICK_S - time.perf_counter()))
                log.write(b"%0*d\n" % (LINE_BYTES - 1, tick) * int(LINES_PER_S * TICK_S))
                written += [time.perf_counter()] * int(LINES_PER_S * TICK_S)
    assert int(fs.size(path)) == (len(written) + 1) * LINE_BYTES
    pairs = itertools.pairwise([(0.0, 1), *seen])
    sample.latencies_s = [
        at - written[line - 1] for (_, low), (at, high) in pairs for line in range(max(low, 1), min(high, len(written)))
    ]


def idle(job: Job) -> None:
    """Measure files to which nobody writes."""
    with tempfile.TemporaryDirectory() as folder:
        for number in range(job.pick(IDLE_FILES, IDLE_FILES // 10)):
            Path(folder, f"app{number:03}.log").write_bytes(b"a line\n")
        shipper = Shipper(probed(job), [f"{folder}/app*.log"], f"{BUCKET}/idle-{job.name}/")
        with following(job, shipper, REST_S) as sample:
            time.sleep(job.pick(IDLE_S, IDLE_S // 4))
        sample.count = 1
        sample.extra["share"] = sample.cpu_s / sample.wall_s


CASES = (
    Case(
        "P14",
        "ship: 1 GiB of 150-byte lines; 1,000 lines/s; 200 idle files",
        {
            "ship": ship,
            "put_file": put_file,
            "cat | sha256sum": checksum,
            "ship, 1,000 lines/s": growing,
            "ship, 200 idle files": idle,
        },
        (
            Goal("ship ÷ put_file, throughput", ratio("bytes_per_s", "ship", "put_file"), at_least=0.9),
            Goal("ship ÷ cat | sha256sum, CPU", ratio("cpu_s", "ship", "cat | sha256sum"), at_most=2),
            Goal("memory of ship, MiB", figure("memory_bytes", "ship", 1 / MIB), at_most=80),
            Goal("requests of a commit", figure("requests", "ship, 1,000 lines/s"), at_most=1.05),
            Goal("p99 until a line is readable, s", figure("p99_s", "ship, 1,000 lines/s"), at_most=COMMIT_S + 0.2),
            Goal("processor of 200 idle files, %", figure("share", "ship, 200 idle files", 100), at_most=1),
            Goal("requests of 200 idle files", figure("requests", "ship, 200 idle files"), at_most=0),
        ),
        shown=("bytes_per_s", "unit_s", "p99_s", "requests", "cpu_s", "memory_bytes"),
    ),
)
