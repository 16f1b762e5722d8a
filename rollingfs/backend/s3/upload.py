"""Multipart uploads to an object store: new objects from bytes or from ranges of other objects."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from rollingfs.backend.contract import ABSENT, Buffer, Part, PendingUpload, Upload, frozen
from rollingfs.backend.s3.client import S3Client, at_once
from rollingfs.backend.s3.errors import CLIENT_ERRORS, as_os_error, code_of, status_of
from rollingfs.errors import ConflictError, UnsafeBackendError

UPLOAD_PART_BYTES = 16 * 2**20
UPLOAD_PARTS_IN_FLIGHT_MAX = 4
"""One upload keeps at most this many parts and one more in memory: 80 MiB."""
PARTS_MAX = 10_000
JOIN_PART_BYTES_MIN = 5 * 2**20
UNSUPPORTED_STATUSES = frozenset({405, 501})
REFUSED_STATUSES = frozenset({404, 409, 412})
"""Answers to a condition: 404 of a file or an upload that is gone, 409 of one that another is just changing."""
COPY_PART_BYTES_MAX = 2**30
"""A fifth of what S3 takes: a server that says nothing while it copies must answer within the read timeout."""


class Multipart:
    """One multipart upload: its parts in any order, then `complete` or `abort`; with an `id`, one that has begun."""

    def __init__(self, client: S3Client, path: str, bucket: str, key: str, id: str | None = None) -> None:
        self.path = path
        self._client = client
        self._target = {"Bucket": bucket, "Key": key}
        self._id = id
        self._etags: dict[int, str] = {}

    @property
    def begun(self) -> bool:
        """Whether the store knows of the upload."""
        return self._id is not None

    async def begin(self) -> None:
        """Ask the store for an upload."""
        answer = await self._client.repeatable("create_multipart_upload", **self._target)
        self._id = answer["UploadId"]

    async def put(self, number: int, data: bytes) -> None:
        """Upload part `number`, from 1."""
        answer = await self._client.repeatable("upload_part", PartNumber=number, Body=data, **self._of_upload())
        self._etags[number] = answer["ETag"]

    async def copy(self, number: int, part: Part, source: dict[str, str], token: str | None = None) -> None:
        """Fill part `number` with a range of another object, if that has `token`."""
        condition = {} if token is None else {"CopySourceIfMatch": token}
        span = f"bytes={part.start}-{part.end - 1}"
        answer = await self._client.repeatable(
            "upload_part_copy",
            PartNumber=number,
            CopySource=source,
            CopySourceRange=span,
            **condition,
            **self._of_upload(),
        )
        self._etags[number] = answer["CopyPartResult"]["ETag"]

    async def complete(self, over: str | None = None) -> str | None:
        """Make the object of the parts; with `over`, on that condition, and return its token."""
        parts = [{"PartNumber": number, "ETag": self._etags[number]} for number in sorted(self._etags)]
        if over is not None:
            call = partial(self._client.call, "complete_multipart_upload", MultipartUpload={"Parts": parts})

            async def send(condition: dict[str, str]) -> str:
                return str((await call(**self._of_upload(), **condition))["ETag"])

            return await over_what_is_there(self._client, send, self.path, over)
        try:
            await self._client.repeatable(
                "complete_multipart_upload", MultipartUpload={"Parts": parts}, **self._of_upload()
            )
        except CLIENT_ERRORS as error:
            # No such upload: an earlier try succeeded and its answer was lost, if the object (of a name that
            # nobody else uses) is there.
            if code_of(error) != "NoSuchUpload":
                raise
            await self._client.repeatable("head_object", **self._target)
        return None

    async def abort(self) -> None:
        """Have the store forget the parts; nothing if it does not know the upload."""
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
    """The unfinished uploads of objects directly below a prefix; none from a store that does not list them."""
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


async def over_what_is_there(
    client: S3Client, send: Callable[[dict[str, str]], Awaitable[str]], path: str, over: str
) -> str:
    """Send what makes an object over nothing, or over the one with the token `over`.

    Sent again only where the store put it off: after an answer that was lost, a refusal could be one's own doing.
    """
    condition = {"IfNoneMatch": "*"} if over == ABSENT else {"IfMatch": over}
    try:
        token = await client.retrying(partial(send, condition), unanswered=False)
    except CLIENT_ERRORS as error:
        if status_of(error) in UNSUPPORTED_STATUSES:
            raise UnsafeBackendError(
                f"the store does not take the condition {condition} for {path!r}: {error}. Without it, a file that "
                "another program puts there at the same moment would be lost; nothing was written"
            ) from error
        if status_of(error) not in REFUSED_STATUSES or code_of(error) == "NoSuchBucket":
            raise
        if over == ABSENT:
            raise FileExistsError(
                errno.EEXIST, f"the store made no new file: there is one, or another changes it ({error})", path
            ) from error
        raise ConflictError(f"{path!r} is not {over} any more, so it was not replaced: {error}") from error
    return token if token.startswith('"') else f'"{token}"'  # as some stores give it here, unlike elsewhere


async def join(
    multipart: Multipart,
    copies: Sequence[Callable[[int], Awaitable[None]]],
    requests_max: int,
    over: str | None = None,
) -> str | None:
    """Copy parts, several at a time, and complete the upload, over what may be there; if anything fails, abort it."""
    await multipart.begin()
    try:
        await at_once([partial(copy, number) for number, copy in enumerate(copies, 1)], requests_max)
        return await multipart.complete(over)
    except BaseException as error:
        await abort_after(multipart.abort, error)
        raise


async def abort_after(abort: Callable[[], Awaitable[None]], error: BaseException) -> None:
    """Abort because of `error`, which stays the one that is raised, with a note if aborting fails too."""
    try:
        await abort()
    except (*CLIENT_ERRORS, OSError) as second:
        error.add_note(f"aborting the multipart upload failed as well, its parts stay: {second}")


class S3Upload(Upload):
    """A new object: one PutObject if it is small, else a multipart upload in bounded memory."""

    def __init__(
        self,
        multipart: Multipart,
        put_whole: Callable[[Sequence[bytes]], Coroutine[Any, Any, str | None]],
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
        """Append bytes; waits while enough parts are on their way.

        Raises
        ------
        OSError
            A part that was sent earlier failed, or there are too many (``errno.EFBIG``).
        """
        self._check_open()
        view = memoryview(data).cast("B")
        while len(view):
            piece = view[: self._part_bytes - self._pieces_bytes]
            self._pieces.append(frozen(piece))
            self._pieces_bytes += len(piece)
            view = view[len(piece) :]
            # A full part waits for the next byte: what is exactly one part is still a single PutObject.
            if self._pieces_bytes == self._part_bytes and len(view):
                await self._send_part()

    async def finish(self) -> str | None:
        """Send the rest; the object is there when this returns."""
        self._check_open()
        if not self._multipart.begun:  # at most one part
            token = await self._make(self._put_whole(self._take()))
        else:
            await self._send_part()
            await self._wait(0)
            try:
                token = await self._make(self._multipart.complete(self._over))
            except CLIENT_ERRORS as error:
                raise as_os_error(error, "completing the upload", self._multipart.path) from error
        self._closed = True
        return token

    async def _make(self, request: Coroutine[Any, Any, str | None]) -> str | None:
        """Send the request that makes the object. If we are cancelled it goes on: it may take effect all the same."""
        self._making = asyncio.ensure_future(request)
        return await asyncio.shield(self._making)

    async def abort(self) -> None:
        """Stop what is under way and have the store forget the parts."""
        self._closed = True
        self._pieces.clear()
        for task in self._in_flight:
            task.cancel()
        making = [self._making] if self._making is not None else []  # whoever deletes the object must come after it
        await asyncio.gather(*self._in_flight, *making, return_exceptions=True)  # their errors are why we abort
        self._in_flight.clear()
        try:
            await self._multipart.abort()
        except CLIENT_ERRORS as error:
            raise as_os_error(error, "aborting the upload", self._multipart.path) from error

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError(f"the upload of {self._multipart.path!r} is finished or aborted")

    def _take(self) -> list[bytes]:
        pieces, self._pieces, self._pieces_bytes = self._pieces, [], 0
        return pieces

    async def _send_part(self) -> None:
        if self._parts == PARTS_MAX:
            raise OSError(
                errno.EFBIG,
                f"{self._multipart.path!r} would take more than {PARTS_MAX} parts of {self._part_bytes} bytes: "
                "use a smaller max_bytes",
            )
        if not self._multipart.begun:
            try:
                await self._multipart.begin()
            except CLIENT_ERRORS as error:
                raise as_os_error(error, "beginning an upload", self._multipart.path) from error
        await self._wait(self._parts_in_flight_max - 1)
        self._parts += 1
        self._in_flight.add(asyncio.ensure_future(self._multipart.put(self._parts, b"".join(self._take()))))

    async def _wait(self, in_flight_max: int) -> None:
        while len(self._in_flight) > in_flight_max:
            done, _ = await asyncio.wait(self._in_flight, return_when=asyncio.FIRST_COMPLETED)
            self._in_flight -= done
            for task in done:
                try:
                    task.result()
                except CLIENT_ERRORS as error:
                    raise as_os_error(error, "uploading a part", self._multipart.path) from error
