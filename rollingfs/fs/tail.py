"""`Tail`: the bytes of a segment as they come, until it is sealed."""

from __future__ import annotations

import asyncio
import errno
import io
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator

from rollingfs.errors import BadOffsetError, SegmentTruncatedError
from rollingfs.fs.core import Core
from rollingfs.read.piece_checks import RUNS_MAX, PieceChecks
from rollingfs.read.revalidate import Current
from rollingfs.read.snapshot import Snapshot

POLL_S_MIN = 0.05
POLL_S_MAX = 2.0
"""The longest pause between two polls of an idle segment."""
POLL_GROWTH = 1.5
PIECE_BYTES_MAX = 4 * 1024 * 1024
_PASSING = {errno.EIO, errno.EBUSY, errno.ETIMEDOUT}
"""Errors of a store that does not answer, or is busy."""

logger = logging.getLogger("rollingfs")

_Found = tuple[bytes | None, int | None, Snapshot | None]
"""The next bytes, the position behind them, and the last look, while some of it is left to read."""


class Tail(Iterator[bytes], AsyncIterator[bytes]):
    """Iterates over a segment's bytes as they come, by `for` or by `async for`.

    With `follow` it waits for more until the segment is sealed; without, it ends where the segment ended at the first
    look. While nothing comes, each poll is one conditional request, and the pauses grow. A store that stops to answer
    after the first look is waited for, however long that takes.

    Made by ``segment.tail()``.

    Attributes
    ----------
    pause : callable
        Called with the seconds to wait between two polls of a blocking reader, `time.sleep` by default. What it raises
        ends the waiting.

    Parameters
    ----------
    offset
        Where to begin, as a segment offset; by default at the first retained byte.
    snapshot
        The segment or plain file whose incarnation is followed; by default that of the first look. A plain file may
        be written anew, or be adopted; a segment that is written over it is another.
    poll_s_min, poll_s_max
        The shortest and the longest pause between two polls, in seconds.

    Raises
    ------
    BadOffsetError
        The offset is negative, or lay beyond the end at the first look.
    SegmentTruncatedError
        The next bytes have been truncated away; the message has the range that is there.
    FileNotFoundError
        The segment is gone, or another has its name.
    """

    def __init__(
        self,
        core: Core,
        path: str,
        offset: int | None = None,
        *,
        snapshot: Snapshot | None = None,
        follow: bool = True,
        poll_s_min: float = POLL_S_MIN,
        poll_s_max: float = POLL_S_MAX,
    ) -> None:
        if offset is not None and offset < 0:
            raise BadOffsetError(f"{path}: cannot begin at offset {offset}; it must be at least 0")
        if not 0 < poll_s_min <= poll_s_max:
            raise ValueError(
                f"{path}: poll_s_min is {poll_s_min} and poll_s_max is {poll_s_max}; it must be 0 < min <= max"
            )
        self.path = path
        self.pause: Callable[[float], None] = time.sleep
        self.position = offset
        """The segment offset of the next byte; None before the first look, if it was not given."""
        self._bridge = core.bridge
        self._client = core.client
        self._current = Current(core.client.lookup, path, snapshot, is_bound=True)
        self._follow = follow
        self._poll_s_min, self._poll_s_max = poll_s_min, poll_s_max
        self._pause_s = 0.0
        """How long to pause before the next poll, after one that found nothing."""
        self._has_looked = False
        self._checks = PieceChecks(RUNS_MAX)
        self._snapshot: Snapshot | None = None
        """What was found at the last look, while some of it is left to read."""
        self._end: int | None = None
        """Where to stop."""
        self._is_away = False
        """Whether the store has failed since the last look that succeeded."""

    def __repr__(self) -> str:
        return f"<Tail of {self.path!r} at {'its start' if self.position is None else self.position}>"

    def __iter__(self) -> Tail:
        return self

    def __aiter__(self) -> Tail:
        return self

    def __next__(self) -> bytes:
        while (piece := self._take(self._bridge.run(self._found()))) == b"":
            self.pause(self._pause_s)
        if piece is None:
            raise StopIteration
        return piece

    async def __anext__(self) -> bytes:
        while (piece := self._take(await self._bridge.arun(self._found()))) == b"":
            await asyncio.sleep(self._pause_s)
        if piece is None:
            raise StopAsyncIteration
        return piece

    def _take(self, found: _Found) -> bytes | None:
        """Go on behind bytes that the caller gets: a call that was cancelled may go on in its thread, and took none."""
        piece, self.position, self._snapshot = found
        return piece

    async def _found(self) -> _Found:
        """The next bytes; none if there are none yet, or while the store fails; None at the end."""
        try:
            piece, position, snapshot = await self._look()
            self._is_away = False
        except OSError as error:
            if not (self._follow and self._client.backend.is_async and self._has_looked and error.errno in _PASSING):
                raise
            if not self._is_away:
                logger.warning("%s: the store fails, and is asked again until it answers: %s", self.path, error)
            self._is_away, piece, position, snapshot = True, b"", self.position, self._snapshot
        if piece == b"":
            self._pause_s = min(self._poll_s_max, self._pause_s * POLL_GROWTH) if self._pause_s else self._poll_s_min
        else:
            self._pause_s = 0.0
        return piece, position, snapshot

    async def _look(self) -> _Found:
        if self._is_over():
            return None, self.position, None
        snapshot = self._snapshot or self._placed(await self._current.look())
        position = self.position
        assert position is not None
        end = min(snapshot.length, position + PIECE_BYTES_MAX)
        if position == end:
            return None if self._is_over() else b"", position, None
        try:
            data = await self._client.fetcher.read(snapshot, position, end, checks=self._checks)
        except FileNotFoundError:
            if snapshot.header is not None:
                raise
            return b"", position, None  # a plain file was written anew since the look: look again
        return data, end, None if end == snapshot.length else snapshot

    def _is_over(self) -> bool:
        return self._end is not None and self.position == self._end

    def _placed(self, snapshot: Snapshot) -> Snapshot:
        """A snapshot that has the position; sets where to begin and to stop, once that is known."""
        self._has_looked = True
        if self.position is None:
            self.position = snapshot.start
        if self.position < snapshot.start:
            raise SegmentTruncatedError(
                f"{snapshot.path}: offset {self.position} was truncated away; {snapshot.extent}"
            )
        if self.position > snapshot.length:
            raise BadOffsetError(f"{snapshot.path}: offset {self.position} lies beyond the end; {snapshot.extent}")
        if self._end is None and (not self._follow or snapshot.sealed):
            self._end = snapshot.length
        return snapshot


class FollowFile(io.RawIOBase):
    """A file object over a tail: a read waits for bytes, and returns none only at the end of a sealed segment.

    Made by ``fs.open(path, "rb", follow=True)``, buffered.
    """

    def __init__(self, tail: Tail) -> None:
        super().__init__()
        self._tail = tail
        self._rest = memoryview(b"")

    @property
    def name(self) -> str:
        """Path of the segment."""
        return self._tail.path

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # a wider type than typeshed's
        """Fill a buffer with the bytes that are there; waits for the first byte."""
        if not self._rest:
            self._rest = memoryview(next(self._tail, b""))
        size = min(len(buffer), len(self._rest))
        buffer[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size


def open_follow(core: Core, path: str) -> io.BufferedReader:
    """A file that grows with the segment, from the first retained byte to the seal."""
    return io.BufferedReader(FollowFile(Tail(core, path)))
