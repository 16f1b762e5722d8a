"""`Tail`: the bytes of a segment as they come, until it is sealed."""

from __future__ import annotations

import asyncio
import errno
import io
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial

from rollingfs.errors import BadOffsetError, SegmentReplacedError
from rollingfs.fs.core import Core
from rollingfs.segment.read.piece_checks import RUNS_MAX, PieceChecks
from rollingfs.segment.read.revalidate import Current
from rollingfs.segment.segment import Segment, Spot, begin, check_extent, read_on

POLL_S_MIN = 0.05
POLL_S_MAX = 2.0
"""The longest pause between two polls of an idle segment."""
POLL_GROWTH = 1.5
PIECE_BYTES_MAX = 4 * 1024 * 1024
_PASSING = {errno.EIO, errno.EBUSY, errno.ETIMEDOUT}
"""Errors of a store that does not answer, or is busy."""

logger = logging.getLogger("rollingfs")

_Found = tuple[bytes | None, Spot | None, Segment | None]
"""The next bytes, the spot after them, and the last look, while some of it is left to read."""


class Tail(Iterator[bytes], AsyncIterator[bytes]):
    """Iterates over a segment's bytes as they come, by `for` or by `async for`.

    With `follow` it waits for more until the segment is sealed; without, it ends where the segment ended at the first
    look. Without new bytes, each poll is a conditional request, and the pauses grow. A store that stops to answer
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
        Begin, as a segment offset or as the text of a `spot`; by default at the first retained byte.
    snapshot
        The segment or plain file whose incarnation is followed; by default the incarnation of the first look. A plain
        file may
        grow, or be adopted; what is written over it is another, known by its inode (on a disk) and by the bytes before
        the position.
    retry
        When another segment or file has the name, go on with that, from its start; wait while the name is free, and
        after
        a seal. Bytes of the former segment since the last poll are not read. A warning has the offset up to which it
        was read.
    poll_s_min, poll_s_max
        The shortest and the longest pause between two polls, in seconds.

    Raises
    ------
    BadOffsetError
        The offset is negative, or was beyond the end at the first look.
    SegmentReplacedError
        Another segment or file has the name, and `retry` is not given.
    SegmentTruncatedError
        The next bytes have been truncated away; the message has the range that is there.
    FileNotFoundError
        The segment is gone.
    """

    def __init__(
        self,
        core: Core,
        path: str,
        offset: int | str | None = None,
        *,
        snapshot: Segment | None = None,
        follow: bool = True,
        retry: bool = False,
        poll_s_min: float = POLL_S_MIN,
        poll_s_max: float = POLL_S_MAX,
    ) -> None:
        if isinstance(offset, int) and offset < 0:
            raise BadOffsetError(f"{path}: cannot begin at offset {offset}; it must be at least 0")
        if not 0 < poll_s_min <= poll_s_max:
            raise ValueError(
                f"{path}: poll_s_min is {poll_s_min} and poll_s_max is {poll_s_max}; it must be 0 < min <= max"
            )
        self.path = path
        self.pause: Callable[[float], object] = time.sleep
        self.spot: Spot | None = None if offset is None else Spot.of(offset)
        """Spot of the next byte; its text lets another `Tail` go on there, in this very segment."""
        self._bridge = core.bridge
        self._client = core.client
        self._current = Current(core.client.headers, path, snapshot, is_bound=True)
        self._follow, self._retry = follow, retry
        self._poll_s_min, self._poll_s_max = poll_s_min, poll_s_max
        self._pause_s = 0.0
        """Seconds before the next poll, after a poll without new bytes."""
        self._has_looked = self._has_begun = False
        self._checks = PieceChecks(RUNS_MAX)
        self._snapshot: Segment | None = None
        """Result of the last look, while some of it is left to read."""
        self._end: int | None = None
        """End of the read."""
        self._is_away = False
        """Whether the store has failed since the last look that succeeded."""

    def __repr__(self) -> str:
        return f"<Tail of {self.path!r} at {'its start' if self.position is None else self.position}>"

    @property
    def position(self) -> int | None:
        """The segment offset of the next byte; None before the first look, if it was not given."""
        return None if self.spot is None else self.spot.offset

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
        """Go on after bytes that the caller gets: a cancelled call may go on in its thread, and took no byte."""
        piece, self.spot, self._snapshot = found
        return piece

    async def _found(self) -> _Found:
        """Return the next bytes; empty without new bytes or while the store fails; None at the end."""
        try:
            piece, spot, snapshot = await self._look()
            self._is_away = False
        except FileNotFoundError as error:
            if not (self._retry and self._has_looked):
                raise
            piece, spot, snapshot = b"", self._start_again(error), None
        except OSError as error:
            if not (self._follow and self._client.backend.is_async and self._has_looked and error.errno in _PASSING):
                raise
            if not self._is_away:
                logger.warning("%s: the store fails, and is asked again until it answers: %s", self.path, error)
            self._is_away, piece, spot, snapshot = True, b"", self.spot, self._snapshot
        if piece == b"":
            self._pause_s = min(self._poll_s_max, self._pause_s * POLL_GROWTH) if self._pause_s else self._poll_s_min
        else:
            self._pause_s = 0.0
        return piece, spot, snapshot

    def _start_again(self, error: FileNotFoundError) -> Spot | None:
        """Return the spot to go on at after the segment is gone: the start of the next segment of its name."""
        self._current = Current(self._client.headers, self.path, is_bound=True)
        if not isinstance(error, SegmentReplacedError):
            return self.spot
        told = "%s: it was read up to offset %s; another has its name now, and is read from its start"
        logger.warning(told, self.path, self.position)
        self._checks, self._end, self._has_begun = PieceChecks(RUNS_MAX), None, False
        return None

    async def _look(self) -> _Found:
        if self._is_over(self.spot):
            return None, self.spot, None
        snapshot = self._snapshot or await self._current.look()
        try:
            spot = self.spot if self._snapshot else await self._placed(snapshot)
            assert spot is not None
            end = min(snapshot.length, spot.offset + PIECE_BYTES_MAX)
            if spot.offset == end:
                return None if self._is_over(spot) else b"", spot, None
            before, data = await read_on(snapshot, spot, end, partial(self._read, snapshot))
        except SegmentReplacedError:
            raise
        except FileNotFoundError:
            if snapshot.header is not None:
                raise
            return b"", self.spot, None  # a plain file was written anew since the look: look again
        return data, Spot.at(snapshot, end, before + data), None if end == snapshot.length else snapshot

    async def _read(self, snapshot: Segment, start: int, end: int) -> bytes:
        return await self._client.fetcher.read(snapshot, start, end, checks=self._checks)

    def _is_over(self, spot: Spot | None) -> bool:
        return self._end is not None and spot is not None and spot.offset == self._end

    async def _placed(self, snapshot: Segment) -> Spot:
        """Return the spot of the next byte, in a snapshot that has it; sets where to stop, once that is known."""
        spot = self.spot or Spot(snapshot.start)
        self._has_looked = True
        if not self._has_begun:
            spot = await begin(snapshot, spot, partial(self._read, snapshot))
            self._has_begun = True
        spot.check(snapshot)
        check_extent(snapshot, spot.offset)
        if self._end is None and (not self._follow or (snapshot.sealed and not self._retry)):
            self._end = snapshot.length
        return spot


class FollowFile(io.RawIOBase):
    """A file object over a tail: a read waits for bytes, and returns no byte only at the end of a sealed segment.

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
    """Return a file that grows with the segment, from the first retained byte to the seal."""
    return io.BufferedReader(FollowFile(Tail(core, path)))
