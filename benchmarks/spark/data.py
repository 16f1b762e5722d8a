"""What Spark reads: the same bytes in segments of many chunks and in plain files."""

from __future__ import annotations

import io
import json
import os
import random
from dataclasses import dataclass
from typing import Any

import fsspec

from benchmarks.case import Job

MIB = 2**20
FILES = 8
BLOCKS = 6
"""Blocks of each file."""
BLOCK_BYTES = 8 * MIB
BLOCK_BYTES_QUICK = 64 * 2**10
CHUNK_BYTES = 8 * MIB
CHUNK_BYTES_QUICK = 50_000
TAIL_BYTES = 100_000
TAIL_BYTES_QUICK = 10_000
"""Bytes at the end of each segment, appended last: they stay in its header."""
ARROW_COPIES = 2
"""As Arrow, the rows of a block are smaller by this factor."""
JSON_SCHEMA = "id long, user string, page string, ms double, ok boolean"
SUMS = ("count(*)", "sum(id)", "sum(octet_length(user))", "sum(octet_length(page))", "sum(ms)", "count_if(ok)")
COLUMNS = 8
ROWS = 6_000_000
ROWS_QUICK = 60_000
ROW_GROUP_ROWS = 250_000


@dataclass(frozen=True, slots=True)
class Block:
    """Whole lines of JSON, and their rows."""

    data: bytes
    rows: list[dict[str, Any]]

    @property
    def sums(self) -> tuple[float, ...]:
        """The values of `SUMS`."""
        rows = self.rows
        return (
            len(rows),
            sum(row["id"] for row in rows),
            sum(len(row["user"]) for row in rows),
            sum(len(row["page"]) for row in rows),
            sum(row["ms"] for row in rows),
            sum(row["ok"] for row in rows),
        )

    @property
    def text_sums(self) -> tuple[float, ...]:
        """The number of lines, and of bytes without line feeds."""
        return len(self.rows), len(self.data) - len(self.rows)


def make_block(job: Job) -> Block:
    """As many lines of a log as fit into a block."""
    size, chance = job.pick(BLOCK_BYTES, BLOCK_BYTES_QUICK), random.Random(5)
    lines: list[bytes] = []
    rows = []
    while True:
        row = {
            "id": chance.getrandbits(40),
            "user": f"user-{chance.randrange(100_000)}",
            "page": "/" + "/".join(f"{chance.getrandbits(28):x}" for _ in range(4)),
            "ms": chance.randrange(40_000) / 8,  # its sum is exact
            "ok": chance.random() < 0.9,
        }
        line = json.dumps(row).encode() + b"\n"
        size -= len(line)
        if size < 0:
            return Block(b"".join(lines), rows)
        lines.append(line)
        rows.append(row)


def rolling(job: Job) -> Any:
    """A filesystem whose segments get many chunks."""
    size = job.pick(CHUNK_BYTES, CHUNK_BYTES_QUICK)
    return fsspec.filesystem("rolling", target_protocol="file", max_bytes=size, skip_instance_cache=True)


def write_both(job: Job, folder: str, ending: str, data: bytes) -> int:
    """Write `FILES` segments and as many plain files into two folders; returns the bytes in each folder."""
    fs, tail = rolling(job), job.pick(TAIL_BYTES, TAIL_BYTES_QUICK)
    segments, plain = f"{folder}/segments-{ending}", f"{folder}/plain-{ending}"
    os.makedirs(plain)
    for number in range(FILES):
        name = f"part-{number:05d}.{ending}"
        with fs.open(f"{segments}/{name}", "ab") as file:
            file.write(data[:-tail])
        fs.append(f"{segments}/{name}", data[-tail:])
        with open(f"{plain}/{name}", "wb") as file:
            file.write(data)
    assert len(fs.segment(f"{segments}/part-00000.{ending}").chunks) > 1, "the segments must have many chunks"
    return FILES * len(data)


def write_lines(job: Job, folder: str, ending: str) -> tuple[Block, int]:
    """Write lines as `write_both` does; returns the block, which is there `FILES * BLOCKS` times, and the bytes."""
    block = make_block(job)
    return block, write_both(job, folder, ending, BLOCKS * block.data)


def write_parquet(job: Job, folder: str) -> tuple[list[int], int]:
    """Write tables of longs; returns the sum of each column over all files (as Spark adds), and the bytes."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    chance = np.random.default_rng(5)
    rows = job.pick(ROWS, ROWS_QUICK) // FILES
    table = pa.table({f"c{number}": chance.integers(0, 2**40, rows) for number in range(COLUMNS)})
    file = io.BytesIO()
    pq.write_table(table, file, use_dictionary=False, row_group_size=ROW_GROUP_ROWS)
    size = write_both(job, folder, "parquet", file.getvalue())
    return [FILES * int(column.to_numpy().sum()) for column in table.columns], size


def arrow_batch(block: Block) -> Any:
    """The rows of a block, `ARROW_COPIES` times."""
    import pyarrow as pa

    return pa.RecordBatch.from_pylist(ARROW_COPIES * block.rows)


def write_streams(job: Job, folder: str, batch: Any) -> int:
    """Write the batch `BLOCKS` times as an Arrow stream, as `write_both` does; returns the bytes."""
    import pyarrow as pa

    file = io.BytesIO()
    with pa.ipc.new_stream(file, batch.schema) as writer:
        for _ in range(BLOCKS):
            writer.write_batch(batch)
    return write_both(job, folder, "arrow", file.getvalue())
