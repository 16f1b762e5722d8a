"""A bucket of Google's storage. The token of a file is its generation, which every write changes.

Its requests do not go through obstore. obstore 0.12.1 takes a generation as the condition of a put only. Its deletes,
the sources of its copies and the completion of its uploads have no condition, its reads compare an ETag (the MD5 of the
bytes), and its listings have no generation. With `skip_signature` it still asks for a token before each write.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any
from urllib.parse import quote

from rollingfs.backend.contract import Buffer, FileInfo, Listing, Metadata, Over
from rollingfs.backend.objects.bucket import Answer, Bucket, Condition, Parts, Span
from rollingfs.backend.objects.request_errors import Refusal, date_of, retrying, token_of
from rollingfs.format.side_files import read_bytes_max
from rollingfs.runtime.concurrency import gather_limited
from rollingfs.runtime.values import value_class

DELETES_AT_ONCE_MAX = 32
BYTES = "application/octet-stream"
FIELDS = "name,size,updated,generation"
RESUME = frozenset({308})
CANCELLED = frozenset({499, 404, 410})
"""Google's answers to the cancelling of an upload: done, or gone already."""
ANY_REFUSAL = frozenset(range(300, 600))


@value_class
class Reply:
    """An answer of Google's."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def value(self) -> dict[str, Any]:
        """Return the JSON in it."""
        found: dict[str, Any] = json.loads(self.body)
        return found


Send = Callable[..., Awaitable[Reply]]
"""As `GoogleBackend.send`."""


class GoogleBucket(Bucket):
    """The files of one bucket."""

    def __init__(self, send: Send, name: str) -> None:
        self.name = name
        self._send = send
        self._base = f"b/{quote(name, safe='')}/o"

    def _file(self, key: str) -> str:
        return f"{self._base}/{quote(key, safe='')}"

    async def get(self, key: str, span: Span = None, *, if_token: str = "", unless_token: str = "") -> Answer | None:
        headers = {} if span is None else {"Range": f"bytes={span[0]}-{span[1] - 1}"}
        reply = await self._send(
            "GET",
            self._file(key),
            headers=headers,
            accept=frozenset({304}),
            alt="media",
            bytes_max=read_bytes_max(key) if span is None else None,
            # what is not a generation is compared by the caller, who learns first whether there is a file at all
            ifGenerationMatch=if_token if _is_generation(if_token) else None,
            ifGenerationNotMatch=unless_token if _is_generation(unless_token) else None,
        )
        if reply.status == 304:
            return None
        data = memoryview(reply.body)
        if span is not None and reply.status == 200:  # the whole file
            data = data[span[0] : span[1]]
        token = token_of(reply.headers.get("X-Goog-Generation"), "generation")
        return Answer(data, token, date_of(reply.headers, "Last-Modified"))

    async def put(self, key: str, data: Sequence[Buffer], over: Condition = None, metadata: Metadata = None) -> str:
        kind, body = (BYTES, b"".join(data)) if not metadata else _described(metadata, data)
        try:
            reply = await self._send(
                "POST",
                self._base,
                data=body,
                kind=kind,
                uploadType="multipart" if metadata else "media",
                name=key,
                fields=FIELDS,
                ifGenerationMatch=_condition(over),
            )
        except Refusal as error:
            if error.status == 404 and not isinstance(over, str):  # a new file needs no other file
                raise Refusal(404, "NoSuchBucket", error.message) from None
            raise
        return str(reply.value["generation"])

    async def head(self, key: str) -> FileInfo:
        return self._found((await self._send("GET", self._file(key), fields=FIELDS)).value)

    def _found(self, described: dict[str, Any]) -> FileInfo:
        modified = datetime.fromisoformat(described["updated"]).timestamp()
        return FileInfo(f"{self.name}/{described['name']}", int(described["size"]), modified, described["generation"])

    async def metadata(self, key: str) -> Mapping[str, str]:
        described = (await self._send("GET", self._file(key), fields="metadata")).value
        found: dict[str, str] = described.get("metadata", {})
        return found

    async def page(self, prefix: str, place: str | None = None, *, keys_max: int | None = None) -> Listing:
        found = await self._page(prefix, delimiter="/", pageToken=place, maxResults=keys_max)
        entries = (*map(self.folder_of, found.get("prefixes", [])), *map(self._found, found.get("items", [])))
        return Listing(entries, next_place=found.get("nextPageToken") or None)

    async def _page(self, prefix: str, **parameters: Any) -> dict[str, Any]:
        fields = f"prefixes,nextPageToken,items({FIELDS})"
        reply = await self._send("GET", self._base, prefix=prefix or None, fields=fields, **parameters)
        return reply.value

    async def has_any(self, prefix: str) -> bool:
        found = await self._page(prefix, maxResults=1)
        return not prefix or bool(found.get("items"))

    async def delete(self, keys: Sequence[str]) -> None:
        requests = (partial(self._send, "DELETE", self._file(key), accept=frozenset({404})) for key in keys)
        await gather_limited([partial(retrying, request) for request in requests], DELETES_AT_ONCE_MAX)

    async def delete_if(self, key: str, token: str) -> None:
        await self._send("DELETE", self._file(key), ifGenerationMatch=_generation(token))

    async def copy(self, bucket: str, source: str, target: str, token: str | None, metadata: Metadata = None) -> None:
        origin = GoogleBucket(self._send, bucket)
        if token is not None and not _is_generation(token):
            await origin.head(source)  # a missing file is another error
        generation = None if token is None else _generation(token)
        path = f"{origin._file(source)}/rewriteTo/{self._file(target)}"
        more: str | None = None
        while True:  # a large copy takes several requests
            reply = await self._send(
                "POST",
                path,
                data=_about(metadata),
                kind="application/json",
                rewriteToken=more,
                ifSourceGenerationMatch=generation,
            )
            if reply.value.get("done"):
                return
            more = reply.value["rewriteToken"]

    def parts(self, key: str, over: Over | None, metadata: Metadata = None) -> Parts:
        return _ResumableParts(self._send, self._base, key, over, metadata)

    async def now(self) -> float:
        reply = await self._send("GET", f"b/{quote(self.name, safe='')}", accept=ANY_REFUSAL, fields="name")
        return date_of(reply.headers)


class _ResumableParts(Parts):
    """A resumable upload: the file is invisible before the last part is there."""

    def __init__(self, send: Send, base: str, key: str, over: Over | None, metadata: Metadata) -> None:
        self._about = _about(metadata)
        self._send = send
        self._base = base
        self._key = key
        self._over = over
        self._url: str | None = None
        self._sent = 0

    async def write(self, part: bytes) -> None:
        if self._url is None:
            await retrying(self._begin)
        await retrying(lambda: self._send_part(part, "*"))
        self._sent += len(part)

    async def complete(self, last: bytes) -> None:
        assert self._url is not None, "no upload has begun"
        # with a condition, a refusal after a lost answer could be this request's own doing
        total = self._sent + len(last)
        await retrying(lambda: self._send_part(last, str(total)), unanswered=self._over is not Over.NOTHING)
        self._url = None

    async def abort(self) -> None:
        if self._url is not None:
            url, self._url = self._url, None
            await retrying(lambda: self._send("DELETE", url, accept=CANCELLED))

    async def _begin(self) -> None:
        reply = await self._send(
            "POST",
            self._base,
            data=self._about,
            kind="application/json",
            uploadType="resumable",
            name=self._key,
            ifGenerationMatch=_condition(self._over),
        )
        self._url = reply.headers["Location"]

    async def _send_part(self, part: bytes, total: str) -> None:
        assert self._url is not None, "no upload has begun"
        span = f"{self._sent}-{self._sent + len(part) - 1}" if len(part) else "*"
        reply = await self._send(
            "PUT", self._url, data=part, headers={"Content-Range": f"bytes {span}/{total}"}, accept=RESUME
        )
        if total == "*":
            kept = int(reply.headers.get("Range", "bytes=0--1").rpartition("-")[2] or -1) + 1
            if reply.status != 308 or kept != self._sent + len(part):
                raise ConnectionError("the store did not keep the whole part")
        elif reply.status == 308:
            raise ConnectionError("the store has not all parts of the file")


def _about(metadata: Metadata) -> bytes:
    """Return the description of a new file for Google."""
    return json.dumps({"metadata": dict(metadata)} if metadata else {}).encode()


def _described(metadata: Mapping[str, str], data: Sequence[Buffer]) -> tuple[str, bytes]:
    """Return kind and body of a request with metadata and bytes (RFC 2387)."""
    boundary = uuid.uuid4().hex  # 122 random bits, which no data holds by chance
    line = f"--{boundary}".encode()
    described = [
        line,
        b"Content-Type: application/json; charset=UTF-8",
        b"",
        _about(metadata),
        line,
        f"Content-Type: {BYTES}".encode(),
        b"",
    ]
    body = b"".join([b"\r\n".join(described), b"\r\n", *data, b"\r\n", line, b"--\r\n"])
    return f"multipart/related; boundary={boundary}", body


def _condition(over: Condition) -> str | None:
    if over in (None, Over.ANYTHING):
        return None
    return "0" if over is Over.NOTHING else _generation(over)


def _generation(token: Condition) -> str:
    """Return a token as Google takes it.

    Raises
    ------
    Refusal
        It belongs to no file.
    """
    if not isinstance(token, str) or not _is_generation(token):
        raise Refusal(412, "conditionNotMet", "this is not a generation of a file")
    return token


def _is_generation(token: str) -> bool:
    return token.isascii() and token.isdigit() and int(token) > 0
