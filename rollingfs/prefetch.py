"""Prefetching: the next ranges of a file that is read from front to back."""

from __future__ import annotations

import concurrent.futures
from collections import deque
from collections.abc import Callable

from rollingfs.bridge import wait

PREFETCH_RANGE_BYTES = 4 * 1024 * 1024
PREFETCH_RANGES_MAX = 32
PREFETCH_BYTES_MAX = PREFETCH_RANGES_MAX * PREFETCH_RANGE_BYTES
"""128 MiB; a read as large as that is fetched by itself."""


class Window:
    """The next ranges of a file, on their way all at once.

    Parameters
    ----------
    begin
        Starts to fetch a range.
    start, end
        What there is to fetch.
    ranges_max
        How many ranges are on their way or waiting to be taken.
    """

    def __init__(
        self, begin: Callable[[int, int], concurrent.futures.Future[bytes]], start: int, end: int, ranges_max: int
    ) -> None:
        self._begin = begin
        self._next = start
        self._end = end
        self._ranges_max = ranges_max
        self._ranges: deque[tuple[int, int, concurrent.futures.Future[bytes]]] = deque()
        self._fill()

    def _fill(self) -> None:
        while self._next < self._end and len(self._ranges) < self._ranges_max:
            last = min(self._next + PREFETCH_RANGE_BYTES, self._end)
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
