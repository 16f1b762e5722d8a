"""Formats whose segments are read as files: Parquet, whose tasks read row groups, and bytes as they are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq

from rollingfs.fs.core import core
from rollingfs.parquet.files import ParquetEncoder
from rollingfs.spark.source import rows, segments
from rollingfs.spark.source.formats import BINARY, PARQUET, Format, Located
from rollingfs.spark.source.segments import Extent, Range, SegmentReader

ROWS_MAX = 64 * 1024
"""Maximum number of rows of a record batch."""


class Parquet(Format):
    """The rows of row groups."""

    def infer(self, opened: SegmentReader) -> pa.Schema | None:
        """Return the columns of the file."""
        return pq.read_schema(opened.file())

    def cut(self, opened: SegmentReader, extent: Extent, size_max: int, codec: str | None) -> Iterable[Range]:
        """Return equal ranges."""
        return segments.split(extent, size_max)

    def pieces(self, opened: SegmentReader, one: Range, schema: pa.Schema, codec: str | None) -> Iterator[Located]:
        """Return the rows of the row groups that begin in a range."""
        return ((batch, None) for batch in batches(opened.file(), one, schema.names))

    def encode(self, batches: Iterator[pa.RecordBatch]) -> Iterable[bytes]:
        """Return a file."""
        return ParquetEncoder(batches)


def batches(file: Any, one: Range, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the row groups that begin in a range."""
    with file, pq.ParquetFile(file, pre_buffer=True) as found:
        base = one.extent.start
        begins = [base + _begin(found.metadata.row_group(nth)) for nth in range(found.metadata.num_row_groups)]
        groups = [nth for nth, begin in enumerate(begins) if one.start <= begin < one.end]
        if groups:
            # what differs in case only is read, too: `rows.conform` knows whether Spark tells it apart
            lower = {name.lower() for name in columns}
            wanted = [name for name in found.schema_arrow.names if name.lower() in lower]
            if wanted:
                yield from found.iter_batches(ROWS_MAX, groups, wanted, use_threads=False)
            else:  # Arrow gives no rows where it reads no column
                yield from (rows.without_columns(found.metadata.row_group(nth).num_rows) for nth in groups)


def _begin(group: Any) -> int:
    """Return the offset of a row group in its file; a row group without columns has no bytes."""
    first = group.column(0) if group.num_columns else None
    return int(first.dictionary_page_offset or first.data_page_offset) if first else 0


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

    def pieces(self, opened: SegmentReader, one: Range, schema: pa.Schema, codec: str | None) -> Iterator[Located]:
        """Yield a row."""
        path, data = f"rolling+{core(opened.fs).target}://{one.extent.path}", opened.read(one.start, one.end)
        values = [[path], [opened.view.modified], [one.size], [data]]
        yield pa.record_batch(list(map(pa.array, values)), names=COLUMNS.names), None

    def encode(self, batches: Iterator[pa.RecordBatch]) -> Iterable[bytes]:
        """Yield the bytes of all rows, in order."""
        for batch in batches:
            yield b"".join(value for value in batch.column(0).to_pylist() if value)


FORMATS = {PARQUET: Parquet(), BINARY: Binary()}
