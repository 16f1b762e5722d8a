"""Rows as the bytes of a Parquet file."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rollingfs.format.parquet_footer import MAGIC, TAIL_BYTES, body_size

GROUP_BYTES = 64 * 1024 * 1024
"""Size in memory of the rows of a row group."""
GROUP_ROWS_MAX = 1024 * 1024
"""Rows of a row group, as pyarrow has them by default."""


def gathered(batches: Iterator[pa.RecordBatch], size: int) -> Iterator[list[pa.RecordBatch]]:
    """Groups of batches of at least `size` bytes in memory, except the last; batches without rows are dropped."""
    waiting: list[pa.RecordBatch] = []
    waiting_bytes = 0
    for batch in batches:
        if batch.num_rows:
            waiting.append(batch)
            waiting_bytes += batch.nbytes
        if waiting_bytes >= size:
            yield waiting
            waiting, waiting_bytes = [], 0
    if waiting:
        yield waiting


class OutputBuffer(io.RawIOBase):
    """A file to write to, which is drained as it fills: Arrow's writers push, uploads pull."""

    def __init__(self) -> None:
        super().__init__()
        self._parts: list[bytes] = []
        self._size = 0

    def writable(self) -> bool:
        """True: it is written to."""
        return True

    def write(self, data: Any) -> int:
        """Keep some bytes until they are drained."""
        self._parts.append(bytes(data))
        self._size += len(data)
        return len(data)

    def tell(self) -> int:
        """The number of bytes that were written, drained or not."""
        return self._size

    def drain(self) -> bytes:
        """What was written since the last call."""
        parts, self._parts = self._parts, []
        return b"".join(parts)


class Encoder:
    """An iterable of the pieces of a Parquet file of some rows; the footer is known after the last piece.

    Parameters
    ----------
    **options
        Those of `pyarrow.parquet.write_table`.
    """

    def __init__(self, batches: Iterator[pa.RecordBatch], **options: Any) -> None:
        self.footer: bytes | None = None
        """None until the file is complete; without rows there is no file."""
        self._batches = batches
        self._group_rows = options.pop("row_group_size", None)
        self._options = options

    def __iter__(self) -> Iterator[bytes]:
        sink = OutputBuffer()
        writer: pq.ParquetWriter | None = None
        stream = pa.PythonFile(sink, mode="w")
        for batches in gathered(self._batches, GROUP_BYTES):
            group = pa.Table.from_batches(batches)
            size = self._group_rows or GROUP_ROWS_MAX
            for first in range(0, group.num_rows, size):
                if writer is not None:
                    stream.write(MAGIC)  # so that the file can begin here once its head is cut off
                writer = writer or pq.ParquetWriter(stream, group.schema, **self._options)
                writer.write_table(group.slice(first, size), size)
            yield sink.drain()
        if writer is not None:
            writer.close()
            last = sink.drain()
            first, end = body_size(last[-TAIL_BYTES:], len(last) + len(MAGIC))
            self.footer = last[first - len(MAGIC) : end - len(MAGIC)]
            yield last


def empty(schema: pa.Schema, row_group_size: int | None = None, **options: Any) -> bytes:
    """A file without rows, with the options of `Encoder`."""
    sink = OutputBuffer()
    pq.ParquetWriter(sink, schema, **options).close()
    return sink.drain()
