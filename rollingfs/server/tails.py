"""Following segments: a look serves all clients that wait for the same segment; records go out whole."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import re
from collections.abc import AsyncIterator
from typing import NoReturn

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

from rollingfs.errors import SegmentReplacedError
from rollingfs.runtime.values import value_class
from rollingfs.segment.segment import BEFORE_BYTES_MAX, Segment, Spot, begin, check_extent, read_on
from rollingfs.server.problems import problem_fields
from rollingfs.server.served_store import ServedStore, etag

POLL_S_MIN, POLL_S_MAX, POLL_GROWTH = 0.05, 2.0, 1.5
HEARTBEAT_S = 15.0
"""A comment is sent so often, so that a client that is gone is noticed."""
RECORD_BYTES_MAX = 16 * 1024 * 1024


class Watches:
    """Looks at segments for all who wait for them; the number of looks depends on the segments, not on the clients."""

    def __init__(self, store: ServedStore) -> None:
        self.store = store
        self.is_stopping = False
        self._looks: dict[str, tuple[asyncio.Task[Segment], asyncio.Event]] = {}

    async def look(self, place: str, pause_s: float) -> Segment:
        """Return the next look at a segment, after a pause, or as soon as this server has changed it.

        Raises
        ------
        OSError
            The segment cannot be looked at, or is gone.
        """
        if place not in self._looks:
            nudge = asyncio.Event()
            self._looks[place] = asyncio.create_task(self._look(place, pause_s, nudge)), nudge
        return await asyncio.shield(self._looks[place][0])

    async def _look(self, place: str, pause_s: float, nudge: asyncio.Event) -> Segment:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(nudge.wait(), pause_s)
        del self._looks[place]  # from now on, another look is the next one
        return await self.store.look(place)

    def nudge(self, place: str) -> None:
        """Look now: this server has just changed the segment."""
        if place in self._looks:
            self._looks[place][1].set()

    def stop(self) -> None:
        """Let all who follow a segment come to their end."""
        self.is_stopping = True
        for place in self._looks:
            self.nudge(place)


@value_class
class Records:
    """Whole records that came together."""

    view: Segment
    begin: Spot
    before: bytes
    """Of a plain file, the bytes before them."""
    data: bytes
    is_end: bool
    """Whether the sealed segment has no more."""
    is_replaced: bool
    """Whether they are of another segment than those before."""

    def behind(self, count: int) -> Spot:
        """Return the spot after a number of the bytes."""
        first = max(0, count - BEFORE_BYTES_MAX)
        before = self.data[first:count] if first else self.before + self.data[:count]
        return Spot.at(self.view, self.begin.offset + count, before)

    @property
    def end(self) -> Spot:
        """Return the spot after the records."""
        return self.behind(len(self.data)) if self.data else self.begin


class RecordTail:
    """Reads the records of a segment from a spot on.

    Parameters
    ----------
    view
        The segment as it is now.
    retry
        When another segment has the name, go on with that, from its start; wait while the name is free.
    """

    def __init__(self, watches: Watches, view: Segment, bytes_max: int, *, retry: bool = False) -> None:
        self.watches, self._view, self._bytes_max, self._retry = watches, view, bytes_max, retry
        self._pause_s = POLL_S_MIN
        self._is_replaced = False
        self._spot = Spot(view.length)

    async def begin(self, spot: Spot | None) -> RecordTail:
        """Begin at a spot; without a spot, at the present end.

        Raises
        ------
        SegmentReplacedError
            It belongs to another segment, and `retry` is not given.
        SegmentTruncatedError, BadOffsetError
            The offset is outside of the segment.
        """
        try:
            self._spot = await begin(self._view, spot or self._spot, self._pieces)
        except SegmentReplacedError:
            if not self._retry:
                raise
            await self._start_again()
        return self

    async def _start_again(self) -> None:
        """Go on at the start of the segment that has the name now."""
        self._spot = await begin(self._view, Spot(self._view.start), self._pieces)
        self._is_replaced = True

    async def records(self, wait_s: float) -> Records:
        """Return the next whole records, empty if no record came in time.

        Raises
        ------
        SegmentTruncatedError, BadOffsetError
            The offset is outside of the segment.
        SegmentReplacedError, FileNotFoundError
            Another segment has its name, or the segment is gone, and `retry` is not given.
        """
        clock = asyncio.get_running_loop().time
        until_s = clock() + wait_s
        while True:
            view = self._view
            try:
                before, data = await self._next(view)
            except SegmentReplacedError:
                if not self._retry:
                    raise
                await self._start_again()
                continue
            except FileNotFoundError:
                if view.header is not None:
                    raise
                before, data = b"", b""  # a plain file was written anew since the look: look again
            is_end = view.sealed and self._spot.offset + len(data) == view.length and not self._retry
            if data or is_end or self._is_replaced or clock() >= until_s or self.watches.is_stopping:
                found = Records(view, self._spot, before, data, is_end, self._is_replaced)
                self._spot, self._is_replaced = found.end, False
                self._pause_s = POLL_S_MIN if data else self._pause_s
                return found
            await self._wait(view, until_s)

    async def _wait(self, view: Segment, until_s: float) -> None:
        """Look until the segment has changed, at most until a time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(until_s):
                while etag(self._view) == etag(view) and not self.watches.is_stopping:
                    try:
                        self._view = await self.watches.look(view.path, self._pause_s)
                    except FileNotFoundError:
                        if not self._retry:
                            raise
                    self._pause_s = min(POLL_S_MAX, self._pause_s * POLL_GROWTH)

    async def _pieces(self, start: int, end: int) -> bytes:
        return b"".join([piece async for piece in self.watches.store.pieces(self._view, start, end)])

    async def _next(self, view: Segment) -> tuple[bytes, bytes]:
        """Return bytes before the spot, and bytes up to the last record that fits.

        A single large record always fits.
        """
        self._spot.check(view)
        check_extent(view, self._spot.offset)
        size = self._bytes_max
        while True:
            end = min(view.length, self._spot.offset + size)
            before, data = await read_on(view, self._spot, end, self._pieces)
            if view.sealed and end == view.length:
                return before, data
            cut = data.rfind(b"\n") + 1
            if cut or end == view.length:
                return before, data[:cut]
            if size >= RECORD_BYTES_MAX:
                text = f"the record at offset {self._spot.offset} has more than {RECORD_BYTES_MAX} bytes"
                raise HTTPException(422, text)
            size = min(RECORD_BYTES_MAX, size * 4)


