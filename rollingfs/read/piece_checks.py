"""Verifies chunk files that are read in pieces: the checksums of the pieces are combined, so no byte is read twice."""

from __future__ import annotations

import bisect
import os
import threading
from dataclasses import dataclass, field

from rollingfs.backend.contract import Buffer
from rollingfs.format.crc import combined, crc32c
from rollingfs.format.header import Chunk

RUNS_MAX = 4096
"""Maximum number of runs that a reader remembers; it forgets the file first that it read least recently."""


@dataclass(slots=True)
class _File:
    """What was read of one chunk file: runs of bytes in order, with gaps between them."""

    chunk: Chunk
    """An entry that names it."""
    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    crcs: list[int] = field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        return len(self.starts) == 1 and self.starts[0] == 0 and self.ends[0] == self.chunk.size

    def gaps(self, start: int, end: int) -> list[tuple[int, int]]:
        """The parts of ``[start, end)`` that were not read yet."""
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
        """Note bytes that fill a gap, or a part of one."""
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
    """Verifies each chunk file once one reader has read all of it, in pieces of any size and order.

    Threads may share it; in a forked child it begins anew.

    Parameters
    ----------
    runs_max
        Maximum runs of bytes to remember; None for all.
    """

    def __init__(self, runs_max: int | None = None) -> None:
        self._runs_max = runs_max
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._files: dict[str, _File] = {}
        """The files that were read in part, the least recently read first."""
        self._count = 0
        """The number of their runs."""
        self._damaged: frozenset[str] = frozenset()
        self._lock = threading.Lock()

    @property
    def damaged(self) -> frozenset[str]:
        """The files that were read whole and fail their checksums."""
        return self._damaged

    def add(self, path: str, chunk: Chunk, start: int, data: Buffer) -> None:
        """Note bytes that were read of a chunk's file, from byte `start` of the file on."""
        if chunk.crc32c is None:
            return
        if self._process != os.getpid():
            self._begin()  # a thread of the parent may have held the lock
        with self._lock:
            if path in self._damaged:
                return
            file = self._files.pop(path, None) or _File(chunk)
            self._count -= len(file.starts)
            for first, last in file.gaps(start, start + len(data)):
                is_all = last - first == len(data)
                file.add(first, last, data if is_all else memoryview(data)[first - start : last - start])
            if not file.is_whole:
                self._keep(path, file)
            elif file.crcs[0] != chunk.crc32c:
                self._damaged |= {path}

    def _keep(self, path: str, file: _File) -> None:
        self._files[path] = file
        self._count += len(file.starts)
        while self._runs_max is not None and self._count > self._runs_max:
            oldest = next(iter(self._files))
            self._count -= len(self._files.pop(oldest).starts)

    def missing(self) -> list[tuple[str, Chunk, list[tuple[int, int]]]]:
        """The files that were read in part, with the ranges that were not read."""
        with self._lock:
            return [(path, file.chunk, file.gaps(0, file.chunk.size)) for path, file in self._files.items()]
