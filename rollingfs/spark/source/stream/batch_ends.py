"""Ends of batches: at whole records of segments that go on, and within a limit, the oldest of what waits first."""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import ceil, floor
from typing import Any, TypeVar

from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxBytes, ReadMaxRows

from rollingfs.errors import SegmentTruncatedError
from rollingfs.fs.core import core
from rollingfs.fs.filesystem import RollingFileSystem
from rollingfs.segment.at import At
from rollingfs.segment.segment import Segment
from rollingfs.spark.source import places, segments
from rollingfs.spark.source.batch_reader import RowReader
from rollingfs.spark.source.formats import CORRUPT, lines
from rollingfs.spark.source.rows import commit_times
from rollingfs.spark.source.segments import PLAIN, Extent, SegmentReader, extent_of
from rollingfs.spark.source.stream.offsets import ReadMark

T = TypeVar("T")

CHECK_BYTES = 64
"""Bytes before the end of a batch whose checksum the offset keeps."""
HEAD_BYTES = 256
"""Bytes at the beginning of a plain file whose checksum the offset keeps."""


class RecordEnds:
    """Finds the ends of records, and remembers them, so that an idle stream sends no read."""

    def __init__(self, rows: RowReader) -> None:
        self.options = rows.options
        self.rows = rows
        self._known: dict[tuple[str, str], tuple[Any, Any]] = {}

    def _once(self, what: str, path: str, key: Any, find: Callable[[], T]) -> T:
        """Return what is found for a key; the last key of a path is remembered."""
        if self._known.get((what, path), (None, None))[0] != key:
            self._known[what, path] = key, find()
        found: T = self._known[what, path][1]
        return found

    # -- where a batch begins ------------------------------------------------------------------------------------

    def begin(self, view: Segment, known: ReadMark | None) -> int:
        """Return the offset at which the next batch begins in a segment.

        Raises
        ------
        DataLossError
            Unread bytes are gone, and the options do not allow to go on without them.
        """
        if known is None:
            return view.start
        key = (segments.identity(view), view.token, view.length, view.start, known)
        return self._once("begin", view.path, key, lambda: self._begin(view, known))

    def _begin(self, view: Segment, known: ReadMark) -> int:
        if not self.is_same(view, known):
            what = f"the bytes of the old one behind offset {known.offset} were not read"
            if view.plain is not None and known.identity.startswith(PLAIN):
                what = f"its {view.length} bytes do not begin with the {known.offset} bytes that were read, and {what}"
            if not known.sealed:
                self.options.lose(f"{view.path}: another segment has this name now; {what}")
            return view.start
        if view.start > known.offset:
            what = f"bytes {known.offset} to {view.start} were truncated away before they were read"
            self.options.lose(f"{view.path}: {what}")
            return self.first_whole(view)
        if view.length < known.offset:
            self.options.lose(
                f"{view.path}: it ends at offset {view.length}, and the checkpoint says that it was read up to "
                f"{known.offset}: an older copy of it was restored, or the checkpoint was edited"
            )
            return self.end(view, view.start, view.length, view.length).offset
        if view.length > known.offset and not self.goes_on(view, known):
            self.options.lose(
                f"{view.path}: the bytes before offset {known.offset} are not those that the query has read, or no "
                "record begins there: an older copy of it was restored and has grown, or the checkpoint was edited"
            )
            return self._next(view, known.offset)
        return known.offset

    def is_same(self, view: Segment, known: ReadMark) -> bool:
        """Return whether a segment has a mark.

        A changed plain file is recognised by its bytes.
        """
        if not known.identity.startswith(PLAIN) or segments.is_unchanged(view, known.identity):
            return segments.is_same(view, known.identity)
        if view.header is not None and (segments.is_same(view, known.identity) or not view.header.was_plain):
            return segments.is_same(view, known.identity)
        key = (segments.identity(view), known)
        return self._once("same", view.path, key, lambda: view.length >= known.offset and self.goes_on(view, known))

    def goes_on(self, view: Segment, known: ReadMark) -> bool:
        """Return whether the bytes before an offset are the bytes that were read."""
        if known.head is not None and not view.start and self._crc(view, 0, known.head[0]) != known.head[1]:
            return False
        count, crc = known.check or (1, 0)
        if known.check is not None and known.offset < count:
            return False
        if known.offset - count < view.start or (known.check is None and not self.options.has_lines(view.path)):
            return True
        if known.check is None:
            return self._read(view)(known.offset - count, known.offset) == lines.FEED
        return self._crc(view, known.offset - count, known.offset) == crc

    def _crc(self, view: Segment, start: int, end: int) -> int | None:
        return zlib.crc32(self._read(view)(start, end)) if end <= view.length else None

    def _next(self, view: Segment, offset: int) -> int:
        """Return the first record that begins at an offset or after it."""
        if self.options.has_lines(view.path):
            return lines.begin(self._read(view), view.start, offset, view.length)
        return self.end(view, view.start, view.length, view.length).offset

    def first_whole(self, view: Segment) -> int:
        """Return the begin of the first whole record of a truncated segment.

        Perhaps the rest of a record comes first.
        """
        if not self.options.has_lines(view.path) or not view.start or _byte_before(self.rows, view) == lines.FEED:
            return view.start
        return lines.next_line_end(self._read(view), view.start, view.length) or view.length

    # -- where it ends ---------------------------------------------------------------------------------------------

    def end(self, view: Segment, begin: int, upto: int, limit: int) -> ReadMark:
        """Return the end of the last whole record up to `upto`.

        Without it, that is the end of the first record after it.

        Parameters
        ----------
        limit
            The offset up to which the segment may be read.
        """
        limit = max(begin, limit)
        upto = min(upto, limit)
        key = (segments.identity(view), begin, upto, limit, view.sealed)
        return self._once("end", view.path, key, lambda: self._end(view, begin, upto, limit))

    def _end(self, view: Segment, begin: int, upto: int, limit: int) -> ReadMark:
        opened = SegmentReader(places.filesystem(self.options), view)
        read = lines.ReadWindow(opened.read, view.length)
        try:
            end = self._align(opened, read, begin, upto, limit)
            return self._sums(view, read, end, min(CHECK_BYTES, end - begin))
        except CORRUPT as error:
            self.rows.skip(extent_of(view, begin, limit), error)
            return mark_at(view, begin)  # the stream waits until the bytes can be read

    def sums(self, view: Segment, end: int) -> ReadMark:
        """Return an end that another has found; of a plain file, with its checksums."""
        return self._sums(view, self._read(view), end, 0 if view.plain is None else min(CHECK_BYTES, end))

    def _sums(self, view: Segment, read: lines.Read, end: int, count: int) -> ReadMark:
        """Return an end with its checksums, if there are bytes before it."""
        if count <= 0:
            return mark_at(view, end)
        size = min(HEAD_BYTES, end)
        check = (count, zlib.crc32(read(end - count, end)))
        head = (size, zlib.crc32(read(0, size))) if view.plain is not None else None
        return replace(mark_at(view, end), check=check, head=head)

    def _align(self, opened: SegmentReader, read: lines.Read, begin: int, upto: int, limit: int) -> int:
        view = opened.view
        is_last = view.sealed and limit == view.length
        form = self.options.form
        if self.options.codec(view.path) is not None:
            if not view.sealed:
                raise lines.refused_part(view.path, "and a stream cannot follow it while it may grow: seal it")
            return limit if limit == view.length else begin
        extent = extent_of(view, begin, limit)
        end = form.end_behind(read, extent, upto, is_last=is_last)
        if is_last and end == begin:  # what is left can never be read
            self.rows.check_end(opened, extent, end)
        return end

    def count(self, view: Segment, begin: int, end: int, most: int) -> tuple[int, int]:
        """Return how many lines are in ``[begin, end)``, at most `most`, and the bytes of these."""
        read, found, at = self._read(view), 0, begin
        while at < end and found < most:
            data = read(at, min(end, at + lines.LOOK_BYTES_MAX))
            feeds = data.count(lines.FEED)
            if found + feeds >= most:
                return most, at + len(data) - len(data.split(lines.FEED, most - found)[-1]) - begin
            found, at = found + feeds, at + len(data)
            found += at == end and not data.endswith(lines.FEED)  # the last line of a sealed segment
        return found, at - begin

    def _read(self, view: Segment) -> lines.Read:
        return SegmentReader(places.filesystem(self.options), view).read