async def poll(following: RecordTail, wait_s: float, request: Request) -> Records:
    """Return the next whole records, for a client that waits for an answer.

    Raises
    ------
    ClientDisconnect
        The client has gone.
    """
    found = asyncio.create_task(following.records(wait_s))
    gone = asyncio.create_task(_gone(request))
    try:
        await asyncio.wait((found, gone), return_when=asyncio.FIRST_COMPLETED)
        return found.result() if found.done() else gone.result()
    finally:
        gone.cancel()
        found.cancel()


async def _gone(request: Request) -> NoReturn:
    while (await request.receive())["type"] != "http.disconnect":
        pass
    raise ClientDisconnect


async def events(following: RecordTail) -> AsyncIterator[bytes]:
    """Yield records as server-sent events until the seal.

    The id of an event is the spot after it.

    A record that is not UTF-8 text, or has a carriage return within, comes as an event ``base64``. When another segment
    has the name, an event ``replaced`` has its begin: the last event, without an id, unless `retry` was given.
    """
    yield b"retry: 1000\n\n"
    while not following.watches.is_stopping:
        try:
            found = await following.records(HEARTBEAT_S)
        except SegmentReplacedError as error:
            yield _event("replaced", json.dumps({"next": error.start}))
            return
        except Exception as error:  # noqa: BLE001 - the last event says it
            yield _event("problem", json.dumps(problem_fields(error, following.watches.store.root)))
            return
        if found.is_replaced:
            yield _event("replaced", json.dumps({"next": str(found.begin)}), found.begin)
        elif not found.data and not found.is_end:
            yield b": still there\n\n"
        count = 0
        for record in filter(None, re.split(rb"(?<=\n)", found.data)):
            count += len(record)
            yield _record(record.removesuffix(b"\n"), found.behind(count))
        if found.is_end:
            yield _event("end", json.dumps({"length": found.end.offset}), found.end)
            return


def _record(record: bytes, spot: Spot) -> bytes:
    text = record.decode(errors="replace")
    if "\r" in text or text.encode() != record:
        return _event("base64", base64.b64encode(record).decode(), spot)
    return _event(None, text, spot)


def _event(kind: str | None, data: str, spot: Spot | None = None) -> bytes:
    fields = {"event": kind, "id": spot, "data": data}
    return "".join([*(f"{name}: {value}\n" for name, value in fields.items() if value is not None), "\n"]).encode()
