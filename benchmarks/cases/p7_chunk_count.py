"""P7: the same operations on segments of ten and of a million chunks."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from benchmarks.case import Case, Goal, Job, Medians, Skip, figure
from benchmarks.clients import BUCKET, rolling
from benchmarks.fabricate import chunk_data, fabricate
from rollingfs import RollingPolicy
from rollingfs.runtime.bridge import Bridge

COUNTS = (10, 1_000, 100_000, 1_000_000)
COUNTS_QUICK = (10, 1_000, 5_000, 20_000)
NAMES = ("10 chunks", "10³ chunks", "10⁵ chunks", "10⁶ chunks")
CHUNK_BYTES = 64 * 1024
READ_BYTES = 4096
APPEND_BYTES = 1024
TRUNCATES = 5
ROUNDS_MAX = 8


def _count(job: Job, nth: int) -> int:
    return (COUNTS_QUICK if job.quick else COUNTS)[nth]


def _regions(count: int) -> list[int]:
    """Chunks to read, each with its neighbour: far apart, and within the index pages if there are any."""
    chance = random.Random(count)
    last = count - 2 if count < 200 else count - 200
    return [chance.randrange(TRUNCATES + 1, last) for _ in range(6)]


def prepare(job: Job) -> Mapping[str, Any]:
    fs, policy = rolling(job, direct=True), RollingPolicy(CHUNK_BYTES, None, CHUNK_BYTES)
    folder, sizes = f"{BUCKET}/p7-{job.name}", {}
    for nth in range(len(COUNTS)):
        count = _count(job, nth)
        paths = [f"{folder}/{count}-{number}" for number in range(job.nth)]
        present = {0, 1, *range(TRUNCATES), *(chunk + near for chunk in _regions(count) for near in (0, 1))}
        sizes[count] = Bridge(fs._backend).run(fabricate(fs._backend, paths, count, policy, present))
    return {"folder": folder, "header_bytes": sizes}


def at_count(nth: int, job: Job) -> None:
    """Measure the time, CPU time and requests of each operation."""
    count = _count(job, nth)
    path = f"{job.given['folder']}/{count}-{job.nth}"
    fs = rolling(job, header_cache_s=0)
    fs.touch(f"{path}-other")
    extra = job.sample.extra
    extra["header_bytes"] = job.given["header_bytes"][count]

    def timed(name: str, calls: list[Callable[[], object]]) -> list[float]:
        if not job.servers.direct_url:
            raise Skip("requests are counted on MinIO only")
        before, cpu, walls = job.servers.received().requests, time.process_time(), []
        for call in calls:
            began = time.perf_counter()
            call()
            walls.append(time.perf_counter() - began)
        extra[f"{name}_s"] = statistics.median(walls)
        extra[f"{name}_cpu_s"] = (time.process_time() - cpu) / len(calls)
        extra[f"{name}_requests"] = sum((job.servers.received().requests - before).values()) / len(calls)
        return walls

    def read(file: Any, chunk: int, nth: int) -> None:
        at = 1000 + nth * 2 * READ_BYTES  # where no other read has been
        file.seek(chunk * CHUNK_BYTES + at)
        assert file.read(READ_BYTES) == chunk_data(chunk, CHUNK_BYTES)[at : at + READ_BYTES]

    with job.measured():
        fresh = [rolling(job) for _ in range(5)]
        timed("open", [partial(one.open, path, "rb") for one in fresh])
        regions = _regions(count)
        with fs.open(path, "rb") as file:
            timed("first_read", [partial(read, file, chunk, nth) for nth, chunk in enumerate(regions)])
            timed("read", [partial(read, file, chunk + 1, nth) for nth, chunk in enumerate(regions)])
        data = bytes(APPEND_BYTES)
        timed("append", [partial(fs.append, path, data)] * job.pick(50, 20))
        fs.truncate(path, CHUNK_BYTES)  # drops the first chunk of a page, so it reads the page
        timed("truncate", [partial(fs.truncate, path, nth * CHUNK_BYTES) for nth in range(2, TRUNCATES)])


OPERATIONS = ("append", "open", "truncate", "read", "first_read")


def _against_ten(operation: str, name: str) -> Callable[[Medians], float]:
    return lambda medians: medians[name][f"{operation}_s"] / medians[NAMES[0]][f"{operation}_s"]


CASES = (
    Case(
        "P7",
        "append, open, truncate and random read by number of chunks",
        {name: partial(at_count, nth) for nth, name in enumerate(NAMES)},
        (
            *(
                Goal(f"{operation} at {name} / at 10", _against_ten(operation, name), at_most=1.2)
                for operation in OPERATIONS[:-1]
                for name in NAMES[1:]
            ),
            Goal(
                "requests of a first read beyond 10 chunks'",
                lambda medians: medians[NAMES[-1]]["first_read_requests"] - medians[NAMES[0]]["first_read_requests"],
                at_most=1,
            ),
            Goal("header KiB at 10⁶", figure("header_bytes", NAMES[-1], 1 / 1024), at_most=64),
        ),
        prepare,
        shown=(
            "header_bytes",
            *(f"{operation}{what}" for operation in OPERATIONS for what in ("_s", "_cpu_s", "_requests")),
        ),
    ),
)
