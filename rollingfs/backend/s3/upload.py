"""Multipart uploads to an object store: new objects from bytes or from ranges of other objects."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

from rollingfs.backend.contract import Buffer, Over, Part, PendingUpload, Upload, frozen
from rollingfs.backend.s3.body import Pieces
from rollingfs.backend.s3.client import S3Client, at_once
from rollingfs.backend.s3.errors import CLIENT_ERRORS, as_os_error, code_of, status_of
from rollingfs.errors import ConflictError

UPLOAD_PART_BYTES = 16 * 2**20
UPLOAD_PARTS_IN_FLIGHT_MAX = 4
"""One upload keeps at most this many parts and one more in memory: 80 MiB."""
PARTS_MAX = 10_000
JOIN_PART_BYTES_MIN = 5 * 2**20
UNSUPPORTED_STATUSES = frozenset({405, 501})
CONFLICT_STATUSES = frozenset({409, 412})
"""Answers to a condition: 409 of a file that another is just changing."""
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

    async def put(self, number: int, data: Sequence[bytes]) -> None:
        """Upload part `number`, from 1."""

        async def once() -> dict[str, Any]:
            return await self._client.call("upload_part", PartNumber=number, Body=Pieces(data), **self._of_upload())

        answer = await self._client.retrying(once)
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

    async def complete(self, over: Over | None = None) -> None:
        """Make the object of the parts, over what `Backend.open_write` explains."""
        parts = [{"PartNumber": number, "ETag": self._etags[number]} for number in sorted(self._etags)]
        if over is not None:
            send = partial(self._client.call, "complete_multipart_upload", MultipartUpload={"Parts": parts})
            await _make_over(self._client, partial(send, **self._of_upload()), self.path, self._target, over)
            return
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


async def pending(client: S3Client, bucket: str, prefix: str, name: str = "") -> list[PendingUpload]:
    """The unfinished uploads of objects directly below a prefix; none from a store that does not list them.

    With `name`, only those of the object of this name.
    """
    found: list[PendingUpload] = []
    arguments: dict[str, Any] = {"Bucket": bucket, "Prefix": prefix + name, "Delimiter": "/"}
    while True:
        try:
            page = await client.repeatable("list_multipart_uploads", **arguments)
        except CLIENT_ERRORS as error:
            if status_of(error) in UNSUPPORTED_STATUSES:
                return []
            raise
        for upload in page.get("Uploads", []):
            rest = upload["Key"].removeprefix(prefix)
            if "/" in rest or rest != (name or rest):
                continue  # moto does not know the delimiter
            began = upload["Initiated"].timestamp()
            found.append(PendingUpload(f"{bucket}/{upload['Key']}", began, upload["UploadId"]))
        if not page.get("IsTruncated"):
            return found
        arguments |= {"KeyMarker": page["NextKeyMarker"], "UploadIdMarker": page["NextUploadIdMarker"]}


async def put_over(client: S3Client, path: str, target: dict[str, str], over: Over, data: bytes) -> None:
    """One PutObject, over what `Backend.open_write` explains."""
    await _make_over(client, partial(client.call, "put_object", **target, Body=data), path, target, over)


async def _make_over(
    client: S3Client, send: Callable[..., Awaitable[Any]], path: str, target: dict[str, str], over: Over
) -> None:
    """Send what makes an object.

    Sent again only where the store put it off: after an answer that was lost, a refusal could be one's own doing.
    """
    condition = {"IfNoneMatch": "*"} if over is Over.NOTHING else {}
    try:
        try:
            await client.retrying(partial(send, **condition), unanswered=False)
        except CLIENT_ERRORS as error:
            if not condition or status_of(error) not in UNSUPPORTED_STATUSES:
                raise
            # this store takes no condition, so a look right before has to do
            await _check_absent(client, path, target)
            await client.retrying(send, unanswered=False)
    except CLIENT_ERRORS as error:
        if code_of(error) == "NoSuchUpload":
            raise ConflictError(f"{path}: somebody aborted the upload; nothing was written: {error}") from error
        if status_of(error) in CONFLICT_STATUSES:
            text = f"there is a file, or another changes it, so none was made ({error})"
            raise FileExistsError(errno.EEXIST, text, path) from error
        raise


async def _check_absent(client: S3Client, path: str, target: dict[str, str]) -> None:
    try:
        await client.repeatable("head_object", **target)
    except CLIENT_ERRORS as error:
        if status_of(error) != 404:
            raise
        return
    raise FileExistsError(errno.EEXIST, "there is a file, so none was made", path)


def ranges_of(part: Part) -> list[Part]:
    """A range in equal pieces that one UploadPartCopy takes each."""
    size = part.end - part.start
    count = -(-size // COPY_PART_BYTES_MAX)
    bounds = [part.start + size * index // count for index in range(count + 1)]
    return [Part(part.path, start, end, part.token) for start, end in pairwise(bounds)]


async def join(multipart: Multipart, copies: Sequence[Callable[[int], Awaitable[None]]], requests_max: int) -> None:
    """Copy parts, several at a time, and complete the upload; if anything fails, abort it."""
    await multipart.begin()
    try:
        await at_once([partial(copy, number) for number, copy in enumerate(copies, 1)], requests_max)
        await multipart.complete()
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
        put_whole: Callable[[bytes], Coroutine[Any, Any, None]],
        copy_range: Callable[[Multipart, Part, int], Coroutine[Any, Any, None]],
        part_bytes: int = UPLOAD_PART_BYTES,
        parts_in_flight_max: int = UPLOAD_PARTS_IN_FLIGHT_MAX,
        copies_in_flight_max: int = UPLOAD_PARTS_IN_FLIGHT_MAX,
        over: Over | None = None,
    ) -> None:
        self._multipart = multipart
        self._put_whole = put_whole
        self._copy_range = copy_range
        self._copies_in_flight_max = copies_in_flight_max
        self._over = over
        self._part_bytes = part_bytes
        self._parts_in_flight_max = parts_in_flight_max
        self._pieces: list[bytes] = []
        self._pieces_bytes = 0
        self._parts = 0
        self._in_flight: set[asyncio.Task[None]] = set()
        self._making: asyncio.Task[None] | None = None
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

    async def copy(self, part: Part) -> None:
        """Append a range of another object, by UploadPartCopy; waits while enough copies are on their way."""
        self._check_open()
        if self._pieces:
            if self._pieces_bytes < JOIN_PART_BYTES_MIN:
                raise ValueError(f"{self._pieces_bytes} bytes are too few for a part: it needs {JOIN_PART_BYTES_MIN}")
            await self._send_part()
        for piece in ranges_of(part):
            await self._send(partial(self._copy_range, self._multipart, piece), self._copies_in_flight_max)

    async def finish(self) -> None:
        """Send the rest; the object is there when this returns."""
        self._check_open()
        if not self._multipart.begun:  # at most one part
            await self._make(self._put_whole(b"".join(self._take())))
        else:
            if self._pieces:
                await self._send_part()
            await self._wait(0)
            try:
                await self._make(self._multipart.complete(self._over))
            except CLIENT_ERRORS as error:
                raise as_os_error(error, "completing the upload", self._multipart.path) from error
        self._closed = True

    async def _make(self, request: Coroutine[Any, Any, None]) -> None:
        """Send the request that makes the object. If we are cancelled it goes on: it may take effect all the same."""
        self._making = asyncio.ensure_future(request)
        await asyncio.shield(self._making)

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
        await self._send(self._put, self._parts_in_flight_max)

    def _put(self, number: int) -> Coroutine[Any, Any, None]:
        return self._multipart.put(number, self._take())

    async def _send(self, request: Callable[[int], Coroutine[Any, Any, None]], in_flight_max: int) -> None:
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
        await self._wait(in_flight_max - 1)
        self._parts += 1
        self._in_flight.add(asyncio.ensure_future(request(self._parts)))

    async def _wait(self, in_flight_max: int) -> None:
        while len(self._in_flight) > in_flight_max:
            done, _ = await asyncio.wait(self._in_flight, return_when=asyncio.FIRST_COMPLETED)
            self._in_flight -= done
            for task in done:
                try:
                    task.result()
                except CLIENT_ERRORS as error:
                    raise as_os_error(error, "uploading a part", self._multipart.path) from error
