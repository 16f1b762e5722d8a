"""Fetches column chunks of a Parquet file before its reader asks for them."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Hashable, Iterator, Sequence

from rollingfs.backend.contract import Buffer, frozen
from rollingfs.runtime.bridge import wait

FOOTER_BYTES_MAX = 64 * 1024
"""What pyarrow reads of the end of a file at first."""
FOOTER_BYTES_PER_READ = 16 * 1024
"""Decoding 16 KiB of a footer takes 10 ms, less than a round trip. So a larger footer is decoded after more reads."""
FOOTERS_MAX = 16
"""pyarrow opens a file once for its footer, and again for its columns."""
RUN_BYTES_MAX = 16 * 1024 * 1024
"""pyarrow joins columns up to 32 MiB, wherever that ends. A read as large as that makes many requests anyway."""
MISSES_MAX = 8
"""Maximum number of reads in a row that find other chunks fetched: pyarrow's eight threads ask in any order."""

Span = tuple[int, int]


class ColumnPattern:
    """Which column chunks a reader has read, and which it will read if it reads the same columns of each row group.

    Parameters
    ----------
    chunks
        Where the column chunks begin and end, in the order of the file.
    columns
        The number of chunks of a row group.
    """

    def __init__(self, chunks: Sequence[Span], columns: int) -> None:
        self._chunks = chunks
        self._columns = columns
        self._by_start = {start: number for number, (start, _) in enumerate(chunks)}
        self._by_end = {end: number for number, (_, end) in enumerate(chunks)}
        self._runs: dict[Span, bool] = {}
        """Reads by the number of their first column and of the chunks behind it, and whether they may come again."""
        self._group_min = len(chunks)
        """The first row group that was read."""
        self._done: set[int] = set()
        self.read_bytes = 0

    def read(self, start: int, end: int) -> bool:
        """Note a read; whether it was one of whole column chunks."""
        run = self._run(start, end)
        if run is None:
            return False
        self._runs.setdefault(run, end - start <= RUN_BYTES_MAX)
        first = self._by_start[start]
        self._group_min = min(self._group_min, first // self._columns)
        self._done.update(range(first, first + run[1] + 1))
        self.read_bytes += end - start
        return True

    def refute(self, start: int, end: int) -> None:
        """Note that the reader reads these chunks in another way."""
        if (run := self._run(start, end)) is not None:
            self._runs[run] = False

    def _run(self, start: int, end: int) -> Span | None:
        first, last = self._by_start.get(start), self._by_end.get(end)
        return None if first is None or last is None else (first % self._columns, last - first)

    def following(self) -> Iterator[Span]:
        """What has not been read yet, of the first row group that was read and of those behind it."""
        runs = [run for run, is_likely in self._runs.items() if is_likely]
        for group in range(self._group_min * self._columns, len(self._chunks), self._columns):
            for first, last in [(group + column, group + column + more) for column, more in runs]:
                if last < len(self._chunks) and self._done.isdisjoint(range(first, last + 1)):
                    yield self._chunks[first][0], self._chunks[last][1]


class ColumnAhead:
    """The column chunks that are fetched ahead of the reader of one file, if that is a Parquet file.

    pyarrow locks a Python file for each read, so its threads ask for one column chunk after the other. The footer,
    which readers read first, says where the same columns of the other row groups are. A reader that has read columns
    of one group usually reads them in the following groups. At most as many bytes are fetched ahead as the reader has
    read of columns.

    Parameters
    ----------
    begin
        Starts to fetch a range.
    start, end
        Where the file begins and ends.
    ranges_max, memory_bytes
        Maximum number of ranges, and of bytes, that are on their way or wait to be taken.
    footers, key
        The ends of the last files that were read, from the footer on, and the key of this one.
    """

    def __init__(
        self,
        begin: Callable[[int, int], concurrent.futures.Future[Buffer]],
        start: int,
        end: int,
        ranges_max: int,
        memory_bytes: int,
        footers: dict[Hashable, bytes],
        key: Hashable,
    ) -> None:
        self._begin = begin
        self._start = start
        self._end = end
        self._ranges_max = ranges_max
        self._memory_bytes = memory_bytes
        self._footers = footers
        self._key = key
        self._last = footers.get(key, b"")
        """The file from its footer on, once that was read."""
        self._early: list[Span] = []
        """The reads before the footer was decoded."""
        self._pattern: ColumnPattern | None = None
        self._ahead: dict[Span, concurrent.futures.Future[Buffer]] = {}
        self._misses = 0

    def read(self, start: int, data: bytes) -> None:
        """Note that the reader got bytes that were not fetched ahead."""
        if start + len(data) != self._end or not data.endswith(b"PAR1"):
            return
        size = int.from_bytes(data[-8:-4], "little") + 8
        if size <= min(len(data), FOOTER_BYTES_MAX):
            self._last = data[-size:]
            self._footers[self._key] = self._last
            for oldest in list(self._footers)[:-FOOTERS_MAX]:  # no lock: a fork could leave it held
                self._footers.pop(oldest, None)

    def take(self, start: int, end: int) -> bytes | None:
        """The bytes ``[start, end)`` if they were fetched ahead; None if the caller must fetch them itself."""
        span = start - self._start, end - self._start
        pattern = self._known(span) if self._last else None
        if pattern is None or not pattern.read(*span):
            return None
        found = self._ahead.pop((start, end), None)
        for other in [other for other in self._ahead if other[0] < end and start < other[1]]:
            self._ahead.pop(other).cancel()
            pattern.refute(other[0] - self._start, other[1] - self._start)
        self._misses = self._misses + 1 if found is None and self._ahead else 0
        if self._misses > MISSES_MAX:
            self._last = b""  # for good
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
        for future in self._ahead.values():
            future.cancel()
        self._ahead.clear()

    def _known(self, span: Span) -> ColumnPattern | None:
        """The pattern of the file's columns; None as long as the footer would take too long to decode."""
        if self._pattern is None:
            if len(self._last) > (len(self._early) + 1) * FOOTER_BYTES_PER_READ:
                self._early.append(span)
                return None
            self._pattern = pattern_of(self._last, self._end - self._start)
            for early in self._early:
                self._pattern.read(*early)
        return self._pattern

    def _fill(self, pattern: ColumnPattern) -> None:
        """Begin to fetch as much as is allowed."""
        left = min(pattern.read_bytes, self._memory_bytes) - sum(end - start for start, end in self._ahead)
        for start, end in pattern.following():
            span = start + self._start, end + self._start
            if span in self._ahead:
                continue
            left -= end - start
            if left < 0 or len(self._ahead) >= self._ranges_max:
                break
            self._ahead[span] = self._begin(*span)


def pattern_of(last: bytes, size: int) -> ColumnPattern:
    """The pattern of the columns that a file of some size has, by its end; one of no columns if that is damaged."""
    from rollingfs.format.parquet_footer import TAIL_BYTES, body_size, chunk_spans
    from rollingfs.format.thrift import MalformedFooterError

    try:
        body, end = body_size(last[-TAIL_BYTES:], size)
        return ColumnPattern(*chunk_spans(last[body - end - TAIL_BYTES : -TAIL_BYTES], body))
    except MalformedFooterError:
        return ColumnPattern([], 1)  # the reader will say what is wrong
