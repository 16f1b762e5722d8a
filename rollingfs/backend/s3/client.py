"""The client of an object store: a private clone of an s3fs filesystem, and obstore beside it.

Objects are read and written through obstore (`obstore_objects`), which gets the options of s3fs (`obstore_options`).
Everything else goes, request by request, through the clone's botocore client, because s3fs hides the answers that
conditional writes need (status, ETag, Date), and repeats conditional writes. Where obstore cannot do what the user
asks for, objects go that way, too (`s3fs_objects`). A line in the log says so, once.

Four layers can send a request again:

- obstore, 10 times. ``max_retries`` switches that off.
- botocore, 4 times. The clone switches that off (``retries``).
- s3fs, 5 times. This module does not use its ``_call_s3``.
- aiohttp, once, for a PUT, DELETE or GET whose connection broke before an answer came. There is no public switch,
  but aiohttp does not repeat a body that can be sent only once: every PUT gets such a body. A conditional DELETE has
  no body and may be sent twice; the verb counts "it was gone" as success anyway.
- `S3Client.retrying`: as long as the caller has patience (`rollingfs.backend.patience`), for requests that may be
  repeated. It repeats no conditional write, and a conditional DELETE only if the store refused it.

So a 412 seldom answers the caller's own success. But proxies and gateways resend too: callers must not rely on it.

Private names in use: `_s3` and `_s3creator` of s3fs close the client, for which there is no public way with
``asynchronous=True``. `_get_s3_method_kwargs` adds what an operation knows of the user's ``s3_additional_kwargs``. In
`S3Backend`, `_find_bucket_key` knows access points. Of botocore, none.
"""

from __future__ import annotations

import asyncio
import errno
import importlib.metadata
import inspect
import os
import weakref
from collections.abc import Awaitable, Callable, Sequence
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

import botocore
import s3fs
from aiobotocore.session import AioSession
from botocore.httpsession import get_cert_path
from botocore.utils import get_environ_proxies
from s3fs import S3FileSystem

from rollingfs.backend.contract import Buffer, Metadata, Over
from rollingfs.backend.obstores.forks import keep_from_children
from rollingfs.backend.obstores.requests import READS_MAX
from rollingfs.backend.patience import patiently
from rollingfs.backend.s3.errors import errors_of_machine, is_busy, is_transient
from rollingfs.backend.s3.objects import Answer, Listed, Objects
from rollingfs.backend.s3.obstore_options import Connection
from rollingfs.backend.s3.resolved import Resolved, is_plain, of_client, without_client
from rollingfs.backend.s3.routes import Routes
from rollingfs.backend.s3.s3fs_objects import StraightSession, send_once
from rollingfs.errors import UnsafeBackendError

T = TypeVar("T")

CONNECTIONS_MAX = 128
"""The connection pool, unless the user's `config_kwargs` set it: two reads of `REQUESTS_MAX` ranges at once."""
REQUESTS_MAX = 64
SMALL_REQUESTS_MAX = 128
"""For the headers and pins of a concat: as many as one commit takes sources."""
HOOK_ID = "rollingfs"
READING = ("get_", "head_", "list_")
"""The verbs of botocore whose answer the store has at hand; a copy keeps its caller waiting by an answer that drips."""


def _drop_expect(request: Any, **_: object) -> None:
    # botocore asks for permission to send each body, which doubles the latency; the header is not signed
    request.headers.pop("Expect", None)


