"""Uploads to an object store: new objects from bytes, or in parts, of which a part may be a range of another object."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, NamedTuple

from rollingfs.backend import refusals
from rollingfs.backend.contract import ABSENT, Buffer, PendingUpload, Upload, frozen
from rollingfs.backend.s3.body import Pieces
from rollingfs.backend.s3.client import S3Client
from rollingfs.backend.s3.errors import CLIENT_ERRORS, code_of, errors_of, status_of
from rollingfs.errors import ConflictError, UnsafeBackendError

UPLOAD_PART_BYTES = 16 * 2**20
UPLOAD_PARTS_IN_FLIGHT_MAX = 4
"""One upload keeps at most this many parts, and one more, in memory: 80 MiB."""
PARTS_MAX = 10_000
JOIN_PART_BYTES_MIN = 5 * 2**20
UNSUPPORTED_STATUSES = frozenset({405, 501})
REFUSED_STATUSES = frozenset({404, 409, 412})
"""Answers to a condition: 404 if the file or the upload is gone, 409 if another client is changing the file."""


class Range(NamedTuple):
    """A range of an object on the store."""

    source: dict[str, str]
    """Bucket and Key."""
    start: int
    end: int


class Multipart:
    """One multipart upload: its parts in any order, then `complete` or `abort`. An upload with an `id` has begun."""

    def __init__(self, client: S3Client, path: str, bucket: str, key: str, id: str | None = None) -> None:
        self.path = path
        self._client = client
        self._target = {"Bucket": bucket, "Key": key}
        self._id = id
        self._etags: dict[int, str] = {}

    @property
    def begun(self) -> bool:
        """Whether the store knows the upload."""
        return self._id is not None

    async def begin(self) -> None:
        """Ask the store for an upload."""
        answer = await self._client.repeatable("create_multipart_upload", **self._target)
        self._id = answer["UploadId"]

    async def put(self, number: int, data: Sequence[bytes]) -> None:
        """Upload part `number`, from 1."""

        async def once() -> dict[str, Any]:
            return await self._client.call("upload_part", PartNumber=number, Body=Pieces(data), **self._of_upload())

        answer = await self._client.retrying(once)
        self._etags[number] = answer["ETag"]

    async def copy(self, number: int, part: Range, token: str | None = None) -> None:
        """Fill part `number` with a range of another object, if that object has `token`."""
        condition = {} if token is None else {"CopySourceIfMatch": token}
        answer = await self._client.repeatable(
            "upload_part_copy",
            PartNumber=number,
            CopySource=part.source,
            CopySourceRange=f"bytes={part.start}-{part.end - 1}",
            **condition,
            **self._of_upload(),
        )
        self._etags[number] = answer["CopyPartResult"]["ETag"]

    async def complete(self, over: str | None = None) -> str | None:
        """Make the object of its parts; with `over`, on that condition, and return the token."""
        parts = [{"PartNumber": number, "ETag": self._etags[number]} for number in sorted(self._etags)]
        if over is not None:
            send = partial(self._client.call, "complete_multipart_upload", MultipartUpload={"Parts": parts})
            return await _conditional(self._client, partial(send, **self._of_upload()), self.path, over)
        try:
            await self._client.repeatable(
                "complete_multipart_upload", MultipartUpload={"Parts": parts}, **self._of_upload()
            )
        except CLIENT_ERRORS as error:
            # an earlier try succeeded and its answer was lost, if the object exists: nobody else uses its name
            if code_of(error) != "NoSuchUpload":
                raise
            await self._client.repeatable("head_object", **self._target)
        return None

    async def abort(self) -> None:
        """Make the store forget the parts; an upload that it does not know is no error."""
        if self._id is None:
            return
        try:
            await self._client.repeatable("abort_multipart_upload", **self._of_upload())
        except CLIENT_ERRORS as error:
            if code_of(error) != "NoSuchUpload":
                raise
        self._id = None

    def _of_upload(self) -> dict[str, Any]:
        assert self._id is not None, f"no upload of {self.path!r} has begun"
        return {**self._target, "UploadId": self._id}


async def pending(client: S3Client, bucket: str, prefix: str) -> list[PendingUpload]:
    """The unfinished uploads of objects directly below a prefix; none if the store cannot list them."""
    found: list[PendingUpload] = []
    arguments: dict[str, Any] = {"Bucket": bucket, "Prefix": prefix, "Delimiter": "/"}
    while True:
        try:
            page = await client.repeatable("list_multipart_uploads", **arguments)
        except CLIENT_ERRORS as error:
            if status_of(error) in UNSUPPORTED_STATUSES:
                return []
            raise
        for upload in page.get("Uploads", []):
            if "/" in upload["Key"].removeprefix(prefix):
                continue  # moto does not know the delimiter
            began = upload["Initiated"].timestamp()
            found.append(PendingUpload(f"{bucket}/{upload['Key']}", began, upload["UploadId"]))
        if not page.get("IsTruncated"):
            return found
        arguments |= {"KeyMarker": page["NextKeyMarker"], "UploadIdMarker": page["NextUploadIdMarker"]}


async def put_over(client: S3Client, path: str, target: dict[str, str], over: str, data: bytes) -> str:
    """Send one PutObject on the condition `over` of `Backend.join`; return the token."""
    return await _conditional(client, partial(client.call, "put_object", **target, Body=data), path, over)


async def _conditional(client: S3Client, send: Callable[..., Awaitable[dict[str, Any]]], path: str, over: str) -> str:
    """Send the request that makes an object over nothing, or over the object with the token `over`.

    The request is repeated only if the store put it off. After a lost answer, the first try may have taken effect, and
    the store would refuse the second because of it.
    """
    condition = {"IfNoneMatch": "*"} if over == ABSENT else {"IfMatch": over}
    try:
        answer = await client.retrying(partial(send, **condition), unanswered=False)
    except CLIENT_ERRORS as error:
        if status_of(error) in UNSUPPORTED_STATUSES:
            raise UnsafeBackendError(
                f"the store does not take the condition {condition} for {path!r}: {error}; nothing was written, "
                "because a file that another program writes there at the same moment would be lost"
            ) from error
        if status_of(error) not in REFUSED_STATUSES or code_of(error) == "NoSuchBucket":
            raise
        if over == ABSENT:
            raise FileExistsError(
                errno.EEXIST, f"the store made no new file: one exists, or another client changes it ({error})", path
            ) from error
        raise ConflictError(f"{path!r} no longer has token {over}, so it was not replaced: {error}") from error
    token = str(answer["ETag"])
    return token if token.startswith('"') else f'"{token}"'  # only here do some stores leave out the quotes


async def abort_after(abort: Callable[[], Awaitable[None]], error: BaseException) -> None:
    """Abort because of `error`, which the caller raises; if the abort fails too, a note on `error` says so."""
    try:
        await abort()
    except (*CLIENT_ERRORS, OSError) as second:
        error.add_note(f"aborting the multipart upload failed as well, so its parts stay on the store: {second}")


class S3Upload(Upload):
    """A new object: one PutObject if it is small, else a multipart upload, in bounded memory."""

    def __init__(
        self,
        multipart: Multipart,
        put_whole: Callable[[bytes], Coroutine[Any, Any, str | None]],
        part_bytes: int = UPLOAD_PART_BYTES,
        parts_in_flight_max: int = UPLOAD_PARTS_IN_FLIGHT_MAX,
        over: str | None = None,
    ) -> None:
        self._multipart = multipart
        self._put_whole = put_whole
        self._over = over
        self._part_bytes = part_bytes
        self._parts_in_flight_max = parts_in_flight_max
        self._pieces: list[bytes] = []
        self._pieces_bytes = 0
        self._parts = 0
        self._in_flight: set[asyncio.Task[None]] = set()
        self._making: asyncio.Task[str | None] | None = None
        self._closed = False

    async def write(self, data: Buffer) -> None:
        """Append bytes; wait while too many parts are under way.

        Raises
        ------
        OSError
            An earlier part failed, or the object has too many parts (``errno.EFBIG``).
        """
        self._check_open()
        view = memoryview(data).cast("B")
        while len(view):
            piece = view[: self._part_bytes - self._pieces_bytes]
            self._pieces.append(frozen(piece))
            self._pieces_bytes += len(piece)
            view = view[len(piece) :]
            # a full part waits for the next byte: an object of exactly one part is still a single PutObject
            if self._pieces_bytes == self._part_bytes and len(view):
                await self._send_part()

    async def finish(self) -> str | None:
        """Send the rest; the object exists when this returns."""
        self._check_open()
        if not self._multipart.begun:  # at most one part
            token = await self._make(self._put_whole(b"".join(self._take())))
        else:
            await self._send_part()
            await self._wait(0)
            with errors_of("completing the upload", self._multipart.path):
                token = await self._make(self._multipart.complete(self._over))
        self._closed = True
        return token

    async def _make(self, request: Coroutine[Any, Any, str | None]) -> str | None:
        """Send the request that makes the object. It goes on if the caller is cancelled: it may take effect anyway."""
        self._making = asyncio.ensure_future(request)
        return await asyncio.shield(self._making)

    async def abort(self) -> None:
        """Stop the requests under way, and make the store forget the parts."""
        self._closed = True
        self._pieces.clear()
        for task in self._in_flight:
            task.cancel()
        making = [self._making] if self._making is not None else []  # a delete of the object must come after it
        await asyncio.gather(*self._in_flight, *making, return_exceptions=True)  # their errors are why we abort
        self._in_flight.clear()
        with errors_of("aborting the upload", self._multipart.path):
            await self._multipart.abort()

    def _check_open(self) -> None:
        if self._closed:
            raise refusals.upload_closed(self._multipart.path)

    def _take(self) -> list[bytes]:
        pieces, self._pieces, self._pieces_bytes = self._pieces, [], 0
        return pieces

    async def _send_part(self) -> None:
        if self._parts == PARTS_MAX:
            raise OSError(
                errno.EFBIG,
                f"{self._multipart.path!r} needs more than {PARTS_MAX} parts of {self._part_bytes} bytes, so it was "
                "not written: use a smaller max_bytes",
            )
        if not self._multipart.begun:
            with errors_of("beginning an upload", self._multipart.path):
                await self._multipart.begin()
        await self._wait(self._parts_in_flight_max - 1)
        self._parts += 1
        self._in_flight.add(asyncio.ensure_future(self._multipart.put(self._parts, self._take())))

    async def _wait(self, in_flight_max: int) -> None:
        while len(self._in_flight) > in_flight_max:
            done, _ = await asyncio.wait(self._in_flight, return_when=asyncio.FIRST_COMPLETED)
            self._in_flight -= done
            for task in done:
                with errors_of("uploading a part", self._multipart.path):
                    task.result()
