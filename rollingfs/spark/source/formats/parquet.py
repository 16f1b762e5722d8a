"""A Parquet file in a segment; a task reads the row groups that begin in its range."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rollingfs.parquet.files import ParquetEncoder
from rollingfs.spark.source import partitions, rows
from rollingfs.spark.source.formats.row_format import Format, Located, ReadOptions
from rollingfs.spark.source.partitions import Extent, Range
from rollingfs.spark.source.segments import SegmentReader

ROWS_MAX = 64 * 1024
"""Maximum number of rows of a record batch."""


class Parquet(Format):
    """The rows of row groups."""

    def infer(self, opened: SegmentReader) -> pa.Schema | None:
        """Return the columns of the file."""
        return pq.read_schema(opened.file())

    def cut(self, opened: SegmentReader, extent: Extent, options: ReadOptions) -> Iterable[Range]:
        """Equal ranges."""
        return partitions.split(extent, options.partition_bytes)

    def pieces(self, opened: SegmentReader, one: Range, schema: pa.Schema, options: ReadOptions) -> Iterator[Located]:
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


FORMAT = Parquet()
