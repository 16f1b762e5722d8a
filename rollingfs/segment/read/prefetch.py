"""Fetches the next ranges of a file that is read from front to back."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable
from dataclasses import dataclass

from rollingfs.backend.contract import Buffer, frozen
from rollingfs.runtime.bridge import wait
from rollingfs.runtime.values import value_class

PREFETCH_RANGE_BYTES = 4 * 1024 * 1024
"""A connection gives some 85 MB/s, so many small ranges come sooner than a few large ranges in the same memory."""
READ_BYTES_MIN = 1024 * 1024
READ_BYTES_MAX = 8 * 1024 * 1024
"""A first read between these two sizes shows a program that reads all of the file."""
AHEAD_BYTES_MIN = 4 * 1024 * 1024
AHEAD_FACTOR = 4
"""Maximum bytes fetched ahead for each byte that was read in a row, so that a short read fetches little too much."""


def range_bytes(read_bytes: int, ahead_bytes: int, memory_bytes: int) -> int:
    """Return the bytes to fetch at a time: if sensible, the size of a read.

    Then no byte is copied.
    """
    size = read_bytes
    if not READ_BYTES_MIN <= read_bytes <= PREFETCH_RANGE_BYTES:
        size = min(max(ahead_bytes // 4, READ_BYTES_MIN), PREFETCH_RANGE_BYTES)
    return min(size, memory_bytes // 2)  # so that the reader waits for one range while another is on its way


@value_class
class Bounds:
    """Limits of fetching ahead of the reader of a file."""

    begin: Callable[..., concurrent.futures.Future[Buffer]]
    """Starts to fetch the range between two offsets; with a third number, by at most so many requests at once."""
    start: int
    end: int
    """Extent of the file."""
    ranges_max: int
    memory_bytes: int
    """Maximum number of ranges, and of bytes, that are on their way or wait to be taken."""


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
    """

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._begin = bounds.begin
        self._ranges: list[_Range] = []
        self._next = 0
        """Begin of the next range."""
        self._ahead_bytes = 0
        self._row_start = self.row_end = bounds.start
        """The bytes of the last reads that each began where the read before it ended."""

    def take(self, start: int, end: int) -> tuple[int, bytes] | None:
        """Return bytes that were fetched ahead, with their begin, or None.

        The bytes may begin before `start`, and end before or after `end`. The byte at `start` is always among them.
        """
        follows = start == self.row_end
        if not self.has(start):
            if follows or not self._is_behind(start):
                self.close()
            if not follows or end - start >= self._bounds.memory_bytes:
                return None  # a read that would fill the memory is not fetched ahead
            if self._row_start == self.row_end:
                self._begin_beside(start, end)
                return None
            self._next = start
        try:
            self.read(start, end)
            self._fill(start, end)
            found = self._wait(start, end)
        except BaseException:
            self.close()
            raise
        self.read(*_span(found))
        self._fill(start, end)
        return found

    def _begin_beside(self, start: int, end: int) -> None:
        """Fetch ahead of the first read if it looks like the first of many.

        The caller fetches the bytes of the read itself.
        """
        if READ_BYTES_MIN <= end - start <= READ_BYTES_MAX:
            self._next = end
            self.read(start, end)
            self._fill(start, end)

    def read(self, start: int, end: int) -> None:
        """Note that bytes were read."""
        if not self._row_start <= start <= self.row_end:
            self._row_start = start
        self.row_end = end
        ahead_bytes = max(AHEAD_BYTES_MIN, AHEAD_FACTOR * (end - self._row_start))
        self._ahead_bytes = max(self._ahead_bytes, min(ahead_bytes, self._bounds.memory_bytes))

    def close(self) -> None:
        """Give up all ranges."""
        for each in self._ranges:
            each.data.cancel()
        self._ranges.clear()
        self._ahead_bytes = 0

    @property
    def is_idle(self) -> bool:
        """Return whether no range is on its way, or here."""
        return not self._ranges

    def has(self, offset: int) -> bool:
        """Return whether a byte is on its way, or here."""
        return any(each.start <= offset < each.end for each in self._ranges)

    def _is_behind(self, offset: int) -> bool:
        """Return whether a byte was already taken or skipped, while later ranges wait to be taken."""
        return bool(self._ranges) and self._next - 2 * self._bounds.memory_bytes <= offset < self._next

    def _fill(self, start: int, end: int) -> None:
        """Begin to fetch up to `end`, and beyond it as much as is allowed."""
        size = range_bytes(end - start, self._ahead_bytes, self._bounds.memory_bytes)
        held = sum(each.end - each.start for each in self._ranges)
        wanted = size if self._next < end else 0
        while self._ranges and self._ranges[0].end <= start:
            is_old = self._ranges[0].end < start - self._ahead_bytes // 2
            if not is_old and held + wanted <= self._ahead_bytes:
                break
            skipped = self._ranges.pop(0)  # long ago, or its place is needed
            skipped.data.cancel()
            held -= skipped.end - skipped.start
        while self._next < self._bounds.end and len(self._ranges) < self._bounds.ranges_max:
            if held + size > self._ahead_bytes and self._next >= end:
                break
            last = min(self._next + size, self._bounds.end)
            self._ranges.append(_Range(self._next, last, self._begin(self._next, last), last - self._next))
            held += last - self._next
            self._next = last

    def _wait(self, start: int, end: int) -> tuple[int, bytes]:
        """Return the range with the byte at `start`, and the ranges that follow on it as far as they are asked for."""
        first = next(number for number, each in enumerate(self._ranges) if each.start <= start < each.end)
        run = [self._ranges[first]]
        for each in self._ranges[first + 1 :]:
            if each.start != run[-1].end or each.start >= end:
                break
            run.append(each)
        if len(run) == 1:
            data = wait(run[0].data)
            self._ranges.remove(run[0])
            return run[0].start, frozen(data)  # copied here, in the reader's thread, where one copy lives at a time
        parts = []
        for each in run:
            data = wait(each.data)
            parts.append(memoryview(data)[max(start - each.start, 0) : end - each.start])
            each.left -= len(parts[-1])
            if each.left <= 0:
                self._ranges.remove(each)
        return start, b"".join(parts)


def _span(found: tuple[int, bytes]) -> tuple[int, int]:
    start, data = found
    return start, start + len(data)
