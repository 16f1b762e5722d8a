"""The streaming source: tails a growing segment, or a folder of them, by segment offsets."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow

from rollingfs.errors import CorruptHeaderError, SegmentTruncatedError
from rollingfs.read.snapshot import Snapshot
from rollingfs.spark.source import ipc, partitions, places, progress, records
from rollingfs.spark.source.opened import Opened
from rollingfs.spark.source.options import ARROW, JSON, LATEST, TEXT, Options
from rollingfs.spark.source.partitions import Extent, Range
from rollingfs.spark.source.progress import Mark
from rollingfs.spark.source.read import CORRUPT, Ranges, RowReader

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

logger = logging.getLogger("pyspark_rollingfs")

FORMATS = (TEXT, JSON, ARROW)
"""Those in which a segment grows by records."""


class DataLossError(SegmentTruncatedError):
    """Bytes that the query has not read are gone; ``failOnDataLoss=false`` goes on without them."""


class RollingStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what is appended, in batches of whole records.

    Lines end with a line feed, or where a sealed segment ends; of Arrow, whole IPC streams are taken. What a look at
    the store has shown is believed as long as a header is (``header_cache_s``): Spark asks a hundred times a second.
    """

    def __init__(self, options: Options, schema: StructType) -> None:
        if options.format not in FORMATS:
            raise ValueError(f"format {options.format!r} cannot be read as a stream: it must be {', '.join(FORMATS)}")
        self.options = options
        self.rows = RowReader(options, schema)
        self._ends: dict[str, Mark] | None = None
        """For Trigger.AvailableNow: where everything ended when the query began."""
        self._aligned: dict[str, tuple[Any, int]] = {}
        """Ends that were looked for before: an idle stream reads nothing."""
        self._found = places.Found({}, {})
        self._looked_at_s: float | None = None
        self._idle_at: dict[str, Any] | None = None
        """Where the query stood when the last look showed nothing more to read."""

    # -- where it stands ---------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Where a new query begins: the first retained bytes, or the present ends."""
        is_latest = self.options.starting_offset == LATEST
        marks = {}
        for view in self._look().views.values():
            offset = self._end(view, view.start, view.length) if is_latest else view.start
            marks[view.path] = Mark(places.identity(view), offset)
        return progress.format_offset(marks)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Remember where everything ends now."""
        views = self._look(fresh=True).views
        self._ends = {path: Mark(places.identity(view), view.length) for path, view in views.items()}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """``maxBytesPerTrigger``."""
        size = self.options.trigger_bytes_max
        return ReadAllAvailable() if size is None else ReadMaxBytes(size)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Where the next batch ends; `start` itself, if there is none.

        Raises
        ------
        DataLossError
            Unread bytes are gone, and the options do not say to go on without them.
        """
        found = self._look()
        if start == self._idle_at:
            return start
        before, views = progress.parse(start), found.views
        self._check_gone(before, found)
        begins = {path: self._begin(view, before.get(path)) for path, view in views.items()}
        backlogs = {path: max(0, self._limit(path, view) - begins[path]) for path, view in views.items()}
        shares = backlogs
        if isinstance(limit, ReadMaxBytes):
            shares = partitions.share({path: size for path, size in backlogs.items() if size}, limit.max_bytes)
        # what cannot be read now may be mended: it is gone on with where the query was
        marks = {
            path: Mark(known.identity, known.offset, None, known.sealed)
            for path, known in before.items()
            if path in found.corrupt
        }
        for path, view in views.items():
            end = self._end(view, begins[path], begins[path] + shares[path]) if shares.get(path) else begins[path]
            known = before.get(path)
            is_next = known is not None and known.offset == begins[path] and places.is_same(view, known.identity)
            is_done = places.is_sealed(view) and end == view.length
            marks[path] = Mark(places.identity(view), end, None if is_next else begins[path], is_done)
        if _has_moved(before, marks):
            return progress.format_offset(marks)
        self._idle_at = start
        return start

    def _look(self, *, fresh: bool = False) -> places.Found:
        """What is there, as a look has shown that is no older than headers are believed."""
        fs = places.filesystem(self.options)
        now_s = time.monotonic()
        if fresh or self._looked_at_s is None or now_s - self._looked_at_s >= fs._client.headers.cache_s:
            before, self._found = self._found, places.find(fs, self.options)
            self._looked_at_s, self._idle_at = now_s, None
            if self._found.corrupt and self._found.corrupt.keys() != before.corrupt.keys():
                logger.warning("%s; they are skipped until they can be read (onCorrupt=skip)", self._found)
        return self._found

    def _limit(self, path: str, view: Snapshot) -> int:
        """How far a segment may be read: with Trigger.AvailableNow, not beyond where it ended at first."""
        if self._ends is None:
            return view.length
        end = self._ends.get(path)
        return end.offset if end is not None and places.is_same(view, end.identity) else view.start

    def _begin(self, view: Snapshot, known: Mark | None) -> int:
        """Where the next batch begins in a segment."""
        if known is None:
            return view.start
        if not places.is_same(view, known.identity):
            if not known.sealed:
                self._lose(
                    f"{view.path}: another segment has this name; of the old one, what lies behind offset "
                    f"{known.offset} was not read"
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
        if self.options.fails_on_data_loss:
            raise DataLossError(f"{what}; option failOnDataLoss=false goes on without them")
        logger.warning("%s; going on without (failOnDataLoss=false)", what)

    def _end(self, view: Snapshot, begin: int, upto: int) -> int:
        """Where the last whole record ends, at most at `upto`, or else the first one behind it."""
        limit = max(begin, self._limit(view.path, view))
        key = (places.identity(view), begin, min(upto, limit), limit, places.is_sealed(view))
        known, end = self._aligned.get(view.path, (None, begin))
        if known != key:
            try:
                end = self._align(Opened(places.filesystem(self.options), view), begin, min(upto, limit), limit)
            except CORRUPT as error:
                self.rows.skip(Extent(view.path, places.identity(view), begin, limit), error)
                end = begin  # until it can be read
            self._aligned[view.path] = (key, end)
        return end

    def _align(self, opened: Opened, begin: int, upto: int, limit: int) -> int:
        view = opened.view
        if self.options.format == ARROW:
            return ipc.whole_end(opened.read, Extent(view.path, places.identity(view), begin, limit), upto)
        if places.is_sealed(view) and upto == view.length:
            return upto
        end = records.last_line_end(opened.read, begin, upto)
        if end > begin:
            return end
        found = records.next_line_end(opened.read, upto, limit)
        if found is not None:
            return found
        return limit if places.is_sealed(view) and limit == view.length else begin

    # -- what lies between ---------------------------------------------------------------------------------------

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The ranges of a batch, also of one that is run again.

        Raises
        ------
        DataLossError
            Its bytes are gone, and the options do not say to go on without them.
        """
        fs = places.filesystem(self.options)
        wanted = progress.extents(progress.parse(start), progress.parse(end))
        views = places.views_now(fs, [extent.path for extent in wanted])
        cut: list[Range] = []
        for extent, view in zip(wanted, views, strict=True):
            if isinstance(view, CorruptHeaderError):
                self.rows.skip(extent, view)
                continue
            left = self._left(extent, view)
            if view is not None and left is not None:
                cut += self.rows.cut(Opened(fs, view), left)
        return [Ranges(group) for group in partitions.gather(cut, self.options.partition_bytes)]

    def _left(self, extent: Extent, view: Snapshot | None) -> Extent | None:
        """What of an extent is still there."""
        if view is None or not places.is_same(view, extent.identity):
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

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: what was read is kept by the checkpoint; what may go, retention decides."""

    def stop(self) -> None:
        """Nothing is held."""


def _has_moved(before: Mapping[str, Mark], after: Mapping[str, Mark]) -> bool:
    """Whether there is anything to read, or to remember: that a segment has ended, or that bytes were lost."""
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
