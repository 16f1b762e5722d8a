"""Writes a stream of bytes into chunk files of `max_bytes` each, in bounded memory, without a commit."""

from __future__ import annotations

import asyncio
import concurrent.futures
import time
from collections import deque
from typing import Any

from rollingfs.backend.contract import Backend, Buffer, Upload, frozen
from rollingfs.format import names
from rollingfs.format.crc import crc32c
from rollingfs.format.side_files import HEAD_BYTES, TAIL_BYTES, Label, Last
from rollingfs.runtime.concurrency import drive
from rollingfs.runtime.system import Clock, Moment
from rollingfs.segment.commit.chunk_files import Stored, kinds_of

FINISHING_MAX = 8
"""Maximum full chunks on their way to the store while the next chunk is written."""
FINISHING_BYTES_MAX = 64 * 1024 * 1024
COPY_BYTES = 4 * 1024 * 1024


class ChunkWriter:
    """Writes a stream into new chunk files of a segment, each at most `max_bytes` long.

    `finish` returns the chunks, and does not commit them; `abort` removes them. A full chunk is finished while the next
    is written: in a task over an async backend, in a thread if the backend `finishes_aside`.

    Parameters
    ----------
    start, incarnation, last
        The offset in the segment that the first byte is expected to have, the incarnation of the segment and its last
        chunk, if they are known; only the names and the metadata of the chunks have them.
    staged
        Write under names that only collection may delete, dated by the store's clock.
    """

    def __init__(
        self,
        backend: Backend,
        segment: str,
        max_bytes: int,
        *,
        start: int = 0,
        incarnation: str | None = None,
        last: Last | None = None,
        staged: bool = False,
        clock: Clock = time.time,
    ) -> None:
        self.backend = backend
        self.segment = segment
        self.max_bytes = max_bytes
        self.position = start
        """Return the offset that the next byte is expected to have."""
        self.incarnation = incarnation
        self.last = last
        self.staged = staged
        self.clock = clock
        self._full: list[_OpenChunk] = []
        self._finishing: deque[tuple[_OpenChunk, _Finishing]] = deque()
        self._open: _OpenChunk | None = None

    async def write(self, data: Buffer) -> None:
        """Take bytes; they may be reused by the caller after the call."""
        view = memoryview(data)
        while view:
            chunk = self._open or await self._begin()
            taken = view[: self.max_bytes - chunk.size]
            await chunk.write(taken)
            self.position += len(taken)
            view = view[len(taken) :]
            if chunk.size == self.max_bytes:
                await self._roll()

    @property
    def held_bytes(self) -> int:
        """Bytes in memory that the store does not have yet."""
        chunks = [chunk for chunk, _ in self._finishing]
        return sum(chunk.upload.held_bytes for chunk in (*chunks, *([self._open] if self._open is not None else [])))

    async def finish(self) -> tuple[Stored, ...]:
        """Make everything durable and return the chunks in order; what is written then begins others."""
        if self._open is not None:
            await self._roll()
        await self._settle(0, 0)
        stored = tuple(chunk.stored(self.clock) for chunk in self._full)
        self._full = []
        return stored

    async def abort(self) -> None:
        """Remove the files that were written; no header names them."""
        under_way = [finishing for _, finishing in self._finishing]  # after Ctrl-C, two callers may abort at once
        for finishing in under_way:
            finishing.cancel()  # a flush in a thread goes on
        for finishing in under_way:
            if isinstance(finishing, asyncio.Future):
                await asyncio.gather(finishing, return_exceptions=True)  # its error is the reason for the abort
            else:
                concurrent.futures.wait([finishing])
        self._finishing.clear()
        files, self._full = self._full, []
        begun = [*files, self._open] if self._open is not None else files
        self._open = None
        for chunk in begun:
            if not chunk.is_finished:
                await chunk.upload.abort()
        if files:
            # with those whose upload failed or was cancelled: their bytes may have arrived
            await self.backend.delete([chunk.path for chunk in files])

    async def abort_open(self) -> None:
        """Give up the chunk being written, and no other; this takes no lock, so that garbage collection may do it."""
        if self._open is not None:
            await self._open.upload.abort()
            self._open = None

    async def _begin(self) -> _OpenChunk:
        name = names.new_staged_name() if self.staged else names.new_chunk_name(self.position)
        path = f"{names.chunks_folder(self.segment)}/{name}"
        stored_at = await self.backend.now(path) if self.staged else None
        began = Moment.now(self.clock)
        label = Label(self.incarnation, None if self.staged else self.position, last=self.last)
        more: list[Any] = [None, label.metadata()] if self.backend.capability.has_metadata else []
        upload = await self.backend.open_write(path, *more)
        self._open = _OpenChunk(upload, path, began, self.staged, stored_at, 0 if self.position else HEAD_BYTES)
        return self._open

    async def _roll(self) -> None:
        chunk = self._open
        assert chunk is not None
        self._open = None
        chunk.ended_ms = round(max(self.clock(), chunk.began.wall_s) * 1000)
        self._full.append(chunk)
        if self.backend.is_async:
            self._finishing.append((chunk, asyncio.ensure_future(chunk.finish())))
        elif self.backend.capability.finishes_aside:
            self._finishing.append((chunk, _in_thread(chunk)))
        else:
            await chunk.finish()
        await self._settle(FINISHING_MAX, FINISHING_BYTES_MAX)

    async def _settle(self, count_max: int, bytes_max: int) -> None:
        """Wait, oldest first, until no more than this many chunks and bytes are being finished."""
        while len(self._finishing) > count_max or sum(chunk.size for chunk, _ in self._finishing) > bytes_max:
            finishing = self._finishing[0][1]
            await finishing if isinstance(finishing, asyncio.Future) else finishing.result()
            self._finishing.popleft()


