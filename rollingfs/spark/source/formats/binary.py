"""Segments as they are: a row for each, with its bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar

import pyarrow as pa

from rollingfs.spark.source import partitions
from rollingfs.spark.source.formats.row_format import Format, Located, ReadOptions
from rollingfs.spark.source.partitions import Extent, Range
from rollingfs.spark.source.segments import SegmentReader

COLUMNS = pa.schema(
    [
        ("path", pa.string()),
        ("modificationTime", pa.timestamp("us", "UTC")),
        ("length", pa.int64()),
        ("content", pa.binary()),
    ]
)
"""Columns of Spark's own format for binary files."""


class Binary(Format):
    """A row for each segment."""

    columns: ClassVar[pa.Schema | None] = COLUMNS

    def check_write(self, schema: pa.Schema) -> None:
        """Refuse all except a single column of bytes."""
        if len(schema) != 1 or not pa.types.is_binary(schema.field(0).type):
            raise ValueError(f"writing binary needs one column of binary, not ({', '.join(map(str, schema))})")

    def cut(self, opened: SegmentReader, extent: Extent, options: ReadOptions) -> Iterable[Range]:
        """Return the segment, also if it is empty."""
        return partitions.whole(extent)

    def pieces(self, opened: SegmentReader, one: Range, schema: pa.Schema, options: ReadOptions) -> Iterator[Located]:
        """Yield a row."""
        path, data = f"rolling+{options.target_protocol}://{one.extent.path}", opened.read(one.start, one.end)
        values = [[path], [opened.view.modified], [one.size], [data]]
        yield pa.record_batch(list(map(pa.array, values)), names=COLUMNS.names), None

    def encode(self, batches: Iterator[pa.RecordBatch]) -> Iterable[bytes]:
        """Yield the bytes of all rows, in order."""
        for batch in batches:
            yield b"".join(value for value in batch.column(0).to_pylist() if value)


FORMAT = Binary()
