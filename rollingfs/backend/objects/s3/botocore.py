"""The botocore client of s3fs: its errors, and files through it where obstore cannot express what is asked for."""

from __future__ import annotations

import errno
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from io import BytesIO
from typing import Any
from urllib.parse import unquote_plus

import aiohttp
from aiobotocore.httpsession import AIOHTTPSession
from botocore import exceptions as said
from botocore.parsers import ResponseParserError

from rollingfs.backend.contract import Buffer, FileInfo, Metadata, Over
from rollingfs.backend.objects.bucket import Answer, Condition, Span, read_up_to
from rollingfs.backend.objects.request_errors import LastingError, Refusal, token_of, written
from rollingfs.errors import worded
from rollingfs.format.side_files import read_bytes_max
from rollingfs.runtime.interpreter import collected_later

SEND_BYTES = 256 * 1024
TRUST_HINT = "for a store with a CA of its own, name the CA's file in client_kwargs={'verify': ...} or AWS_CA_BUNDLE"
_TIMEOUTS = (said.ReadTimeoutError, said.ConnectTimeoutError, TimeoutError)
_CONNECTION_ERRORS = (
    said.HTTPClientError,
    said.EndpointConnectionError,  # refused, or broken while the body was sent
    said.ProxyConnectionError,
    said.IncompleteReadError,
    ResponseParserError,
    aiohttp.ClientError,
    TimeoutError,
    ConnectionError,
)


@contextmanager
def errors_of_botocore() -> Iterator[None]:
    """Raise an error of `rollingfs.backend.objects.request_errors.ERRORS`.

    A missing file of this machine, such as a file of credentials, must not be taken for a missing file of the
    store.
    """
    try:
        yield
    except (said.BotoCoreError, said.ClientError, *_CONNECTION_ERRORS) as error:
        raise from_botocore(error) from error
    except OSError as error:
        raise LastingError(f"the request could not be made: {error}") from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:  # S3 itself speaks XML
        why = f"what credential_process, or another source of credentials, printed is not JSON ({error})"
        raise LastingError(f"the request could not be made: {why}") from error


def from_botocore(error: Exception) -> Exception:
    """Return the meaning of an error of botocore, or of its HTTP client."""
    text = str(error) or type(error).__name__
    if isinstance(error, said.ClientError):
        about, refusal = error.response.get("ResponseMetadata", {}), error.response.get("Error", {})
        status, headers = about.get("HTTPStatusCode", 0), about.get("HTTPHeaders", {})
        return Refusal(status, str(refusal.get("Code", "")), refusal.get("Message", ""), headers)
    cause = getattr(error, "kwargs", {}).get("error")
    if isinstance(cause, aiohttp.ClientConnectorCertificateError):
        return LastingError(f"{text}; {TRUST_HINT}", is_untrusted=True)
    if isinstance(cause, RuntimeError):
        return LastingError(text)  # no fault of the store: the event loop is closed
    if isinstance(error, _TIMEOUTS):
        return TimeoutError(text)
    if isinstance(error, _CONNECTION_ERRORS):
        return (ConnectionRefusedError if isinstance(error, said.EndpointConnectionError) else ConnectionError)(text)
    if isinstance(error, said.NoCredentialsError | said.PartialCredentialsError):
        hint = f"give key and secret, a profile, or {worded(anon=True)} where everybody may read"
        return LastingError(f"{text}; {hint}", errno.EACCES)
    return LastingError(text, errno.EINVAL if isinstance(error, said.ParamValidationError) else errno.EPROTO)