class S3Client:
    """Requests to an object store, on the event loop of a private clone of `fs`.

    Parameters
    ----------
    fs : s3fs.S3FileSystem
        Gives class and options. The instance itself is neither used nor changed.
    requests_max : int, optional
        How many requests may be under way at once for one purpose.
    use_obstore : bool, optional
        Whether objects may go through obstore.

    Raises
    ------
    ValueError
        The user's `config_kwargs` allow fewer connections than `requests_max`.
    """

    def __init__(self, fs: S3FileSystem, requests_max: int | None = None, use_obstore: bool = True) -> None:
        self.fs = _clone(fs, max(CONNECTIONS_MAX, 2 * (requests_max or 0)))
        pool: int = self.fs.config_kwargs["max_pool_connections"]
        if requests_max is not None and requests_max > pool:
            raise ValueError(
                f"max_concurrency is {requests_max}, but config_kwargs gives max_pool_connections={pool}: "
                "give at least as many connections, or leave max_pool_connections out"
            )
        self.requests_max = requests_max or max(1, min(REQUESTS_MAX, pool))
        self.small_requests_max = requests_max or max(1, min(SMALL_REQUESTS_MAX, pool))
        self._connections: weakref.WeakKeyDictionary[Any, Connection] = weakref.WeakKeyDictionary()
        self._without_client: tuple[Resolved, Connection] | None = None
        self.routes = Routes(self, use_obstore)

    def after_fork(self) -> None:
        """Go on in a child process with a new clone."""
        self.fs = _clone(self.fs, self.fs.config_kwargs["max_pool_connections"], forked=True)
        self._connections = weakref.WeakKeyDictionary()
        self._without_client = None
        self.routes.forget()

    async def close(self) -> None:
        """Close the connections; the next request opens new ones."""
        self.routes.forget()
        self._without_client = None
        if self.fs._s3 is not None:
            await self.fs._s3creator.__aexit__(None, None, None)
            self.fs._s3 = None

    async def session(self, bucket: str | None = None) -> Any:
        """The botocore client for a bucket, connected and with the hooks of this module."""
        with errors_of_machine():
            await self.fs.set_session()
            client = await self.fs.get_s3(bucket)
        if client not in self._connections:
            events = client.meta.events
            for verb in ("PutObject", "UploadPart"):
                events.register(f"before-send.s3.{verb}", _drop_expect, unique_id=f"{HOOK_ID}-expect-{verb}")
                events.register(f"before-send.s3.{verb}", send_once, unique_id=f"{HOOK_ID}-once-{verb}")
            self._connections[client] = _connection(self.fs, client.meta.endpoint_url)
        return client

    async def resolved(self, bucket: str) -> tuple[Resolved, Connection]:
        """What all settings come to for a bucket, and how the store is reached.

        A botocore client is made for that only where there is no other way to know.
        """
        if not self._connections:  # else a client is there, and was made of the settings of its time
            self._without_client = self._without_client or self._resolved_without_client()
        if self._without_client is not None:
            return self._without_client
        client = await self.session(bucket)
        return of_client(client), self._connections[client]

    def _resolved_without_client(self) -> tuple[Resolved, Connection] | None:
        if self.fs.session is not None or not is_plain(self.fs, os.environ):
            return None  # a session that the user gives may have anything set in it
        session = AioSession(**self.fs.kwargs)
        found = without_client(self.fs, session, os.environ)
        if found is None:
            return None
        self.fs.session = session  # s3fs would make the same; it takes this one for its client
        return found, _connection(self.fs, found.endpoint_url)

    async def call(self, verb: str, **arguments: Any) -> dict[str, Any]:
        """Send one request, once, with the user's additional arguments.

        Raises
        ------
        UnsafeBackendError
            The installed botocore does not know an argument. Without it the request would mean something else.
        """
        method = getattr(await self.session(arguments.get("Bucket")), verb)
        if "Metadata" in arguments:  # beside the user's own
            arguments["Metadata"] = {**self.fs.s3_additional_kwargs.get("Metadata", {}), **arguments["Metadata"]}
        merged = self.fs._get_s3_method_kwargs(method, **arguments)
        unknown = sorted(arguments.keys() - merged.keys())
        if unknown:
            raise UnsafeBackendError(
                f"botocore {botocore.__version__} does not know {', '.join(unknown)} of {verb}, which rollingfs needs; "
                "the request was not sent: install a newer s3fs"
            )
        with errors_of_machine():
            answer: dict[str, Any] = await method(**merged)
        return answer

    async def get(
        self, bucket: str, key: str, span: tuple[int, int] | None = None, *, if_match: str = "", unless_match: str = ""
    ) -> Answer:
        """Send `Objects.get`; the request may be repeated."""

        async def once(objects: Objects) -> Answer:
            async with asyncio.timeout(self._answer_s_max):
                return await objects.get(key, span, if_match=if_match, unless_match=unless_match)

        return await self.retrying(lambda: self.routes.following(bucket, once))

    async def list_prefix(self, bucket: str, folder: str, prefix: str) -> Sequence[Listed]:
        """Send `Objects.list_prefix`; the request may be repeated."""

        async def once(objects: Objects) -> Sequence[Listed]:
            async with asyncio.timeout(self._answer_s_max):
                return await objects.list_prefix(folder, prefix)

        return await self.retrying(lambda: self.routes.following(bucket, once))

    async def put(
        self,
        bucket: str,
        key: str,
        data: Sequence[Buffer],
        over: Over | str | None = None,
        metadata: Metadata = None,
    ) -> str:
        """`Objects.put`, sent once."""
        return await self.routes.following(bucket, lambda objects: objects.put(key, data, over, metadata))

    async def repeatable(self, verb: str, **arguments: Any) -> dict[str, Any]:
        """Send a request that may be sent again."""

        async def once() -> dict[str, Any]:
            async with asyncio.timeout(self._answer_s_max if verb.startswith(READING) else None):
                return await self.call(verb, **arguments)

        return await self.retrying(once)

    @property
    def _answer_s_max(self) -> float | None:
        """How long a request that reads may take, from its beginning to the last byte of its answer."""
        read_s: float | None = self.fs.config_kwargs.get("read_timeout", self.fs.read_timeout)
        return None if read_s is None else READS_MAX * read_s

    async def retrying(self, request: Callable[[], Awaitable[T]], *, unanswered: bool = True) -> T:
        """Send a request; repeat it after a failure that may pass, as long as the caller has patience.

        Without `unanswered`, repeat it only if the store refused it: then it certainly took no effect.
        """
        return await patiently(request, is_transient if unanswered else is_busy)


