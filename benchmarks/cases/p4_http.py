"""P4h: one column of a Parquet file by polars, over HTTP from `rollingfs serve`, and by a file handle."""

from __future__ import annotations

from typing import Any

from benchmarks.case import Case, Goal, Job, ratio
from benchmarks.clients import BUCKET, need, rolling, serving

ROWS, ROWS_QUICK = 180_000, 9_000
COLUMNS, COLUMN = 8, "c3"
NAME, SMALL = "p4h.parquet", "p4h-small.parquet"
"""The small file is read before the clock starts, because polars' first request takes 0.1 s by itself."""


def prepare(job: Job) -> dict[str, Any]:
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    chance = np.random.default_rng(5)
    rows = job.pick(ROWS, ROWS_QUICK)
    table = pa.table({f"c{number}": chance.random(rows) for number in range(COLUMNS)})
    fs = rolling(job, direct=True)
    for name, content in ((NAME, table), (SMALL, table[:10])):
        with fs.open(f"{BUCKET}/{name}", "wb") as file:
            pq.write_table(content, file, use_dictionary=False)
    return {"sum": float(np.sum(table[COLUMN].to_numpy()))}


def _sum(source: Any) -> float:
    import polars as pl

    return float(pl.scan_parquet(source).select(pl.col(COLUMN).sum()).collect().item())


def _read(job: Job, source: Any) -> None:
    import numpy as np

    sent = job.servers.sent_bytes() if job.servers.direct_url else 0
    with job.measured() as sample:
        found = _sum(source)
    assert np.isclose(found, job.given["sum"])
    sample.extra["read_bytes"] = float(job.servers.sent_bytes() - sent) if sent else 0.0


def by_http(job: Job) -> None:
    need("polars")
    with serving(job) as url:
        _sum(f"{url}v1/segments/{SMALL}")
        _read(job, f"{url}v1/segments/{NAME}")


def by_handle(job: Job) -> None:
    need("polars")
    fs = rolling(job)
    with fs.open(f"{BUCKET}/{SMALL}") as file:
        _sum(file)
    with fs.open(f"{BUCKET}/{NAME}") as file:
        _read(job, file)


CASES = (
    Case(
        "P4h",
        "one column of eight of a Parquet file of 11.5 MB by polars",
        {"over HTTP": by_http, "by handle": by_handle},
        (
            Goal("seconds, HTTP / handle", ratio("wall_s", "over HTTP", "by handle"), at_most=0.5),
            Goal("bytes, HTTP / handle", ratio("read_bytes", "over HTTP", "by handle"), at_most=0.35),
        ),
        prepare,
        shown=("wall_s", "requests", "read_bytes", "cpu_s"),
    ),
)