class BotocoreObjects:
    """The files of a bucket.

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

    async def get(self, key: str, span: Span = None, *, if_token: str = "", unless_token: str = "") -> Answer | None:
        """Read an object as `Bucket.get` does."""
        arguments = {"IfMatch": if_token, "IfNoneMatch": unless_token}
        if span is not None:
            arguments["Range"] = f"bytes={span[0]}-{span[1] - 1}"
        given = {name: value for name, value in arguments.items() if value}
        try:
            answer = await self._call("get_object", Bucket=self._bucket, Key=key, **given)
        except Refusal as error:
            if error.status == 304:
                return None
            raise
        with errors_of_botocore():
            async with answer["Body"] as body:
                data = await read_up_to(body, read_bytes_max(key) if span is None else None)
        if span is not None and "ContentRange" not in answer:  # a store may ignore a range, and say so
            data = data[slice(*span)]
        modified = answer["LastModified"].timestamp() if "LastModified" in answer else 0.0
        token = answer.get("ETag")
        return Answer(data, token_of(token) if span is None else token or "", modified)

    async def put(self, key: str, data: Sequence[Buffer], over: Condition = None, metadata: Metadata = None) -> str:
        """Write an object as `Bucket.put` does."""
        more: dict[str, Any] = {"Metadata": dict(metadata)} if metadata else {}
        if isinstance(over, str):
            more["IfMatch"] = over
        elif over is Over.NOTHING:
            more["IfNoneMatch"] = "*"
        answer = await self._call("put_object", Bucket=self._bucket, Key=key, Body=b"".join(data), **more)
        return written(answer.get("ETag"), over)


def found_of(entry: Mapping[str, Any], path: str) -> FileInfo:
    """Return a file as a listing of S3 describes it."""
    return FileInfo(path, entry["Size"], entry["LastModified"].timestamp(), token_of(entry.get("ETag")))


def decoded(keys: Sequence[str]) -> list[str]:
    """Return keys that a listing has encoded as for a URL, all at once: one by one takes five times as long."""
    found = unquote_plus("\n".join(keys)).split("\n")
    return found if len(found) == len(keys) else [unquote_plus(key) for key in keys]


_FILE = re.compile(
    r"<Contents>(?:"
    r"<Key>([^<&\r]*)</Key>|<LastModified>([0-9-]{10}T[0-9:.]+Z)</LastModified>|<ETag>([^<\r]*)</ETag>|"
    r"<Size>([0-9]+)</Size>|<StorageClass>([^<&]*)</StorageClass>|"
    r"<(?:Owner|RestoreStatus)>(?:<\w+>[^<]*</\w+>)*</(?:Owner|RestoreStatus)>|"
    r"<(?:Checksum\w+|Type)>[^<]*</(?:Checksum\w+|Type)>)*</Contents>"
)
"""A file in a listing as S3 and most other stores write it, with the elements in any order.

No part of it matches more than one element: else a file that is not understood could take the next with it.
"""


@collected_later()
def read_listing(response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: object) -> None:
    """Parse the files of a listing, as a hook of botocore's `before-parse`.

    botocore reads them ten times as slowly.

    The rest of the answer, and any answer that is not as S3 documents it, is left to botocore.
    """
    if response_dict["status_code"] != 200:
        return
    try:
        parts = _FILE.split(response_dict["body"].decode())
        between, *columns = (parts[nth::6] for nth in range(6))
        found = list(map(_listed, *columns))
    except (TypeError, ValueError):
        return
    rest = "".join(between)
    if found and "<Contents" not in rest and "<!" not in rest:  # a comment may hold files that are not there
        response_dict["body"] = rest.encode()
        customized_response_dict["Contents"] = found


def _listed(key: str, modified: str, token: str, size: str, storage_class: str | None) -> dict[str, Any]:
    """Return a file of a listing, as botocore's parser has it.

    Raises
    ------
    TypeError, ValueError
        Something is missing, or written in another way.
    """
    token = token and token.replace("&#34;", '"').replace("&quot;", '"')
    if not key or not token or "&" in token:
        raise ValueError("an element is missing, or holds an entity")
    found = {"Key": key, "LastModified": datetime.fromisoformat(modified), "ETag": token, "Size": int(size)}
    if storage_class is not None:
        found["StorageClass"] = storage_class
    return found


class StraightSession(AIOHTTPSession):
    """Sender of the requests of s3fs: an answer to another request is an error."""

    async def send(self, request: Any) -> Any:
        """Send one request. Where a store answers a PUT with 303, aiohttp follows with a GET, which is no proof.

        Raises
        ------
        ConnectionError
            The answer belongs to such a GET.
        """
        answer = await super().send(request)
        if answer.raw.method != request.method:
            raise ConnectionError(
                f"the store sent the {request.method} elsewhere, and the answer from there says nothing of it"
            )
        return answer


def asked_config(config: Mapping[str, Any]) -> set[str]:
    """Return the options of botocore's `Config` that the user gave."""
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
        """Rewind for botocore, if S3 names another region and botocore makes a new request."""
        return self._source.seek(offset)


def send_once(request: Any, **_: object) -> None:
    """Prepare a request, as a hook of botocore's `before-send`.

    Repetition is left to `errors.retrying`.
    """
    # botocore asks for permission to send each body, which doubles the latency; the header is not signed
    request.headers.pop("Expect", None)
    if isinstance(request.body, BytesIO):
        request.body = _BodyOnce(request.body)
