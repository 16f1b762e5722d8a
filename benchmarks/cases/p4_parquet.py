"""P4: Parquet, read by pyarrow through ours and through its own filesystem."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.case import Case, Goal, Job, ratio
from benchmarks.clients import BUCKET, arrow, obs, rolling, s3
from rollingfs.segment.read.read_job import even

ROWS = 4 * 2**20
ROWS_QUICK = 2**19
COLUMNS = 8
SCANNED = ("c1", "c5")
FOOTER_BYTES = 64 * 1024
"""What pyarrow reads of the end of a file, once for the schema and once for the data."""
RANGE_BYTES = 2 * 2**20


def prepare(job: Job) -> dict[str, Any]:
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    chance = np.random.default_rng(4)
    rows = job.pick(ROWS, ROWS_QUICK)
    table = pa.table({f"c{number}": chance.random(rows) for number in range(COLUMNS)})
    fs, plain = rolling(job, direct=True), s3(job, direct=True)
    with fs.open(f"{BUCKET}/table.parquet", "wb") as file:
        pq.write_table(table, file, use_dictionary=False)
    with plain.open(f"{BUCKET}/table-plain.parquet", "wb", block_size=32 * 2**20) as file:
        pq.write_table(table, file, use_dictionary=False)
    sums = {name: float(np.sum(table[name].to_numpy())) for name in table.column_names}
    kept = table["c1"].to_numpy() < 0.1
    return {
        "segment": f"{BUCKET}/table.parquet",
        "plain": f"{BUCKET}/table-plain.parquet",
        "sums": sums,
        "kept": int(kept.sum()),
    }


def _check(job: Job, table: Any) -> None:
    import numpy as np

    for name in table.column_names:
        assert np.isclose(float(np.sum(table[name].to_numpy())), job.given["sums"][name]), name
    job.sample.byte_count = table.nbytes


def _read_all(job: Job, fs: Any, path: str) -> None:
    import pyarrow.parquet as pq

    with job.measured():
        table = pq.read_table(path, filesystem=fs)
    assert table.num_columns == COLUMNS
    _check(job, table)


def _read_column(job: Job, fs: Any, path: str) -> None:
    import pyarrow.parquet as pq

    with job.measured():
        table = pq.read_table(path, columns=["c3"], filesystem=fs)
    assert table.column_names == ["c3"]
    _check(job, table)


def _scan(job: Job, fs: Any, path: str) -> None:
    import pyarrow.dataset as ds

    with job.measured():
        table = ds.dataset(path, filesystem=fs).to_table(columns=list(SCANNED), filter=ds.field("c1") < 0.1)
    assert table.num_rows == job.given["kept"]
    job.sample.byte_count = table.nbytes


Read = Callable[[Job, Any, str], None]


def _ours(job: Job, read: Read) -> None:
    read(job, rolling(job), job.given["segment"])


def _arrow(job: Job, read: Read) -> None:
    read(job, arrow(job), job.given["plain"])


def ours_all(job: Job) -> None:
    _ours(job, _read_all)


def arrow_all(job: Job) -> None:
    _arrow(job, _read_all)


def ours_column(job: Job) -> None:
    _ours(job, _read_column)


def arrow_column(job: Job) -> None:
    _arrow(job, _read_column)


def ours_scan(job: Job) -> None:
    _ours(job, _scan)


def arrow_scan(job: Job) -> None:
    _arrow(job, _scan)


def floor_scan(job: Job) -> None:
    """The requests of our scan by obstore alone: pyarrow asks a Python file for one column chunk after the other."""
    import pyarrow.parquet as pq

    with arrow(job).open_input_file(job.given["plain"]) as file:
        metadata, size = pq.read_metadata(file), file.size()
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    columns = [group.column(int(name[1:])) for group in groups for name in SCANNED]
    store, name = obs(job), job.given["plain"].removeprefix(f"{BUCKET}/")
    with job.measured() as sample:
        sample.byte_count = asyncio.run(_floor(store, name, size, columns))


async def _floor(store: Any, name: str, size: int, columns: Sequence[Any]) -> int:
    import obstore

    await obstore.get_async(store, "warm")  # the header
    count = 0
    for start in (size - FOOTER_BYTES, size - FOOTER_BYTES):
        count += len(await obstore.get_range_async(store, name, start=start, end=size))
    for column in columns:
        bounds = even(column.data_page_offset, column.data_page_offset + column.total_compressed_size, RANGE_BYTES)
        calls = [obstore.get_range_async(store, name, start=start, end=end) for start, end in bounds]
        count += sum(len(data) for data in await asyncio.gather(*calls))
    return count


CASES = (
    Case(
        "P4",
        "Parquet of 250 MB",
        {
            "rollingfs, all": ours_all,
            "pyarrow S3, all": arrow_all,
            "rollingfs, 1 column": ours_column,
            "pyarrow S3, 1 column": arrow_column,
            "rollingfs, scan": ours_scan,
            "pyarrow S3, scan": arrow_scan,
            "floor of our scan": floor_scan,
        },
        (
            Goal("all columns, pyarrow / ours", ratio("wall_s", "pyarrow S3, all", "rollingfs, all"), at_least=1.7),
            Goal(
                "1 column, pyarrow / ours", ratio("wall_s", "pyarrow S3, 1 column", "rollingfs, 1 column"), at_least=1.2
            ),
            Goal("scan, pyarrow / ours", ratio("wall_s", "pyarrow S3, scan", "rollingfs, scan"), at_least=1.05),
            Goal(
                "scan, pyarrow / floor of ours", ratio("wall_s", "pyarrow S3, scan", "floor of our scan"), at_least=1.05
            ),
        ),
        prepare,
        shown=("wall_s", "requests", "cpu_s", "memory_bytes"),
    ),
)
