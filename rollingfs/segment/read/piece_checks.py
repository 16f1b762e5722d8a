"""Verifies chunk files that are read in pieces: the checksums of the pieces are combined, so no byte is read twice.

Of a file in a tier, an entry may keep the checksums of its pieces. Then each piece is verified by itself.
"""

from __future__ import annotations

import bisect
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

from rollingfs.backend.contract import Buffer
from rollingfs.format.crc import combined, crc32c
from rollingfs.format.header import Chunk

RUNS_MAX = 4096
"""Maximum number of runs that a reader remembers; it forgets the file first that it read least recently."""


@dataclass(slots=True, eq=False, repr=False)
class _ReadChunk:
    """Bytes that were read of a chunk file, or of a piece of it: runs in order, with gaps."""

    path: str
    chunk: Chunk
    """An entry that names it."""
    first: int
    last: int
    crc32c: int
    """Of the bytes from `first` to `last` of the file."""
    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    crcs: list[int] = field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        return len(self.starts) == 1 and self.starts[0] == self.first and self.ends[0] == self.last

    def gaps(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return the parts of ``[start, end)`` that were not read yet."""
        found = []
        at = bisect.bisect_right(self.ends, start)
        while start < end:
            last = min(self.starts[at], end) if at < len(self.starts) else end
            if start < last:
                found.append((start, last))
            start = self.ends[at] if at < len(self.starts) else end
            at += 1
        return found

    def add(self, start: int, end: int, data: Buffer) -> None:
        """Note bytes that fill a gap, or a part of it."""
        at = bisect.bisect_left(self.starts, start)
        if at and self.ends[at - 1] == start:
            at -= 1
            self.crcs[at], self.ends[at] = crc32c(data, self.crcs[at]), end
        else:
            self.starts.insert(at, start)
            self.ends.insert(at, end)
            self.crcs.insert(at, crc32c(data))
        after = at + 1
        if after < len(self.starts) and self.starts[after] == end:
            self.crcs[at] = combined(self.crcs[at], self.crcs[after], self.ends[after] - end)
            self.ends[at] = self.ends[after]
            for runs in (self.starts, self.ends, self.crcs):
                del runs[after]


class PieceChecks:
    """Verifies each chunk file once a reader has read all of it, in pieces of any size and order.

    Threads may share it; in a forked child it begins again.

    Parameters
    ----------
    runs_max
        Maximum runs of bytes to remember; None: all.
    """

    def __init__(self, runs_max: int | None = None) -> None:
        self._runs_max = runs_max
        self._begin()

    def _begin(self) -> None:
        self._files: dict[tuple[str, int], _ReadChunk] = {}
        """The files and pieces that were read in part, the least recently read first."""
        self._count = 0
        """The number of their runs."""
        self._damaged: frozenset[str] = frozenset()
        self._lock = threading.Lock()
        self._process = os.getpid()  # the last: other threads of a child may read meanwhile

    @property
    def damaged(self) -> frozenset[str]:
        """Return the files that were read whole and fail their checksums."""
        return self._damaged

    def add(self, path: str, chunk: Chunk, start: int, data: Buffer) -> None:
        """Note bytes that were read of a chunk's file, from byte `start` of the file on."""
        if chunk.crc32c is None:
            return
        if self._process != os.getpid():
            self._begin()  # a thread of the parent may have held the lock
        end = start + len(data)
        with self._lock:
            for first, last, crc in _pieces(chunk):
                if path not in self._damaged and first < end and start < last:
                    low, high = max(first, start), min(last, end)
                    part = data if high - low == len(data) else memoryview(data)[low - start : high - start]
                    file = self._files.pop((path, first), None) or _ReadChunk(path, chunk, first, last, crc)
                    self._add(file, low, part)

    def _add(self, file: _ReadChunk, start: int, data: Buffer) -> None:
        self._count -= len(file.starts)
        for first, last in file.gaps(start, start + len(data)):
            is_all = last - first == len(data)
            file.add(first, last, data if is_all else memoryview(data)[first - start : last - start])
        if not file.is_whole:
            self._keep(file)
        elif file.crcs[0] != file.crc32c:
            self._damaged |= {file.path}

    def _keep(self, file: _ReadChunk) -> None:
        self._files[file.path, file.first] = file
        self._count += len(file.starts)
        while self._runs_max is not None and self._count > self._runs_max:
            oldest = next(iter(self._files))
            self._count -= len(self._files.pop(oldest).starts)

    def missing(self) -> list[tuple[str, Chunk, list[tuple[int, int]]]]:
        """Return the files and pieces that were read in part, with the ranges that were not read."""
        with self._lock:
            return [(file.path, file.chunk, file.gaps(file.first, file.last)) for file in self._files.values()]


def _pieces(chunk: Chunk) -> Iterator[tuple[int, int, int]]:
    """Yield the extent and checksum of each piece of a chunk's file.

    Without pieces, there is a single extent for the file.
    """
    first = 0
    assert chunk.crc32c is not None
    for length, crc in chunk.pieces or ((chunk.size, chunk.crc32c),):
        yield first, first + length, crc
        first += length
