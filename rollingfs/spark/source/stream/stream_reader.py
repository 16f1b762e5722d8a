"""Streaming reads: a query follows growing segments by their offsets."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from rollingfs.errors import CorruptHeaderError
from rollingfs.format import names
from rollingfs.fs.filesystem import RollingFileSystem
from rollingfs.segment.segment import Segment
from rollingfs.spark.source import formats, places, segments
from rollingfs.spark.source.batch_reader import RowReader, check_cut, start_of, with_cut_segments
from rollingfs.spark.source.options import STREAM, Options, logger
from rollingfs.spark.source.plain_errors import plainly
from rollingfs.spark.source.segments import Extent, Range, SegmentReader, each, extent_of
from rollingfs.spark.source.stream import offsets
from rollingfs.spark.source.stream.batch_ends import RecordEnds, limited, mark_at
from rollingfs.spark.source.stream.offsets import LATEST, ReadMark
from rollingfs.spark.source.stream.subscription import Subscription

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class RollingStreamReader(RowReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads appended bytes, in batches of whole records.

    A line ends with a line feed, or where a sealed segment ends; of Arrow, a batch takes whole IPC streams. A look at
    the store stays valid for the option ``pollInterval``, because Spark asks a hundred times a second.
    """

    def __init__(self, options: Options, schema: StructType) -> None:
        if not options.form.grows:
            growing = ", ".join(name for name in formats.MODULES if formats.of(name).grows)
            raise ValueError(f"format {options.format!r} cannot be read as a stream: it must be one of {growing}")
        options.check_use(STREAM)
        super().__init__(options, schema)
        self._ends: dict[str, ReadMark] | None = None
        """With Trigger.AvailableNow: the ends of all segments when the query began."""
        self._records = RecordEnds(self)
        self._found = places.FoundSegments({}, {})
        self._looked_at_s: float | None = None
        self._idle_at: dict[str, Any] | None = None
        """The offset of the query at which the last look showed no new bytes."""
        self._at: Mapping[str, ReadMark] = {}
        """End of the last batch, as far as Spark has reported or asked it."""
        self._planned: dict[str, Any] | None = None
        """The end of a batch that this reader has planned, and so has just looked at."""
        self._waits_since_s = time.monotonic() - options.delay_s
        """Since when less than the smallest batch has been waiting."""
        self._waiting_bytes = 0

    # made where they are used: Spark makes and pickles many readers, and the tasks need none of these

    @cached_property
    def _fs(self) -> RollingFileSystem:
        return places.filesystem(self.options)

    @cached_property
    def _is_meant(self) -> Callable[[str], bool]:
        return places.meant(self._fs, self.options)

    @cached_property
    def _subscription(self) -> Subscription | None:
        name = self.options.subscriber
        return None if name is None else Subscription(self.options, self._fs, name)

    # -- offsets -----------------------------------------------------------------------------------------------

    @plainly
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the offset of a new query, by the option ``startingOffsets``.

        Raises
        ------
        ValueError, DataLossError
            The option is a cut that does not fit the segments.
        """
        position = self.options.starting
        self._found = with_cut_segments(self._fs, self.options, self._look(is_new=True))
        views = self._found.views
        check_cut(self._fs, self.options, position, "startingOffsets", views)

        def start(view: Segment) -> ReadMark:
            if position.name == LATEST:
                return self._records.end(view, view.start, view.length, view.length)
            return self._records.sums(view, start_of(self._fs, self.options, view))

        starts = each(self._fs, start, views.values())
        found = zip(views.items(), starts, strict=True)
        # with their begins, for Spark keeps no offset before its first batch, and asks anew to repeat it
        marks = {path: replace(mark, begin=mark.offset) for (path, view), mark in found if not self._is_unborn(view)}
        self._at = marks
        if self._subscription is not None:
            self._subscription.begin(marks)
        return offsets.format_offset(marks)

    @plainly
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Remember the present ends of all segments."""
        views = self._look(fresh=True).views
        self._ends = {path: ReadMark(segments.identity(view), view.length) for path, view in views.items()}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the option ``maxBytesPerTrigger`` or ``maxRecordsPerTrigger``."""
        size, count = self.options.trigger_bytes_max, self.options.trigger_records_max
        if count is not None:
            return ReadMaxRows(count)
        return ReadAllAvailable() if size is None else ReadMaxBytes(size)

    @plainly
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the offset at which the next batch ends; `start` itself without new bytes.

        Raises
        ------
        DataLossError
            Unread bytes are gone, and the options do not allow to go on without them.
        """
        self._look()
        if start == self._idle_at:
            return start
        before = offsets.parse(start)
        # a segment that was renamed is found by what it was, under its old name: its mark moves along
        found = self._found = places.complete(self._fs, self.options, self._found, filter(self._is_meant, before))
        moved = self._moves(before, found.views)
        self._check_gone(before, found, moved)
        marks = self._marks(before, found, moved, limit)
        self._at = before
        if (subscription := self._subscription) is not None:
            subscription.join(self._meant(before), self._meant(marks))
        if offsets.has_moved(before, marks):
            if self._is_too_small():
                return start
            self._at, self._planned = marks, offsets.format_offset(marks)
            return self._planned
        if (
            subscription is not None
            and not offsets.is_idle(start)
            and (self._ends or subscription.is_due(self._meant(before)))
        ):
            # Spark says that a batch is done when the next begins: without one, its end would not be published
            return offsets.format_offset(marks, is_idle=True)
        self._idle_at = start
        return start

    def _is_too_small(self) -> bool:
        """Return whether a batch is to wait for more bytes.

        It waits while the bytes are fewer than the minimum, and have not waited long.
        """
        size_min, now_s = self.options.trigger_bytes_min, time.monotonic()
        is_small = size_min is not None and self._ends is None and self._waiting_bytes < size_min
        if is_small and now_s - self._waits_since_s < self.options.delay_s:
            return True
        self._waits_since_s = now_s
        return False

    def _marks(
        self, before: Mapping[str, ReadMark], found: places.FoundSegments, moved: offsets.Moves, limit: ReadLimit
    ) -> dict[str, ReadMark]:
        """Return where the next batch ends in each segment."""
        views = found.views
        known = offsets.known(before, views, moved)
        begins = {path: self._records.begin(view, known[path]) for path, view in views.items()}
        self._waiting_bytes = sum(view.length - begins[path] for path, view in views.items())
        left = {was for was, _ in moved.values()}
        self._check_merged(before, found, left, begins)
        waiting = {path: extent_of(view, begins[path], self._limit(path, view)) for path, view in views.items()}
        backlogs = {path: extent for path, extent in waiting.items() if extent.size > 0}
        ends = limited(self._fs, self._records, views, backlogs, limit)
        # a corrupt segment may be repaired, and a path be named again: the query keeps its place there
        elsewhere = before.keys() - self._meant(before) - left
        kept = found.corrupt.keys() | elsewhere
        marks = {path: replace(mark, begin=None) for path, mark in before.items() if path in kept}
        for path, view in views.items():
            mark, begin = known[path], begins[path]
            if mark is None and self._is_unborn(view):
                continue
            end = ends.get(path) or mark_at(view, begin)
            is_next = mark is not None and mark.offset == begin and self._records.is_same(view, mark)
            of = mark if mark is not None and is_next and end.offset == mark.offset else end
            is_first = mark is not None and mark.begin == mark.offset < end.offset
            begin_told = None if is_next and not is_first and before.get(path) == mark else begin
            is_done = view.sealed and end.offset == view.length
            marks[path] = replace(of, identity=end.identity, begin=begin_told, sealed=is_done)
        return marks

    def _is_unborn(self, view: Segment) -> bool:
        """Return whether a segment does not exist yet for a subscriber.

        Retention may delete it when it is sealed empty.
        """
        return self._subscription is not None and not view.size and not view.sealed

    @plainly
    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """Return how far the stream is after the last look; a reader that has not looked yet looks now.

        ``lagBytes`` and ``lagSeconds`` (the age of the oldest unread byte), in all and of each segment that has any.
        """
        if self._looked_at_s is None:
            self._look()
        return offsets.lag(self._found.views, self._at)

    def _look(self, *, fresh: bool = False, is_new: bool = False) -> places.FoundSegments:
        """Return the segments of the last look, or of a new look.

        A new look comes once `pollInterval` has passed.

        Parameters
        ----------
        is_new
            The query begins: it is refused without segments. Later its folder may become empty, and its segment go.
        """
        now_s = time.monotonic()
        is_first = self._looked_at_s is None or (is_new and not self._found.views)
        if fresh or is_first or now_s - (self._looked_at_s or 0) >= self.options.poll_s:
            before = self._found
            self._found = places.find(
                self._fs, self.options, before.folders, may_be_missing=not is_new, may_match_nothing=True
            )
            self._looked_at_s, self._idle_at = now_s, None
            if self._found.corrupt and self._found.corrupt.keys() != before.corrupt.keys():
                logger.warning("%s; they are skipped until they can be read (onCorrupt=skip)", self._found)
        return self._found

    def _limit(self, path: str, view: Segment) -> int:
        """Return the offset up to which a segment may be read: its end; with Trigger.AvailableNow, its first end."""
        if self._ends is None:
            return view.length
        end = self._ends.get(path)
        return end.offset if end is not None and segments.is_same(view, end.identity) else view.start

    def _moves(self, before: Mapping[str, ReadMark], views: Mapping[str, Segment]) -> offsets.Moves:
        return offsets.moves(before, views, self._records.goes_on, partial(segments.became, self._fs))

    def _meant(self, marks: Mapping[str, ReadMark]) -> dict[str, ReadMark]:
        """Return the marks of what the query names: it may have been started again with another path."""
        return {path: mark for path, mark in marks.items() if self._is_meant(path)}

    def _check_gone(self, before: Mapping[str, ReadMark], found: places.FoundSegments, moved: offsets.Moves) -> None:
        old = {was for was, _ in moved.values()}
        for path, mark in self._meant(before).items():
            is_there = (path in found.views and path not in moved) or path in found.corrupt or path in old
            if not is_there and not mark.sealed:
                what = f"the segment is gone, and it was not sealed when it was read up to {mark.offset}"
                self.options.lose(f"{path}: {what}")

    def _check_merged(
        self, before: Mapping[str, ReadMark], found: places.FoundSegments, left: set[str], begins: Mapping[str, int]
    ) -> None:
        """Log rows that will be read twice, because a segment joined another.

        Parameters
        ----------
        left
            The old names of what has moved: what bears them in a mark is another segment.
        """
        for path, view in found.views.items():
            merges = view.header.merges if view.header is not None and begins[path] < view.length else ()
            for txn, source in ((one.txn, names.climb(names.parent(path), one.source)) for one in merges):
                mark = before.get(source)
                if mark is not None and mark.offset and source not in found.views and source not in left:
                    grave = None if source in found.corrupt else segments.header_now(self._fs, source)
                    # a rename keeps the lineage: if this very segment had the name, the query has read another there
                    if grave is None or (grave.merged, grave.segment) != (txn, segments.identity(view)):
                        what = f"and is a part of {path} now, from which its rows would be read again"
                        self.options.lose(f"{source}: it was read up to offset {mark.offset}, {what}")

    # -- batches -----------------------------------------------------------------------------------------------

    @plainly
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the ranges of a batch, also of a repeated one.

        Raises
        ------
        DataLossError
            Its bytes are gone, and the options do not allow to go on without them.
        """
        fs = self._fs
        self._at = offsets.parse(end)
        is_repeated, self._planned = end != self._planned, None
        wanted = offsets.extents(offsets.parse(start), self._at)
        cut: list[Range] = []
        for extent, view, mark in self._found_again(wanted):
            if isinstance(view, CorruptHeaderError):
                self.skip(extent, view)
                continue
            left = self._left(extent, view, mark, is_repeated=is_repeated)
            if view is not None and left is not None:
                cut += self.cut(SegmentReader(fs, view), left)
        return [InputPartition(group) for group in segments.gather(cut, self.options.partition_bytes)]

    def _found_again(self, wanted: Sequence[Extent]) -> list[tuple[Extent, segments.Look, ReadMark]]:
        """Return the extents of a batch with their segments, under the names that renames have given them since."""
        looks = segments.look(self._fs, [extent.path for extent in wanted])
        found = [(extent, look, self._at[extent.path]) for extent, look in zip(wanted, looks, strict=True)]
        gone = {extent.path: mark for extent, look, mark in found if not self._is_there(look, mark)}
        moved = self._moves(gone, self._look(fresh=True).views) if gone else {}
        now = {was: (self._found.views[path], mark) for path, (was, mark) in moved.items()}
        return [
            (replace(one[0], path=now[one[0].path][0].path), *now[one[0].path]) if one[0].path in now else one
            for one in found
        ]

    def _is_there(self, look: segments.Look, mark: ReadMark) -> bool:
        return isinstance(look, CorruptHeaderError) or (look is not None and self._records.is_same(look, mark))

    def _left(self, extent: Extent, view: Segment | None, mark: ReadMark, *, is_repeated: bool) -> Extent | None:
        """Return the part of an extent that is still there, or None.

        Parameters
        ----------
        mark
            End of the batch.
        is_repeated
            Whether the batch was planned earlier, perhaps in another copy of the segment.
        """
        if view is None or not self._records.is_same(view, mark):
            what = f"bytes {extent.start} to {extent.end} were not read"
            self.options.lose(f"{extent.path}: the segment is gone, or was written anew, and {what}")
            return None
        begin, end = extent.start, extent.end
        if view.length < end or (is_repeated and not self._records.goes_on(view, mark)):
            self.options.lose(
                f"{extent.path}: bytes {begin} to {end} of a planned batch are not those that were there: an older "
                "copy of the segment was restored, or the checkpoint was edited"
            )
            end = self._records.end(view, view.start, min(end, view.length), view.length).offset
        if view.start > begin:
            what = f"bytes {begin} to {min(view.start, end)} were truncated away before they were read"
            self.options.lose(f"{extent.path}: {what}")
            begin = self._records.first_whole(view)
        return Extent(extent.path, segments.identity(view), begin, end) if begin < end else None

    @plainly
    def commit(self, end: dict[str, Any]) -> None:
        """Publish how far the query has read, if it is a subscriber; the checkpoint keeps the offset in any case."""
        if self._subscription is not None:
            self._subscription.finished(self._meant(offsets.parse(end)))

    def stop(self) -> None:
        """Do nothing, because no file is open between batches."""
