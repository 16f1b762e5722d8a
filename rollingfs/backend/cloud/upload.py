"""Uploads to a cloud: one PUT if the file is small, else parts, in bounded memory."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import Any

from rollingfs.backend import refusals
from rollingfs.backend.cloud.container import Container, Parts
from rollingfs.backend.cloud.errors import CLOUD_ERRORS, errors_of, is_conflict, retrying
from rollingfs.backend.contract import Buffer, Metadata, Over, Upload, frozen

PART_BYTES = 16 * 2**20
PARTS_IN_FLIGHT_MAX = 4


class CloudUpload(Upload):
    """A new file on a cloud."""

    def __init__(self, container: Container, path: str, key: str, over: Over | None, metadata: Metadata) -> None:
        self._container = container
        self._metadata = metadata
        self._path = path
        self._key = key
        self._over = over
        self._pieces: list[bytes] = []
        self._pieces_bytes = 0
        self._handed_bytes = 0
        self._parts: Parts | None = None
        self._making: asyncio.Task[Any] | None = None
        self._is_over = False

    @property
    def held_bytes(self) -> int:
        # the store's client does not say how many of the parts that it was handed are on their way
        return 0 if self._is_over else self._pieces_bytes + min(self._handed_bytes, PARTS_IN_FLIGHT_MAX * PART_BYTES)

    async def write(self, data: Buffer) -> None:
        self._check_open()
        view = memoryview(data).cast("B")
        while len(view):
            piece = view[: PART_BYTES - self._pieces_bytes]
            self._pieces.append(frozen(piece))
            self._pieces_bytes += len(piece)
            view = view[len(piece) :]
            # a full part waits for the next byte: what is exactly one part is still a single PUT
            if self._pieces_bytes == PART_BYTES and len(view):
                await self._send_part()

    async def finish(self) -> None:
        self._check_open()
        with errors_of("writing", self._path):
            try:
                await self._make(self._put_whole() if self._parts is None else self._complete(self._parts))
            except CLOUD_ERRORS as error:
                if self._over is Over.NOTHING and is_conflict(error):
                    raise refusals.name_taken(self._path) from error
                raise
        self._is_over = True

    async def abort(self) -> None:
        if self._is_over:
            return
        self._is_over = True
        self._pieces.clear()
        if self._making is not None:  # whoever deletes the file must come after it
            await asyncio.gather(self._making, return_exceptions=True)
        if self._parts is not None:
            with errors_of("aborting the upload of", self._path):
                await self._parts.abort()

    def _check_open(self) -> None:
        if self._is_over:
            raise refusals.upload_closed(self._path)

    async def _make(self, request: Coroutine[Any, Any, Any]) -> None:
        """Send what makes the file. If the caller is cancelled, the request goes on: it may take effect even so."""
        self._making = asyncio.ensure_future(request)
        await asyncio.shield(self._making)

    async def _put_whole(self) -> None:
        put = partial(self._container.put, self._key, self._take(), self._over or Over.ANYTHING, self._metadata)
        # a refusal after a lost answer could be this request's own doing
        await retrying(put, unanswered=self._over is not Over.NOTHING)

    async def _complete(self, parts: Parts) -> None:
        await parts.complete(b"".join(self._take()))

    def _take(self) -> list[bytes]:
        self._handed_bytes += self._pieces_bytes
        pieces, self._pieces, self._pieces_bytes = self._pieces, [], 0
        return pieces

    async def _send_part(self) -> None:
        if self._parts is None:
            self._parts = self._container.parts(self._key, self._over or Over.ANYTHING, self._metadata)
        with errors_of("uploading a part of", self._path):
            await self._parts.write(b"".join(self._take()))
