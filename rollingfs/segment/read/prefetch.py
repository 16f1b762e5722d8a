"""Fetches ahead of the reader of a file: the next bytes of one that is read from front to back, or column chunks."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from rollingfs.backend.contract import Buffer, frozen
from rollingfs.runtime.bridge import wait

PREFETCH_RANGE_BYTES = 4 * 1024 * 1024
"""A connection gives some 85 MB/s, so many small ranges come sooner than a few large ranges in the same memory."""
READ_BYTES_MIN = 1024 * 1024
READ_BYTES_MAX = 8 * 1024 * 1024
"""A first read between these two sizes shows a program that reads all of the file."""
AHEAD_BYTES_MIN = 4 * 1024 * 1024
AHEAD_FACTOR = 4
"""Maximum bytes fetched ahead for each byte that was read in a row, so that a short read fetches little too much."""
FOOTER_BYTES_MAX = 64 * 1024
"""Bytes that pyarrow reads at first of the end of a file."""
FOOTER_BYTES_PER_READ = 16 * 1024
"""Decoding 16 KiB of a footer takes 10 ms, less than a round trip. So a larger footer is decoded after more reads."""
FOOTERS_MAX = 16
"""pyarrow opens a file once for its footer, and again for its columns."""
RUN_BYTES_MAX = 16 * 1024 * 1024
"""pyarrow joins columns up to 32 MiB, wherever that ends. A read as large as that makes many requests anyway."""
RUNS_MAX = 256
"""Maximum number of different reads that are expected again: each of them is looked at for each read."""
MISSES_MAX = 8
"""Maximum excess of wrong guesses of row groups over right guesses. Threads ask in any order."""
WASTE_FACTOR = 2
"""Weight of the ranges and bytes that were fetched in vain: failed guesses make the next guesses smaller."""

Span = tuple[int, int]
Begin = Callable[..., concurrent.futures.Future[Buffer]]
"""Starts to fetch the range between two offsets; with a third number, by at most so many requests at once."""


def range_bytes(read_bytes: int, ahead_bytes: int, memory_bytes: int) -> int:
    """Return the bytes to fetch at a time: the size of a read, if that is sensible, so that no byte is copied."""
    size = read_bytes
    if not READ_BYTES_MIN <= read_bytes <= PREFETCH_RANGE_BYTES:
        size = min(max(ahead_bytes // 4, READ_BYTES_MIN), PREFETCH_RANGE_BYTES)
    return min(size, memory_bytes // 2)  # so that the reader waits for one range while another is on its way


@dataclass(slots=True)
class _Range:
    """Bytes ``[start, end)`` of the file, on their way or here."""

    start: int
    end: int
    data: concurrent.futures.Future[Buffer]
    left: int
    """The number of these bytes that no read has taken."""


class Prefetch:
    """The ranges that are fetched ahead of the reader of a file.

    Fetching ahead begins when a read starts where the read before it ended, or with the first read, if that is at the
    file's beginning and as large as in programs that read all of a file. The more is read in a row, the more is
    fetched ahead. Readers with several threads (pyarrow) come slightly out of order: skipped ranges wait for a while.
    At most `ranges_max` ranges and `memory_bytes` bytes are on their way or wait to be taken.
    """

    def __init__(self, begin: Begin, start: int, end: int, ranges_max: int, memory_bytes: int) -> None:
        self.begin = begin
        self.end = end
        self.ranges_max = ranges_max
        self.memory_bytes = memory_bytes
        self.ranges: list[_Range] = []
        """On their way, or here."""
        self._next = 0
        """Begin of the next range."""
        self._ahead_bytes = 0
        self.start = self._row_start = self.row_end = start
        """The bytes of the last reads that each began where the read before it ended."""

    def take(self, start: int, end: int) -> tuple[int, bytes] | None:
        """Return bytes that were fetched ahead, with their begin, or None.

        The bytes may begin before `start`, and end before or after `end`. The byte at `start` is always among them.
        """
        follows = start == self.row_end
        if not self.has(start):
            # a byte that was taken or skipped, while later ranges wait to be taken, is not a reason to give them up
            is_behind = self.ranges and self._next - 2 * self.memory_bytes <= start < self._next
            if follows or not is_behind:
                self.close()
            if not follows or end - start >= self.memory_bytes:
                return None  # a read that would fill the memory is not fetched ahead
            if self._row_start == self.row_end:
                if READ_BYTES_MIN <= end - start <= READ_BYTES_MAX:  # it looks like the first of many
                    self._next = end
                    self.read(start, end)
                    self._fill(start, end)
                return None  # the caller fetches these bytes itself
            self._next = start
        try:
            self.read(start, end)
            self._fill(start, end)
            found = self._wait(start, end)
        except BaseException:
            self.close()
            raise
        self.read(found[0], found[0] + len(found[1]))
        self._fill(start, end)
        return found

    def read(self, start: int, end: int) -> None:
        """Note that bytes were read."""
        if not self._row_start <= start <= self.row_end:
            self._row_start = start
        self.row_end = end
        ahead_bytes = max(AHEAD_BYTES_MIN, AHEAD_FACTOR * (end - self._row_start))
        self._ahead_bytes = max(self._ahead_bytes, min(ahead_bytes, self.memory_bytes))

    def close(self) -> None:
        """Give up all ranges."""
        for each in self.ranges:
            each.data.cancel()
        self.ranges.clear()
        self._ahead_bytes = 0

    def has(self, offset: int) -> bool:
        """Return whether a byte is on its way, or here."""
        return any(each.start <= offset < each.end for each in self.ranges)

    def _fill(self, start: int, end: int) -> None:
        """Begin to fetch up to `end`, and beyond it as much as is allowed."""
        size = range_bytes(end - start, self._ahead_bytes, self.memory_bytes)
        held = sum(each.end - each.start for each in self.ranges)
        wanted = size if self._next < end else 0
        while self.ranges and self.ranges[0].end <= start:
            is_old = self.ranges[0].end < start - self._ahead_bytes // 2
            if not is_old and held + wanted <= self._ahead_bytes:
                break
            skipped = self.ranges.pop(0)  # long ago, or its place is needed
            skipped.data.cancel()
            held -= skipped.end - skipped.start
        while self._next < self.end and len(self.ranges) < self.ranges_max:
            if held + size > self._ahead_bytes and self._next >= end:
                break
            last = min(self._next + size, self.end)
            self.ranges.append(_Range(self._next, last, self.begin(self._next, last), last - self._next))
            held += last - self._next
            self._next = last

    def _wait(self, start: int, end: int) -> tuple[int, bytes]:
        """Return the range with the byte at `start`, and the ranges that follow on it as far as they are asked for."""
        first = next(number for number, each in enumerate(self.ranges) if each.start <= start < each.end)
        run = [self.ranges[first]]
        for each in self.ranges[first + 1 :]:
            if each.start != run[-1].end or each.start >= end:
                break
            run.append(each)
        if len(run) == 1:
            data = wait(run[0].data)
            self.ranges.remove(run[0])
            return run[0].start, frozen(data)  # copied here, in the reader's thread, where one copy lives at a time
        parts = []
        for each in run:
            data = wait(each.data)
            parts.append(memoryview(data)[max(start - each.start, 0) : end - each.start])
            each.left -= len(parts[-1])
            if each.left <= 0:
                self.ranges.remove(each)
        return start, b"".join(parts)


class ColumnPattern:
    """Column chunks that a reader has read, and will read if it reads the same columns of each row group.

    It is made of the extents of all chunks, in the order of the file, the number of chunks of a row group, and the
    offset at which the file begins.
    """

    def __init__(self, chunks: Sequence[Span], columns: int, begin: int = 0) -> None:
        self._chunks = chunks = [(begin + start, begin + end) for start, end in chunks]
        self._columns = columns
        self._by_start = {start: number for number, (start, _) in enumerate(chunks)}
        self._by_end = {end: number for number, (_, end) in enumerate(chunks)}
        self._runs: dict[Span, int | None] = {}
        """The next row group, by the first column and the chunks after it; None if it is hardly read so again."""
        self._done: set[int] = set()

    def read(self, start: int, end: int) -> bool:
        """Note a read; return whether it was a read of whole column chunks."""
        run = self._run(start, end)
        if run is None:
            return False
        first = self._by_start[start]
        is_likely = end - start <= RUN_BYTES_MAX and len(self._runs) < RUNS_MAX
        left = self._runs.setdefault(run, 0 if is_likely else None)
        if left is not None:
            self._runs[run] = max(left, first // self._columns + 1)
        self._done.update(range(first, first + run[1] + 1))
        return True

    def knows(self, start: int, end: int) -> bool:
        """Return whether the reader has read the same columns of other row groups only."""
        run = self._run(start, end)
        return run is not None and self._runs.get(run) is not None and self._by_start[start] not in self._done

    def refute(self, start: int, end: int) -> None:
        """Note that the reader reads these chunks in another way."""
        if (run := self._run(start, end)) is not None:
            self._runs[run] = None

    def _run(self, start: int, end: int) -> Span | None:
        first, last = self._by_start.get(start), self._by_end.get(end)
        return None if first is None or last is None else (first % self._columns, last - first)

    def following(self) -> Iterator[Span]:
        """Yield unread chunks, the next chunks of each column first."""
        rows = [self._unread(run, left) for run, left in self._runs.items() if left is not None]
        for spans in zip_longest(*rows):
            yield from sorted(span for span in spans if span is not None)

    def _unread(self, run: Span, left: int) -> Iterator[Span]:
        for first in range(left * self._columns + run[0], len(self._chunks) - run[1], self._columns):
            last = first + run[1]
            if self._done.isdisjoint(range(first, last + 1)):
                yield self._chunks[first][0], self._chunks[last][1]


def pattern_of(last: bytes, begin: int, size: int) -> ColumnPattern:
    """Return the pattern of the columns of a file, by its end; empty if it is damaged."""
    from rollingfs.parquet_footer.chunks import chunk_spans
    from rollingfs.parquet_footer.footer import TAIL_BYTES, body_size
    from rollingfs.parquet_footer.thrift import MalformedFooterError

    try:
        body, end = body_size(last[-TAIL_BYTES:], size)
        return ColumnPattern(*chunk_spans(last[body - end - TAIL_BYTES : -TAIL_BYTES], body), begin)
    except MalformedFooterError:
        return ColumnPattern([], 1)  # the reader will say what is wrong


class Ahead:
    """The bytes that are fetched ahead of the reader of a file, in a row or by the column chunks of a Parquet file.

    pyarrow locks a Python file for each read, so its threads ask for column chunks in order. The footer,
    which readers read first, has the places of the same columns of the other row groups. A reader that has read columns
    of a group usually reads them in the following groups.

    Parameters
    ----------
    footers, key
        The ends of the last files that were read, from the footer on, and the key of this file; None without a unique
        key.
    """

    def __init__(self, row: Prefetch, footers: dict[Hashable, bytes], key: Hashable | None) -> None:
        self._row = row
        self._is_by_columns = False
        """Whether the same columns of two row groups were read. The bytes after them are then not fetched ahead."""
        self._footers = footers
        self._key = key
        self._last = footers.get(key, b"")
        """The file from its footer on, once that was read."""
        self._early: list[Span] = []
        """The reads before the footer was decoded."""
        self._pattern: ColumnPattern | None = None
        self._ahead: dict[Span, concurrent.futures.Future[Buffer]] = {}
        self._misses = 0
        self._reads = self._read_bytes = 0
        """Ranges of column chunks."""
        self._wasted = self._wasted_bytes = 0
        """The ranges that were fetched ahead in vain."""

    def take(self, start: int, end: int) -> tuple[int, bytes] | None:
        """Return bytes that were fetched ahead, with their begin, or None.

        The byte at `start` is always among them. An error of what was fetched ahead is older than this read, and the
        store may have recovered since: so the caller fetches the bytes itself.
        """
        row = self._row
        is_apart, is_here = start != row.row_end, row.has(start)
        if not self._is_by_columns and (is_apart or not is_here) and self._knows(start, end):
            self._is_by_columns = True
            row.close()
        try:
            if self._is_by_columns:
                chunk = self.take_columns(start, end)
                return None if chunk is None else (start, chunk)
            if is_here or not is_apart:
                self._close_columns()  # one of the two holds all the memory
            found = row.take(start, end)
            if found is None and not row.ranges:
                self.take_columns(start, end)  # none of its bytes are here: else they would be known
            else:
                self._note(start, end)
            return found
        except OSError:
            return None

    def read(self, start: int, data: bytes) -> None:
        """Note that the reader got bytes that were not fetched ahead."""
        self._row.read(start, start + len(data))
        if start + len(data) != self._row.end or not data.endswith(b"PAR1"):
            return
        size = int.from_bytes(data[-8:-4], "little") + 8
        if size <= min(len(data), FOOTER_BYTES_MAX):
            self._last = data[-size:]
            if self._key is not None:
                self._footers[self._key] = self._last
            for oldest in list(self._footers)[:-FOOTERS_MAX]:  # no lock: a fork could leave it held
                self._footers.pop(oldest, None)

    def _knows(self, start: int, end: int) -> bool:
        """Return whether these are column chunks that the reader has read of other row groups only."""
        return self._pattern is not None and self._pattern.knows(start, end)

    def _note(self, start: int, end: int) -> ColumnPattern | None:
        """Note a read; return the pattern if it was a read of whole column chunks."""
        pattern = self._known((start, end)) if self._last else None
        if pattern is None or not pattern.read(start, end):
            return None
        self._reads += 1
        self._read_bytes += end - start
        return pattern

    def take_columns(self, start: int, end: int) -> bytes | None:
        """Return the column chunks ``[start, end)`` if they were fetched ahead, else None."""
        is_known, pattern = self._knows(start, end), self._note(start, end)
        if pattern is None:
            return None
        found = self._ahead.pop((start, end), None)
        if found is not None:
            self._misses = max(0, self._misses - 1)
        elif is_known and self._ahead:
            self._misses += 1
        for other in [other for other in self._ahead if other[0] < end and start < other[1]]:
            self._waste(other)
            pattern.refute(*other)
        if self._misses > MISSES_MAX:
            self._pattern = ColumnPattern([], 1)  # for good
            self._close_columns()
            return None
        try:
            self._fill(pattern)
            return None if found is None else frozen(wait(found))
        except BaseException:
            if found is not None:
                found.cancel()
            self._close_columns()
            raise

    def close(self) -> None:
        """Give up all ranges."""
        self._row.close()
        self._close_columns()

    def _close_columns(self) -> None:
        for span in list(self._ahead):
            self._waste(span)

    def _waste(self, span: Span) -> None:
        future = self._ahead.pop(span, None)
        if future is not None:  # else another thread, which closes the file, was faster
            future.cancel()
            self._wasted += 1
            self._wasted_bytes += span[1] - span[0]

    def _known(self, span: Span) -> ColumnPattern | None:
        """Return the pattern of the file's columns; None as long as the footer would take too long to decode."""
        if self._pattern is None:
            if len(self._last) > (len(self._early) + 1) * FOOTER_BYTES_PER_READ:
                self._early.append(span)
                return None
            self._pattern = pattern_of(self._last, self._row.start, self._row.end - self._row.start)
            for early in self._early:
                self._pattern.read(*early)
        return self._pattern

    def _fill(self, pattern: ColumnPattern) -> None:
        """Begin to fetch as much as is allowed: at most as much as was read."""
        row = self._row
        count_max = self._reads - WASTE_FACTOR * self._wasted
        bytes_max = min(row.memory_bytes, self._read_bytes - WASTE_FACTOR * self._wasted_bytes)
        held_bytes = sum(end - start for start, end in self._ahead)
        requests = sum(-(-(end - start) // PREFETCH_RANGE_BYTES) for start, end in self._ahead)
        for span in pattern.following():
            if span in self._ahead:
                continue
            size = span[1] - span[0]
            held_bytes += size
            needed = -(-size // PREFETCH_RANGE_BYTES)
            requests += needed
            if held_bytes > bytes_max or requests > row.ranges_max or len(self._ahead) >= count_max:
                break
            self._ahead[span] = row.begin(*span, needed)
