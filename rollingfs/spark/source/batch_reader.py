"""Batch reads: the driver cuts segments between two positions into ranges, tasks make record batches of them.

A record is before a position if it ends there or before. So reads from one position to the next give each record
once, also where a position is within a record.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceReader, InputPartition

from rollingfs.errors import CorruptChunkError, CorruptHeaderError, SegmentTruncatedError
from rollingfs.format import names
from rollingfs.fs.core import core
from rollingfs.fs.filesystem import RollingFileSystem
from rollingfs.segment.segment import Segment
from rollingfs.spark.source import folder_columns, places, rows, segments
from rollingfs.spark.source.formats import CORRUPT, lines
from rollingfs.spark.source.options import BATCH, Options, logger
from rollingfs.spark.source.plain_errors import plain_errors, plainly
from rollingfs.spark.source.segments import Extent, Range, SegmentReader, extent_of, prefetched
from rollingfs.spark.source.stream.offsets import EARLIEST, LATEST, ReadPosition
from rollingfs.stream.members import offset_at

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

T = TypeVar("T")

PLANNED_ONCE = (
    "Spark plans a DataFrame or view once: make it again, by load() or by CREATE OR REPLACE TEMPORARY VIEW name USING "
    "rolling OPTIONS (path 'URL')"
)
"""Advice for a user whose query reads by an old plan."""


def ignores_case() -> bool:
    """Return whether names of columns match without case; only tasks have this setting of Spark."""
    context = TaskContext.get()
    return context is None or context.getLocalProperty("spark.sql.caseSensitive") != "true"


class RowReader:
    """Makes rows of ranges, for batches and for streams, in the columns of a Spark schema."""

    is_batch: ClassVar[bool] = False
    """Whether Spark may use the plan of the ranges again, in later queries."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self.options = options
        self.form = form = options.form
        self.schema = schema
        self.data_schema = rows.arrow_schema(schema)
        if options.has_metadata:
            if not form.grows:
                raise ValueError(f"format {options.format!r} has no rows with offsets: includeMetadata is not for it")
            self.data_schema = rows.data_schema(self.data_schema)
        if not options.has_folder_columns:  # else a column may be one of folders: see `check_columns`
            form.check_read(self.data_schema)

    def check_columns(self, paths: Iterable[str], bases: Sequence[str]) -> None:
        """Refuse columns that neither the format nor the folders of a segment have, before any task begins.

        Raises
        ------
        ValueError
            There is such a column.
        """
        if self.options.has_folder_columns:
            for path in paths:
                there = {name.lower() for name in folder_columns.values_of(path, bases)}
                self.form.check_read(pa.schema([one for one in self.data_schema if one.name.lower() not in there]))

    def cut(self, opened: SegmentReader, extent: Extent) -> list[Range]:
        """Return the ranges of an extent, each for a task; empty if the extent is corrupt and is skipped."""
        try:
            codec = self.options.codec(extent.path)
            if codec is not None and self.options.has_metadata:
                what = "is compressed, so its rows have no offsets: includeMetadata is not for it"
                raise ValueError(f"{extent.path} {what}")
            ranges = list(self.form.cut(opened, extent, self.options.partition_bytes, codec))
            self.check_end(opened, extent, ranges[-1].end if ranges else extent.start)
            return ranges
        except CORRUPT as error:
            self.skip(extent, error)
            return []

    def check_end(self, opened: SegmentReader, extent: Extent, end: int) -> None:
        """Refuse or skip a record that is cut off at `end` of a sealed segment; if it may grow, log it."""
        if extent.end != opened.view.length:
            return
        error = self.form.torn(opened.read, extent, end)
        if error is not None and opened.view.sealed:
            why = f"{error}, and no more can come: it is sealed. onCorrupt=skip reads what is before them"
            self.skip(replace(extent, start=end), type(error)(why))
        elif error is not None:
            logger.warning("%s; they are not read. Their rest may still come", error)

    def skip(self, what: Extent | Range, error: Exception) -> None:
        """Log skipped corrupt bytes without rows, or raise, by the options."""
        if not self.options.skips_corrupt:
            raise error
        path = what.path if isinstance(what, Extent) else what.extent.path
        logger.warning("%s: bytes %d to %d are skipped (onCorrupt=skip): %s", path, what.start, what.end, error)

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task's ranges, as Spark wants them."""
        if partition is None or partition.value is None:  # Spark's own, where we made none; None itself before 4.2
            return
        with plain_errors():
            segments.keep_memory()
            fs = places.filesystem(self.options)
            if (query := self._query()) is not None:
                places.note_source(fs, self.options, query)
            make = self._with_folder_columns if self.options.has_folder_columns else self._rows
            yield from make(fs, partition.value, rows.arrow_schema(self.schema))

    def _with_folder_columns(
        self, fs: RollingFileSystem, ranges: Sequence[Range], schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        """Yield rows with the columns of the folders in which their segments are."""
        for values, group in folder_columns.by_values(ranges, places.bases(self.options)):
            named = {one.name: rows.spelled(one.name, values, ignores_case=ignores_case()) for one in self.schema}
            own = type(self.schema)([field for field in self.schema if named[field.name] is None])
            there = {
                one.name: folder_columns.constant(values[name], one, group[0].extent.path)
                for one in self.schema
                if (name := named[one.name]) is not None
            }
            for batch in self._rows(fs, group, rows.arrow_schema(own)):
                more = {name: pa.repeat(value, batch.num_rows) for name, value in there.items()}
                yield rows.checked(rows.arranged(batch, more, schema)) if there else batch

    def _rows(self, fs: RollingFileSystem, ranges: Sequence[Range], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the rows of ranges, without the columns of folders."""
        times: rows.CommitTimes | None = None
        located: Range | None = None
        is_lax = ignores_case()
        data_schema = rows.data_schema(schema) if self.options.has_metadata else schema
        for opened, one, piece in self._pieces(fs, ranges, data_schema):
            if self.options.has_metadata and one is not located:
                asked = rows.commit_times(core(fs).client, opened.view, one.start, one.extent.end)
                times, located = core(fs).run(asked), one
            for batch, starts in self.form.rows(piece, one, data_schema):
                try:
                    found = rows.conform(batch, data_schema, ignores_case=is_lax)
                except pa.ArrowInvalid as error:
                    raise pa.ArrowInvalid(f"{one.extent.path}: {error}") from error
                if times is None or starts is None:
                    yield found
                else:
                    yield rows.with_columns(found, starts(), one.extent.path, times, schema)

    def _pieces(
        self, fs: RollingFileSystem, ranges: Sequence[Range], schema: pa.Schema
    ) -> Iterator[tuple[SegmentReader, Range, Any]]:
        """Return the pieces of ranges; of lines, the next is fetched while rows are made of one."""
        found = (
            (opened, one, piece)
            for opened, one in self._opened(fs, ranges)
            for piece in self._sound(one, self.form.pieces(opened, one, schema, self.options.codec(one.extent.path)))
        )
        return prefetched(fs, found) if self.form.has_lines else found

    def _opened(self, fs: RollingFileSystem, ranges: Sequence[Range]) -> Iterator[tuple[SegmentReader, Range]]:
        """Yield the ranges with readers of their segments; a truncated or deleted one raises, or is skipped."""
        query = self._query()
        for one in ranges:
            try:
                opened = self._reader(fs, one.extent)
                places.check_source(opened.view, query)
                yield opened, one
            except (SegmentTruncatedError, FileNotFoundError) as error:
                view = segments.view_now(fs, one.extent.path)
                if self._begins_later(fs, one, view):
                    logger.warning("%s; what is left of it is read", error)
                elif self.options.fails_on_data_loss:
                    raise self._explained(error) from error
                else:
                    logger.warning("%s; going on without (failOnDataLoss=false)", error)
                yield from self._rest(fs, one, view)
            except CorruptHeaderError as error:
                self.skip(one, error)

    def _reader(self, fs: RollingFileSystem, extent: Extent) -> SegmentReader:
        """Return the reader of an extent, also if its segment was renamed since the plan."""
        try:
            return SegmentReader.of(fs, extent)
        except FileNotFoundError:
            for view in places.find(fs, self.options, may_be_missing=True, may_match_nothing=True).views.values():
                if segments.identity(view) == extent.identity:
                    return SegmentReader.of(fs, replace(extent, path=view.path))
            raise

    def _query(self) -> str | None:
        """Return the id of the query whose batch a task reads; None in a batch read, also in a function for batches."""
        context = None if self.is_batch else TaskContext.get()
        return None if context is None else context.getLocalProperty(places.QUERY_ID)

    def _begins_later(self, fs: RollingFileSystem, one: Range, view: Segment | None) -> bool:
        """Return whether retention took bytes of a batch that reads from the earliest.

        Then the batch reads the rest.
        """
        if not self.is_batch or self.options.starting.name != EARLIEST:
            return False
        if view is None:  # in a stream whose retention deletes segments
            return fs.stream(names.parent(one.extent.path)).retention is not None
        is_cut = segments.is_same(view, one.extent.identity) and view.start > one.extent.start
        return is_cut and self.options.has_lines(one.extent.path)

    def _explained(self, error: OSError) -> OSError:
        """Return the error, for a batch with what to do about it."""
        if self.is_batch and isinstance(error, FileNotFoundError):
            return FileNotFoundError(error.errno, f"{error.strerror}. {PLANNED_ONCE}", error.filename)
        return SegmentTruncatedError(f"{error}. {PLANNED_ONCE}") if self.is_batch else error

    def _rest(self, fs: RollingFileSystem, one: Range, view: Segment | None) -> Iterator[tuple[SegmentReader, Range]]:
        """Yield the rest of a range whose beginning was truncated away; only lines can be read from anywhere."""
        if view is None or not segments.is_same(view, one.extent.identity) or view.start >= one.end:
            return
        if self.options.has_lines(one.extent.path):
            extent = Extent(one.extent.path, one.extent.identity, view.start, one.extent.end)
            yield SegmentReader(fs, view), Range(extent, max(one.start, view.start), one.end)

    def _sound(self, one: Range, items: Iterator[T]) -> Iterator[T]:
        """Yield the items read of a range, unless it is corrupt and skipped.

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
                why = f"cannot be skipped: some of their rows were given out before {error}"
                raise CorruptChunkError(f"{one.extent.path}: bytes {one.start} to {one.end} {why}") from error
            self.skip(one, error)
        except pa.ArrowInvalid as error:
            why = f"are no {self.options.format}: {error}"
            raise ValueError(f"{one.extent.path}: bytes {one.start} to {one.end} {why}") from error


class RollingReader(RowReader, DataSourceReader):
    """Reads the segments as they are when the query is planned; it does not see later appends.

    Spark 4.3 and older plan a DataFrame or view once, for all of its queries, whatever their filters. So this reader
    takes no filters: what one query leaves out would be missing in the next.
    """

    is_batch: ClassVar[bool] = True

    def __init__(self, options: Options, schema: StructType) -> None:
        options.check_use(BATCH)
        super().__init__(options, schema)

    @plainly
    def partitions(self) -> Sequence[InputPartition]:
        """Return the ranges of the tasks, in the order of names and offsets."""
        fs = places.filesystem(self.options)
        found = with_cut_segments(fs, self.options, places.find(fs, self.options))
        if found.corrupt:
            logger.warning("%s; they are skipped (onCorrupt=skip)", found)
        views = found.views
        self.check_columns(views, places.bases(self.options))
        wanted = bounded(fs, self.options, views)
        cut = [one for extent in wanted for one in self.cut(SegmentReader(fs, views[extent.path]), extent)]
        return [InputPartition(group) for group in segments.gather(cut, self.options.partition_bytes)]


# -- positions ---------------------------------------------------------------------------------------------------


def with_cut_segments(fs: RollingFileSystem, options: Options, found: places.FoundSegments) -> places.FoundSegments:
    """Return what was found, with the segments that a cut names and a listing has missed."""
    named = {path: None for one in (options.starting, options.ending) if one is not None for path in one.points}
    return places.complete(fs, options, found, filter(places.meant(fs, options), named))


def bounded(fs: RollingFileSystem, options: Options, views: Mapping[str, Segment]) -> list[Extent]:
    """Return the bytes between the two positions of a batch read.

    Raises
    ------
    DataLossError
        Bytes between them are gone, and the options do not allow that.
    ValueError
        A cut names no segment of the read, or an offset after the end of one.
    """
    starting, ending = options.starting, options.ending or ReadPosition(LATEST)
    check_cut(fs, options, starting, "startingOffsets", views)
    check_cut(fs, options, ending, "endingOffsets", views)
    if starting.name == EARLIEST and ending.name == LATEST:
        return [extent_of(view) for view in views.values()]

    def extent(view: Segment) -> Extent | None:
        end = None if _is_empty(options, view.path) else _end(fs, options, view, ending)
        if end is None:
            return None
        begin = start_of(fs, options, view)  # also of an end that was truncated away: it says so
        return extent_of(view, begin, end) if begin < end else None

    return [one for one in segments.each(fs, extent, views.values()) if one is not None]


def _is_empty(options: Options, path: str) -> bool:
    """Return whether two cuts name the same offset of a segment, so that the read needs no byte of it."""
    first = options.starting.points.get(path)
    last = options.ending.points.get(path) if options.ending is not None else None
    return first is not None and last is not None and (first.identity, first.offset) == (last.identity, last.offset)


def check_cut(
    fs: RollingFileSystem, options: Options, position: ReadPosition, option: str, views: Mapping[str, Segment]
) -> None:
    """Refuse a cut of other segments, and log its segments that are gone.

    Raises
    ------
    DataLossError, ValueError
        As `bounded`.
    """
    meant = list(filter(places.meant(fs, options), position.points))
    if position.points and not meant:
        one = next(iter(position.points))
        raise ValueError(f"option {option} is a cut of other segments ({one}, …) than this query reads")
    for path in meant:
        if path not in views and not _is_empty(options, path):
            what = f"the segment is gone; option {option} names offset {position.points[path].offset} in it"
            options.lose(f"{path}: {what}")


def start_of(fs: RollingFileSystem, options: Options, view: Segment) -> int:
    """Return the offset at which a read begins in a segment."""
    position = options.starting
    if position.name:
        return view.start if position.name == EARLIEST else _behind(fs, options, view, view.length)
    offset = _offset(fs, options, view, position, "startingOffsets")
    if offset is None and view.start and view.path not in position.points:
        what = f"the segment came after the cut of option startingOffsets, and its bytes before {view.start}"
        options.lose(f"{view.path}: {what} were truncated away")
    return view.start if offset is None else _behind(fs, options, view, offset)


def _end(fs: RollingFileSystem, options: Options, view: Segment, position: ReadPosition) -> int | None:
    """Return the offset at which a read up to a position ends in a segment; None if the segment came later."""
    if position.name:
        return view.length
    offset = _offset(fs, options, view, position, "endingOffsets")
    return None if offset is None else _behind(fs, options, view, offset)


def _offset(fs: RollingFileSystem, options: Options, view: Segment, position: ReadPosition, option: str) -> int | None:
    """Return the offset of a time or a cut in a segment, perhaps within a record; None if the segment came later.

    Raises
    ------
    DataLossError, ValueError
        As `bounded`.
    """
    if position.at_s is not None:
        return max(view.start, core(fs).run(offset_at(core(fs).client, view, position.at_s)))
    point = position.points.get(view.path)
    if point is None:
        return None
    named = f"option {option} names offset {point.offset} of"
    known = point.identity
    if known and known not in view.incarnations and not segments.is_same(view, known):
        options.lose(f"{view.path}: {named} another segment, which had this name before")
        return None
    if point.offset < view.start and position is options.starting:
        options.lose(f"{view.path}: bytes {point.offset} to {view.start} were truncated away")
    if point.offset > view.length:
        raise ValueError(f"{named} {view.path}, but {view.extent}")
    return max(point.offset, view.start)


def _behind(fs: RollingFileSystem, options: Options, view: Segment, offset: int) -> int:
    """Return the end of the last whole record that ends at or before an offset; else the start of the segment."""
    if offset == view.start:
        return offset
    if options.codec(view.path) is not None:
        if offset < view.length:
            raise lines.refused_part(view.path, f"but offset {offset} of {view.extent} is a position within it")
        return offset
    whole = extent_of(view, view.start, offset)
    return options.form.end_behind(SegmentReader(fs, view).read, whole, offset, is_last=False)
