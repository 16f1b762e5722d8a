"""Batch reads: the driver cuts segments into ranges, tasks make record batches of them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from rollingfs.commit.shadowing import modified_ms
from rollingfs.errors import CorruptChunkError, CorruptHeaderError, SegmentTruncatedError
from rollingfs.fs.core import core
from rollingfs.fs.filesystem import RollingFileSystem
from rollingfs.read.snapshot import Snapshot
from rollingfs.spark.source import (
    compression,
    csvlines,
    folder_columns,
    ipc,
    jsonlines,
    lines,
    metadata,
    parquet,
    partitions,
    places,
    rows,
    segments,
    text,
)
from rollingfs.spark.source.boundaries import Boundaries
from rollingfs.spark.source.modes import MalformedRecordError
from rollingfs.spark.source.options import ARROW, BINARY, CSV, JSON, LINES, PARQUET, TEXT, Options
from rollingfs.spark.source.partitions import Extent, Range
from rollingfs.spark.source.plain_errors import plainly, plainly_each
from rollingfs.spark.source.positions import EARLIEST
from rollingfs.spark.source.segments import SegmentReader, is_remote, prefetched

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

T = TypeVar("T")

logger = logging.getLogger("pyspark_rollingfs")

CORRUPT = (CorruptHeaderError, CorruptChunkError)

PLANNED_ONCE = (
    "Spark plans a DataFrame or view once: make it again, by load() or by CREATE OR REPLACE TEMPORARY VIEW name USING "
    "rolling OPTIONS (path 'URL')"
)
"""What a user must know whose query reads by an old plan."""

BINARY_SCHEMA = "path string, modificationTime timestamp, length bigint, content binary"


class Ranges(InputPartition):
    """The ranges that one task reads."""

    def __init__(self, ranges: Sequence[Range]) -> None:
        super().__init__(tuple(ranges))


class RollingReader(DataSourceReader):
    """Reads the segments as they are when the query is planned; it does not see later appends.

    Spark 4.3 and older plan a DataFrame or view once, for all of its queries, whatever their filters. So this reader
    takes no filters: what one query leaves out would be missing in the next one.
    """

    def __init__(self, options: Options, schema: StructType) -> None:
        options.check_read()
        options.reading.check_batch()
        self.options = options
        self.rows = RowReader(options, schema, is_batch=True)

    @plainly
    def partitions(self) -> Sequence[InputPartition]:
        """The ranges of the tasks, in the order of names and offsets."""
        fs = places.filesystem(self.options)
        boundaries = Boundaries(self.options, fs)
        found = boundaries.complete(places.find(fs, self.options))
        if found.corrupt:
            logger.warning("%s; they are skipped (onCorrupt=skip)", found)
        bases = places.bases(self.options)
        views = found.views
        self.rows.check_columns(views, bases)
        wanted = boundaries.extents(views)
        cut = [one for extent in wanted for one in self.rows.cut(SegmentReader(fs, views[extent.path]), extent)]
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
    is_batch
        Whether Spark may use the plan of the ranges again, in later queries.
    """

    def __init__(self, options: Options, schema: StructType, *, is_batch: bool = False) -> None:
        self.options = options
        self.schema = schema
        self.is_batch = is_batch
        self.data_schema = rows.arrow_schema(schema)
        if options.reading.has_metadata:
            if options.format not in (*LINES, ARROW):
                raise ValueError(f"format {options.format!r} has no rows with offsets: includeMetadata is not for it")
            self.data_schema = metadata.data_schema(self.data_schema)
        if options.format == TEXT:
            self.known_schema = self.data_schema
            if options.reading.has_folder_columns:  # the others may be columns of folders: a task looks again
                own = [one for one in self.data_schema if one.name == text.COLUMN]
                self.data_schema = pa.schema(own or self.data_schema)
            text.check_schema(self.data_schema, "format 'text'")
        self._line_reader(self.data_schema)  # it refuses columns of other types before any task begins

    def check_columns(self, paths: Iterable[str], bases: Sequence[str]) -> None:
        """Refuse columns that neither a text nor the folders of a segment have, before any task begins.

        Raises
        ------
        ValueError
            There is such a column.
        """
        if self.options.format == TEXT and self.options.reading.has_folder_columns:
            for path in paths:
                rows_of = [one for one in self.known_schema if one.name not in folder_columns.values_of(path, bases)]
                text.check_schema(pa.schema(rows_of), "format 'text'")

    def cut(self, opened: SegmentReader, extent: Extent) -> list[Range]:
        """The ranges of an extent, each for one task; none if the extent is corrupt and is skipped."""
        size_max = self.options.partition_bytes
        if self.options.format == BINARY:
            return list(partitions.whole(extent))
        if self.options.codec(extent.path) is not None:
            if self.options.reading.has_metadata:
                raise ValueError(
                    f"{extent.path} is compressed, so its rows have no offsets: includeMetadata is not for it"
                )
            compression.check_whole(extent, opened.view.start, opened.view.length)
            return list(partitions.whole(extent))
        if self.options.format != ARROW:
            return list(partitions.split(extent, size_max))
        try:
            ranges = list(ipc.cut(opened.read, extent, size_max))
            self.check_end(opened, extent, ranges[-1].end if ranges else extent.start)
            return ranges
        except CORRUPT as error:
            self.skip(extent, error)
            return []

    def check_end(self, opened: SegmentReader, extent: Extent, end: int) -> None:
        """Refuse or skip Arrow that is cut off at `end` of a sealed segment; of one that may grow, the log tells it."""
        if extent.end != opened.view.length or not ipc.is_torn(opened.read, extent, end):
            return
        where = f"{extent.path}: bytes {end} to {extent.end} are no whole Arrow IPC message"
        if opened.view.sealed:
            why = f"{where}, and no more can come: it is sealed. onCorrupt=skip reads what is before them"
            self.skip(replace(extent, start=end), ipc.MalformedStreamError(why))
            return
        logger.warning("%s; they are not read. Their rest may still come", where)

    def skip(self, what: Extent | Range, error: Exception) -> None:
        """Log that corrupt bytes are skipped, none of whose rows was given out; raise if the options forbid that."""
        if not self.options.skips_corrupt:
            raise error
        path = what.path if isinstance(what, Extent) else what.extent.path
        logger.warning("%s: bytes %d to %d are skipped (onCorrupt=skip): %s", path, what.start, what.end, error)

    @plainly_each
    def read(self, partition: InputPartition | None) -> Iterable[pa.RecordBatch]:
        """The rows of a task's ranges, as Spark wants them."""
        if partition is None or partition.value is None:  # Spark's own, where we made none; None itself before 4.2
            return iter(())
        segments.keep_memory()
        schema = rows.arrow_schema(self.schema)
        fs = places.filesystem(self.options)
        if self.options.reading.has_folder_columns:
            return self._with_folder_columns(fs, partition.value, schema)
        return self._rows(fs, partition.value, schema)

    def _with_folder_columns(
        self, fs: RollingFileSystem, ranges: Sequence[Range], schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        """Rows with the columns of the folders in which their segments lie."""
        options = replace(self.options, reading=replace(self.options.reading, has_folder_columns=False))
        zone = self.options.records.zone
        for values, group in folder_columns.by_values(ranges, places.bases(self.options)):
            own = type(self.schema)([field for field in self.schema if field.name not in values])
            inner = RowReader(options, own, is_batch=self.is_batch)
            there = {
                field.name: rows.constant(values[field.name], field, zone, group[0].extent.path)
                for field in self.schema
                if field.name in values
            }
            for batch in inner._rows(fs, group, rows.arrow_schema(own)):
                yield rows.with_constants(batch, there, schema) if there else batch

    def _rows(self, fs: RollingFileSystem, ranges: Sequence[Range], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The rows of ranges, without the columns of folders."""
        if self.options.reading.has_metadata:
            return self._with_metadata(fs, ranges, schema)
        read = {ARROW: self._arrow, PARQUET: self._parquet, BINARY: self._binary, **dict.fromkeys(LINES, self._lines)}
        return read[self.options.format](fs, ranges, schema)

    def _opened(self, fs: RollingFileSystem, ranges: Sequence[Range]) -> Iterator[tuple[SegmentReader, Range]]:
        """The ranges with readers of their segments; one that was truncated or deleted raises, or is skipped."""
        for one in ranges:
            try:
                yield SegmentReader.of(fs, one.extent), one
            except (SegmentTruncatedError, FileNotFoundError) as error:
                if self._begins_later(one, error):
                    logger.warning("%s; it is read from its present start", error)
                elif self.options.fails_on_data_loss:
                    raise self._explained(error) from error
                else:
                    logger.warning("%s; going on without (failOnDataLoss=false)", error)
                yield from self._left(fs, one)
            except CorruptHeaderError as error:
                self.skip(one, error)

    def _begins_later(self, one: Range, error: OSError) -> bool:
        """Whether a range is of lines that a batch reads from the earliest on: it takes what retention has left."""
        is_moved = isinstance(error, segments.StartMovedError) and self.options.reading.starting.name == EARLIEST
        return is_moved and self.is_batch and self._has_lines(one)

    def _has_lines(self, one: Range) -> bool:
        return self.options.format in LINES and self.options.codec(one.extent.path) is None

    def _explained(self, error: OSError) -> OSError:
        """The error, for a batch with what to do about it."""
        if not self.is_batch:
            return error
        if isinstance(error, FileNotFoundError):
            return FileNotFoundError(error.errno, f"{error.strerror}. {PLANNED_ONCE}", error.filename)
        return SegmentTruncatedError(f"{error}. {PLANNED_ONCE}")

    def _left(self, fs: RollingFileSystem, one: Range) -> Iterator[tuple[SegmentReader, Range]]:
        """The rest of a range whose beginning was truncated away; only lines can be read from anywhere."""
        view = segments.view_now(fs, one.extent.path)
        if view is None or not segments.is_same(view, one.extent.identity) or view.start >= one.end:
            return
        if self._has_lines(one):
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
        except pa.ArrowInvalid as error:
            raise ValueError(
                f"{one.extent.path}: bytes {one.start} to {one.end} are no {self.options.format}: {error}"
            ) from error

    def _blocks(self, fs: RollingFileSystem, ranges: Sequence[Range]) -> Iterator[tuple[Range, lines.Lines, bool]]:
        """Blocks of lines, each with its range, and whether the segment began with it."""
        size = lines.BLOCK_BYTES if is_remote(fs) else lines.LOCAL_BLOCK_BYTES
        for opened, one in self._opened(fs, ranges):
            codec = self.options.codec(one.extent.path)
            if codec is not None:
                blocks = compression.blocks(opened.read, one.extent, codec, size)
            else:
                blocks = lines.blocks(opened.read, one.extent.start, one.start, one.end, one.extent.end, size)
            is_first = one.start == one.extent.start
            for block in self._sound(one, blocks):
                if is_first and codec is None:
                    self._check_plain(one, block)
                # offset 0 is where the segment once began; a header is nowhere else
                yield one, block, is_first and one.start == 0
                is_first = False

    def _check_plain(self, one: Range, block: lines.Lines) -> None:
        """Refuse compressed bytes under a name that does not say so."""
        if self.options.records.compression == compression.AUTO:
            compression.check_plain(one.extent.path, block.data[block.start : block.end])

    def _line_reader(self, schema: pa.Schema) -> Callable[[lines.Lines, bool], list[pa.RecordBatch]]:
        """The function that makes rows of a block."""
        known = self.options.records
        if self.options.format == JSON:
            json_reader = jsonlines.Reader(schema, known.zone, known.mode, known.corrupt_column)
            return lambda block, _: json_reader.read(block)
        if self.options.format == CSV:
            csv_reader = csvlines.CsvReader(schema, known.csv, known.zone, known.mode, known.corrupt_column)
            return lambda block, is_first: [csv_reader.read(block, is_first=is_first)]
        return lambda block, _: [text.to_batch(block, schema)]

    def _lines(self, fs: RollingFileSystem, ranges: Sequence[Range], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        read = self._line_reader(schema)
        for one, block, is_first in prefetched(fs, self._blocks(fs, ranges)):
            with _named(one):
                batches = read(block, is_first)
            yield from map(rows.checked, batches)

    def _arrow(self, fs: RollingFileSystem, ranges: Sequence[Range], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        for opened, one in self._opened(fs, ranges):
            for batch in self._sound(one, ipc.batches(opened.read, one, at_once=is_remote(fs))):
                yield rows.conform(batch, schema)

    def _with_metadata(
        self, fs: RollingFileSystem, ranges: Sequence[Range], schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        """Rows with the columns of `metadata`."""
        for opened, one in self._opened(fs, ranges):
            times = core(fs).run(metadata.commit_times(core(fs).client, opened.view, one.start, one.extent.end))
            located = self._located_arrow if self.options.format == ARROW else self._located_lines
            for batch, offsets in located(opened, one):
                yield metadata.with_columns(batch, offsets, opened.view.path, times, schema)

    def _located_lines(self, opened: SegmentReader, one: Range) -> Iterator[tuple[pa.RecordBatch, Sequence[int]]]:
        """The rows of a range of lines, with the offset of each."""
        reader = self._line_reader(self.data_schema)
        is_first = one.start == one.extent.start
        blocks = lines.raw_blocks(opened.read, one.extent.start, one.start, one.end, one.extent.end)
        for position, data, size in self._sound(one, blocks):
            starts: Sequence[int] = metadata.line_starts(data, size, position)
            block = lines.normalized(data, size)
            is_head = is_first and one.start == 0
            if is_first:
                self._check_plain(one, block)
                is_first = False
            if self.options.format == TEXT:
                yield text.to_batch(block, self.data_schema), starts
                continue
            if self.options.format == CSV and is_head:
                block, starts = csvlines.body(block, starts, self.options.records.csv)
            with _named(one):
                gives_lists = self.options.format == JSON
                for batch, offsets in metadata.located(lambda part: reader(part, False), block, starts, gives_lists):
                    yield rows.checked(batch), offsets

    def _located_arrow(self, opened: SegmentReader, one: Range) -> Iterator[tuple[pa.RecordBatch, Sequence[int]]]:
        """The rows of a range of Arrow streams, each with the offset of its record batch."""

        def found() -> Iterator[tuple[pa.RecordBatch, int]]:
            yield from zip(ipc.batches(opened.read, one), ipc.batch_starts(opened.read, one), strict=True)

        for batch, start in self._sound(one, found()):
            yield rows.conform(batch, self.data_schema), [start] * batch.num_rows

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


@contextmanager
def _named(one: Range) -> Iterator[None]:
    """Say where a malformed record lies."""
    try:
        yield
    except MalformedRecordError as error:
        where = f"{one.extent.path}: in bytes {one.start} to {one.end}"
        raise MalformedRecordError(f"{where}, {error}") from error


def _modified(view: Snapshot) -> datetime:
    if view.header is not None:
        return datetime.fromtimestamp(view.header.modified_ms / 1000, UTC)
    assert view.plain is not None
    return datetime.fromtimestamp(modified_ms(view.plain) / 1000, UTC)
