"""The backend for object stores that speak S3: every verb sends as few requests as it can.

The token of an object is its ETag, quotes included, as PutObject, GetObject and listings give it.
`rollingfs.backend.s3.client` says how requests are sent, and which may be sent twice.
"""

from __future__ import annotations

import asyncio
import errno
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import NoReturn

from s3fs import S3FileSystem

from rollingfs.backend import refusals
from rollingfs.backend.contract import Backend, Blob, Buffer, FileInfo, Listing, Over, Page, Part, PendingUpload, Upload
from rollingfs.backend.s3.client import S3Client
from rollingfs.backend.s3.deletes import delete_objects
from rollingfs.backend.s3.errors import CLIENT_ERRORS, code_of, errors_of, status_of
from rollingfs.backend.s3.folders import S3Folders
from rollingfs.backend.s3.objects import Answer
from rollingfs.backend.s3.s3fs_objects import S3fsObjects
from rollingfs.backend.s3.server_copy import copy_object, join_ranges
from rollingfs.backend.s3.upload import (
    CONFLICT_STATUSES,
    JOIN_PART_BYTES_MIN,
    PARTS_MAX,
    UPLOAD_PART_BYTES,
    Multipart,
    Range,
    S3Upload,
    abort_after,
    make_over,
    pending,
)
from rollingfs.backend.values import Metadata
from rollingfs.errors import ConflictError

PUT_OBJECT_BYTES_MAX = UPLOAD_PART_BYTES
"""The largest new file that one PutObject writes."""
ARN = "arn:"
"""With this begin the names of access points."""


