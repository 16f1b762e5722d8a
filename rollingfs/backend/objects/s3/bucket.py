"""A bucket of S3: files through obstore where it can, everything else request by request through botocore."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, TypeVar

from rollingfs.backend.contract import Buffer, FileInfo, Listing, Metadata, Over, Part, PendingUpload
from rollingfs.backend.contract_values import Capability
from rollingfs.backend.objects.bucket import Answer, Bucket, Condition, Span
from rollingfs.backend.objects.request_errors import (
    ERRORS,
    NO_UPLOAD_CODE,
    TRANSIENT_CODES,
    UNSUPPORTED_STATUSES,
    LastingError,
    NotByObstoreError,
    Refusal,
    date_of,
    is_conflict,
    retrying,
)
from rollingfs.backend.objects.s3.botocore import BotocoreObjects, decoded, found_of
from rollingfs.backend.objects.s3.parts import Call, S3Parts
from rollingfs.format import names
from rollingfs.format.side_files import read_bytes_max
from rollingfs.runtime.concurrency import backoff_s

SETTLE_S_MAX = 1.0
"""Time for which an answer is asked for again. A later misfit was so written."""
AT_REST_S = 0.3
"""A body that did not fit, and is the same for this long, may be replaced."""
DOUBTS_MAX = 1000
"""Bodies that did not fit. The oldest goes."""
_MD5 = re.compile(r'"?[0-9a-f]{32}"?')


class Etags:
    """Kind of the ETags of a bucket: the MD5 of the bodies, as S3's are, or not (as with keys of KMS)."""

    def __init__(self) -> None:
        self._are_md5: bool | None = None
        """None while neither a write nor a read has shown it."""
        self.is_proved = False
        """Whether a write has shown it."""
        self._doubts: dict[str, bytes] = {}
        """Digests of bodies that were believed without a proof, by their tokens."""

    def learn(self, token: str, body: bytes) -> None:
        """Note whether the token of a write is the MD5 of its body."""
        self._are_md5, self.is_proved = _is_md5(token, body), True
        if not self._are_md5:
            self._doubts.clear()

    def fits(self, answer: Answer) -> bool:
        """Return whether a whole body may belong to its token."""
        if (self.is_proved and not self._are_md5) or not _MD5.fullmatch(answer.token):
            return True
        return _is_md5(answer.token, answer.data)

    async def settle(self, answer: Answer, ask: Callable[[], Awaitable[Answer | None]]) -> Answer | None:
        """Ask again until a body fits its token, or stays the same without a write that explains it.

        A bucket without a proof that its ETags are MD5 is asked once more only: most such buckets have keys of KMS.
        An answer that is believed is asked for again before it is replaced.
        """
        began_s = time.monotonic()
        for count in itertools.count():
            if self._are_md5 is False:
                break
            again = await ask()
            if again is None:
                return None
            if self.fits(again):
                return replace(again, was_unfit=True)
            is_same = (again.token, bytes(again.data)) == (answer.token, bytes(answer.data))
            answer = again
            if (is_same and not self.is_proved) or time.monotonic() - began_s > SETTLE_S_MAX:
                self._are_md5 = False
                break
            await asyncio.sleep(backoff_s(count))
        self._doubts[answer.token] = _digest(answer.data)
        if len(self._doubts) > DOUBTS_MAX:
            del self._doubts[next(iter(self._doubts))]
        return answer

    async def may_replace(self, token: str, ask: Callable[[], Awaitable[Answer | None]]) -> bool:
        """Return whether the body that a reader got with a token has it, by looks at a body that did not fit."""
        believed, began_s = self._doubts.pop(token, None), time.monotonic()
        for count in itertools.count():
            if believed is None or time.monotonic() - began_s > AT_REST_S:
                break
            now = await ask()
            if now is None or now.token != token or _digest(now.data) != believed:
                return False
            await asyncio.sleep(backoff_s(count))
        return True


def _is_md5(token: str, body: Buffer) -> bool:
    return token.strip('"') == _digest(body).hex()


def _digest(body: Buffer) -> bytes:
    return hashlib.md5(body, usedforsecurity=False).digest()


T = TypeVar("T")

