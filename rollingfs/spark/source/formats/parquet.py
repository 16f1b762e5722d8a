"""A Parquet file in a segment; a task reads the row groups that begin in its range."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar

import pyarrow as pa

from rollingfs.spark.source import partitions
from rollingfs.spark.source.formats import parquet_files
from rollingfs.spark.source.formats.contract import Located, ReadOptions
from rollingfs.spark.source.formats.whole import Whole
from rollingfs.spark.source.partitions import Extent, Range
from rollingfs.spark.source.segments import SegmentReader


class Parquet(Whole):
    """The rows of row groups."""

    columns: ClassVar[str | None] = None

    def infer(self, opened: SegmentReader) -> pa.Schema | None:
        """The columns of the file."""
        return parquet_files.schema(opened.file())

    def check_read(self, schema: pa.Schema) -> None:
        """Any columns."""

    def check_write(self, schema: pa.Schema) -> None:
        """Any columns."""

    def cut(self, opened: SegmentReader, extent: Extent, options: ReadOptions) -> Iterable[Range]:
        """Equal ranges."""
        return partitions.split(extent, options.partition_bytes)

    def pieces(self, opened: SegmentReader, one: Range, schema: pa.Schema, options: ReadOptions) -> Iterator[Located]:
        """The rows of the row groups that begin in a range."""
        return ((batch, None) for batch in parquet_files.batches(opened.file(), one, schema.names))

    def encode(self, batches: Iterator[pa.RecordBatch]) -> Iterable[bytes]:
        """A file."""
        return parquet_files.Encoder(batches)


FORMAT = Parquet()