class S3Backend(Backend):
    """Files on an object store.

    Parameters
    ----------
    fs : s3fs.S3FileSystem
        A private clone uses its class and all its storage options. It is never changed. The first verb connects.
    max_concurrency : int, optional
        Requests under way at once for one purpose; by default 64 for data, 128 for headers, or one a connection.
    use_obstore : bool, optional
        False to read and write objects through s3fs, which is slower, whatever the options.

    Raises
    ------
    ValueError
        The user's `config_kwargs` allow fewer connections than `max_concurrency`.
    """

    is_async = True
    can_copy = True
    can_join = True
    can_delete_if = True
    can_list_uploads = True
    has_metadata = True
    has_clock = True
    has_folders = False
    join_part_bytes_min = JOIN_PART_BYTES_MIN
    date_step_s = 1.0  # an ETag is a hash of the bytes, and dates are whole seconds

    def __init__(self, fs: S3FileSystem, max_concurrency: int | None = None, *, use_obstore: bool = True) -> None:
        self._client = S3Client(fs, max_concurrency, use_obstore)
        self._folders = S3Folders(self._client)
        self.requests_max = self._client.requests_max
        self.small_requests_max = self._client.small_requests_max

    @property
    def fs(self) -> S3FileSystem:
        """The private clone that sends the requests."""
        return self._client.fs

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop on which verbs must run; None for the caller's own loop (``asynchronous=True``)."""
        loop: asyncio.AbstractEventLoop | None = self._client.fs.loop
        return loop

    async def close(self) -> None:
        """Close the connections; a later verb opens new ones. Only ``asynchronous=True`` needs it."""
        await self._client.close()

    def after_fork(self) -> None:
        """Take a new clone, with its own connections and loop."""
        self._client.after_fork()

    # -- reading -------------------------------------------------------------------------------------------

    async def read(self, path: str) -> Blob:
        """One GetObject."""
        with errors_of("reading", path):
            return _blob(await self._client.get(*self._place(path)))

    async def read_if_changed(self, path: str, token: str) -> Blob | None:
        """One GetObject with If-None-Match."""
        with errors_of("reading", path):
            try:
                return _blob(await self._client.get(*self._place(path), unless_match=token))
            except CLIENT_ERRORS as error:
                if status_of(error) == 304:
                    return None
                raise

    async def read_range(self, path: str, start: int, end: int, token: str | None = None) -> Buffer:
        """One GetObject with Range, and If-Match with a token."""
        return await self._range(path, start, end, token)

    async def read_into(self, path: str, start: int, target: memoryview, token: str | None = None) -> int:
        """One GetObject with Range, and If-Match with a token."""
        data = await self._range(path, start, start + len(target), token)
        target[: len(data)] = data
        return len(data)

    async def _range(self, path: str, start: int, end: int, token: str | None) -> Buffer:
        with errors_of("reading", path), _only_of(path, token):
            try:
                answer = await self._client.get(*self._place(path), (start, end), if_match=token or "")
            except CLIENT_ERRORS as error:
                if status_of(error) == 416:  # the file ends before `start`
                    return b""
                raise
        if token is not None:  # the store may not know the condition
            refusals.check_token(path, answer.token, token)
        return answer.data

    async def stat(self, path: str) -> FileInfo:
        """One HeadObject."""
        with errors_of("looking up", path):
            answer = await self._client.repeatable("head_object", **self._object(path))
        return FileInfo(path, answer["ContentLength"], answer["LastModified"].timestamp(), answer["ETag"])

    async def metadata(self, path: str) -> Mapping[str, str]:
        """One HeadObject."""
        with errors_of("looking up", path):
            found: dict[str, str] = (await self._client.repeatable("head_object", **self._object(path)))["Metadata"]
        return found

    async def is_folder(self, path: str) -> bool:
        """One ListObjectsV2 of one key; HeadBucket for a bucket."""
        return not path or await self._folders.is_there(*self._folder(path))

    async def list(self, folder: str) -> Listing:
        """One ListObjectsV2 for each page; ListBuckets at the top."""
        if not folder:
            return await self._folders.buckets()
        return await self._folders.list(*self._folder(folder)) or await self._no_folder(folder)

    async def list_page(self, folder: str, place: str | None = None) -> Page:
        """One ListObjectsV2, the first with few keys; ListBuckets at the top."""
        if not folder:
            return Page((await self._folders.buckets()).entries, None)
        page = await self._folders.list_page(*self._folder(folder), place)
        if page is not None:
            return page
        raise refusals.no_folder(folder)  # or a file has the name: no caller of this verb needs to know

    async def list_prefix(self, folder: str, prefix: str) -> Listing:
        """One ListObjectsV2."""
        return await self._folders.list_prefix(*self._folder(folder), prefix)

    async def _no_folder(self, path: str) -> NoReturn:
        await self.stat(path)  # raises FileNotFoundError if there is no file either
        raise refusals.not_a_folder(path)

    async def keeps_versions(self, path: str) -> bool | None:
        """One GetBucketVersioning."""
        return await self._folders.keeps_versions(self._split(path)[0])

    async def now(self, path: str) -> float:
        """One HeadBucket, or ListBuckets at the top. Even a refusal has a date."""
        return await self._folders.now(self._split(path)[0])

    # -- conditional writes --------------------------------------------------------------------------------

    async def create(self, path: str, data: Buffer) -> str:
        """One PutObject with If-None-Match, sent once."""
        with errors_of("creating", path):
            try:
                return await self._client.put(*self._place(path), [data], Over.NOTHING)
            except CLIENT_ERRORS as error:
                if status_of(error) in CONFLICT_STATUSES:
                    raise refusals.name_taken(path) from error
                raise

    async def replace(self, path: str, data: Buffer, token: str) -> str:
        """One PutObject with If-Match, sent once."""
        with errors_of("replacing", path):
            try:
                return await self._client.put(*self._place(path), [data], token)
            except CLIENT_ERRORS as error:
                if status_of(error) in CONFLICT_STATUSES:
                    raise ConflictError(f"{path!r} no longer has token {token}: somebody replaced it") from error
                if status_of(error) == 404 and code_of(error) != "NoSuchBucket":
                    raise refusals.changed(path, token, None) from error
                raise

    async def delete_if(self, path: str, token: str) -> bool:
        """One DeleteObject with If-Match; a HeadObject if that is refused.

        Some stores (MinIO) ignore the condition: the probe finds out.
        """
        call = partial(self._client.call, "delete_object", **self._object(path), IfMatch=token)
        with errors_of("deleting", path):
            try:
                # a store may answer 412 for a file that is gone; after a lost answer, our first try may have deleted it
                await self._client.retrying(call, unanswered=False)
            except CLIENT_ERRORS as error:
                if status_of(error) == 412:
                    return await self._is_gone(path)
                if status_of(error) != 404 or code_of(error) == "NoSuchBucket":
                    raise
        return True

    async def _is_gone(self, path: str) -> bool:
        """Whether no file is at `path`: SeaweedFS refuses any condition on a file that is gone."""
        try:
            await self.stat(path)
        except FileNotFoundError:
            return True
        return False

    # -- new files -----------------------------------------------------------------------------------------

    async def write(self, path: str, data: Sequence[Buffer], metadata: Metadata = None) -> None:
        """One PutObject, or a multipart upload if it is large."""
        size = sum(memoryview(piece).nbytes for piece in data)
        if size <= PUT_OBJECT_BYTES_MAX:
            await self._put(path, data, None, metadata)
            return
        upload = self._upload(path, max(UPLOAD_PART_BYTES, -(-size // PARTS_MAX)), None, metadata)
        try:
            for piece in data:
                await upload.write(piece)
            await upload.finish()
        except BaseException as error:
            await abort_after(upload.abort, error)
            raise

    async def open_write(self, path: str, over: Over | None = None, metadata: Metadata = None) -> Upload:
        """A multipart upload that begins with the second part."""
        return self._upload(path, UPLOAD_PART_BYTES, over, metadata)

    def _upload(self, path: str, part_bytes: int, over: Over | None, metadata: Metadata) -> S3Upload:
        put = partial(self._put, path, over=over, metadata=metadata)
        multipart, at_once = self._multipart(path, metadata), self.requests_max
        return S3Upload(multipart, put, self._copy_range, part_bytes, copies_in_flight_max=at_once, over=over)

    async def _copy_range(self, multipart: Multipart, part: Part, number: int) -> None:
        with errors_of("copying", part.path), _only_of(part.path, part.token):
            await multipart.copy(number, self._range_of(part), part.token)

    def _multipart(self, path: str, metadata: Metadata = None) -> Multipart:
        target = self._object(path)
        return Multipart(self._client, path, target["Bucket"], target["Key"], metadata=metadata)

    async def _put(self, path: str, data: Sequence[Buffer], over: Over | None, metadata: Metadata) -> None:
        with errors_of("writing", path):
            put = partial(self._client.put, *self._place(path), data, metadata=metadata)
            if over is not None:
                await make_over(self._client, put, path, self._object(path), over)
                return
            await self._client.retrying(put)

    async def copy(self, source: str, target: str, token: str | None = None) -> None:
        """One CopyObject, or a multipart copy beyond 5 GiB."""
        with errors_of("copying", source):
            try:
                locations = self._object(source), self._object(target)
                await copy_object(self._client, *locations, self._multipart(target), token)
            except CLIENT_ERRORS as error:
                if status_of(error) in CONFLICT_STATUSES:
                    raise ConflictError(f"{source!r} no longer has token {token}, so it was not copied") from error
                raise

    async def join(self, parts: Sequence[Part], target: str) -> None:
        """A multipart upload whose parts are ranges of other objects.

        Raises
        ------
        ValueError
            There is no part, a part is empty, or a part before the last is shorter than `join_part_bytes_min`.
        """
        sizes = [part.end - part.start for part in parts]
        if not sizes or min(sizes) <= 0 or min(sizes[:-1], default=JOIN_PART_BYTES_MIN) < JOIN_PART_BYTES_MIN:
            raise ValueError(
                f"{target!r}: parts of {sizes} bytes cannot be joined, because all but the last need at least "
                f"{JOIN_PART_BYTES_MIN} bytes; nothing was written"
            )
        ranges = [self._range_of(part) for part in parts]
        with errors_of("joining parts to", target):
            await join_ranges(ranges, self._multipart(target), self.requests_max)

    # -- removing and folders ------------------------------------------------------------------------------

    async def delete(self, paths: Sequence[str]) -> None:
        """DeleteObjects, with up to 1000 keys in a request."""
        await delete_objects(self._client, map(self._object, paths))

    async def list_uploads(self, folder: str, name: str | None = None) -> Sequence[PendingUpload]:
        """One ListMultipartUploads for each page.

        MinIO lists only the uploads of one exact key, so none without `name`. It forgets uploads after 24 hours.
        """
        bucket, prefix = self._folder(folder)
        with errors_of("listing unfinished uploads in", folder):
            return await pending(self._client, bucket, prefix, name or "")

    async def abort_upload(self, upload: PendingUpload) -> None:
        """One AbortMultipartUpload."""
        target = self._object(upload.path)
        with errors_of("aborting the upload of", upload.path):
            await Multipart(self._client, upload.path, target["Bucket"], target["Key"], upload.id).abort()

    async def make_folder(self, path: str) -> None:
        """HeadBucket, and CreateBucket if the bucket is missing."""
        await self._folders.make_bucket(self._split(path)[0])

    async def remove_folder(self, path: str) -> None:
        """DeleteBucket for a bucket; for a prefix, delete the marker object that some tools leave there."""
        await self._folders.remove(*self._folder(path))

    # -- names ---------------------------------------------------------------------------------------------

    def strip(self, path: str) -> str:
        """``s3://bucket/key``, ``s3a://bucket/key`` and ``/bucket/key`` are ``bucket/key``."""
        stripped: str = self.fs._strip_protocol(path)
        return stripped.lstrip("/")  # no bucket's name is empty

    def unstrip(self, path: str) -> str:
        """``bucket/key`` is ``s3://bucket/key``."""
        url: str = self.fs.unstrip_protocol(path)
        return url

    def root(self, path: str) -> str:
        """The bucket."""
        return self._split(path)[0]

    async def store_name(self, path: str) -> str:
        """The endpoint as botocore finds it, the bucket, and the way of its objects: obstore or s3fs."""
        bucket = self._split(path)[0]
        with errors_of("connecting to the store of", path):
            resolved, _ = await self._client.resolved(bucket)
            way = " through s3fs" if isinstance(await self._client.routes.to(bucket), S3fsObjects) else ""
        endpoint_url = re.sub(r"//[^/]*@", "//", resolved.endpoint_url)  # a name is written to files: no password
        return f"{endpoint_url}/{bucket}{way}"

    def _split(self, path: str) -> tuple[str, str]:
        bucket: str
        key: str
        if not path.startswith(ARN):  # s3fs looks for every kind of access point, which takes its time
            bucket, _, key = path.partition("/")
            return bucket, key
        bucket, key = self.fs._find_bucket_key(path)
        return bucket, key

    def _folder(self, path: str) -> tuple[str, str]:
        """The bucket and the prefix of a folder; one of another tool may end in "/", because its name is empty."""
        bucket, key = self._split(path)
        return bucket, f"{key}/" if key or path == f"{bucket}/" else ""

    def _place(self, path: str) -> tuple[str, str]:
        """The bucket and the key of a file."""
        bucket, key = self._split(path)
        if not key:
            raise FileNotFoundError(errno.ENOENT, "this is a bucket, which is no file", path)
        return bucket, key

    def _object(self, path: str) -> dict[str, str]:
        bucket, key = self._place(path)
        return {"Bucket": bucket, "Key": key}

    def _range_of(self, part: Part) -> Range:
        return Range(self._object(part.path), part.start, part.end)


@contextmanager
def _only_of(path: str, token: str | None) -> Iterator[None]:
    try:
        yield
    except CLIENT_ERRORS as error:
        if token is None or status_of(error) != 412:
            raise
        raise ConflictError(f"{path!r} no longer has token {token}: somebody replaced it") from error


def _blob(answer: Answer) -> Blob:
    return Blob(bytes(answer.data), answer.token, answer.modified)