COPY_OBJECT_BYTES_MAX = 5 * 2**30
"""The largest file that a CopyObject copies."""
ELSEWHERE_CODES = frozenset({"PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"})
ELSEWHERE_STATUSES = frozenset({301, 302, 307})
NO_OTHER_PLACE = "the store says that the listing goes on, but at no other place than before"
READING = ("get_", "head_", "list_")
"""The verbs of botocore whose answer the store has at hand; a copy keeps its caller waiting by an answer that drips."""
REGION_HEADER = "x-amz-bucket-region"


class Account(Protocol):
    """Requests and settings that a bucket needs of its account, an `S3Backend`."""

    capability: Capability

    @property
    def answer_s_max(self) -> float | None:
        """Return the time limit of a read, up to the last byte of its answer."""

    async def call(self, verb: str, **arguments: Any) -> dict[str, Any]:
        """Send one request of botocore, once, with the user's additional arguments."""

    async def objects(self, bucket: str, region: str | None, through_s3fs: BotocoreObjects, why: str) -> Any:
        """Return the way of the files of a bucket: obstore, or `through_s3fs`.

        With a reason `why`, it is surely s3fs.
        """


class S3Bucket(Bucket):
    """The files of a bucket."""

    def __init__(self, account: Account, name: str) -> None:
        self.name = name
        self.way: Any = None
        """Reader and writer of files, once it is known."""
        self._account = account
        self._through_s3fs = BotocoreObjects(account.call, name)
        self._region: str | None = None
        self._etags = Etags()
        self._is_bare: bool | None = None
        """Whether the store compares ETags without quotes, as Ceph RGW 18.2 does; None: no replace has shown it."""

    @property
    def _call(self) -> Call:
        return self._account.call

    # -- files ---------------------------------------------------------------------------------------------

    async def get(self, key: str, span: Span = None, *, if_token: str = "", unless_token: str = "") -> Answer | None:
        ask = partial(self._get, key, span, if_token=if_token, unless_token=unless_token)
        answer = await ask()
        if answer is None or span is not None:
            return answer
        # only files that are replaced have a limit; a body that reaches it may have been cut there
        limit = read_bytes_max(key)
        if limit is None or len(answer.data) >= limit or self._etags.fits(answer):
            return answer
        return await self._etags.settle(answer, ask)

    async def _get(self, key: str, span: Span = None, **tokens: str) -> Answer | None:
        async with asyncio.timeout(self._account.answer_s_max):
            return await self._by_way(lambda way: way.get(key, span, **tokens))

    async def put(self, key: str, data: Sequence[Buffer], over: Condition = None, metadata: Metadata = None) -> str:
        if isinstance(over, str) and not await self._etags.may_replace(over, partial(self._get, key)):
            raise Refusal(412, "PreconditionFailed", "the store had given other bytes with this ETag")

        async def send(over: Condition) -> str:
            return await self._by_way(lambda way: way.put(key, data, over, metadata))

        token = await (self._replace(key, over, send) if isinstance(over, str) else send(over))
        if over is not None and not self._etags.is_proved:
            self._etags.learn(token, b"".join(data))
        return token

    async def _replace(self, key: str, token: str, send: Callable[[Condition], Awaitable[str]]) -> str:
        """Replace a file by its ETag, without quotes if the store refuses the ETag that it gave."""
        bare = token.strip('"')
        sent, other = (bare, token) if self._is_bare else (token, bare)
        try:
            made = await send(sent)
        except ERRORS as error:
            if self._is_bare is False or not is_conflict(error) or (await self.head(key)).token != token:
                raise
            sent, made = other, await send(other)
        self._is_bare = sent == bare
        return made

    async def _by_way(self, request: Callable[[Any], Awaitable[T]]) -> T:
        """Send a request by the way of the files, or by another after a refusal."""
        way = self.way or await self.find_way()
        try:
            return await request(way)
        except ERRORS as error:
            way = await self._other_way(way, error)
        try:
            return await request(way)
        except NotByObstoreError:
            return await request(self._through_s3fs)

    async def find_way(self, why: str = "") -> Any:
        """Return the way of the files; with a reason `why`, through s3fs."""
        made = await self._account.objects(self.name, self._region, self._through_s3fs, why)
        self.way = self.way or made  # another request may have found it meanwhile
        return self.way

    async def _other_way(self, way: Any, error: Exception) -> Any:
        """Return another way for a request that was refused for its way, without effect; else raise the error.

        obstore cannot do some requests. The way is wrong for all of them if the bucket is in another region, or if
        obstore does not trust the store's certificate.
        s3fs may trust it (a certificate that is its own CA), or has the reason.
        """
        if isinstance(error, NotByObstoreError):
            return self._through_s3fs
        is_untrusted = isinstance(error, LastingError) and error.is_untrusted
        is_elsewhere = isinstance(error, Refusal) and (
            error.code in ELSEWHERE_CODES or error.status in ELSEWHERE_STATUSES
        )
        if way is self._through_s3fs or not (is_untrusted or is_elsewhere):
            raise error
        region = None if is_untrusted else await self._find_region()
        if self.way is not way:  # another request that was refused has found the way
            return self.way or await self.find_way()
        why = f"obstore finds that {error}" if is_untrusted else ""
        if not is_untrusted and region in (None, self._region):
            why = "the store does not say in which region the bucket lies"
        self._region, self.way = region or self._region, None
        return await self.find_way(why)

    async def _find_region(self) -> str | None:
        try:
            answer = await self._ask("head_bucket")
        except Refusal as error:
            return error.headers.get(REGION_HEADER)
        region: str | None = answer["ResponseMetadata"]["HTTPHeaders"].get(REGION_HEADER)
        return region

    async def head(self, key: str) -> FileInfo:
        answer = await self._ask("head_object", Key=key)
        return found_of({**answer, "Size": answer["ContentLength"]}, f"{self.name}/{key}")

    async def metadata(self, key: str) -> Mapping[str, str]:
        found: dict[str, str] = (await self._ask("head_object", Key=key))["Metadata"]
        return found

    async def delete_if(self, key: str, token: str) -> None:
        await self._call("delete_object", Bucket=self.name, Key=key, IfMatch=token)

    async def delete(self, keys: Sequence[str]) -> None:
        left = list(keys)

        async def once() -> None:
            orders = {"Objects": [{"Key": key} for key in left], "Quiet": True}
            answer = await self._call("delete_objects", Bucket=self.name, Delete=orders)
            errors = [error for error in answer.get("Errors", []) if error.get("Code") != "NoSuchKey"]
            left[:] = [error["Key"] for error in errors]  # a busy store may delete some files and put off others
            if errors:
                raise self._refused(errors, len(keys))

        await retrying(once)

    def _refused(self, errors: Sequence[dict[str, str]], count: int) -> Refusal:
        """Return the error for a DeleteObjects in part: best a lasting refusal."""
        worst = min(errors, key=lambda error: error.get("Code") in TRANSIENT_CODES)
        code, path = worst.get("Code", ""), names.shown(f"{self.name}/{worst['Key']}")
        text = f"{len(errors)} of {count} files could not be deleted: {code}, {worst.get('Message')}: {path!r}"
        return Refusal(200, code, text)

    async def copy(self, bucket: str, source: str, target: str, token: str | None, metadata: Metadata = None) -> None:
        """Send a CopyObject, or a multipart copy beyond 5 GiB."""
        more: dict[str, Any] = {} if token is None else {"CopySourceIfMatch": token}
        if metadata:
            more |= {"Metadata": dict(metadata), "MetadataDirective": "REPLACE"}
        origin = {"Bucket": bucket, "Key": source}
        try:
            await self._ask("copy_object", Key=target, CopySource=origin, **more)
        except Refusal as error:
            if error.status != 400:
                raise
            size = (await self._repeatable("head_object", **origin))["ContentLength"]
            if size <= COPY_OBJECT_BYTES_MAX:
                raise
            parts = self.parts(target, None, metadata)
            try:
                await parts.copy(Part(f"{bucket}/{source}", 0, size, token), bucket, source)
                await parts.complete(await parts.rest(b""))
            except BaseException:
                await parts.abort()
                raise

    def parts(self, key: str, over: Over | None, metadata: Metadata = None, id: str | None = None) -> S3Parts:
        copies_max = self._account.capability.requests_max
        return S3Parts(self, key, over, metadata, self._call, self._repeatable, copies_max, id)

    # -- folders -------------------------------------------------------------------------------------------

    async def page(self, prefix: str, place: str | None = None, *, keys_max: int | None = None) -> Listing:
        more: dict[str, Any] = {} if place is None else {"ContinuationToken": place}
        if keys_max is not None:
            more["MaxKeys"] = keys_max
        # botocore decodes the keys one by one, unless its caller asks for the encoding; `decoded` takes all at once
        answer = await self._ask("list_objects_v2", Prefix=prefix, Delimiter="/", EncodingType="url", **more)
        files = answer.get("Contents", [])
        try:
            keys = [file["Key"] for file in files]
            folders = [common["Prefix"] for common in answer.get("CommonPrefixes", [])]
            if answer.get("EncodingType") == "url":
                keys, folders = decoded(keys), decoded(folders)
            found = [found_of(file, f"{self.name}/{key}") for file, key in zip(files, keys, strict=True)]
        except KeyError as error:
            raise LastingError(f"the store lists a file or folder without {error}") from error
        now = date_of(answer["ResponseMetadata"]["HTTPHeaders"])
        return Listing((*map(self.folder_of, folders), *found), now, _next_place(answer, place))

    async def has_any(self, prefix: str) -> bool:
        if not prefix:
            await self._ask("head_bucket")
            return True
        return bool((await self._ask("list_objects_v2", Prefix=prefix, MaxKeys=1)).get("Contents"))

    async def now(self) -> float:
        try:
            answer = await (self._ask("head_bucket") if self.name else self._repeatable("list_buckets"))
        except Refusal as error:
            return date_of(error.headers)
        return date_of(answer["ResponseMetadata"]["HTTPHeaders"])

    async def keeps_versions(self) -> bool | None:
        """Return whether versioning is on, or was; None also of a store that does not know the request."""
        try:
            return "Status" in await self._ask("get_bucket_versioning")
        except Refusal as error:
            if error.code == "NoSuchBucket":
                raise
            return None

    # -- unfinished uploads --------------------------------------------------------------------------------

    async def pending(self, prefix: str, name: str) -> Sequence[PendingUpload]:
        """Return the unfinished uploads, if the store lists them."""
        found: list[PendingUpload] = []
        more: dict[str, Any] = {}
        while True:
            try:
                page = await self._ask("list_multipart_uploads", Prefix=prefix + name, Delimiter="/", **more)
            except Refusal as error:
                if error.status in UNSUPPORTED_STATUSES or error.code == NO_UPLOAD_CODE:
                    return []  # rclone and gofakes3 answer so where there is no upload
                raise
            for upload in page.get("Uploads", []):
                rest = upload["Key"].removeprefix(prefix)
                if "/" in rest or rest != (name or rest):
                    continue  # moto does not know the delimiter
                began = upload["Initiated"].timestamp()
                found.append(PendingUpload(f"{self.name}/{upload['Key']}", began, upload["UploadId"]))
            if not page.get("IsTruncated"):
                return found
            last, more = more, {f"{one}Marker": page.get(f"Next{one}Marker", "") for one in ("Key", "UploadId")}
            if more == last:
                raise LastingError(NO_OTHER_PLACE)

    async def forget(self, key: str, id: str) -> None:
        await self.parts(key, None, id=id).abort()

    # -- requests ------------------------------------------------------------------------------------------

    async def _ask(self, verb: str, **arguments: Any) -> dict[str, Any]:
        return await self._repeatable(verb, Bucket=self.name, **arguments)

    async def _repeatable(self, verb: str, **arguments: Any) -> dict[str, Any]:
        """Send a request that may be sent again."""

        async def once() -> dict[str, Any]:
            async with asyncio.timeout(self._account.answer_s_max if verb.startswith(READING) else None):
                return await self._call(verb, **arguments)

        return await retrying(once)


def _next_place(answer: Mapping[str, Any], place: str | None) -> str | None:
    """Return where the next page of a listing begins; None after the last page.

    Raises
    ------
    LastingError
        The store names no other place than before, so the listing would never end.
    """
    if not answer.get("IsTruncated"):
        return None
    found: str = answer.get("NextContinuationToken", "")
    if found in ("", place):
        raise LastingError(NO_OTHER_PLACE)
    return found
