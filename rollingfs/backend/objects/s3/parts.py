"""Multipart uploads to S3: parts in any order and several at once; some may be ranges of other files."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

from rollingfs.backend.contract import Metadata, Over, Part
from rollingfs.backend.objects.bucket import Bucket, Parts
from rollingfs.backend.objects.request_errors import (
    ERRORS,
    NO_JOIN_STATUSES,
    NO_UPLOAD_CODE,
    Refusal,
    errors_of,
    retrying,
)
from rollingfs.backend.objects.upload import PART_BYTES, PARTS_IN_FLIGHT_MAX, PARTS_MAX, make_over

COPY_PART_BYTES_MAX = 2**30
"""A fifth of what S3 takes: a server that is silent while it copies must answer within the read timeout."""

Call = Callable[..., Awaitable[dict[str, Any]]]


@dataclass(eq=False, repr=False)
class S3Parts(Parts):
    """A multipart upload."""

    bucket: Bucket
    key: str
    over: Over | None
    metadata: Metadata
    call: Call
    """Sends a request of botocore, once."""
    repeatable: Call
    """Sends a request that may be sent again."""
    copies_max: int
    """The number of copies under way at once."""
    id: str | None = None
    """The store's own name for the upload, once it has begun."""
    _tokens: dict[int, str] = field(default_factory=dict, init=False)
    _count: int = field(default=0, init=False)
    _in_flight: dict[asyncio.Task[None], int] = field(default_factory=dict, init=False)
    _waiting_bytes: int = field(default=0, init=False)

    @property
    def held_bytes(self) -> int:
        return self._waiting_bytes + sum(self._in_flight.values())

    async def write(self, part: bytes) -> None:
        self._waiting_bytes = len(part)
        await self._begin()
        await self._send(partial(self._put, part), PARTS_IN_FLIGHT_MAX)

    async def copy(self, part: Part, bucket: str, key: str) -> None:
        await self._begin()
        for start, end in _bounds(part.start, part.end):
            piece = Part(part.path, start, end, part.token)
            await self._send(partial(self._copy, piece, {"Bucket": bucket, "Key": key}), self.copies_max)
            if not self.bucket.can_join:
                await self._wait(0)

    async def rest(self, last: bytes) -> bytes:
        if last:
            await self.write(last)
        await self._wait(0)
        return b""

    async def complete(self, last: bytes) -> None:
        parts = [{"PartNumber": number, "ETag": self._tokens[number]} for number in sorted(self._tokens)]

        async def send(over: Over | None) -> None:
            condition = {"IfNoneMatch": "*"} if over is Over.NOTHING else {}
            await self.call(
                "complete_multipart_upload", MultipartUpload={"Parts": parts}, **self._of_upload(), **condition
            )

        try:
            await make_over(self.bucket, self.key, self.over, send)
        except Refusal as error:
            # an earlier try succeeded and its answer was lost, if the file exists: nobody else uses its name
            if self.over is not None or error.code != NO_UPLOAD_CODE:
                raise
            await retrying(partial(self.bucket.head, self.key))

    async def abort(self) -> None:
        for task in self._in_flight:
            task.cancel()
        await asyncio.gather(*self._in_flight, return_exceptions=True)  # their errors are why the upload is aborted
        self._in_flight.clear()
        if self.id is None:
            return
        try:
            await self.repeatable("abort_multipart_upload", **self._of_upload())
        except Refusal as error:
            if error.code != NO_UPLOAD_CODE:
                raise
        self.id = None

    async def _begin(self) -> None:
        if self.id is None:
            about = {"Metadata": dict(self.metadata)} if self.metadata else {}
            answer = await self.repeatable("create_multipart_upload", **self._target, **about)
            self.id = answer["UploadId"]

    async def _put(self, part: bytes, number: int) -> None:
        answer = await self.repeatable("upload_part", PartNumber=number, Body=part, **self._of_upload())
        self._tokens[number] = answer["ETag"]

    async def _copy(self, part: Part, source: dict[str, str], number: int) -> None:
        condition = {} if part.token is None else {"CopySourceIfMatch": part.token}
        try:
            answer = await self.repeatable(
                "upload_part_copy",
                PartNumber=number,
                CopySource=source,
                CopySourceRange=f"bytes={part.start}-{part.end - 1}",
                **condition,
                **self._of_upload(),
            )
        except ERRORS as error:
            if isinstance(error, Refusal) and error.code == NO_UPLOAD_CODE:
                raise
            if not self.bucket.can_join and isinstance(error, Refusal) and error.status in NO_JOIN_STATUSES:
                raise self._no_joins(str(error)) from error
            with errors_of("copying", part.path, part.token):
                raise
        if not (copied := answer.get("CopyPartResult")):
            raise self._no_joins("the store took the copy for a part without bytes")
        self.bucket.can_join = True
        self._tokens[number] = copied["ETag"]

    def _no_joins(self, why: str) -> NotImplementedError:
        self.bucket.can_join = False
        return NotImplementedError(why)

    async def _send(self, request: Callable[[int], Coroutine[Any, Any, None]], in_flight_max: int) -> None:
        if self._count == PARTS_MAX:
            raise OSError(
                errno.EFBIG,
                f"{self.bucket.name}/{self.key!r} needs more than {PARTS_MAX} parts of {PART_BYTES} bytes, so it was "
                "not written: use a smaller max_bytes",
            )
        await self._wait(in_flight_max - 1)
        self._count += 1
        self._in_flight[asyncio.ensure_future(request(self._count))] = self._waiting_bytes
        self._waiting_bytes = 0

    async def _wait(self, in_flight_max: int) -> None:
        while len(self._in_flight) > in_flight_max:
            done, _ = await asyncio.wait(self._in_flight, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                del self._in_flight[task]  # one by one: `abort` retrieves the errors of the others
                task.result()

    @property
    def _target(self) -> dict[str, str]:
        return {"Bucket": self.bucket.name, "Key": self.key}

    def _of_upload(self) -> dict[str, Any]:
        assert self.id is not None, f"no upload of {self.key!r} has begun"
        return {**self._target, "UploadId": self.id}


def _bounds(start: int, end: int) -> Iterator[tuple[int, int]]:
    """Return the bounds of equal pieces of a range, each small enough for an UploadPartCopy."""
    size = end - start
    count = -(-size // COPY_PART_BYTES_MAX)
    return pairwise(start + size * index // count for index in range(count + 1))
