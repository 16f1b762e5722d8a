"""The folders of an object store: buckets, and prefixes of keys."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rollingfs.backend import refusals
from rollingfs.backend.contract import FileInfo, Listing, Page
from rollingfs.backend.s3.client import S3Client, date_of
from rollingfs.backend.s3.errors import CLIENT_ERRORS, code_of, errors_of, status_of

FIRST_PAGE_KEYS_MAX = 16
"""The first page of a folder shows this many keys: enough for callers that ask whether anything is in it."""
REGIONS_UNNAMED = (None, "us-east-1", "aws-global")
"""Regions that CreateBucket must not name."""


class S3Folders:
    """Looks at folders and changes them. A bucket and a prefix of keys name a folder; the prefix "" names the bucket.

    Parameters
    ----------
    client
        Sends the requests.
    """

    def __init__(self, client: S3Client) -> None:
        self._client = client

    async def is_there(self, bucket: str, prefix: str) -> bool:
        """Whether the bucket exists, or anything under the prefix."""
        with errors_of("looking up", _path(bucket, prefix)):
            try:
                if not prefix:
                    await self._client.repeatable("head_bucket", Bucket=bucket)
                    return True
                answer = await self._client.repeatable("list_objects_v2", Bucket=bucket, Prefix=prefix, MaxKeys=1)
            except CLIENT_ERRORS as error:
                if status_of(error) == 404:
                    return False
                raise
        return bool(answer.get("Contents"))

    async def list(self, bucket: str, prefix: str) -> Listing | None:
        """All pages of a folder; None if nothing is under the prefix."""
        entries: list[FileInfo] = []
        found = not prefix  # a bucket without objects is a folder; a prefix without objects is nothing
        place: str | None = None
        while True:
            answer = await self._answer(bucket, prefix, place)
            found = found or _has_any(answer)
            entries += _entries(bucket, prefix, answer)
            place = _next_place(answer)
            if place is None:
                break
        return Listing(tuple(sorted(entries, key=lambda entry: entry.path)), date_of(answer)) if found else None

    async def list_page(self, bucket: str, prefix: str, place: str | None) -> Page | None:
        """One page of a folder; None if nothing is under the prefix."""
        answer = await self._answer(bucket, prefix, place, **({} if place else {"MaxKeys": FIRST_PAGE_KEYS_MAX}))
        if prefix and place is None and not _has_any(answer):
            return None
        entries = sorted(_entries(bucket, prefix, answer), key=lambda entry: entry.path)
        return Page(tuple(entries), _next_place(answer))

    async def list_prefix(self, bucket: str, prefix: str, begin: str) -> Listing:
        """One page of the files in a folder whose names begin so and go on."""
        with errors_of("listing", _path(bucket, prefix)):
            found = await self._client.list_prefix(bucket, prefix, begin)
        entries = [FileInfo(f"{bucket}/{file.key}", file.size, file.modified, file.token) for file in found]
        return Listing(tuple(sorted(entries, key=lambda entry: entry.path)))

    async def _answer(self, bucket: str, prefix: str, place: str | None, **more: int) -> dict[str, Any]:
        token = {} if place is None else {"ContinuationToken": place}
        with errors_of("listing", _path(bucket, prefix)):
            return await self._client.repeatable(
                "list_objects_v2", Bucket=bucket, Prefix=prefix, Delimiter="/", **token, **more
            )

    async def now(self, bucket: str) -> float:
        """The store's clock, by the date of an answer, be it a refusal; the bucket "" is the top."""
        with errors_of("asking the time of", bucket or "the store"):
            try:
                if bucket:
                    answer = await self._client.repeatable("head_bucket", Bucket=bucket)
                else:
                    answer = await self._client.repeatable("list_buckets")
            except CLIENT_ERRORS as error:
                if not status_of(error):
                    raise
                answer = error.response  # type: ignore[union-attr]  # a status means a ClientError
        return date_of(answer)

    async def keeps_versions(self, bucket: str) -> bool | None:
        """Whether former versions of objects may be kept: versioning is on, or was; None if the store does not say."""
        with errors_of("asking for the versioning of", bucket):
            try:
                answer = await self._client.repeatable("get_bucket_versioning", Bucket=bucket)
            except CLIENT_ERRORS as error:
                if not status_of(error) or code_of(error) == "NoSuchBucket":
                    raise
                return None  # a refusal, or a store that does not know the request
        return "Status" in answer

    async def buckets(self) -> Listing:
        """The buckets that these credentials own."""
        with errors_of("listing", "the buckets"):
            answer = await self._client.repeatable("list_buckets")
        names = sorted(bucket["Name"] for bucket in answer["Buckets"])
        return Listing(tuple(FileInfo(name, 0, 0.0, is_folder=True) for name in names), date_of(answer))

    async def make_bucket(self, bucket: str) -> None:
        """Make a bucket; an existing bucket is no error."""
        with errors_of("making", bucket):
            try:
                await self._client.repeatable("head_bucket", Bucket=bucket)
            except CLIENT_ERRORS as error:
                if status_of(error) == 403:  # the bucket exists; a later write shows whether it is allowed
                    return
                if status_of(error) != 404:
                    raise
            else:
                return
            region = (await self._client.session()).meta.region_name
            place = {} if region in REGIONS_UNNAMED else {"CreateBucketConfiguration": {"LocationConstraint": region}}
            try:
                await self._client.repeatable("create_bucket", Bucket=bucket, **place)
            except CLIENT_ERRORS as error:
                if code_of(error) != "BucketAlreadyOwnedByYou":  # another process has just made it
                    raise

    async def remove(self, bucket: str, prefix: str) -> None:
        """Remove an empty bucket, or the marker object that some tools leave in an empty folder.

        Raises
        ------
        FileNotFoundError
            Nothing is under the prefix, or there is no such bucket.
        OSError
            The folder is not empty (``errno.ENOTEMPTY``).
        """
        path = _path(bucket, prefix)
        with errors_of("removing", path):
            if not prefix:
                try:
                    await self._client.repeatable("delete_bucket", Bucket=bucket)
                except CLIENT_ERRORS as error:
                    if code_of(error) == "BucketNotEmpty":
                        raise refusals.not_empty(path) from error
                    raise
                return
            answer = await self._client.repeatable("list_objects_v2", Bucket=bucket, Prefix=prefix, MaxKeys=2)
            keys = [entry["Key"] for entry in answer.get("Contents", [])]
            if not keys:
                raise refusals.no_folder(path)
            if keys != [prefix]:
                raise refusals.not_empty(path)
            await self._client.repeatable("delete_object", Bucket=bucket, Key=prefix)


def _path(bucket: str, prefix: str) -> str:
    return f"{bucket}/{prefix}".removesuffix("/")


def _has_any(answer: dict[str, Any]) -> bool:
    return bool(answer.get("Contents") or answer.get("CommonPrefixes"))


def _next_place(answer: dict[str, Any]) -> str | None:
    return str(answer["NextContinuationToken"]) if answer.get("IsTruncated") else None


def _entries(bucket: str, prefix: str, answer: dict[str, Any]) -> Iterator[FileInfo]:
    for entry in answer.get("Contents", []):
        if entry["Key"] != prefix:  # the marker object of the folder itself
            modified = entry["LastModified"].timestamp()
            yield FileInfo(f"{bucket}/{entry['Key']}", entry["Size"], modified, entry["ETag"])
    for common in answer.get("CommonPrefixes", []):
        # of a key with "//", this is a folder whose path ends in a slash: what lies in it can be read and deleted
        yield FileInfo(f"{bucket}/{common['Prefix'][:-1]}", 0, 0.0, is_folder=True)
