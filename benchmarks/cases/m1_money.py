"""M1: what one append sends, one by one and 100 a second; `benchmarks.cost` makes money of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from benchmarks.case import Case, Contestant, Goal, Job, figure
from benchmarks.clients import BUCKET, delta_options, rolling, s3
from benchmarks.content import content

KIB = (1, 4)
RATE_PER_S = 100
THREADS = 64
"""More than ever wait at once: each append begins at its time, whether or not others are done."""


def ours(job: Job, size: int) -> None:
    fs, path = rolling(job), f"{BUCKET}/m1-{job.name}"
    fs.create(path)
    job.each(lambda number: fs.append(path, content(number * size, size)), job.pick(512, 64))


def ours_at_a_rate(job: Job, size: int) -> None:
    fs, path = rolling(job), f"{BUCKET}/m1-{job.name}"
    fs.create(path)
    data, count = content(0, size), job.pick(20, 2) * RATE_PER_S
    fs.append(path, data)  # probes the store

    def append(due_s: float) -> float:
        time.sleep(max(0.0, due_s - time.perf_counter()))
        fs.append(path, data)
        return time.perf_counter() - due_s

    with ThreadPoolExecutor(THREADS) as pool, job.measured(count) as sample:
        began = time.perf_counter()
        sample.latencies_s += pool.map(append, [began + number / RATE_PER_S for number in range(count)])
    assert fs.info(path)["size"] == (count + 1) * size


def objects(job: Job, size: int) -> None:
    fs, data = s3(job), content(0, size)
    job.each(lambda number: fs.pipe_file(f"{BUCKET}/m1-{job.name}/{number}", data), job.pick(100, 20))


def delta(job: Job, size: int) -> None:
    options = delta_options(job)
    import pyarrow as pa
    from deltalake import DeltaTable, write_deltalake

    url, batch = f"s3://{BUCKET}/m1-{job.name}", pa.table({"data": [content(0, size)]})
    write_deltalake(url, batch, storage_options=options)
    table = DeltaTable(url, storage_options=options)
    job.each(lambda _: write_deltalake(table, batch, mode="append"), job.pick(100, 6))


WAYS: Mapping[str, Callable[[Job, int], None]] = {
    "rollingfs, one by one": ours,
    "rollingfs, 100 a second": ours_at_a_rate,
    "an object for each": objects,
    "delta-rs, one by one": delta,
}


def _contestants() -> dict[str, Contestant]:
    return {f"{name}, {kib} KiB": partial(way, size=kib * 1024) for name, way in WAYS.items() for kib in KIB}


CASES = (
    Case(
        "M1",
        "requests and bytes of one append",
        _contestants(),
        (
            Goal("requests, one by one", figure("requests", "rollingfs, one by one, 1 KiB"), at_most=1.02),
            Goal("requests, 100 a second", figure("requests", "rollingfs, 100 a second, 1 KiB"), at_most=0.7),
        ),
        shown=("unit_s", "p99_s", "requests", "paid_writes", "paid_reads", "sent_unit_bytes"),
    ),
)
