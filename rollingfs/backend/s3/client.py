"""The client of an object store: a private clone of an s3fs filesystem, called request by request.

s3fs supplies credentials, endpoint, the user's extra arguments and the event loop. This module sends the requests,
because s3fs hides the answers that conditional writes need (status, ETag, Date), and repeats conditional writes.

Four layers can send a request again:

- botocore, 4 times. The clone switches that off (``retries``).
- s3fs, 5 times. This module does not use its ``_call_s3``.
- aiohttp, once, for a PUT, DELETE or GET whose connection broke before an answer came. There is no public switch,
  but aiohttp does not repeat a body that can be sent only once: every PUT gets such a body. A conditional DELETE has
  no body and may be sent twice; the verb counts "it was gone" as success anyway.
- `S3Client.retrying`: `TRIES_MAX` tries with jitter, for requests that may be repeated. It repeats no conditional
  write, and a conditional DELETE only if the store refused it.

So a 412 seldom answers the caller's own success. But proxies and gateways resend too: callers must not rely on it.
"""

from __future__ import annotations

import asyncio
import errno
import inspect
import os
import random
import time
import weakref
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from io import BytesIO
from typing import Any, TypeVar

import botocore
import s3fs
from s3fs import S3FileSystem

from rollingfs.backend.s3.body import BodyOnce, Pieces
from rollingfs.backend.s3.errors import BUSY_STATUSES, CLIENT_ERRORS, is_transient, status_of
from rollingfs.backend.s3.get import Gets
from rollingfs.backend.s3.put import Puts
from rollingfs.backend.s3.receive import Received, Receiver, straight
from rollingfs.errors import UnsafeBackendError

T = TypeVar("T")

CONNECTIONS_MAX = 128
"""The connection pool, unless the user's `config_kwargs` set it: for four reads of `REQUESTS_MAX` ranges at once."""
REQUESTS_MAX = 32
SMALL_REQUESTS_MAX = 128
"""For the headers and pins of a concat: as many as one commit takes sources."""
TRIES_MAX = 5
RETRY_DELAY_MAX_S = 5.0
RETRY_DELAY_FIRST_S = 0.1
RETRY_S_MAX = 60.0
"""After this time no further try begins: five tries that each hit the read timeout would take five minutes."""
RECEIVE_BYTES = 256 * 1024
"""asyncio takes this many bytes from a socket at once."""

HOOK_ID = "rollingfs"
_clones: weakref.WeakSet[S3FileSystem] = weakref.WeakSet()
_clones_while_forking: list[S3FileSystem] = []
_clones_of_parents: list[S3FileSystem] = []

if hasattr(os, "register_at_fork"):
    # fsspec empties its caches in a child. If the child then collected the parent's clones, s3fs would close them: on a
    # loop that does not run in the child (a second's wait each), with sockets and an epoll that the parent still uses.
    os.register_at_fork(
        before=lambda: _clones_while_forking.extend(_clones),
        after_in_parent=_clones_while_forking.clear,
        after_in_child=lambda: _clones_of_parents.extend(_clones_while_forking),
    )


def _drop_expect(request: Any, **_: object) -> None:
    # botocore asks for permission to send each body, which doubles the latency; the header is not signed
    request.headers.pop("Expect", None)


def _send_once(request: Any, **_: object) -> None:
    # `retrying` repeats the requests that may be repeated, each time with a new body
    if isinstance(request.body, BytesIO | Pieces):
        request.body = BodyOnce(request.body)


@dataclass(frozen=True, slots=True)
class _Ours:
    """The helpers that this module added to one botocore client."""

    puts: Puts
    gets: Gets
    receiver: Receiver


