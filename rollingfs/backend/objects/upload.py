"""Uploads to an object store: a PUT if the file is small, else parts, in bounded memory."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from rollingfs.backend import shared_errors
from rollingfs.backend.contract import Backend, Buffer, Metadata, Over, Part, Upload, frozen
from rollingfs.backend.objects.bucket import Bucket, Parts
from rollingfs.backend.objects.request_errors import (
    NO_UPLOAD_CODE,
    UNSUPPORTED_STATUSES,
    Refusal,
    errors_of,
    is_conflict,
    retrying,
)

T = TypeVar("T")

PUT_BYTES_MAX = 16 * 2**20
"""The largest new file that a PUT writes."""
PART_BYTES = 8 * 2**20
"""The size of the parts of a larger file."""
PARTS_IN_FLIGHT_MAX = 4
"""An upload keeps at most this many parts, and another, in memory: 40 MiB."""
PARTS_MAX = 10_000
"""The parts of an upload to S3."""
JOIN_PART_BYTES_MIN = 5 * 2**20
"""The smallest part that S3 takes before the last."""


@dataclass(eq=False, repr=False)
class ObjectUpload(Upload):
    """A new file on an object store."""

    bucket: Bucket
    key: str
    path: str
    over: Over | None
    metadata: Metadata
    backend: Backend
    """Has read_range for copies that the store does not do."""
    split: Callable[[str], tuple[str, str]]
    """Finds the bucket and the key of a path that is copied."""
    part_bytes: int
    put_bytes_max: int
    """A multiple of `part_bytes`: until there are more bytes, a single PUT may be enough."""
    _pieces: list[bytes] = field(default_factory=list, init=False)
    _pieces_bytes: int = field(default=0, init=False)
    _last_bytes: int = field(default=0, init=False)
    _parts: Parts | None = field(default=None, init=False)
    _making: asyncio.Task[None] | None = field(default=None, init=False)
    _is_over: bool = field(default=False, init=False)

    @property
    def held_bytes(self) -> int:
        held = 0 if self._parts is None else self._parts.held_bytes
        return 0 if self._is_over else self._pieces_bytes + self._last_bytes + held

    async def write(self, data: Buffer) -> None:
        self._check_open()
        view = memoryview(data).cast("B")
        while len(view):
            if self._parts is None and self._pieces_bytes == self.put_bytes_max:
                await self._send_parts(self.part_bytes)  # with the next byte, a single PUT is not enough
            piece = view[: self.part_bytes - self._pieces_bytes % self.part_bytes]
            self._pieces.append(frozen(piece))
            self._pieces_bytes += len(piece)
            view = view[len(piece) :]
            if self._parts is not None and self._pieces_bytes == self.part_bytes:
                await self._send_parts(self.part_bytes)

    async def copy(self, part: Part) -> None:
        self._check_open()
        if self.bucket.can_join is not False:
            try:
                await self._copy(part)
                return
            except NotImplementedError:
                self.backend.capability = replace(self.backend.capability, can_join=False)
        await self.copy_through(part)

    async def copy_through(self, part: Part) -> None:
        """Read a range of another file, and append it."""
        for start in range(part.start, part.end, PUT_BYTES_MAX):
            end = min(start + PUT_BYTES_MAX, part.end)
            data = await self.backend.read_range(part.path, start, end, part.token)
            if len(data) < end - start:
                raise OSError(errno.EINVAL, f"copying {part.path!r}: the file ends before byte {end}")
            await self.write(data)

    async def _copy(self, part: Part) -> None:
        if self._pieces:
            if self._pieces_bytes < JOIN_PART_BYTES_MIN:
                raise ValueError(
                    f"{self.path!r}: {self._pieces_bytes} bytes are too few before a copied part, because "
                    f"each part but the last needs at least {JOIN_PART_BYTES_MIN} bytes"
                )
            await self._send_parts(self._pieces_bytes)
        await self._send(self._begun().copy(part, *self.split(part.path)))

    async def finish(self) -> None:
        self._check_open()
        size = self._last_bytes = self._pieces_bytes
        if self._parts is None:
            with errors_of("writing", self.path):
                last = self._take(size)
                await self._make(put(self.bucket, self.key, self.path, last, self.over, self.metadata))
        else:
            left = await self._send(self._parts.rest(b"".join(self._take(size))))
            await self._send(self._make(self._parts.complete(left)), "completing the upload of")
        self._is_over = True

    async def abort(self) -> None:
        if self._is_over:
            return
        self._is_over = True
        self._pieces.clear()
        if self._making is not None:  # whoever deletes the file must come after it
            await asyncio.gather(self._making, return_exceptions=True)
        if self._parts is not None:
            with errors_of("aborting the upload of", self.path):
                await self._parts.abort()

    def _check_open(self) -> None:
        if self._is_over:
            raise shared_errors.upload_closed(self.path)

    def _begun(self) -> Parts:
        if self._parts is None:
            self._parts = self.bucket.parts(self.key, self.over, self.metadata)
        return self._parts

    def _take(self, size: int) -> list[bytes]:
        """Take pieces of so many bytes; no piece goes beyond the end of a part."""
        taken = []
        while size > 0:
            taken.append(self._pieces.pop(0))
            size -= len(taken[-1])
            self._pieces_bytes -= len(taken[-1])
        return taken

    async def _send_parts(self, part_bytes: int) -> None:
        while self._pieces:
            await self._send(self._begun().write(b"".join(self._take(min(part_bytes, self._pieces_bytes)))))

    async def _send(self, request: Awaitable[T], verb: str = "uploading a part of") -> T:
        with errors_of(verb, self.path), _errors_over(self.path, self.over):
            return await request

    async def _make(self, request: Coroutine[Any, Any, None]) -> None:
        """Send the request that makes the file. It goes on if the caller is cancelled: it may take effect anyway."""
        self._making = asyncio.ensure_future(request)
        await asyncio.shield(self._making)


async def put(
    bucket: Bucket, key: str, path: str, data: Sequence[Buffer], over: Over | None, metadata: Metadata
) -> None:
    """Write a whole file by a single PUT."""

    async def send(over: Over | None) -> None:
        await bucket.put(key, data, over, metadata)

    with _errors_over(path, over):
        await make_over(bucket, key, over, send)


async def make_over(
    bucket: Bucket, key: str, over: Over | None, send: Callable[[Over | None], Awaitable[None]]
) -> None:
    """Send the request that makes a file, by the condition of `Backend.open_write`.

    Where others may use the name, the request is repeated only if the store put it off: after a lost answer, the first
    try may have taken effect, and the store would refuse the second because of it.
    """
    try:
        await retrying(partial(send, over), unanswered=over is None)
    except Refusal as error:
        if over is not Over.NOTHING or error.status not in UNSUPPORTED_STATUSES:
            raise
        await check_absent(bucket, key)  # this store takes no condition, so look right before
        await retrying(partial(send, Over.ANYTHING), unanswered=False)


async def check_absent(bucket: Bucket, key: str) -> None:
    """Refuse a name that a file has, as a store refuses it that takes conditions."""
    try:
        await retrying(partial(bucket.head, key))
    except Refusal as error:
        if error.status == 404:
            return
        raise
    raise Refusal(412, "PreconditionFailed", "a file has this name")


@contextmanager
def _errors_over(path: str, over: Over | None) -> Iterator[None]:
    """Say what a refusal means for a name that others use as well."""
    try:
        yield
    except Refusal as error:
        if over is not None and error.code == NO_UPLOAD_CODE:
            raise shared_errors.export_ended(path) from error
        if over is not None and is_conflict(error):
            text = f"the store made no new file: another client took the name ({error}): overwrite it or choose another"
            raise FileExistsError(errno.EEXIST, text, path) from error
        raise
