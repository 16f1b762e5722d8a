"""`Tail`: the bytes of a segment as they come, until it is sealed."""

from __future__ import annotations

import asyncio
import io
import time
from collections.abc import AsyncIterator, Callable, Iterator

from rollingfs.client import Client
from rollingfs.errors import BadOffsetError, SegmentTruncatedError
from rollingfs.read.piece_checks import RUNS_MAX, PieceChecks
from rollingfs.read.snapshot import View
from rollingfs.runtime.bridge import Bridge

POLL_S_MIN = 0.05
POLL_S_MAX = 2.0
"""An idle segment is asked for at most this rarely."""
POLL_GROWTH = 1.5
PIECE_BYTES_MAX = 4 * 1024 * 1024


class Tail(Iterator[bytes], AsyncIterator[bytes]):
    """Iterates over a segment's bytes, in pieces as they were found; for `for` and for `async for`.

    With `follow` it waits for more until the segment is sealed; without, it ends where the segment ended at the first
    look. While nothing comes it asks with one conditional request a poll, more and more rarely.

    Made by ``segment.tail()``.

    Attributes
    ----------
    position : int or None
        The segment offset of the next byte; None before the first look, if it was not given.
    pause : callable
        Called with the seconds to wait between two polls of a blocking reader, `time.sleep` by default. What it raises
        ends the waiting.

    Parameters
    ----------
    segment
        The incarnation that it is bound to; None for that of the first look.
    was_plain
        A plain file was there at the last look: what is written over it is another.
    offset
        Where to begin, as a segment offset; by default at the first retained byte.
    poll_s_min, poll_s_max
        The shortest and the longest pause between two polls, in seconds.

    Raises
    ------
    BadOffsetError
        The offset is negative, or lies beyond the end at the first look.
    SegmentTruncatedError
        What comes next has been truncated away; the message has the range that is there.
    FileNotFoundError
        The segment is gone, or another has its name.
    """

    def __init__(
        self,
        client: Client,
        bridge: Bridge,
        path: str,
        offset: int | None = None,
        *,
        segment: str | None = None,
        was_plain: bool = False,
        follow: bool = True,
        poll_s_min: float = POLL_S_MIN,
        poll_s_max: float = POLL_S_MAX,
    ) -> None:
        if offset is not None and offset < 0:
            raise BadOffsetError(f"{path}: cannot begin at offset {offset}; it must be at least 0")
        if not 0 < poll_s_min <= poll_s_max:
            raise ValueError(
                f"{path}: polls every {poll_s_min} to {poll_s_max} s: both must be above 0, and in this order"
            )
        self._client = client
        self._bridge = bridge
        self.path = path
        self.position = offset
        self.pause: Callable[[float], None] = time.sleep
        self._segment = segment
        self._was_plain = was_plain
        self._follow = follow
        self._poll_s_min = poll_s_min
        self._poll_s_max = poll_s_max
        self._pause_s = poll_s_min
        self._checks = PieceChecks(RUNS_MAX)
        self._view: View | None = None
        """What was found at the last look, while there is some of it left to read."""
        self._end: int | None = None
        """Where to stop."""

    def __iter__(self) -> Tail:
        return self

    def __aiter__(self) -> Tail:
        return self

    def __next__(self) -> bytes:
        while (piece := self._bridge.run(self._piece())) == b"":
            self.pause(self._next_pause_s())
        if piece is None:
            raise StopIteration
        self._pause_s = self._poll_s_min
        return piece

    async def __anext__(self) -> bytes:
        while (piece := await self._bridge.arun(self._piece())) == b"":
            await asyncio.sleep(self._next_pause_s())
        if piece is None:
            raise StopAsyncIteration
        self._pause_s = self._poll_s_min
        return piece

    def _next_pause_s(self) -> float:
        pause_s = self._pause_s
        self._pause_s = min(self._poll_s_max, pause_s * POLL_GROWTH)
        return pause_s

    async def _piece(self) -> bytes | None:
        """The next bytes; none if there are none yet; None at the end."""
        if self._is_over():
            return None
        if self._view is None:
            self._view = await self._look()
        view, position = self._view, self.position
        assert position is not None
        end = min(view.length, position + PIECE_BYTES_MAX)
        if position == end:
            self._view = None
            return None if self._is_over() else b""
        try:
            data = await self._client.fetcher.read(view, position, end, checks=self._checks)
        except FileNotFoundError:
            if view.header is not None:
                raise
            self._view = None  # a plain file that was written anew since the look: to be looked at again
            return b""
        self.position = end
        if end == view.length:
            self._view = None
        return data

    def _is_over(self) -> bool:
        return self._end is not None and self.position == self._end

    async def _look(self) -> View:
        """The segment as it is now: one request, conditional on what was seen before."""
        view = await self._client.lookup.view(self.path, fresh=True)
        header = view.header
        if self._segment is not None:
            is_same = header is not None and header.segment == self._segment
        else:
            # a plain file may have grown before it was adopted; what was written over it is another
            is_same = header is None or not self._was_plain or header.was_plain
        if not is_same:
            raise FileNotFoundError(2, "The segment that was followed is gone; another has its name", self.path)
        self._segment = header.segment if header is not None else self._segment
        self._was_plain = header is None
        if self.position is None:
            self.position = view.start
        if self.position < view.start:
            raise SegmentTruncatedError(
                f"{self.path}: offset {self.position} was truncated away; it holds {view.start} to {view.length}"
            )
        if self.position > view.length:
            raise BadOffsetError(
                f"{self.path}: offset {self.position} lies beyond the end; its length is {view.length}"
            )
        if self._end is None and (not self._follow or (header is not None and header.sealed)):
            self._end = view.length
        return view


class FollowFile(io.RawIOBase):
    """A file object over a tail: a read waits for bytes, and gets none only at the end of a sealed segment.

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
        """Fill what there is room and bytes for; waits for the first byte."""
        if not self._rest:
            self._rest = memoryview(next(self._tail, b""))
        size = min(len(buffer), len(self._rest))
        buffer[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size


def open_follow(client: Client, bridge: Bridge, path: str) -> io.BufferedReader:
    """A file that goes on as the segment grows, from its first retained byte to its seal."""
    return io.BufferedReader(FollowFile(Tail(client, bridge, path)))
