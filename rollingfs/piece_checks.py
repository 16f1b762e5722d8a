"""Chunk files that are read in pieces: the checksums of the pieces make that of the file, so no byte is read twice."""

from __future__ import annotations

import bisect
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import google_crc32c

from rollingfs.backend.contract import Buffer, frozen
from rollingfs.checksum import combined
from rollingfs.header import Chunk

STEP_BYTES = 256 * 1024
"""The checksum takes nothing but `bytes`: so much of a buffer is copied at a time, which stays in the CPU's cache."""
RUNS_MAX = 4096
"""How many runs of bytes a reader remembers; the file that was read least recently is forgotten first."""


@dataclass(slots=True)
class _Run:
    """Bytes ``[start, end)`` of a file that were read, and their checksum."""

    start: int
    end: int
    crc: int


@dataclass(slots=True)
class _File:
    """What was read of one chunk file; the runs are sorted and lie apart."""

    chunk: Chunk
    """An entry that names it."""
    runs: list[_Run] = field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        return len(self.runs) == 1 and (self.runs[0].start, self.runs[0].end) == (0, self.chunk.size)

    def gaps(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """The parts of ``[start, end)`` that were not read yet."""
        first = bisect.bisect_right(self.runs, start, key=lambda run: run.end)
        for run in list(self.runs[first:]):
            if run.start >= end:
                break
            if start < run.start:
                yield start, run.start
            start = run.end
        if start < end:
            yield start, end

    def add(self, start: int, data: Buffer) -> None:
        """Take bytes that lie in a gap."""
        end = start + len(data)
        at = bisect.bisect_left(self.runs, start, key=lambda run: run.start)
        if at and self.runs[at - 1].end == start:
            at -= 1
            run = self.runs[at]
            run.crc, run.end = _extended(run.crc, data), end
        else:
            run = _Run(start, end, _extended(0, data))
            self.runs.insert(at, run)
        if at + 1 < len(self.runs) and self.runs[at + 1].start == end:
            after = self.runs.pop(at + 1)
            run.crc, run.end = combined(run.crc, after.crc, after.end - after.start), after.end


class PieceChecks:
    """Verifies each chunk file once all of it was read, in pieces of any size and order, by one reader.

    Threads may share it; in a forked child it begins anew.

    Parameters
    ----------
    runs_max
        How many runs of bytes to remember; None for all.
    """

    def __init__(self, runs_max: int | None = None) -> None:
        self._runs_max = runs_max
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._files: dict[str, _File] = {}
        """Files that were read in part, the one read least recently first."""
        self._count = 0
        """Of their runs."""
        self._damaged: frozenset[str] = frozenset()
        self._lock = threading.Lock()

    @property
    def damaged(self) -> frozenset[str]:
        """The files that were read whole and fail their checksums."""
        return self._damaged

    def add(self, path: str, chunk: Chunk, start: int, data: Buffer) -> None:
        """Note that bytes of a chunk's file were read, from byte `start` of the file on."""
        if chunk.crc32c is None:
            return
        if self._process != os.getpid():
            self._begin()  # a thread of the parent may have held the lock
        with self._lock:
            if path in self._damaged:
                return
            file = self._files.pop(path, None) or _File(chunk)
            self._count -= len(file.runs)
            for first, last in list(file.gaps(start, start + len(data))):
                is_all = last - first == len(data)
                file.add(first, data if is_all else memoryview(data)[first - start : last - start])
            if not file.is_whole:
                self._keep(path, file)
            elif file.runs[0].crc != chunk.crc32c:
                self._damaged |= {path}

    def _keep(self, path: str, file: _File) -> None:
        self._files[path] = file
        self._count += len(file.runs)
        while self._runs_max is not None and self._count > self._runs_max:
            oldest = next(iter(self._files))
            self._count -= len(self._files.pop(oldest).runs)

    def missing(self) -> list[tuple[str, Chunk, list[tuple[int, int]]]]:
        """The files that were read in part, and the ranges of them that were not."""
        with self._lock:
            return [(path, file.chunk, list(file.gaps(0, file.chunk.size))) for path, file in self._files.items()]


def _extended(crc: int, data: Buffer) -> int:
    """The checksum of some bytes with others behind them."""
    if isinstance(data, bytes):
        return int(google_crc32c.extend(crc, data))
    view = memoryview(data)
    for start in range(0, len(view), STEP_BYTES):
        crc = google_crc32c.extend(crc, frozen(view[start : start + STEP_BYTES]))
    return crc