_Finishing = asyncio.Future[None] | concurrent.futures.Future[None]
"""A chunk on its way to the store, while its writer goes on."""


def _in_thread(chunk: _OpenChunk) -> concurrent.futures.Future[None]:
    thread = concurrent.futures.ThreadPoolExecutor(1, "rollingfs-finish")
    finishing = thread.submit(lambda: drive(chunk.finish()))
    thread.shutdown(wait=False)
    return finishing


class _OpenChunk:
    """A chunk being written, with its running size and checksum."""

    def __init__(
        self, upload: Upload, path: str, began: Moment, staged: bool, stored_at: float | None, head_bytes: int
    ) -> None:
        self.upload = upload
        self.path = path
        self.began = began
        self.staged = staged
        self.stored_at = stored_at
        self.size = 0
        self.ended_ms = 0
        """When its last byte had come, by the wall clock."""
        self.is_finished = False
        self._crc = 0
        self._head_bytes = head_bytes
        self._head = self._tail = b""

    async def write(self, data: memoryview) -> None:
        is_frozen = isinstance(data.obj, bytes) and len(data.obj) == len(data)
        step = len(data) if is_frozen else COPY_BYTES  # the checksum takes nothing but bytes
        for start in range(0, len(data), step):
            piece = frozen(data[start : start + step])
            self._crc = crc32c(piece, self._crc)
            self._head += piece[: self._head_bytes - len(self._head)]
            self._tail = (self._tail + piece[-TAIL_BYTES:])[-TAIL_BYTES:]
            await self.upload.write(piece)
            self.size += len(piece)

    async def finish(self) -> None:
        await self.upload.finish()
        self.is_finished = True

    def stored(self, clock: Clock) -> Stored:
        stored_at = self.stored_at
        if stored_at is not None:
            stored_at -= self.began.set_back_s(clock)  # otherwise a receipt would look younger than its file
        kinds = kinds_of(self._head, self._tail)
        return Stored(self.path, self.size, self._crc, self.ended_ms, self.began, self.staged, stored_at, kinds)