def _connection(fs: S3FileSystem, endpoint_url: str) -> Connection:
    """Certificates and proxies, from where botocore takes them and when it does, in its order."""
    verify: bool | str | None = fs.client_kwargs.get("verify")
    if verify is None:
        verify = fs.session.get_config_variable("ca_bundle")
    if verify is None:
        verify = os.environ.get("REQUESTS_CA_BUNDLE", True)
    proxies = fs.config_kwargs.get("proxies")
    if proxies is None:
        proxies = get_environ_proxies(endpoint_url)
    return Connection(verify, proxies, get_cert_path(True))


def _clone(fs: S3FileSystem, connections: int, forked: bool = False) -> S3FileSystem:
    names = list(inspect.signature(type(fs).__init__).parameters)[1:]
    options = dict(zip(names, fs.storage_args, strict=False)) | fs.storage_options
    config = dict(options.get("config_kwargs") or {})
    mode = {key: value for key, value in (config.get("retries") or {}).items() if key == "mode"}
    config["retries"] = mode | {"total_max_attempts": 1}
    config.setdefault("max_pool_connections", connections)
    config.setdefault("http_session_cls", StraightSession)
    if not config.keys() & {"user_agent", "user_agent_extra", "user_agent_appid"}:
        # botocore would build its own for each request: a twelfth of the CPU time of a small append
        config["user_agent"] = f"rollingfs s3fs/{s3fs.__version__} Botocore/{botocore.__version__}{_obstore()}"
    if "AWS_REQUEST_CHECKSUM_CALCULATION" not in os.environ:
        config.setdefault("request_checksum_calculation", "when_required")
    if forked:
        options.pop("loop", None)  # the loop runs in the parent only
    clone = type(fs)(**(options | {"config_kwargs": config, "skip_instance_cache": True}))
    keep_from_children(clone)
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


def _obstore() -> str:
    """Obstore's part of the user agent; without an import of obstore, see `rollingfs.backend.obstores.forks`."""
    try:
        return f" obstore/{importlib.metadata.version('obstore')}"
    except importlib.metadata.PackageNotFoundError:
        return ""