def mark_at(view: Segment, offset: int) -> ReadMark:
    """Return the mark of an offset, without checksums."""
    return ReadMark(segments.identity(view), offset)


def _byte_before(rows: RowReader, view: Segment) -> bytes | None:
    """Return the byte before the start of a segment, if the file of its first chunk still holds it."""
    header = view.header
    if header is None or not header.entries:
        return None
    first = header.entries[0]
    if first.start == view.start:
        if not first.offset:
            return None
        first = replace(first, start=first.start - 1, length=first.length + 1, offset=first.offset - 1)
    whole = replace(header, start=view.start - 1, entries=(first, *header.entries[1:]))
    opened = SegmentReader(places.filesystem(rows.options), Segment(view.path, whole, view.token, view.plain))
    try:
        return opened.read(view.start - 1, view.start)
    except SegmentTruncatedError:  # the file went after the look at the header, which an erase has replaced
        return None


# -- the limit of a batch ------------------------------------------------------------------------------------------


Run = tuple[int, float, float]
"""Bytes of a segment that were committed between two times in milliseconds, as if at an even rate."""


def _older(runs: Iterable[Run], at_ms: float) -> int:
    """Return the number of bytes that were committed up to a time."""
    shares = (
        (size, 1 if at_ms >= until else max(0, at_ms - since) / (until - since or 1)) for size, since, until in runs
    )
    return sum(int(size * share) for size, share in shares)