class S3Client:
    """Requests to an object store, on the event loop of a private clone of `fs`.

    Parameters
    ----------
    fs : s3fs.S3FileSystem
        Gives class and options. The instance itself is neither used nor changed.
    requests_max : int, optional
        How many requests may be under way at once for one purpose.

    Raises
    ------
    ValueError
        The user's `config_kwargs` allow fewer connections than `requests_max`.
    """

    def __init__(self, fs: S3FileSystem, requests_max: int | None = None) -> None:
        self.fs = _clone(fs, max(CONNECTIONS_MAX, 2 * (requests_max or 0)))
        pool: int = self.fs.config_kwargs["max_pool_connections"]
        if requests_max is not None and requests_max > pool:
            raise ValueError(
                f"max_concurrency is {requests_max}, but config_kwargs gives max_pool_connections={pool}: "
                "give at least as many connections, or leave max_pool_connections out"
            )
        self.requests_max = requests_max or max(1, min(REQUESTS_MAX, pool))
        self.small_requests_max = requests_max or max(1, min(SMALL_REQUESTS_MAX, pool))
        self._ours: weakref.WeakKeyDictionary[Any, _Ours] = weakref.WeakKeyDictionary()

    def after_fork(self) -> None:
        """Go on in a child process with a new clone."""
        self.fs = _clone(self.fs, self.fs.config_kwargs["max_pool_connections"], forked=True)
        self._ours = weakref.WeakKeyDictionary()

    async def close(self) -> None:
        """Close the connections; the next request opens new ones."""
        for ours in self._ours.values():
            ours.receiver.close()
        if self.fs._s3 is not None:
            await self.fs._s3creator.__aexit__(None, None, None)
            self.fs._s3 = None

    async def session(self, bucket: str | None = None) -> Any:
        """The botocore client for a bucket, connected and with the hooks of this module."""
        await self.fs.set_session()
        client = await self.fs.get_s3(bucket)
        if client not in self._ours:
            events = client.meta.events
            for verb in ("PutObject", "UploadPart"):
                events.register(f"before-send.s3.{verb}", _drop_expect, unique_id=f"{HOOK_ID}-expect-{verb}")
                events.register(f"before-send.s3.{verb}", _send_once, unique_id=f"{HOOK_ID}-once-{verb}")
            receiver = Receiver(client, self.fs.config_kwargs["max_pool_connections"], self._verify())
            self._ours[client] = _Ours(Puts(events), Gets(client), receiver)
        return client

    def _verify(self) -> bool | str:
        """Whether, or by which file, the store's certificate is checked; from botocore's sources, in its order."""
        verify: bool | str | None = self.fs.client_kwargs.get("verify")
        if verify is None:
            verify = self.fs.session.get_config_variable("ca_bundle")
        return os.environ.get("REQUESTS_CA_BUNDLE", True) if verify is None else verify

    async def call(self, verb: str, **arguments: Any) -> dict[str, Any]:
        """Send one request, once, with the user's additional arguments.

        Raises
        ------
        UnsafeBackendError
            The installed botocore does not know an argument. Without it the request would mean something else.
        """
        method = getattr(await self.session(arguments.get("Bucket")), verb)
        merged = self.fs._get_s3_method_kwargs(method, **arguments)
        unknown = sorted(arguments.keys() - merged.keys())
        if unknown:
            raise UnsafeBackendError(
                f"botocore {botocore.__version__} does not know {', '.join(unknown)} of {verb}, which rollingfs needs; "
                "the request was not sent: install a newer s3fs"
            )
        answer: dict[str, Any] = await method(**merged)
        return answer

    async def put_if(self, body: bytes, condition: str, token: str, **target: str) -> str:
        """Send one PutObject with ``If-Match`` or ``If-None-Match``, once; return the ETag.

        Parameters
        ----------
        condition : str
            The name of the header.
        token : str
            Its value.
        target
            Bucket and Key.
        """
        client = await self.session(target["Bucket"])
        argument = {condition.replace("-", ""): token}
        return await self._ours[client].puts.put(
            target["Bucket"],
            target["Key"],
            body,
            {condition: token},
            lambda: self.call("put_object", **target, **argument, Body=body),
        )

    async def get(self, headers: Mapping[str, str], **target: str) -> tuple[dict[str, Any], bytes]:
        """Send GetObject and receive its body; the request may be repeated.

        Parameters
        ----------
        headers
            ``Range``, ``If-Match`` or ``If-None-Match``, if any.
        target
            Bucket and Key.
        """

        async def once() -> tuple[dict[str, Any], bytes]:
            answer = await self._get(headers, target)
            async with answer["Body"] as body:
                size = answer["ContentLength"]
                if size < RECEIVE_BYTES:
                    return answer, await body.read()
                whole = BytesIO(bytes(size))  # filled in place: aiohttp would join the pieces by a copy
                with whole.getbuffer() as place:
                    await _receive(body, place)
                return answer, whole.getvalue()

        return await self.retrying(once)

    async def get_into(
        self, place: memoryview, headers: Mapping[str, str], **target: str
    ) -> tuple[dict[str, Any], int | None]:
        """Receive a range straight into `place`; the request may be repeated.

        Returns the answer and the number of bytes received, None if the store does not do ranges.
        """

        async def once() -> tuple[dict[str, Any], int | None]:
            with straight(place):
                answer = await self._get(headers, target)
            async with answer["Body"] as body:
                if isinstance(body.raw_stream, Received):
                    return answer, body.raw_stream.count
                return answer, await _receive(body, place) if "ContentRange" in answer else None

        return await self.retrying(once)

    async def _get(self, headers: Mapping[str, str], target: Mapping[str, str]) -> dict[str, Any]:
        client = await self.session(target["Bucket"])
        arguments = {name.replace("-", ""): value for name, value in headers.items()}
        return await self._ours[client].gets.get(
            target["Bucket"], target["Key"], headers, lambda: self.call("get_object", **target, **arguments)
        )

    async def repeatable(self, verb: str, **arguments: Any) -> dict[str, Any]:
        """Send a request that may be sent again."""
        return await self.retrying(lambda: self.call(verb, **arguments))

    async def retrying(self, request: Callable[[], Awaitable[T]], *, unanswered: bool = True) -> T:
        """Send a request; repeat it, with jitter, after a failure that may pass, but not after `RETRY_S_MAX`.

        Without `unanswered`, repeat it only if the store refused it: then it certainly took no effect.
        """
        began = time.monotonic()
        for attempt in range(1, TRIES_MAX):
            try:
                return await request()
            except CLIENT_ERRORS as error:
                may_repeat = is_transient(error) if unanswered else status_of(error) in BUSY_STATUSES
                if not may_repeat or time.monotonic() - began >= RETRY_S_MAX:
                    raise
            delay_max_s = min(RETRY_DELAY_MAX_S, RETRY_DELAY_FIRST_S * 2**attempt)
            await asyncio.sleep(random.uniform(0, delay_max_s))
        return await request()


