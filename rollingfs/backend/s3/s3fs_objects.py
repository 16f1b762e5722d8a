"""The objects of one bucket through s3fs' botocore client: slower, for what obstore cannot express."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from io import BytesIO
from typing import Any

from aiobotocore.httpsession import AIOHTTPSession

from rollingfs.backend.contract import Buffer, Metadata, Over
from rollingfs.backend.s3.objects import Answer, Listed, token_of
from rollingfs.format.sizes import read_bytes_max

SEND_BYTES = 256 * 1024


class S3fsObjects:
    """The objects of one bucket.

    Parameters
    ----------
    call
        Sends one request of botocore, once, and refuses arguments that botocore does not know.
    bucket
        Its name.
    """

    def __init__(self, call: Callable[..., Awaitable[dict[str, Any]]], bucket: str) -> None:
        self._call = call
        self._bucket = bucket

    async def get(
        self, key: str, span: tuple[int, int] | None = None, *, if_match: str = "", unless_match: str = ""
    ) -> Answer:
        """As `Objects.get`."""
        arguments = {"IfMatch": if_match, "IfNoneMatch": unless_match}
        if span is not None:
            arguments["Range"] = f"bytes={span[0]}-{span[1] - 1}"
        given = {name: value for name, value in arguments.items() if value}
        answer = await self._call("get_object", Bucket=self._bucket, Key=key, **given)
        async with answer["Body"] as body:
            limit = read_bytes_max(key) if span is None else None
            data = await body.read() if limit is None else await _read_up_to(body, limit)
        if span is not None and "ContentRange" not in answer:  # a store may ignore a range, and say so
            data = data[slice(*span)]
        modified = answer["LastModified"].timestamp() if "LastModified" in answer else 0.0
        return Answer(data, token_of(answer.get("ETag"), span is None), modified)

    async def put(
        self,
        key: str,
        data: Sequence[Buffer],
        over: Over | str | None = None,
        metadata: Metadata = None,
    ) -> str:
        """As `Objects.put`."""
        condition = {"IfMatch": over} if isinstance(over, str) else {"IfNoneMatch": "*"} if over is Over.NOTHING else {}
        more: dict[str, Any] = {**condition, **({"Metadata": dict(metadata)} if metadata else {})}
        answer = await self._call("put_object", Bucket=self._bucket, Key=key, Body=b"".join(data), **more)
        return token_of(answer.get("ETag"))

    async def list_prefix(self, folder: str, prefix: str) -> Sequence[Listed]:
        """As `Objects.list_prefix`."""
        given = {"Prefix": folder + prefix, "Delimiter": "/"}
        answer = await self._call("list_objects_v2", Bucket=self._bucket, **given)
        return [
            Listed(entry["Key"], entry["Size"], entry["LastModified"].timestamp(), token_of(entry.get("ETag")))
            for entry in answer.get("Contents", [])
            if entry["Key"] != folder + prefix
        ]


async def _read_up_to(body: Any, limit: int) -> bytes:
    """The first bytes of an answer; the rest is not read."""
    data = b""
    while len(data) < limit and (more := await body.read(limit - len(data))):
        data += more
    return data


class StraightSession(AIOHTTPSession):
    """What sends the requests of s3fs: an answer to another request than the one that was sent is an error."""

    async def send(self, request: Any) -> Any:
        """Send one request. Where a store answers a PUT with 303, aiohttp follows with a GET, which says nothing of it.

        Raises
        ------
        ConnectionError
            The answer is one to such a GET.
        """
        answer = await super().send(request)
        if answer.raw.method != request.method:
            raise ConnectionError(
                f"the store sent the {request.method} elsewhere, and the answer from there says nothing of it"
            )
        return answer


def asked_config(config: Mapping[str, Any]) -> set[str]:
    """The options of botocore's `Config` that the user gave."""
    return {name for name, value in config.items() if value is not StraightSession}


class _BodyOnce:
    """A request body that aiohttp cannot rewind, so that it never sends the request a second time by itself."""

    def __init__(self, source: BytesIO) -> None:
        self._source = source

    async def __aiter__(self) -> AsyncIterator[memoryview]:
        view = memoryview(self._source.getvalue())  # the very bytes that it was made of; `getbuffer` would copy them
        for start in range(0, len(view), SEND_BYTES):
            yield view[start : start + SEND_BYTES]

    def seek(self, offset: int) -> int:
        """For botocore, which rewinds when S3 names another region, and then makes a new request."""
        return self._source.seek(offset)


def send_once(request: Any, **_: object) -> None:
    """A hook of botocore's `before-send`: what may be repeated is repeated by `S3Client.retrying`."""
    if isinstance(request.body, BytesIO):
        request.body = _BodyOnce(request.body)
