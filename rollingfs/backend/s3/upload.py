"""Uploads to an object store: new objects from bytes, or in parts, of which a part may be a range of another object."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

from rollingfs.backend import refusals
from rollingfs.backend.contract import Buffer, Metadata, Over, Part, PendingUpload, Upload, frozen
from rollingfs.backend.s3.client import S3Client
from rollingfs.backend.s3.errors import CLIENT_ERRORS, code_of, errors_of, status_of

UPLOAD_PART_BYTES = 16 * 2**20
UPLOAD_PARTS_IN_FLIGHT_MAX = 4
"""One upload keeps at most this many parts, and one more, in memory: 80 MiB."""
PARTS_MAX = 10_000
JOIN_PART_BYTES_MIN = 5 * 2**20
UNSUPPORTED_STATUSES = frozenset({405, 501})
CONFLICT_STATUSES = frozenset({409, 412})
"""Answers to a condition: 412 if it does not hold, 409 if another client is changing the file."""
COPY_PART_BYTES_MAX = 2**30
"""A fifth of what S3 takes: a server that sends nothing while it copies must answer within the read timeout."""


class Range(NamedTuple):
    """A range of an object on the store."""

    source: dict[str, str]
    """Bucket and Key."""
    start: int
    end: int


class Multipart:
    """One multipart upload: its parts in any order, then `complete` or `abort`. An upload with an `id` has begun."""

    def __init__(
        self,
        client: S3Client,
        path: str,
        bucket: str,
        key: str,
        id: str | None = None,
        *,
        metadata: Metadata = None,
    ) -> None:
        self.path = path
        self._client = client
        self._target = {"Bucket": bucket, "Key": key}
        self._id = id
        self._etags: dict[int, str] = {}
        self._metadata = {"Metadata": dict(metadata)} if metadata else {}

    @property
    def begun(self) -> bool:
        """Whether the store knows the upload."""
        return self._id is not None

    async def begin(self) -> None:
        """Ask the store for an upload."""
        answer = await self._client.repeatable("create_multipart_upload", **self._target, **self._metadata)
        self._id = answer["UploadId"]

    async def put(self, number: int, data: bytes) -> None:
        """Upload part `number`, from 1."""
        answer = await self._client.repeatable("upload_part", PartNumber=number, Body=data, **self._of_upload())
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

    async def complete(self, over: Over | None = None) -> None:
        """Make the object of its parts; `over` is that of `Backend.open_write`."""
        parts = [{"PartNumber": number, "ETag": self._etags[number]} for number in sorted(self._etags)]
        if over is not None:
            call = partial(self._client.call, "complete_multipart_upload", MultipartUpload={"Parts": parts})

            async def send(over: Over) -> None:
                await call(**self._of_upload(), **({"IfNoneMatch": "*"} if over is Over.NOTHING else {}))

            await make_over(self._client, send, self.path, self._target, over)
            return
        try:
            await self._client.repeatable(
                "complete_multipart_upload", MultipartUpload={"Parts": parts}, **self._of_upload()
            )
        except CLIENT_ERRORS as error:
            # an earlier try succeeded and its answer was lost, if the object exists: nobody else uses its name
            if code_of(error) != "NoSuchUpload":
                raise
            await self._client.repeatable("head_object", **self._target)

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


async def pending(client: S3Client, bucket: str, prefix: str, name: str = "") -> list[PendingUpload]:
    """The unfinished uploads of objects directly below a prefix; none if the store cannot list them.

    With `name`, only the uploads of the object with this name.
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


async def make_over(
    client: S3Client, send: Callable[[Over], Awaitable[object]], path: str, target: dict[str, str], over: Over
) -> None:
    """Send the request that makes an object over nothing, or over any object.

    The request is repeated only if the store put it off. After a lost answer, the first try may have taken effect, and
    the store would refuse the second because of it.
    """
    try:
        try:
            await client.retrying(partial(send, over), unanswered=False)
        except CLIENT_ERRORS as error:
            if over is not Over.NOTHING or status_of(error) not in UNSUPPORTED_STATUSES:
                raise
            # this store takes no condition, so look right before
            await _check_absent(client, path, target)
            await client.retrying(partial(send, Over.ANYTHING), unanswered=False)
    except CLIENT_ERRORS as error:
        if code_of(error) == "NoSuchUpload":
            raise refusals.export_ended(path) from error
        if status_of(error) in CONFLICT_STATUSES:
            text = f"the store made no new file: one exists, or another client changes it ({error})"
            raise FileExistsError(errno.EEXIST, text, path) from error
        raise


