"""P4b: a DataFrame on S3 that grows by 100 rows at a time, beside a table of Delta and a file that is written anew."""

from __future__ import annotations

import io
from typing import Any

from benchmarks.case import Case, Goal, Job, ratio
from benchmarks.clients import BUCKET, delta_options, rolling, s3

ROWS = 100
ROWS_BEFORE = 200_000
ROWS_BEFORE_QUICK = 2_000
APPENDS, APPENDS_QUICK = 60, 5


def table(rows: int) -> Any:
    """Rows of three columns."""
    import numpy as np
    import pyarrow as pa

    chance = np.random.default_rng(rows)
    names = [f"sensor {number}" for number in chance.integers(0, 50, rows)]
    return pa.table({"at": range(rows), "value": chance.random(rows), "name": names})


def _sizes(job: Job) -> tuple[Any, Any, int]:
    """The table before, what each append adds, and the number of appends."""
    return table(job.pick(ROWS_BEFORE, ROWS_BEFORE_QUICK)), table(ROWS), job.pick(APPENDS, APPENDS_QUICK)


def _check(found: Any, job: Job) -> None:
    before, more, count = _sizes(job)
    assert found.num_rows == before.num_rows + count * more.num_rows


def ours(job: Job) -> None:
    import pyarrow.parquet as pq

    from rollingfs.parquet import append

    before, more, count = _sizes(job)
    fs, path = rolling(job), f"{BUCKET}/p4b-{job.name}.parquet"
    append(fs, path, before)
    job.each(lambda _: append(fs, path, more), count)
    _check(pq.read_table(path, filesystem=rolling(job, direct=True)), job)


def delta(job: Job) -> None:
    options = delta_options(job)
    from deltalake import DeltaTable, write_deltalake

    before, more, count = _sizes(job)
    url = f"s3://{BUCKET}/p4b-{job.name}"
    write_deltalake(url, before, storage_options=options)
    kept = DeltaTable(url, storage_options=options)  # opening it by URL reads its log again
    job.each(lambda _: write_deltalake(kept, more, mode="append"), count)
    _check(DeltaTable(url, storage_options=options).to_pyarrow_table(), job)


def rewritten(job: Job) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    before, more, count = _sizes(job)
    fs, path = s3(job), f"{BUCKET}/p4b-{job.name}.parquet"

    def write(rows: Any) -> None:
        sink = io.BytesIO()
        pq.write_table(rows, sink)
        fs.pipe_file(path, sink.getvalue())

    def append(_: int) -> None:
        write(pa.concat_tables([pq.read_table(io.BytesIO(fs.cat_file(path))), more]))

    write(before)
    job.each(append, count)
    _check(pq.read_table(io.BytesIO(fs.cat_file(path))), job)


CASES = (
    Case(
        "P4b",
        f"{ROWS} rows appended to a Parquet file of {ROWS_BEFORE:,} rows",
        {"rollingfs.parquet.append": ours, "delta-rs append": delta, "the file written anew": rewritten},
        (
            Goal("delta-rs / latency", ratio("unit_s", "delta-rs append", "rollingfs.parquet.append"), at_least=1),
            Goal("anew / latency", ratio("unit_s", "the file written anew", "rollingfs.parquet.append"), at_least=1),
        ),
        shown=("unit_s", "p99_s", "requests", "cpu_unit_s"),
    ),
)
