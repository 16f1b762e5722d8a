"""Following segments: one look serves all clients that wait for the same segment; records go out whole."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from rollingfs.errors import BadOffsetError, SegmentTruncatedError
from rollingfs.read.snapshot import Snapshot
from rollingfs.server.problems import Refused, problem_fields
from rollingfs.server.store import Store

POLL_S_MIN, POLL_S_MAX, POLL_GROWTH = 0.05, 2.0, 1.5
HEARTBEAT_S = 15.0
"""A comment is sent so often, so that a client that is gone is noticed."""
RECORD_BYTES_MAX = 16 * 1024 * 1024
NEWLINE = b"\n"


@dataclass(eq=False)
class _Watch:
    """One poller, for all who wait for a segment."""

    task: asyncio.Task[None]
    waiters: int = 0
    version: tuple[str, int] = ("", 0)
    news: asyncio.Condition = field(default_factory=asyncio.Condition)
    nudge: asyncio.Event = field(default_factory=asyncio.Event)
    error: Exception | None = None


class Watches:
    """Waits for changes of segments; the number of looks depends on the segments, not on the clients."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.stopping = asyncio.Event()
        self._watches: dict[str, _Watch] = {}

    async def wait(self, path: str, seen: Snapshot, timeout_s: float) -> None:
        """Wait until a segment is no longer as it was seen, the time is over, or the server stops.

        Raises
        ------
        OSError
            The segment cannot be looked at, or is gone.
        """
        watch = self._watches.get(path)
        if watch is None:
            watch = self._watches[path] = _Watch(asyncio.create_task(self._poll(path)), version=_version(seen))
        watch.waiters += 1
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s), watch.news:
                    await watch.news.wait_for(lambda: watch.error or watch.version != _version(seen))
            if watch.error is not None:
                raise watch.error
        finally:
            watch.waiters -= 1
            if not watch.waiters and self._watches.get(path) is watch:
                del self._watches[path]
                watch.task.cancel()

    async def _poll(self, path: str) -> None:
        watch, pause_s = self._watches[path], POLL_S_MIN
        while True:
            before = watch.version
            try:
                watch.version = _version(await self.store.look(path))
            except Exception as error:  # noqa: BLE001 - raised in all who wait
                watch.error = error
            if watch.error is not None or watch.version != before:
                async with watch.news:
                    watch.news.notify_all()
                pause_s = POLL_S_MIN
            if watch.error is not None:
                self._watches.pop(path, None)
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(watch.nudge.wait(), pause_s)
            watch.nudge.clear()
            pause_s = min(POLL_S_MAX, pause_s * POLL_GROWTH)

    def nudge(self, path: str) -> None:
        """Look now: this server has just changed the segment."""
        if path in self._watches:
            self._watches[path].nudge.set()

    def stop(self) -> None:
        """Let all who follow a segment come to their end."""
        self.stopping.set()
        for watch in self._watches.values():
            watch.error = Refused(503, "the server stops; nothing was changed")
            watch.nudge.set()


def _version(view: Snapshot) -> tuple[str, int]:
    return (view.header.segment, view.header.version) if view.header else ("", view.length)


@dataclass(frozen=True, slots=True)
class Records:
    """Whole records of a segment."""

    data: bytes
    offset: int
    next_offset: int
    is_end: bool
    """Whether the segment is sealed, and nothing comes after these."""


class Following:
    """Reads the records of one segment from an offset on.

    Parameters
    ----------
    offset
        Where to begin; by default at the end as it is now.
    """

    def __init__(self, watches: Watches, path: str, view: Snapshot, offset: int | None, bytes_max: int) -> None:
        self.offset = view.length if offset is None else offset
        self._watches, self._store, self._path = watches, watches.store, path
        self._view, self._bytes_max = view, bytes_max
        self._segment = view.header.segment if view.header else None

    @property
    def is_over(self) -> bool:
        """Whether the server stops."""
        return self._watches.stopping.is_set()

    async def records(self, wait_s: float) -> Records:
        """The next whole records; empty if none came in time.

        Raises
        ------
        SegmentTruncatedError, BadOffsetError
            The offset is not among the bytes that the segment holds.
        FileNotFoundError
            The segment is gone, or another has its name.
        """
        until_s = asyncio.get_running_loop().time() + wait_s
        while True:
            view = self._view
            self._check(view)
            data = await self._whole(view)
            is_end = view.sealed and self.offset + len(data) == view.length
            left_s = until_s - asyncio.get_running_loop().time()
            if data or is_end or left_s <= 0 or self._watches.stopping.is_set():
                offset, self.offset = self.offset, self.offset + len(data)
                return Records(data, offset, self.offset, is_end)
            await self._watches.wait(self._path, view, left_s)
            self._view = await self._store.look(self._path)

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
            data = b"".join([piece async for piece in self._store.pieces(view, self.offset, end)])
            if view.sealed and end == view.length:
                return data
            cut = data.rfind(NEWLINE) + 1
            if cut or end == view.length:
                return data[:cut]
            if size >= RECORD_BYTES_MAX:
                raise Refused(422, f"the record at offset {self.offset} has more than {RECORD_BYTES_MAX} bytes")
            size = min(RECORD_BYTES_MAX, size * 4)


async def events(following: Following, root: str) -> AsyncIterator[bytes]:
    """Records as server-sent events, until the segment is sealed; the id of an event is the offset behind it.

    A record that is not UTF-8 text, or has a carriage return within, comes as an event ``base64``.
    """
    yield b"retry: 1000\n\n"
    while True:
        try:
            found = await following.records(HEARTBEAT_S)
        except Exception as error:  # noqa: BLE001 - the last event says it
            yield _event("problem", json.dumps(problem_fields(error, root)), None)
            return
        if not found.data and not found.is_end:
            yield b": still there\n\n"
        offset = found.offset
        for record in filter(None, re.split(rb"(?<=\n)", found.data)):
            offset += len(record)
            yield _record(record.removesuffix(NEWLINE), offset)
        if found.is_end:
            yield _event("end", json.dumps({"length": found.next_offset}), found.next_offset)
            return
        if following.is_over:
            return


def _record(record: bytes, offset: int) -> bytes:
    try:
        text = record.decode()
    except UnicodeDecodeError:
        text = "\r"
    if "\r" in text:
        return _event("base64", base64.b64encode(record).decode(), offset)
    return _event(None, text, offset)


def _event(kind: str | None, data: str, number: int | None) -> bytes:
    lines = [f"event: {kind}"] if kind else []
    lines += [f"id: {number}"] if number is not None else []
    return "\n".join([*lines, f"data: {data}", "", ""]).encode()
