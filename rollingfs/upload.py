"""Streams of bytes into chunk files: rolled at `max_bytes`, in bounded memory, not committed."""

from __future__ import annotations

import time

import google_crc32c

from rollingfs import names
from rollingfs.backend.contract import Backend, Buffer, Upload
from rollingfs.chunks import Stored
from rollingfs.clock import Clock, Moment


class ChunkWriter:
    """Writes a stream into new chunk files of one segment, each at most `max_bytes` long.

    Nothing is committed: `finish` returns what was stored, `abort` removes it.

    Parameters
    ----------
    start
        Segment offset that the first byte is expected to have; it only goes into the chunks' names.
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
        staged: bool = False,
        clock: Clock = time.time,
    ) -> None:
        self.backend = backend
        self.segment = segment
        self.max_bytes = max_bytes
        self.staged = staged
        self.clock = clock
        self.size = 0
        self._start = start
        self._stored: list[Stored] = []
        self._open: _OpenChunk | None = None

    async def write(self, data: Buffer) -> None:
        """Take bytes; they may be reused by the caller after the call."""
        view = memoryview(data).cast("B") if not isinstance(data, bytes) else memoryview(data)
        while view:
            chunk = self._open or await self._begin()
            taken = view[: self.max_bytes - chunk.size]
            await chunk.write(taken)
            self.size += len(taken)
            view = view[len(taken) :]
            if chunk.size == self.max_bytes:
                await self._roll()

    async def finish(self) -> tuple[Stored, ...]:
        """Make everything durable; returns the chunks in order."""
        if self._open is not None:
            await self._roll()
        return tuple(self._stored)

    async def abort(self) -> None:
        """Remove what was written: nobody has been told of it."""
        if self._open is not None:
            await self._open.upload.abort()
            self._open = None
        if self._stored:
            await self.backend.delete([stored.path for stored in self._stored])
            self._stored = []

    async def _begin(self) -> _OpenChunk:
        name = names.new_staged_name() if self.staged else names.new_chunk_name(self._start + self.size)
        path = f"{names.chunks_folder(self.segment)}/{name}"
        stored_at = await self.backend.now() if self.staged else None
        began = Moment.now(self.clock)
        self._open = _OpenChunk(await self.backend.open_write(path), path, began, self.staged, stored_at)
        return self._open

    async def _roll(self) -> None:
        assert self._open is not None
        await self._open.upload.finish()
        self._stored.append(self._open.stored())
        self._open = None


class _OpenChunk:
    """A chunk being written, with its running size and checksum."""

    def __init__(self, upload: Upload, path: str, began: Moment, staged: bool, stored_at: float | None) -> None:
        self.upload = upload
        self.path = path
        self.began = began
        self.staged = staged
        self.stored_at = stored_at
        self.size = 0
        self._crc = 0

    async def write(self, data: memoryview) -> None:
        piece = data.obj if isinstance(data.obj, bytes) and len(data.obj) == len(data) else bytes(data)
        self._crc = google_crc32c.extend(self._crc, piece)
        await self.upload.write(piece)
        self.size += len(piece)

    def stored(self) -> Stored:
        at_ms = round(self.began.wall_s * 1000)
        return Stored(self.path, self.size, self._crc, at_ms, self.began, self.staged, self.stored_at)
