"""Bytes that are fetched ahead of the reader of a file: the next bytes, or column chunks."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Hashable, Iterator, Sequence
from itertools import zip_longest

from rollingfs.backend.contract import Buffer, frozen
from rollingfs.runtime.bridge import wait
from rollingfs.segment.read.prefetch import PREFETCH_RANGE_BYTES, Bounds, Prefetch

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


class ColumnPattern:
    """Column chunks that a reader has read, and will read if it reads the same columns of each row group.

    Parameters
    ----------
    chunks
        Extents of the column chunks, in the order of the file.
    columns
        The number of chunks of a row group.
    """

    def __init__(self, chunks: Sequence[Span], columns: int) -> None:
        self._chunks = chunks
        self._columns = columns
        self._by_start = {start: number for number, (start, _) in enumerate(chunks)}
        self._by_end = {end: number for number, (_, end) in enumerate(chunks)}
        self._runs: dict[Span, int | None] = {}
        """The next row group, by the numbers of the first column and of the chunks after it.

        None for chunks that the reader will hardly read in the same way again."""
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


class ColumnAhead:
    """The column chunks that are fetched ahead of the reader of a Parquet file.

    pyarrow locks a Python file for each read, so its threads ask for column chunks in order. The footer,
    which readers read first, has the places of the same columns of the other row groups. A reader that has read columns
    of a group usually reads them in the following groups.

    Parameters
    ----------
    footers, key
        The ends of the last files that were read, from the footer on, and the key of this file; None without a unique
        key.
    """

    def __init__(self, bounds: Bounds, footers: dict[Hashable, bytes], key: Hashable | None) -> None:
        self._bounds = bounds
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

    def read(self, start: int, data: bytes) -> None:
        """Note that the reader got bytes that were not fetched ahead."""
        if start + len(data) != self._bounds.end or not data.endswith(b"PAR1"):
            return
        size = int.from_bytes(data[-8:-4], "little") + 8
        if size <= min(len(data), FOOTER_BYTES_MAX):
            self._last = data[-size:]
            if self._key is not None:
                self._footers[self._key] = self._last
            for oldest in list(self._footers)[:-FOOTERS_MAX]:  # no lock: a fork could leave it held
                self._footers.pop(oldest, None)

    def knows(self, start: int, end: int) -> bool:
        """Return whether these are column chunks that the reader has read of other row groups only."""
        return self._pattern is not None and self._pattern.knows(*self._within(start, end))

    def note(self, start: int, end: int) -> ColumnPattern | None:
        """Note a read; return the pattern if it was a read of whole column chunks."""
        span = self._within(start, end)
        pattern = self._known(span) if self._last else None
        if pattern is None or not pattern.read(*span):
            return None
        self._reads += 1
        self._read_bytes += end - start
        return pattern

    def take(self, start: int, end: int) -> bytes | None:
        """Return the bytes ``[start, end)`` if they were fetched ahead; None if the caller must fetch them itself."""
        is_known, pattern = self.knows(start, end), self.note(start, end)
        if pattern is None:
            return None
        found = self._ahead.pop((start, end), None)
        if found is not None:
            self._misses = max(0, self._misses - 1)
        elif is_known and self._ahead:
            self._misses += 1
        for other in [other for other in self._ahead if other[0] < end and start < other[1]]:
            self._waste(other)
            pattern.refute(*self._within(*other))
        if self._misses > MISSES_MAX:
            self._pattern = ColumnPattern([], 1)  # for good
            self.close()
            return None
        try:
            self._fill(pattern)
            return None if found is None else frozen(wait(found))
        except BaseException:
            if found is not None:
                found.cancel()
            self.close()
            raise

    def close(self) -> None:
        """Give up all ranges."""
        for span in list(self._ahead):
            self._waste(span)

    def _waste(self, span: Span) -> None:
        future = self._ahead.pop(span, None)
        if future is not None:  # else another thread, which closes the file, was faster
            future.cancel()
            self._wasted += 1
            self._wasted_bytes += span[1] - span[0]

    def _within(self, start: int, end: int) -> Span:
        return start - self._bounds.start, end - self._bounds.start

    def _known(self, span: Span) -> ColumnPattern | None:
        """Return the pattern of the file's columns; None as long as the footer would take too long to decode."""
        if self._pattern is None:
            if len(self._last) > (len(self._early) + 1) * FOOTER_BYTES_PER_READ:
                self._early.append(span)
                return None
            self._pattern = pattern_of(self._last, self._bounds.end - self._bounds.start)
            for early in self._early:
                self._pattern.read(*early)
        return self._pattern

    def _fill(self, pattern: ColumnPattern) -> None:
        """Begin to fetch as much as is allowed: at most as much as was read."""
        bounds = self._bounds
        count_max = self._reads - WASTE_FACTOR * self._wasted
        bytes_max = min(bounds.memory_bytes, self._read_bytes - WASTE_FACTOR * self._wasted_bytes)
        held_bytes = sum(end - start for start, end in self._ahead)
        requests = sum(_requests(*span) for span in self._ahead)
        for first, last in pattern.following():
            span = first + bounds.start, last + bounds.start
            if span in self._ahead:
                continue
            held_bytes += last - first
            requests += _requests(*span)
            if held_bytes > bytes_max or requests > bounds.ranges_max or len(self._ahead) >= count_max:
                break
            self._ahead[span] = bounds.begin(*span, _requests(*span))


