"""Following segments: one look serves all clients that wait for the same segment; records go out whole."""

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

from rollingfs.errors import BadOffsetError, SegmentTruncatedError
from rollingfs.read.snapshot import Snapshot
from rollingfs.server.problems import problem_fields
from rollingfs.server.store import Store, etag

POLL_S_MIN, POLL_S_MAX, POLL_GROWTH = 0.05, 2.0, 1.5
HEARTBEAT_S = 15.0
"""A comment is sent so often, so that a client that is gone is noticed."""
RECORD_BYTES_MAX = 16 * 1024 * 1024


class Watches:
    """Looks at segments for all who wait for them; the number of looks depends on the segments, not on the clients."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.is_stopping = False
        self._looks: dict[str, tuple[asyncio.Task[Snapshot], asyncio.Event]] = {}

    async def look(self, place: str, pause_s: float) -> Snapshot:
        """The next look at a segment, after a pause, or as soon as this server has changed it.

        Raises
        ------
        OSError
            The segment cannot be looked at, or is gone.
        """
        if place not in self._looks:
            nudge = asyncio.Event()
            self._looks[place] = asyncio.create_task(self._look(place, pause_s, nudge)), nudge
        return await asyncio.shield(self._looks[place][0])

    async def _look(self, place: str, pause_s: float, nudge: asyncio.Event) -> Snapshot:
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


class Following:
    """Reads the records of one segment from an offset on.

    Parameters
    ----------
    offset
        Where to begin; by default at the end as it is now.
    """

    def __init__(self, watches: Watches, view: Snapshot, offset: int | None, bytes_max: int) -> None:
        self.offset = view.length if offset is None else offset
        self.watches, self._view, self._bytes_max, self._pause_s = watches, view, bytes_max, POLL_S_MIN
        self._segment = view.header.segment if view.header else None

    async def records(self, wait_s: float) -> tuple[bytes, bool]:
        """The next whole records, empty if none came in time, and whether the sealed segment has no more.

        Raises
        ------
        SegmentTruncatedError, BadOffsetError
            The offset is not among the bytes that the segment holds.
        FileNotFoundError
            The segment is gone, or another has its name.
        """
        clock = asyncio.get_running_loop().time
        until_s = clock() + wait_s
        while True:
            view = self._view
            self._check(view)
            data = await self._whole(view)
            is_end = view.sealed and self.offset + len(data) == view.length
            if data or is_end or clock() >= until_s or self.watches.is_stopping:
                self.offset += len(data)
                self._pause_s = POLL_S_MIN if data else self._pause_s
                return data, is_end
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(until_s):
                    while etag(self._view) == etag(view) and not self.watches.is_stopping:
                        self._view = await self.watches.look(view.path, self._pause_s)
                        self._pause_s = min(POLL_S_MAX, self._pause_s * POLL_GROWTH)

    def _check(self, view: Snapshot) -> None:
        if self._segment is not None and (view.header is None or view.header.segment != self._segment):
            raise FileNotFoundError(2, "the segment is gone; another has its name", view.path)
        if self.offset < view.start:
            raise SegmentTruncatedError(f"{view.path}: offset {self.offset} was truncated away; {view.extent}")
        if self.offset > view.length:
            raise BadOffsetError(f"{view.path}: offset {self.offset} lies beyond the end; {view.extent}")

    async def _whole(self, view: Snapshot) -> bytes:
        """The bytes from the offset up to the end of the last record that fits, or of one large record."""
        size = self._bytes_max
        while True:
            end = min(view.length, self.offset + size)
            data = b"".join([piece async for piece in self.watches.store.pieces(view, self.offset, end)])
            if view.sealed and end == view.length:
                return data
            cut = data.rfind(b"\n") + 1
            if cut or end == view.length:
                return data[:cut]
            if size >= RECORD_BYTES_MAX:
                text = f"the record at offset {self.offset} has more than {RECORD_BYTES_MAX} bytes"
                raise HTTPException(422, text)
            size = min(RECORD_BYTES_MAX, size * 4)


async def poll(following: Following, wait_s: float, request: Request) -> tuple[bytes, bool]:
    """The next whole records, for a client that waits for one answer.

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


async def events(following: Following) -> AsyncIterator[bytes]:
    """Records as server-sent events, until the segment is sealed; the id of an event is the offset behind it.

    A record that is not UTF-8 text, or has a carriage return within, comes as an event ``base64``.
    """
    yield b"retry: 1000\n\n"
    while not following.watches.is_stopping:
        try:
            data, is_end = await following.records(HEARTBEAT_S)
        except Exception as error:  # noqa: BLE001 - the last event says it
            yield _event("problem", json.dumps(problem_fields(error, following.watches.store.root)))
            return
        if not data and not is_end:
            yield b": still there\n\n"
        offset = following.offset - len(data)
        for record in filter(None, re.split(rb"(?<=\n)", data)):
            offset += len(record)
            yield _record(record.removesuffix(b"\n"), offset)
        if is_end:
            yield _event("end", json.dumps({"length": offset}), offset)
            return


def _record(record: bytes, offset: int) -> bytes:
    text = record.decode(errors="replace")
    if "\r" in text or text.encode() != record:
        return _event("base64", base64.b64encode(record).decode(), offset)
    return _event(None, text, offset)


def _event(kind: str | None, data: str, number: int | None = None) -> bytes:
    fields = {"event": kind, "id": number, "data": data}
    return "".join([*(f"{name}: {value}\n" for name, value in fields.items() if value is not None), "\n"]).encode()
