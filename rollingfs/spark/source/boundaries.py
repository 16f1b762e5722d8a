"""Begin and end of a read in each segment: positions as offsets after whole records.

A record is before a position if it ends there or before. So reads from one position to the next give each record
once, also where a position is within a record.
"""

from __future__ import annotations

from collections.abc import Mapping

from rollingfs.fs.core import core
from rollingfs.fs.filesystem import RollingFileSystem
from rollingfs.segment.segment import Segment
from rollingfs.spark.source import places, segments
from rollingfs.spark.source.formats import lines
from rollingfs.spark.source.options import Options
from rollingfs.spark.source.segments import Extent, SegmentReader, extent_of
from rollingfs.spark.source.stream.offsets import EARLIEST, LATEST, ReadMark, ReadPosition
from rollingfs.stream.members import offset_at


class Boundaries:
    """Finds the offsets that positions mean.

    Raises
    ------
    ValueError
        The format has no records that a position could be between.
    """

    def __init__(self, options: Options, fs: RollingFileSystem) -> None:
        self.options = options
        self.fs = fs
        self._is_meant = places.meant(fs, options)
        asked = [one for one in (options.starting, options.ending) if one and not one.name]
        if asked and not options.form.grows:
            raise ValueError(
                f"format {options.format!r} is read whole: startingOffsets and endingOffsets take no time and no cut"
            )

    def complete(self, found: places.FoundSegments) -> places.FoundSegments:
        """Return what was found, with the segments that a cut names and a listing has missed."""
        positions = (self.options.starting, self.options.ending)
        named = {path: None for position in positions if position for path in position.points}
        return places.complete(self.fs, self.options, found, filter(self._is_meant, named))

    def extents(self, views: Mapping[str, Segment]) -> list[Extent]:
        """Return the bytes between the two positions of a batch read.

        Raises
        ------
        DataLossError
            Bytes between them are gone, and the options do not allow that.
        ValueError
            A cut names no segment of the read, or an offset after the end of one.
        """
        starting, ending = self.options.starting, self.options.ending or ReadPosition(LATEST)
        self.check(starting, "startingOffsets", views)
        self.check(ending, "endingOffsets", views)
        if starting.name == EARLIEST and ending.name == LATEST:
            return [extent_of(view) for view in views.values()]
        found = segments.each(self.fs, lambda view: self._extent(view, starting, ending), views.values())
        return [extent for extent in found if extent is not None]

    def _extent(self, view: Segment, starting: ReadPosition, ending: ReadPosition) -> Extent | None:
        end = None if self._is_empty(view.path) else self._end(view, ending)
        if end is None:
            return None
        start = self.start(view, starting, "startingOffsets")  # also of an end that was truncated away: it says so
        return extent_of(view, start, end) if start < end else None

    def _is_empty(self, path: str) -> bool:
        """Return whether two cuts name the same offset of a segment.

        Then the read needs no byte of it.
        """
        starting, ending = self.options.starting, self.options.ending
        first, last = starting.points.get(path), ending.points.get(path) if ending is not None else None
        if first is None or last is None:
            return False
        return (first.identity, first.offset) == (last.identity, last.offset)

    def check(self, position: ReadPosition, option: str, views: Mapping[str, Segment]) -> None:
        """Refuse a cut of other segments, and log its segments that are gone.

        Raises
        ------
        DataLossError, ValueError
            As `extents`.
        """
        if not position.is_cut or not position.points:
            return
        meant = [path for path in position.points if self._is_meant(path)]
        if not meant:
            one = next(iter(position.points))
            raise ValueError(f"option {option} is a cut of other segments ({one}, …) than this query reads")
        for path in meant:
            if path not in views and not self._is_empty(path):
                what = f"the segment is gone; option {option} names offset {position.points[path].offset} in it"
                self.options.lose(f"{path}: {what}")

    def start(self, view: Segment, position: ReadPosition, option: str) -> int:
        """Return the offset at which a read from a position begins in a segment."""
        if position.name:
            return view.start if position.name == EARLIEST else self._behind(view, view.length)
        offset = self._offset(view, position, option)
        if offset is None and view.start and view.path not in position.points:
            what = f"the segment came after the cut of option {option}, and its bytes before {view.start}"
            self.options.lose(f"{view.path}: {what} were truncated away")
        return view.start if offset is None else self._behind(view, offset)

    def _end(self, view: Segment, position: ReadPosition) -> int | None:
        """Return the offset at which a read up to a position ends in a segment; None if the segment came later."""
        if position.name:
            return view.length
        offset = self._offset(view, position, "endingOffsets")
        return None if offset is None else self._behind(view, offset)

    def _offset(self, view: Segment, position: ReadPosition, option: str) -> int | None:
        """Return the offset of a time or a cut in a segment, perhaps within a record.

        It is None if the segment came later.

        Raises
        ------
        DataLossError, ValueError
            As `extents`.
        """
        if position.at_s is not None:
            return max(view.start, core(self.fs).run(offset_at(core(self.fs).client, view, position.at_s)))
        point = position.points.get(view.path)
        if point is None:
            return None
        named = f"option {option} names offset {point.offset} of"
        if not self._is_same(view, point):
            self.options.lose(f"{view.path}: {named} another segment, which had this name before")
            return None
        if point.offset < view.start and position is self.options.starting:
            self.options.lose(f"{view.path}: bytes {point.offset} to {view.start} were truncated away")
        if point.offset > view.length:
            raise ValueError(f"{named} {view.path}, but {view.extent}")
        return max(point.offset, view.start)

    def _behind(self, view: Segment, offset: int) -> int:
        """Return the end of the last whole record that ends at or before an offset; else the start of the segment."""
        if offset == view.start:
            return offset
        if self.options.codec(view.path) is not None:
            if offset < view.length:
                raise lines.refused_part(view.path, f"but offset {offset} of {view.extent} is a position within it")
            return offset
        read = SegmentReader(self.fs, view).read
        return self.options.form.end_behind(read, extent_of(view, view.start, offset), offset, is_last=False)

    def _is_same(self, view: Segment, point: ReadMark) -> bool:
        known = point.identity
        return not known or known in view.incarnations or segments.is_same(view, known)
