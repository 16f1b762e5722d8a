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
from rollingfs.spark.source.stream.offsets import EARLIEST, LATEST, ReadPosition
from rollingfs.stream.members import offset_at


def complete(fs: RollingFileSystem, options: Options, found: places.FoundSegments) -> places.FoundSegments:
    """Return what was found, with the segments that a cut names and a listing has missed."""
    named = {path: None for one in (options.starting, options.ending) if one is not None for path in one.points}
    return places.complete(fs, options, found, filter(places.meant(fs, options), named))


def extents(fs: RollingFileSystem, options: Options, views: Mapping[str, Segment]) -> list[Extent]:
    """Return the bytes between the two positions of a batch read.

    Raises
    ------
    DataLossError
        Bytes between them are gone, and the options do not allow that.
    ValueError
        A cut names no segment of the read, or an offset after the end of one.
    """
    starting, ending = options.starting, options.ending or ReadPosition(LATEST)
    check(fs, options, starting, "startingOffsets", views)
    check(fs, options, ending, "endingOffsets", views)
    if starting.name == EARLIEST and ending.name == LATEST:
        return [extent_of(view) for view in views.values()]

    def extent(view: Segment) -> Extent | None:
        end = None if _is_empty(options, view.path) else _end(fs, options, view, ending)
        if end is None:
            return None
        begin = start(fs, options, view)  # also of an end that was truncated away: it says so
        return extent_of(view, begin, end) if begin < end else None

    return [one for one in segments.each(fs, extent, views.values()) if one is not None]


def _is_empty(options: Options, path: str) -> bool:
    """Return whether two cuts name the same offset of a segment.

    Then the read needs no byte of it.
    """
    first = options.starting.points.get(path)
    last = options.ending.points.get(path) if options.ending is not None else None
    return first is not None and last is not None and (first.identity, first.offset) == (last.identity, last.offset)


def check(
    fs: RollingFileSystem, options: Options, position: ReadPosition, option: str, views: Mapping[str, Segment]
) -> None:
    """Refuse a cut of other segments, and log its segments that are gone.

    Raises
    ------
    DataLossError, ValueError
        As `extents`.
    """
    meant = list(filter(places.meant(fs, options), position.points))
    if position.points and not meant:
        one = next(iter(position.points))
        raise ValueError(f"option {option} is a cut of other segments ({one}, …) than this query reads")
    for path in meant:
        if path not in views and not _is_empty(options, path):
            what = f"the segment is gone; option {option} names offset {position.points[path].offset} in it"
            options.lose(f"{path}: {what}")


def start(fs: RollingFileSystem, options: Options, view: Segment) -> int:
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
    """Return the offset of a time or a cut in a segment, perhaps within a record.

    It is None if the segment came later.

    Raises
    ------
    DataLossError, ValueError
        As `extents`.
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
    read = SegmentReader(fs, view).read
    return options.form.end_behind(read, extent_of(view, view.start, offset), offset, is_last=False)
