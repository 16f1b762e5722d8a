"""What small appends of 100 rows waste of a Parquet file: ``python -m benchmarks.parquet_waste [APPENDS=10000]``."""

from __future__ import annotations

import io
import random
import sys
import tempfile
import time
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rollingfs import RollingFileSystem
from rollingfs.parquet import append

ROWS = 100
SEED = 7


def wasted(data: bytes) -> float:
    """The part of a file that nothing in its footer names."""
    metadata = pq.read_metadata(io.BytesIO(data))
    groups = [metadata.row_group(nth) for nth in range(metadata.num_row_groups)]
    used = sum(group.column(nth).total_compressed_size for group in groups for nth in range(group.num_columns))
    return (len(data) - used - metadata.serialized_size - 12) / len(data)


def table(nth: int, chance: random.Random) -> Any:
    """The rows of an append."""
    return pa.table(
        {
            "at": range(ROWS * nth, ROWS * nth + ROWS),
            "value": [chance.random() for _ in range(ROWS)],
            "name": [f"sensor {chance.randrange(50)}" for _ in range(ROWS)],
        }
    )


def main(appends: int) -> None:
    fs, chance = RollingFileSystem("file", sync=False), random.Random(SEED)
    with tempfile.TemporaryDirectory() as folder:
        path, began_s = f"{folder}/t.parquet", time.process_time()
        for nth in range(appends):
            append(fs, path, table(nth, chance))
            if nth + 1 in (100, 1000, 3000, appends):
                data = fs.cat_file(path)
                found = pq.ParquetFile(io.BytesIO(data)).metadata
                print(
                    f"{nth + 1:,} appends: {found.num_rows:,} rows in {found.num_row_groups} row groups, "
                    f"{len(data):,} bytes, {wasted(data):.1%} wasted, {time.process_time() - began_s:.0f} s of CPU",
                    flush=True,
                )
        assert pq.read_table(io.BytesIO(fs.cat_file(path)))["at"].to_pylist() == [*range(ROWS * appends)]


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
