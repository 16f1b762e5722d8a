"""Batch reads: the driver cuts what is there into ranges, tasks make Arrow batches of them."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from rollingfs.errors import SegmentTruncatedError
from rollingfs.filesystem import RollingFileSystem
from rollingfs.lookup import View, modified_ms
from rollingfs.spark.source import ipc, jsonlines, parquet, partitions, places, records, rows, text
from rollingfs.spark.source.opened import Opened, ahead, is_remote
from rollingfs.spark.source.options import ARROW, BINARY, JSON, PARQUET, TEXT, Options
from rollingfs.spark.source.partitions import Extent, Range

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

logger = logging.getLogger("pyspark_rollingfs")

BINARY_SCHEMA = "path string, modificationTime timestamp, length bigint, content binary"
SAMPLE_BYTES_MIN = 64 * 1024
"""Of each segment, until the sample is full."""


class Ranges(InputPartition):
    """What one task reads."""

    def __init__(self, ranges: Sequence[Range]) -> None:
        super().__init__(tuple(ranges))


class RollingReader(DataSourceReader):
    """Reads what is there when the query is planned; later appends are not seen."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self.options = options
        self.rows = RowReader(options, schema)

    def partitions(self) -> Sequence[InputPartition]:
        """Ranges of bytes, in the order of names and offsets."""
        fs = places.filesystem(self.options)
        found = [(view, _extent(view)) for view in places.find(fs, self.options.places)]
        cut = (one for view, extent in found for one in self.rows.cut(Opened(fs, view), extent))
        return [Ranges(group) for group in partitions.gather(cut, self.options.partition_bytes)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of some ranges."""
        return self.rows.read(partition)


class RowReader:
    """Makes rows of ranges, for batches and for streams.

    Parameters
    ----------
    schema
        Spark's, of the rows.
    """

    def __init__(self, options: Options, schema: StructType) -> None:
        self.options = options
        self.schema = schema
        if options.format == TEXT:
            text.check_schema(rows.arrow_schema(schema), "format 'text'")

    def cut(self, opened: Opened, extent: Extent) -> Iterator[Range]:
        """The ranges of an extent that tasks can read by themselves."""
        size_max = self.options.partition_bytes
        if self.options.format == BINARY:
            return partitions.whole(extent)
        if self.options.format == ARROW:
            return ipc.cut(opened.read, extent, size_max)
        return partitions.split(extent, size_max)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task's ranges, as Spark wants them."""
        if partition.value is None:  # Spark's own, where there was none
            return iter(())
        schema = rows.arrow_schema(self.schema)
        fs = places.filesystem(self.options)
        read = {TEXT: self._lines, JSON: self._json, ARROW: self._arrow, PARQUET: self._parquet, BINARY: self._binary}
        return read[self.options.format](fs, partition.value, schema)

    def _opened(self, fs: RollingFileSystem, ranges: Sequence[Range]) -> Iterator[tuple[Opened, Range]]:
        """The ranges with their segments; what was truncated or deleted meanwhile is an error, or passed over."""
        for one in ranges:
            try:
                yield Opened.of(fs, one.extent), one
            except (SegmentTruncatedError, FileNotFoundError) as error:
                if self.options.fails_on_data_loss:
                    raise
                logger.warning("%s; going on without (failOnDataLoss=false)", error)
                yield from self._left(fs, one)

    def _left(self, fs: RollingFileSystem, one: Range) -> Iterator[tuple[Opened, Range]]:
        """What is left of a range whose beginning is gone; only lines can be read from anywhere."""
        view = places.view_now(fs, one.extent.path)
        if view is None or not places.is_same(view, one.extent.identity) or view.start >= one.end:
            return
        if self.options.format in (TEXT, JSON):
            extent = Extent(one.extent.path, one.extent.identity, view.start, one.extent.end)
            yield Opened(fs, view), Range(extent, max(one.start, view.start), one.end)

    def _blocks(self, fs: RollingFileSystem, ranges: Sequence[Range]) -> Iterator[records.Lines]:
        for opened, one in self._opened(fs, ranges):
            size = records.BLOCK_BYTES if is_remote(fs) else records.LOCAL_BLOCK_BYTES
            yield from records.blocks(opened.read, one.extent.start, one.start, one.end, one.extent.end, size)

    def _lines(self, fs: RollingFileSystem, ranges: Sequence[Range], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        for block in ahead(fs, self._blocks(fs, ranges)):
            yield text.to_batch(block, schema)

    def _json(self, fs: RollingFileSystem, ranges: Sequence[Range], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        reader = jsonlines.Reader(schema)
        for block in ahead(fs, self._blocks(fs, ranges)):
            yield from reader.read(block)

    def _arrow(self, fs: RollingFileSystem, ranges: Sequence[Range], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        for opened, one in self._opened(fs, ranges):
            for batch in ipc.batches(opened.read, one, at_once=is_remote(fs)):
                yield rows.conform(batch, schema)

    def _parquet(self, fs: RollingFileSystem, ranges: Sequence[Range], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        for opened, one in self._opened(fs, ranges):
            for batch in parquet.batches(opened.file(), one, schema.names):
                yield rows.conform(batch, schema)

    def _binary(self, fs: RollingFileSystem, ranges: Sequence[Range], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        for opened, one in self._opened(fs, ranges):
            columns = {
                "path": pa.array([places.url_of(self.options, one.extent.path)]),
                "modificationTime": pa.array([_modified(opened.view)], pa.timestamp("us", "UTC")),
                "length": pa.array([one.size]),
                "content": pa.array([opened.read(one.start, one.end)]),
            }
            yield rows.conform(pa.record_batch(columns), schema)


def infer_schema(options: Options) -> Any:
    """The columns of what is there.

    Raises
    ------
    ValueError
        Nothing is there that says them.
    """
    if options.format == TEXT:
        return f"{text.COLUMN} string"
    if options.format == BINARY:
        return BINARY_SCHEMA
    fs = places.filesystem(options)
    found = [view for view in places.find(fs, options.places) if view.size]
    if options.format == JSON:
        return rows.spark_schema(jsonlines.infer(_sample(fs, found, options.sample_bytes)))
    for view in found:
        opened = Opened(fs, view)
        if options.format == PARQUET:
            return rows.spark_schema(parquet.schema(opened.file()))
        schema = ipc.schema(opened.read, _extent(view))
        if schema is not None:
            return rows.spark_schema(schema)
    raise ValueError(f"no {options.format} is there to learn the columns from: give .schema(...)")


def _sample(fs: RollingFileSystem, views: Sequence[View], size: int) -> Iterator[bytes]:
    """Lines of as many segments as `size` bytes allow."""
    each = max(SAMPLE_BYTES_MIN, size // max(len(views), 1))
    for view in views:
        extent, opened = _extent(view), Opened(fs, view)
        upto = min(extent.start + min(each, size), extent.end)
        for block in records.blocks(opened.read, extent.start, extent.start, upto, extent.end):
            yield from bytes(block).split(records.FEED)
        size -= upto - extent.start
        if size <= 0:
            return


def _extent(view: View) -> Extent:
    return Extent(view.path, places.identity(view), view.start, view.length)


def _modified(view: View) -> datetime:
    if view.header is not None:
        return datetime.fromtimestamp(view.header.modified_ms / 1000, UTC)
    assert view.plain is not None
    return datetime.fromtimestamp(modified_ms(view.plain) / 1000, UTC)