async def _check_absent(client: S3Client, path: str, target: dict[str, str]) -> None:
    try:
        await client.repeatable("head_object", **target)
    except CLIENT_ERRORS as error:
        if status_of(error) != 404:
            raise
        return
    raise refusals.name_taken(path)


def copy_bounds(start: int, end: int) -> Iterator[tuple[int, int]]:
    """The bounds of equal pieces of a range, each small enough for one UploadPartCopy."""
    size = end - start
    count = -(-size // COPY_PART_BYTES_MAX)
    return pairwise(start + size * index // count for index in range(count + 1))


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
        put_whole: Callable[[Sequence[bytes]], Coroutine[Any, Any, None]],
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
        self._whole_bytes = 0
        self._making: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def held_bytes(self) -> int:
        return self._pieces_bytes + self._whole_bytes + len(self._in_flight) * self._part_bytes

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

    async def copy(self, part: Part) -> None:
        """Append a range of another object by UploadPartCopy; wait while too many copies are under way."""
        self._check_open()
        if self._pieces:
            if self._pieces_bytes < JOIN_PART_BYTES_MIN:
                raise ValueError(
                    f"{self._multipart.path!r}: {self._pieces_bytes} bytes are too few before a copied part, because "
                    f"each part but the last needs at least {JOIN_PART_BYTES_MIN} bytes"
                )
            await self._send_part()
        for start, end in copy_bounds(part.start, part.end):
            piece = Part(part.path, start, end, part.token)
            await self._send(partial(self._copy_range, self._multipart, piece), self._copies_in_flight_max)

    async def finish(self) -> None:
        """Send the rest; the object exists when this returns."""
        self._check_open()
        if not self._multipart.begun:  # at most one part
            self._whole_bytes = self._pieces_bytes
            await self._make(self._put_whole(self._take()))
            self._whole_bytes = 0
        else:
            if self._pieces:
                await self._send_part()
            await self._wait(0)
            with errors_of("completing the upload", self._multipart.path):
                await self._make(self._multipart.complete(self._over))
        self._closed = True

    async def _make(self, request: Coroutine[Any, Any, None]) -> None:
        """Send the request that makes the object. It goes on if the caller is cancelled: it may take effect anyway."""
        self._making = asyncio.ensure_future(request)
        await asyncio.shield(self._making)

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
        await self._send(self._put, self._parts_in_flight_max)

    def _put(self, number: int) -> Coroutine[Any, Any, None]:
        return self._multipart.put(number, b"".join(self._take()))

    async def _send(self, request: Callable[[int], Coroutine[Any, Any, None]], in_flight_max: int) -> None:
        if self._parts == PARTS_MAX:
            raise OSError(
                errno.EFBIG,
                f"{self._multipart.path!r} needs more than {PARTS_MAX} parts of {self._part_bytes} bytes, so it was "
                "not written: use a smaller max_bytes",
            )
        if not self._multipart.begun:
            with errors_of("beginning an upload", self._multipart.path):
                await self._multipart.begin()
        await self._wait(in_flight_max - 1)
        self._parts += 1
        self._in_flight.add(asyncio.ensure_future(request(self._parts)))

    async def _wait(self, in_flight_max: int) -> None:
        while len(self._in_flight) > in_flight_max:
            done, _ = await asyncio.wait(self._in_flight, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                self._in_flight.discard(task)  # one by one: `abort` retrieves the errors of the others
                try:
                    with errors_of("uploading a part", self._multipart.path):
                        task.result()
                except FileNotFoundError as error:
                    if self._over is not None and code_of(error.__cause__ or error) == "NoSuchUpload":
                        raise refusals.export_ended(self._multipart.path) from error
                    raise
