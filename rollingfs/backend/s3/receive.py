"""Large ranges of objects, received straight into their place.

aiohttp receives a body into a buffer of its own, copies it out of that, and somebody copies it once more to where it
belongs: half the CPU time of a large read. Here the event loop lets the kernel write to that place. botocore still
makes and signs the request and judges the answer; the exchange between them is ours, in its `before-send` event.

Only what is simple is done here: a 206 with a known length over a connection that needs no proxy and no certificate
of the user's. Any other answer, and a connection that breaks or cannot be trusted, is left to botocore, which sends the
request again its own way (a GET may be sent twice) and says what there is to say. A store's certificate is judged as
botocore judges it: in a context made by the same function, with the same certificates.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any
from urllib.parse import SplitResult, urlsplit

from aiobotocore.awsrequest import AioAWSResponse
from aiobotocore.httpsession import AIOHTTPSession
from botocore.exceptions import ConnectTimeoutError, ReadTimeoutError
from botocore.httpsession import create_urllib3_context, get_cert_path
from botocore.utils import get_environ_proxies

STRAIGHT_BYTES_MIN = 1024 * 1024
"""A smaller body is not worth a connection of its own."""
HEAD_BYTES_MAX = 64 * 1024
IDLE_S_MAX = 10.0
"""Connections idle for longer are not used again: the store is about to close them."""
PORTS = {"http": 80, "https": 443}
CONNECTOR_ARGS = frozenset({"keepalive_timeout", "use_dns_cache", "ttl_dns_cache"})
"""What a user may say of connections that makes no difference here."""
HOOK_ID = "rollingfs-receive"

_target: ContextVar[memoryview | None] = ContextVar("rollingfs_receive_target", default=None)


class Received:
    """The body of an answer that lies in its place already, as botocore hands bodies on."""

    def __init__(self, url: str, count: int) -> None:
        self.url = url
        self.count = count
        """How many bytes were received."""

    def close(self) -> None:
        """Nothing is left to be closed."""


class Receiver:
    """The large GetObjects of one botocore client, over connections of their own.

    Parameters
    ----------
    client
        Whose requests to take over.
    connections_max
        How many of them may be under way.
    verify
        As botocore has it: whether the store's certificate is checked, or by which file; what is false leaves all to
        botocore.
    """

    def __init__(self, client: Any, connections_max: int, verify: bool | str = True) -> None:
        config = client.meta.config
        own = set(getattr(config, "connector_args", None) or ()) - CONNECTOR_ARGS
        is_usual = getattr(config, "http_session_cls", AIOHTTPSession) is AIOHTTPSession
        self._allowed = is_usual and not (config.client_cert or own) and bool(verify)
        # as botocore: {} means none, whatever the environment says, which counts when the client is made
        proxies = config.proxies if config.proxies is not None else get_environ_proxies(client.meta.endpoint_url)
        self._schemes_proxied = frozenset(scheme for scheme in PORTS if proxies.get(scheme))
        self._verify = verify
        self._timeout_s: float = config.read_timeout
        self._connect_timeout_s: float = config.connect_timeout
        self._places = asyncio.Semaphore(connections_max)
        self._idle: dict[str, list[_Connection]] = {}
        self._tls: ssl.SSLContext | None = None
        client.meta.events.register("before-send.s3.GetObject", self._on_send, unique_id=HOOK_ID)

    def close(self) -> None:
        """Close all connections that are idle."""
        for connections in self._idle.values():
            for connection in connections:
                connection.abort()
        self._idle.clear()

    async def _on_send(self, request: Any, **_: object) -> AioAWSResponse | None:
        target, url = _target.get(), urlsplit(request.url)
        if target is None or not self._allowed or url.scheme in self._schemes_proxied:
            return None
        timeout: Callable[..., Exception] = ConnectTimeoutError
        async with self._places:
            try:
                connection = await self._connection(url)
                timeout = ReadTimeoutError
                headers = await connection.get(_head(request, url), target, self._timeout_s)
            except TimeoutError as error:
                raise timeout(endpoint_url=request.url, error=error) from error
            except OSError:
                return None  # what is wrong, and whether it lasts, botocore finds out
            if headers is None:
                if connection.status < 300:
                    self._allowed = False  # a store without ranges or lengths would be asked twice each time
                return None
            if connection.is_usable():
                self._idle.setdefault(_place(url), []).append(connection)
            else:
                connection.abort()
        return AioAWSResponse(request.url, 206, headers, Received(request.url, int(headers["content-length"])))

    async def _connection(self, url: SplitResult) -> _Connection:
        """An idle connection, else a new one."""
        idle = self._idle.get(_place(url), [])
        while idle:
            connection = idle.pop()
            if connection.is_usable():
                return connection
            connection.abort()
        loop, tls = asyncio.get_running_loop(), self._tls_of(url)
        async with asyncio.timeout(self._connect_timeout_s):
            _, connection = await loop.create_connection(_Connection, url.hostname or "", _port(url), ssl=tls)
        return connection

    def _tls_of(self, url: SplitResult) -> ssl.SSLContext | None:
        if url.scheme != "https":
            return None
        if self._tls is None:
            tls = create_urllib3_context()
            tls.check_hostname = True  # urllib3 compares names by itself
            tls.load_verify_locations(get_cert_path(self._verify))
            self._tls = tls
        return self._tls


@contextmanager
def straight(target: memoryview) -> Iterator[None]:
    """Within it, the body of a GetObject goes to `target`, if that is large enough to be worth it."""
    token = _target.set(target if len(target) >= STRAIGHT_BYTES_MIN else None)
    try:
        yield
    finally:
        _target.reset(token)


class _Connection(asyncio.BufferedProtocol):
    """One connection: a request, its answer, the next request."""

    def __init__(self) -> None:
        self._transport: Any = None
        self._head = memoryview(bytearray(HEAD_BYTES_MAX))
        self._body: memoryview | None = None
        self._at = 0
        """How much of the head, or of the body, was received."""
        self._target: memoryview | None = None
        self._headers: dict[str, str] = {}
        self.status = 0
        """Of the last answer."""
        self._stays = True
        self._done: asyncio.Future[dict[str, str] | None] | None = None
        self._progress = 0
        self._idle_since_s = time.monotonic()

    async def get(self, request: bytes, target: memoryview, timeout_s: float) -> dict[str, str] | None:
        """Send a request: the headers of its answer when all of the body is in `target`, None if it is not simple.

        Raises
        ------
        TimeoutError
            Nothing arrived for so many seconds.
        OSError
            The connection broke.
        """
        self._target, self._body, self._at, self.status = target, None, 0, 0
        self._done = asyncio.get_running_loop().create_future()
        seen, headers = -1, None
        try:
            self._transport.write(request)
            while not self._done.done():
                await asyncio.wait([self._done], timeout=timeout_s)
                if not self._done.done() and self._progress == seen:
                    raise TimeoutError(f"the store sent nothing for {timeout_s} s")
                seen = self._progress
            headers = self._done.result()
        finally:
            self._done = self._target = self._body = None  # the place may be gone by now
            self._idle_since_s = time.monotonic()
            if headers is None:
                self.abort()  # in the middle of an answer, or of one that is not ours to read
        return headers

    def is_usable(self) -> bool:
        """Whether another request may be sent."""
        return self._stays and not self._transport.is_closing() and time.monotonic() - self._idle_since_s < IDLE_S_MAX

    def abort(self) -> None:
        """Close it at once."""
        self._transport.abort()

    # -- called by the event loop --------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_exception(exc or ConnectionResetError("the store closed the connection"))

    def get_buffer(self, sizehint: int) -> memoryview:
        left = (self._head if self._body is None else self._body)[self._at :]
        return left or self._head  # bytes beyond the end, which `buffer_updated` does not forgive

    def buffer_updated(self, nbytes: int) -> None:
        self._at += nbytes
        self._progress += nbytes
        if self._done is None or self._done.done():
            self.abort()  # nobody asked for this
        elif self._body is None:
            self._end_head(self._done)
        elif self._at == len(self._body):
            self._done.set_result(self._headers)

    def _end_head(self, done: asyncio.Future[dict[str, str] | None]) -> None:
        """Where the head has ended, begin the body with what came after it."""
        head, separator, rest = bytes(self._head[: self._at]).partition(b"\r\n\r\n")
        if not separator:
            if self._at == HEAD_BYTES_MAX:
                done.set_result(None)
            return
        assert self._target is not None
        size = self._size_of(head)
        if size is None or not len(rest) <= size <= len(self._target):
            done.set_result(None)
            return
        self._body, self._at = self._target[:size], len(rest)
        self._body[: len(rest)] = rest
        if self._at == size:
            done.set_result(self._headers)

    def _size_of(self, head: bytes) -> int | None:
        """The length of the body, if the answer is a range of known length."""
        line, *lines = head.decode("latin-1").split("\r\n")
        pairs = (line.partition(":")[::2] for line in lines)
        self._headers = {name.strip().lower(): value.strip() for name, value in pairs}
        version, _, status = line.partition(" ")
        self.status = int(status[:3]) if status[:3].isdecimal() else 0
        self._stays = version == "HTTP/1.1" and self._headers.get("connection", "").lower() != "close"
        length = self._headers.get("content-length", "")
        is_range = self.status == 206 and "content-range" in self._headers and "transfer-encoding" not in self._headers
        return int(length) if is_range and length.isdecimal() else None


def _place(url: SplitResult) -> str:
    return f"{url.scheme}://{url.hostname}:{_port(url)}"


def _port(url: SplitResult) -> int:
    return url.port or PORTS[url.scheme]


def host_of(url: SplitResult) -> str:
    """The Host header of a request, as botocore signs it and HTTP clients send it."""
    host = f"[{url.hostname}]" if ":" in (url.hostname or "") else str(url.hostname)
    return host if url.port in (None, PORTS.get(url.scheme)) else f"{host}:{url.port}"


def _head(request: Any, url: SplitResult) -> bytes:
    """A prepared request as it goes over the wire."""
    headers: Mapping[str, Any] = request.headers
    lines = [f"{request.method} {url.path or '/'}{'?' if url.query else ''}{url.query} HTTP/1.1"]
    if "Host" not in headers:
        lines.append(f"Host: {host_of(url)}")
    lines.append("Accept-Encoding: identity")
    lines += [f"{name}: {value.decode() if isinstance(value, bytes) else value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")