def _requests(start: int, end: int) -> int:
    return -(-(end - start) // PREFETCH_RANGE_BYTES)


def pattern_of(last: bytes, size: int) -> ColumnPattern:
    """Return the pattern of a file's columns, by its end; empty if it is damaged."""
    from rollingfs.format.parquet_chunks import chunk_spans
    from rollingfs.format.parquet_footer import TAIL_BYTES, body_size
    from rollingfs.format.thrift import MalformedFooterError

    try:
        body, end = body_size(last[-TAIL_BYTES:], size)
        return ColumnPattern(*chunk_spans(last[body - end - TAIL_BYTES : -TAIL_BYTES], body))
    except MalformedFooterError:
        return ColumnPattern([], 1)  # the reader will say what is wrong


class Ahead:
    """The bytes that are fetched ahead of the reader of a file, in a row or by columns.

    Parameters
    ----------
    footers, key
        Parameters of `ColumnAhead`.
    """

    def __init__(self, bounds: Bounds, footers: dict[Hashable, bytes], key: Hashable | None) -> None:
        self._row = Prefetch(bounds)
        self._columns = ColumnAhead(bounds, footers, key)
        self._is_by_columns = False
        """Whether the same columns of two row groups were read. The bytes after them are then not fetched ahead."""

    def take(self, start: int, end: int) -> tuple[int, bytes] | None:
        """Return bytes that were fetched ahead, with their begin, or None.

        The byte at `start` is always among them. An error of what was fetched ahead is older than this read, and the
        store may have recovered since: so the caller fetches the bytes itself.
        """
        try:
            return self._taken(start, end)
        except OSError:
            return None

    def _taken(self, start: int, end: int) -> tuple[int, bytes] | None:
        row, columns = self._row, self._columns
        is_apart, is_here = start != row.row_end, row.has(start)
        if not self._is_by_columns and (is_apart or not is_here) and columns.knows(start, end):
            self._is_by_columns = True
            row.close()
        if self._is_by_columns:
            chunk = columns.take(start, end)
            return None if chunk is None else (start, chunk)
        if is_here or not is_apart:
            columns.close()  # one of the two holds all the memory
        found = row.take(start, end)
        if found is None and row.is_idle:
            columns.take(start, end)  # none of its bytes are here: else they would be known
        else:
            columns.note(start, end)
        return found

    def read(self, start: int, data: bytes) -> None:
        """Note that the reader got bytes that were not fetched ahead."""
        self._row.read(start, start + len(data))
        self._columns.read(start, data)

    def close(self) -> None:
        """Give up all ranges."""
        self._row.close()
        self._columns.close()