async def _receive(body: Any, target: memoryview) -> int:
    at = 0
    while data := await body.read(RECEIVE_BYTES):
        target[at : at + len(data)] = data
        at += len(data)
    return at


def _clone(fs: S3FileSystem, connections: int, forked: bool = False) -> S3FileSystem:
    names = list(inspect.signature(type(fs).__init__).parameters)[1:]
    options = dict(zip(names, fs.storage_args, strict=False)) | fs.storage_options
    config = dict(options.get("config_kwargs") or {})
    mode = {key: value for key, value in (config.get("retries") or {}).items() if key == "mode"}
    config["retries"] = mode | {"total_max_attempts": 1}
    config.setdefault("max_pool_connections", connections)
    if not config.keys() & {"user_agent", "user_agent_extra", "user_agent_appid"}:
        # botocore would build its own for each request: a twelfth of the CPU time of a small append
        config["user_agent"] = f"rollingfs s3fs/{s3fs.__version__} Botocore/{botocore.__version__}"
    if "AWS_REQUEST_CHECKSUM_CALCULATION" not in os.environ:
        config.setdefault("request_checksum_calculation", "when_required")
    if forked:
        options.pop("loop", None)  # the loop runs in the parent only
    clone = type(fs)(**(options | {"config_kwargs": config, "skip_instance_cache": True}))
    _clones.add(clone)
    return clone


def date_of(answer: dict[str, Any]) -> float:
    """The store's clock when it answered, in seconds since 1970.

    Raises
    ------
    OSError
        The answer has no Date header.
    """
    date = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
    if not date:
        raise OSError(errno.EIO, "the store's answer has no Date header, so its clock is not known")
    return parsedate_to_datetime(date).timestamp()