async def runs_of(client: At, view: Segment, begin: int, end: int) -> list[Run]:
    """Return the bytes ``[begin, end)`` of a segment by their commit times, which never go back."""
    ends, at_ms = await commit_times(client, view, max(view.start, begin - 1), end)
    last_ms = view.created.timestamp() * 1000
    found: list[Run] = []
    at = begin
    for upto, until_ms in zip([*ends, end], at_ms, strict=True):
        if upto > at:
            found.append((min(upto, end) - at, last_ms, max(last_ms, until_ms)))
            at = min(upto, end)
        last_ms = max(last_ms, until_ms)
    if found and end == view.length and (header := view.header) is not None:
        size, since_ms, newest_ms = found[-1]  # its bytes may be those of the inline tail
        since_ms = max(since_ms, header.tail_at_ms) if header.tail else since_ms
        found[-1] = (size, since_ms, max(newest_ms, since_ms, header.written_ms or 0))
    return found


def share(backlogs: Mapping[str, Sequence[Run]], budget: int) -> dict[str, int]:
    """Share out a budget of bytes: older bytes first, of all segments.

    Segments that grew at the same time are read together. Bytes of the same time are read by the names of the segments.

    Parameters
    ----------
    backlogs
        Waiting bytes, by segment, in the order of offsets.
    """
    runs = [run for of_one in backlogs.values() for run in of_one]
    if sum(size for size, _, _ in runs) <= budget:
        return {name: sum(size for size, _, _ in of_one) for name, of_one in backlogs.items()}
    times = range(floor(min(since for _, since, _ in runs)) - 1, ceil(max(until for _, _, until in runs)) + 1)
    # each segment has its bytes up to the last millisecond at which all fit, by names also bytes of the next one
    next_ms = times[bisect_right(times, budget, key=lambda at_ms: sum(_older(one, at_ms) for one in backlogs.values()))]
    shares = {name: _older(of_one, next_ms - 1) for name, of_one in backlogs.items()}
    left = budget - sum(shares.values())
    for name, of_one in sorted(backlogs.items()):
        taken = min(_older(of_one, next_ms) - shares[name], left)
        shares[name] += taken
        left -= taken
    return shares


RECORD_BYTES = 256
"""First guess at the size of a record, for a limit of records."""
GUESSES_MAX = 8
"""Maximum number of guesses; then the oldest records are counted off."""


def limited(
    fs: RollingFileSystem,
    records: RecordEnds,
    views: Mapping[str, Segment],
    backlogs: Mapping[str, Extent],
    limit: ReadLimit,
) -> dict[str, ReadMark]:
    """Return the ends of a batch, by path, for the segments that it reads.

    Parameters
    ----------
    backlogs
        Waiting bytes, by path.
    """

    def end(one: Extent, upto: int) -> ReadMark:
        return records.end(views[one.path], one.start, upto, one.end)

    def ends(shares: Mapping[str, int]) -> dict[str, ReadMark]:
        return {path: end(backlogs[path], backlogs[path].start + size) for path, size in shares.items() if size}

    def count(path: str, upto: ReadMark, most: int) -> tuple[int, int]:
        return records.count(views[path], backlogs[path].start, upto.offset, most)

    sizes = {path: one.size for path, one in backlogs.items()}
    waiting = sum(sizes.values())
    if isinstance(limit, ReadMaxBytes) and waiting > limit.max_bytes:
        return ends(share(_runs(fs, views, backlogs), limit.max_bytes))
    if not isinstance(limit, ReadMaxRows) or not backlogs:
        return ends(sizes)
    # at most this number of lines: a guess at their bytes, if it is good, else counted off
    runs, most = _runs(fs, views, backlogs), limit.max_rows
    size = most * RECORD_BYTES
    guess: dict[str, ReadMark] = {}
    for _ in range(GUESSES_MAX):
        guess = ends(share(runs, size))
        counts = [count(path, upto, most + 1) for path, upto in guess.items()]
        total, read = (sum(one[nth] for one in counts) for nth in (0, 1))
        if total <= most and (size >= waiting or 2 * total > most):
            return guess
        size = max(1, min(size, read) * most // total) if total > most else 2 * size
    found = {}
    for path in sorted(guess, key=lambda path: (runs[path][0][1], path)):
        if most:
            lines_of_one, size = count(path, guess[path], most)
            found[path] = end(backlogs[path], backlogs[path].start + size)
            most -= lines_of_one
    return found


def _runs(fs: RollingFileSystem, views: Mapping[str, Segment], backlogs: Mapping[str, Extent]) -> dict[str, list[Run]]:
    """Return when what waits was committed, by path."""
    client = core(fs).client
    calls = [partial(runs_of, client, views[one.path], one.start, one.end) for one in backlogs.values()]
    found = core(fs).run(client.runtime.gather(calls, client.backend.capability.requests_max))
    return dict(zip(backlogs, found, strict=True))
