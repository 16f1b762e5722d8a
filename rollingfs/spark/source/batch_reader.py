"""Batch reads: the driver cuts segments into ranges, tasks make record batches of them."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from rollingfs.commit.shadowing import modified_ms
from rollingfs.errors import CorruptChunkError, CorruptHeaderError, SegmentTruncatedError
from rollingfs.fs.filesystem import RollingFileSystem
from rollingfs.read.snapshot import Snapshot
from rollingfs.spark.source import ipc, jsonlines, lines, parquet, partitions, places, rows, segments, text
from rollingfs.spark.source.options import ARROW, BINARY, JSON, PARQUET, TEXT, Options
from rollingfs.spark.source.partitions import Extent, Range
from rollingfs.spark.source.segments import SegmentReader, extent_of, is_remote, prefetched

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

T = TypeVar("T")

logger = logging.getLogger("pyspark_rollingfs")

CORRUPT = (CorruptHeaderError, CorruptChunkError)

BINARY_SCHEMA = "path string, modificationTime timestamp, length bigint, content binary"
SAMPLE_BYTES_MIN = 64 * 1024
"""Minimum size that a sample takes of each segment, until it is full."""


class Ranges(InputPartition):
    """The ranges that one task reads."""

    def __init__(self, ranges: Sequence[Range]) -> None:
        super().__init__(tuple(ranges))


class RollingReader(DataSourceReader):
    """Reads the segments as they are when the query is planned; it does not see later appends."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self.options = options
        self.rows = RowReader(options, schema)

    def partitions(self) -> Sequence[InputPartition]:
        """The ranges of the tasks, in the order of names and offsets."""
        fs = places.filesystem(self.options)
        found = places.find(fs, self.options)
        if found.corrupt:
            logger.warning("%s; they are skipped (onCorrupt=skip)", found)
        cut = [one for view in found.views.values() for one in self.rows.cut(SegmentReader(fs, view), extent_of(view))]
        return [Ranges(group) for group in partitions.gather(cut, self.options.partition_bytes)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of some ranges."""
        return self.rows.read(partition)


class RowReader:
    """Makes rows of ranges, for batches and for streams.

    Parameters
    ----------
    schema
        The Spark schema of the rows.
    """

    def __init__(self, options: Options, schema: StructType) -> None:
        self.options = options
        self.schema = schema
        if options.format == TEXT:
            text.check_schema(rows.arrow_schema(schema), "format 'text'")

    def cut(self, opened: SegmentReader, extent: Extent) -> list[Range]:
        """The ranges of an extent, each for one task; none if the extent is corrupt and is skipped."""
        size_max = self.options.partition_bytes
        if self.options.format == BINARY:
            return list(partitions.whole(extent))
        if self.options.format != ARROW:
            return list(partitions.split(extent, size_max))
        try:
            return list(ipc.cut(opened.read, extent, size_max))
        except CORRUPT as error:
            self.skip(extent, error)
            return []

    def skip(self, what: Extent | Range, error: Exception) -> None:
        """Log that corrupt bytes are skipped, none of whose rows was given out; raise if the options forbid that."""
        if not self.options.skips_corrupt:
            raise error
        path = what.path if isinstance(what, Extent) else what.extent.path
        logger.warning("%s: bytes %d to %d are skipped (onCorrupt=skip): %s", path, what.start, what.end, error)

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The rows of a task's ranges, as Spark wants them."""
        if partition is None or partition.value is None:  # Spark's own, where we made none; None itself before 4.2
            return iter(())
        segments.keep_memory()
        schema = rows.arrow_schema(self.schema)
        fs = places.filesystem(self.options)
        read = {TEXT: self._lines, JSON: self._json, ARROW: self._arrow, PARQUET: self._parquet, BINARY: self._binary}
        return read[self.options.format](fs, partition.value, schema)

    def _opened(self, fs: RollingFileSystem, ranges: Sequence[Range]) -> Iterator[tuple[SegmentReader, Range]]:
        """The ranges with readers of their segments; one that was truncated or deleted raises, or is skipped."""
        for one in ranges:
            try:
                yield SegmentReader.of(fs, one.extent), one
            except (SegmentTruncatedError, FileNotFoundError) as error:
                if self.options.fails_on_data_loss:
                    raise
                logger.warning("%s; going on without (failOnDataLoss=false)", error)
                yield from self._left(fs, one)
            except CorruptHeaderError as error:
                self.skip(one, error)

    def _left(self, fs: RollingFileSystem, one: Range) -> Iterator[tuple[SegmentReader, Range]]:
        """The rest of a range whose beginning was truncated away; only lines can be read from anywhere."""
        view = segments.view_now(fs, one.extent.path)
        if view is None or not segments.is_same(view, one.extent.identity) or view.start >= one.end:
            return
        if self.options.format in (TEXT, JSON):
            extent = Extent(one.extent.path, one.extent.identity, view.start, one.extent.end)
            yield SegmentReader(fs, view), Range(extent, max(one.start, view.start), one.end)

    def _sound(self, one: Range, items: Iterator[T]) -> Iterator[T]:
        """The items read of a range; none if the first shows that the range is corrupt, and the options say to skip it.

        Raises
        ------
        CorruptChunkError
            Bytes are corrupt after rows of the range were given out.
        """
        is_given = False
        try:
            for item in items:
                yield item
                is_given = True
        except CORRUPT as error:
            if is_given and self.options.skips_corrupt:
                where = f"{one.extent.path}: bytes {one.start} to {one.end}"
                raise CorruptChunkError(
                    f"{where} cannot be skipped: some of their rows were given out before {error}"
                ) from error
            self.skip(one, error)

    def _blocks(self, fs: RollingFileSystem, ranges: Sequence[Range]) -> Iterator[lines.Lines]:
        for opened, one in self._opened(fs, ranges):
            size = lines.BLOCK_BYTES if is_remote(fs) else lines.LOCAL_BLOCK_BYTES
            blocks = lines.blocks(opened.read, one.extent.start, one.start, one.end, one.extent.end, size)
            yield from self._sound(one, blocks)

    def _lines(self, fs: RollingFileSystem, ranges: Sequence[Range], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        for block in prefetched(fs, self._blocks(fs, ranges)):
            yield text.to_batch(block, schema)

    def _json(self, fs: RollingFileSystem, ranges: Sequence[Range], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        reader = jsonlines.Reader(schema)
        for block in prefetched(fs, self._blocks(fs, ranges)):
            yield from map(rows.checked, reader.read(block))

    def _arrow(self, fs: RollingFileSystem, ranges: Sequence[Range], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        for opened, one in self._opened(fs, ranges):
            for batch in self._sound(one, ipc.batches(opened.read, one, at_once=is_remote(fs))):
                yield rows.conform(batch, schema)

    def _parquet(self, fs: RollingFileSystem, ranges: Sequence[Range], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        for opened, one in self._opened(fs, ranges):
            for batch in self._sound(one, parquet.batches(opened.file(), one, schema.names)):
                yield rows.conform(batch, schema)

    def _binary(self, fs: RollingFileSystem, ranges: Sequence[Range], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        for opened, one in self._opened(fs, ranges):
            for content in self._sound(one, (opened.read(*span) for span in [(one.start, one.end)])):
                columns = {
                    "path": pa.array([places.url_of(self.options, one.extent.path)]),
                    "modificationTime": pa.array([_modified(opened.view)], pa.timestamp("us", "UTC")),
                    "length": pa.array([one.size]),
                    "content": pa.array([content]),
                }
                yield rows.conform(pa.record_batch(columns), schema)


def infer_schema(options: Options) -> Any:
    """The columns of the segments.

    Raises
    ------
    ValueError
        No segment tells its columns.
    """
    if options.format == TEXT:
        return f"{text.COLUMN} string"
    if options.format == BINARY:
        return BINARY_SCHEMA
    fs = places.filesystem(options)
    found = [view for view in places.find(fs, options).views.values() if view.size]
    if options.format == JSON:
        return rows.spark_schema(jsonlines.infer(_sample(fs, found, options)))
    for view in found:
        opened = SegmentReader(fs, view)
        try:
            schema = parquet.schema(opened.file()) if options.format == PARQUET else _arrow_schema(opened)
        except CORRUPT:
            if not options.skips_corrupt:
                raise
            continue  # the read that follows names it
        if schema is not None:
            return rows.spark_schema(schema)
    raise ValueError(f"there is no {options.format} to infer the columns from: give .schema(...)")


def _arrow_schema(opened: SegmentReader) -> pa.Schema | None:
    return ipc.schema(opened.read, extent_of(opened.view))


def _sample(fs: RollingFileSystem, views: Sequence[Snapshot], options: Options) -> Iterator[bytes]:
    """Lines of the first bytes of each segment, until the sample is full."""
    size = options.sample_bytes
    each = max(SAMPLE_BYTES_MIN, size // max(len(views), 1))
    for view in views:
        extent, opened = extent_of(view), SegmentReader(fs, view)
        upto = min(extent.start + min(each, size), extent.end)
        try:
            for block in lines.blocks(opened.read, extent.start, extent.start, upto, extent.end):
                yield from bytes(block).split(lines.FEED)
        except CORRUPT:
            if not options.skips_corrupt:
                raise
            continue  # the read that follows names it
        size -= upto - extent.start
        if size <= 0:
            return


def _modified(view: Snapshot) -> datetime:
    if view.header is not None:
        return datetime.fromtimestamp(view.header.modified_ms / 1000, UTC)
    assert view.plain is not None
    return datetime.fromtimestamp(modified_ms(view.plain) / 1000, UTC)
