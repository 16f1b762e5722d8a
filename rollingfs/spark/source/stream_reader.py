"""Streaming reads: a query follows growing segments by their offsets."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow

from rollingfs.errors import CorruptHeaderError
from rollingfs.fs.filesystem import RollingFileSystem
from rollingfs.read.snapshot import Snapshot
from rollingfs.spark.source import compression, ipc, lines, offsets, partitions, places, segments
from rollingfs.spark.source.batch_reader import CORRUPT, Ranges, RowReader
from rollingfs.spark.source.boundaries import Boundaries
from rollingfs.spark.source.data_loss import DataLossError, lose
from rollingfs.spark.source.offset_store import OffsetStore
from rollingfs.spark.source.offsets import Mark
from rollingfs.spark.source.options import ARROW, LINES, Options
from rollingfs.spark.source.partitions import Extent, Range
from rollingfs.spark.source.plain_errors import plainly
from rollingfs.spark.source.positions import LATEST
from rollingfs.spark.source.segments import SegmentReader, each, extent_of
from rollingfs.spark.source.subscription import Subscription

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

logger = logging.getLogger("pyspark_rollingfs")

__all__ = ["DataLossError", "RollingStreamReader"]

FORMATS = (*LINES, ARROW)
"""The formats in which a segment grows by whole records."""


class RollingStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads appended bytes, in batches of whole records.

    A line ends with a line feed, or where a sealed segment ends; of Arrow, a batch takes whole IPC streams. A look at
    the store stays valid for the option ``pollInterval``, because Spark asks a hundred times a second.
    """

    def __init__(self, options: Options, schema: StructType) -> None:
        if options.format not in FORMATS:
            raise ValueError(f"format {options.format!r} cannot be read as a stream: it must be {', '.join(FORMATS)}")
        options.check_read()
        options.reading.check_stream()
        self.options = options
        self.rows = RowReader(options, schema)
        self._ends: dict[str, Mark] | None = None
        """With Trigger.AvailableNow: the ends of all segments when the query began."""
        self._aligned: dict[str, tuple[Any, int]] = {}
        """Ends of records that were found before, so that an idle stream reads nothing."""
        self._found = places.Found({}, {})
        self._looked_at_s: float | None = None
        self._idle_at: dict[str, Any] | None = None
        """The offset of the query at which the last look showed nothing to read."""
        self._lag: dict[str, Any] | None = None

    # made where they are used: Spark makes and pickles many readers, and the tasks need none of these

    @cached_property
    def _fs(self) -> RollingFileSystem:
        return places.filesystem(self.options)

    @cached_property
    def _store(self) -> OffsetStore:
        return OffsetStore(self.options, self._fs)

    @cached_property
    def _subscription(self) -> Subscription | None:
        name = self.options.reading.subscriber
        return None if name is None else Subscription(self.options, self._fs, name)

    # -- offsets -----------------------------------------------------------------------------------------------

    @plainly
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The offset of a new query, as the option ``startingOffsets`` says.

        Raises
        ------
        ValueError, DataLossError
            The option is a cut that does not fit the segments.
        """
        views = self._look().views
        position, boundaries = self.options.reading.starting, Boundaries(self.options, self._fs)
        boundaries.check(position, "startingOffsets", views)

        def start(view: Snapshot) -> int:
            if position.name == LATEST:
                return self._end(view, view.start, view.length)
            return boundaries.start(view, position, "startingOffsets")

        starts = each(self._fs, start, views.values())
        marks = {
            path: Mark(segments.identity(view), offset)
            for (path, view), offset in zip(views.items(), starts, strict=True)
            if not self._is_unborn(view)
        }
        if self._subscription is not None:
            self._subscription.begin(marks)
        return self._store.format(marks, {})

    @plainly
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Remember the present ends of all segments."""
        views = self._look(fresh=True).views
        self._ends = {path: Mark(segments.identity(view), view.length) for path, view in views.items()}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """The option ``maxBytesPerTrigger``."""
        size = self.options.trigger_bytes_max
        return ReadAllAvailable() if size is None else ReadMaxBytes(size)

    @plainly
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The offset at which the next batch ends; `start` itself if there is nothing to read.

        Raises
        ------
        DataLossError
            Unread bytes are gone, and the options do not say to go on without them.
        """
        found = self._look()
        if start == self._idle_at:
            return start
        before = self._store.parse(start)
        self._check_gone(before, found)
        marks = self._marks(before, found, limit)
        self._lag = _lag(found.views, marks)
        subscription = self._subscription
        if subscription is not None:
            subscription.join(before, marks)
        if _has_moved(before, marks):
            return self._store.format(marks, start)
        if subscription is not None and not offsets.is_idle(start) and (self._ends or subscription.is_due(before)):
            # Spark says that a batch is done when the next begins: without one, its end would not be published
            return self._store.format(marks, start, is_idle=True)
        self._idle_at = start
        return start

    def _marks(self, before: Mapping[str, Mark], found: places.Found, limit: ReadLimit) -> dict[str, Mark]:
        """Where the next batch ends in each segment."""
        views = found.views
        begins = {path: self._begin(view, before.get(path)) for path, view in views.items()}
        backlogs = {path: max(0, self._limit(path, view) - begins[path]) for path, view in views.items()}
        shares = backlogs
        if isinstance(limit, ReadMaxBytes):
            shares = partitions.share({path: size for path, size in backlogs.items() if size}, limit.max_bytes)
        # a corrupt segment may be repaired: the query keeps its place in it
        marks = {
            path: Mark(known.identity, known.offset, None, known.sealed)
            for path, known in before.items()
            if path in found.corrupt
        }
        for path, view in views.items():
            if path not in before and self._is_unborn(view):
                continue
            end = self._end(view, begins[path], begins[path] + shares[path]) if shares.get(path) else begins[path]
            known = before.get(path)
            is_next = known is not None and known.offset == begins[path] and segments.is_same(view, known.identity)
            is_done = segments.is_sealed(view) and end == view.length
            marks[path] = Mark(segments.identity(view), end, None if is_next else begins[path], is_done)
        return marks

    def _is_unborn(self, view: Snapshot) -> bool:
        """Whether a segment is not there yet for a subscriber: retention may delete it when it is sealed empty."""
        return self._subscription is not None and not view.size and not view.sealed

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """How far the stream lies behind the last look: ``lagBytes``, and the segments that have unread bytes.

        It asks the store nothing.
        """
        return self._lag

    def _look(self, *, fresh: bool = False) -> places.Found:
        """The segments as the last look has shown them; a new look, if `pollInterval` has passed since."""
        now_s = time.monotonic()
        if fresh or self._looked_at_s is None or now_s - self._looked_at_s >= self.options.reading.poll_s:
            before, self._found = self._found, places.find(self._fs, self.options, self._found.folders)
            self._looked_at_s, self._idle_at = now_s, None
            if self._found.corrupt and self._found.corrupt.keys() != before.corrupt.keys():
                logger.warning("%s; they are skipped until they can be read (onCorrupt=skip)", self._found)
        return self._found

    def _limit(self, path: str, view: Snapshot) -> int:
        """The offset up to which a segment may be read: its end; with Trigger.AvailableNow, its first end."""
        if self._ends is None:
            return view.length
        end = self._ends.get(path)
        return end.offset if end is not None and segments.is_same(view, end.identity) else view.start

    def _begin(self, view: Snapshot, known: Mark | None) -> int:
        """The offset at which the next batch begins in a segment."""
        if known is None:
            return view.start
        if not segments.is_same(view, known.identity):
            if not known.sealed:
                self._lose(
                    f"{view.path}: another segment has this name now; the bytes of the old one behind offset "
                    f"{known.offset} were not read"
                )
            return view.start
        if view.start > known.offset:
            self._lose(f"{view.path}: bytes {known.offset} to {view.start} were truncated away before they were read")
        return max(known.offset, view.start)

    def _check_gone(self, before: Mapping[str, Mark], found: places.Found) -> None:
        for path, mark in before.items():
            if path not in found.views and path not in found.corrupt and not mark.sealed:
                self._lose(f"{path}: the segment is gone, and it was not sealed when it was read up to {mark.offset}")

    def _lose(self, what: str) -> None:
        lose(self.options, what)

    def _end(self, view: Snapshot, begin: int, upto: int) -> int:
        """The end of the last whole record that ends at or before `upto`; else that of the first one behind it."""
        limit = max(begin, self._limit(view.path, view))
        key = (segments.identity(view), begin, min(upto, limit), limit, segments.is_sealed(view))
        known, end = self._aligned.get(view.path, (None, begin))
        if known != key:
            try:
                end = self._align(SegmentReader(self._fs, view), begin, min(upto, limit), limit)
            except CORRUPT as error:
                self.rows.skip(extent_of(view, begin, limit), error)
                end = begin  # the stream waits until the bytes can be read
            self._aligned[view.path] = (key, end)
        return end

    def _align(self, opened: SegmentReader, begin: int, upto: int, limit: int) -> int:
        view = opened.view
        is_last = segments.is_sealed(view) and limit == view.length
        if self.options.format == ARROW:
            extent = extent_of(view, begin, limit)
            end = ipc.whole_end(opened.read, extent, upto, is_last=is_last)
            if is_last and end == begin:  # what is left can never be read
                self.rows.check_end(opened, extent, end)
            return end
        if self.options.codec(view.path) is not None:
            compression.check_sealed(view.path, is_sealed=segments.is_sealed(view))
            return limit if limit == view.length else begin
        if segments.is_sealed(view) and upto == view.length:
            return upto
        end = lines.last_line_end(opened.read, begin, upto)
        if end > begin:
            return end
        found = lines.next_line_end(opened.read, upto, limit)
        if found is not None:
            return found
        return limit if is_last else begin

    # -- batches -----------------------------------------------------------------------------------------------

    @plainly
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The ranges of a batch, also of a repeated one.

        Raises
        ------
        DataLossError
            Its bytes are gone, and the options do not say to go on without them.
        """
        fs = self._fs
        wanted = offsets.extents(self._store.parse(start), self._store.parse(end))
        views = segments.look(fs, [extent.path for extent in wanted])
        cut: list[Range] = []
        for extent, view in zip(wanted, views, strict=True):
            if isinstance(view, CorruptHeaderError):
                self.rows.skip(extent, view)
                continue
            left = self._left(extent, view)
            if view is not None and left is not None:
                cut += self.rows.cut(SegmentReader(fs, view), left)
        return [Ranges(group) for group in partitions.gather(cut, self.options.partition_bytes)]

    def _left(self, extent: Extent, view: Snapshot | None) -> Extent | None:
        """The part of an extent that is still there; None if nothing is."""
        if view is None or not segments.is_same(view, extent.identity):
            self._lose(f"{extent.path}: the segment is gone, and bytes {extent.start} to {extent.end} were not read")
            return None
        if view.start <= extent.start:
            return extent
        gone = min(view.start, extent.end)
        self._lose(f"{extent.path}: bytes {extent.start} to {gone} were truncated away before they were read")
        return Extent(extent.path, extent.identity, gone, extent.end) if gone < extent.end else None

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of some ranges."""
        return self.rows.read(partition)

    @plainly
    def commit(self, end: dict[str, Any]) -> None:
        """Publish how far the query has read, if it is a subscriber; the checkpoint keeps the offset in any case."""
        if self._subscription is not None:
            self._subscription.finished(self._store.parse(end))

    def stop(self) -> None:
        """Do nothing: nothing is open between batches."""


def _has_moved(before: Mapping[str, Mark], after: Mapping[str, Mark]) -> bool:
    """Whether there are bytes to read, or something to remember: the end of a segment, or a loss of bytes."""
    if any(path not in after and not mark.sealed for path, mark in before.items()):
        return True
    for path, mark in after.items():
        known = before.get(path)
        if known is None:
            if mark.begin is not None and mark.offset > mark.begin:
                return True
        elif mark.begin is not None or mark.offset > known.offset or mark.sealed != known.sealed:
            return True
    return False


def _lag(views: Mapping[str, Snapshot], marks: Mapping[str, Mark]) -> dict[str, Any]:
    """What `reportLatestOffset` gives."""
    behind = {
        path: {"segment": segments.identity(view), "offset": view.length, "lagBytes": view.length - marks[path].offset}
        for path, view in views.items()
        if path in marks and view.length > marks[path].offset
    }
    return {"lagBytes": sum(views[path].length - marks[path].offset for path in behind), "segments": behind}
