"""Prefetching: the next ranges of a file that is read from front to back."""

from __future__ import annotations

import concurrent.futures
from collections import deque
from collections.abc import Callable

from rollingfs.bridge import wait

PREFETCH_RANGE_BYTES = 8 * 1024 * 1024
READ_BYTES_MIN = 1024 * 1024
READ_BYTES_MAX = 32 * 1024 * 1024


def range_bytes(read_bytes: int, memory_bytes: int) -> int:
    """How much to fetch at a time for reads of so many bytes: as much, if that is sensible, so that none is copied."""
    size = read_bytes if READ_BYTES_MIN <= read_bytes <= READ_BYTES_MAX else PREFETCH_RANGE_BYTES
    return min(size, memory_bytes // 2)  # one is waited for while another is on its way


class Window:
    """The next ranges of a file, on their way all at once.

    Parameters
    ----------
    begin
        Starts to fetch a range.
    start, end
        What there is to fetch.
    size
        Of a range.
    ranges_max, memory_bytes
        How many ranges, and bytes, may be on their way or waiting to be taken.
    """

    def __init__(
        self,
        begin: Callable[[int, int], concurrent.futures.Future[bytes]],
        start: int,
        end: int,
        size: int,
        ranges_max: int,
        memory_bytes: int,
    ) -> None:
        self._begin = begin
        self._next = start
        self._end = end
        self._size = size
        self._ranges_max = min(ranges_max, memory_bytes // size)
        self._ranges: deque[tuple[int, int, concurrent.futures.Future[bytes]]] = deque()
        self._fill()

    def _fill(self) -> None:
        while self._next < self._end and len(self._ranges) < self._ranges_max:
            last = min(self._next + self._size, self._end)
            self._ranges.append((self._next, last, self._begin(self._next, last)))
            self._next = last

    def take(self, offset: int) -> tuple[int, bytes] | None:
        """The range that holds `offset`, with where it begins; those before it are given up. None: it is not there."""
        if not self._ranges or not self._ranges[0][0] <= offset < self._ranges[-1][1]:
            return None
        while self._ranges[0][1] <= offset:
            self._ranges.popleft()[2].cancel()
        start, _, future = self._ranges[0]
        data = wait(future)
        self._ranges.popleft()
        self._fill()
        return start, data

    def close(self) -> None:
        """Give everything up."""
        while self._ranges:
            self._ranges.popleft()[2].cancel()
