"""Parquet in a segment: its row groups by byte range, and its growth by row groups and a new footer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rollingfs.spark.source import rows
from rollingfs.spark.source.footer import MAGIC, TAIL_BYTES, Part, body_size, join
from rollingfs.spark.source.partitions import Range
from rollingfs.spark.source.records import Read
from rollingfs.spark.source.taken import Taken

ROWS_MAX = 64 * 1024
"""Of a record batch."""
GROUP_BYTES = 64 * 1024 * 1024
"""Rows of so many bytes, in memory, become a row group."""


def schema(file: Any) -> pa.Schema:
    """Of the file."""
    return pq.read_schema(file)


def batches(file: Any, one: Range, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The rows of the row groups that begin in a range."""
    with file, pq.ParquetFile(file, pre_buffer=True) as found:
        base = one.extent.start
        groups = [
            nth
            for nth in range(found.metadata.num_row_groups)
            if one.start <= base + _begin(found.metadata.row_group(nth)) < one.end
        ]
        if groups:
            wanted = [name for name in columns if name in found.schema_arrow.names]
            yield from found.iter_batches(ROWS_MAX, groups, wanted, use_threads=False)


def _begin(group: Any) -> int:
    """Where a row group begins in its file; one without columns has no bytes."""
    if not group.num_columns:
        return 0
    first = group.column(0)
    return int(first.dictionary_page_offset or first.data_page_offset)


class Encoder:
    """Rows as a Parquet file, to iterate over; its footer is known behind the last piece."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self.footer: bytes | None = None
        """None while nothing was written: no rows make no file."""
        self._batches = batches

    def __iter__(self) -> Iterator[bytes]:
        sink = Taken()
        writer: pq.ParquetWriter | None = None
        for batches in rows.gathered(self._batches, GROUP_BYTES):
            group = pa.Table.from_batches(batches)
            writer = writer or pq.ParquetWriter(sink, group.schema)
            writer.write_table(group)
            yield sink.take()
        if writer is not None:
            writer.close()
            last = sink.take()
            first, end = body_size(last[-TAIL_BYTES:], len(last) + len(MAGIC))
            self.footer = last[first - len(MAGIC) : end - len(MAGIC)]
            yield last


def empty(schema: pa.Schema) -> bytes:
    """A file without rows."""
    sink = Taken()
    pq.ParquetWriter(sink, schema).close()
    return sink.take()


def footer_of(read: Read, start: int, end: int) -> bytes:
    """The footer of the file in ``[start, end)``, by one or two small reads."""
    first, last = body_size(read(max(start, end - TAIL_BYTES), end), end - start)
    return read(start + first, start + last)


def tail(parts: Sequence[Part]) -> bytes:
    """What is to be written behind all parts so that they are one file."""
    footer = join(parts)
    return footer + len(footer).to_bytes(4, "little") + MAGIC
