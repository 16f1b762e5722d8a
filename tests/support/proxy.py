"""A reverse proxy on loopback that records what goes over the wire and loses, refuses or drops it on demand."""

from __future__ import annotations

import contextlib
import http.client
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

DROP_BEFORE = "drop before"
"""End the connection; the server never sees the request."""
DROP_AFTER = "drop after"
"""Let the server act, then end the connection without its answer."""
CUT = "cut"
"""Let the server act, then end the connection in the middle of the answer's body."""
STALL = "stall"
"""Keep the connection open until the proxy ends; the server never sees the request."""
HOLD = "hold"
"""Let the server act, then keep the connection open, and its answer back, until the proxy ends."""

HOP_HEADERS = ("connection", "keep-alive", "transfer-encoding", "expect", "content-length")


@dataclass(frozen=True, slots=True)
class Seen:
    """One request on the wire."""

    method: str
    path: str
    headers: dict[str, str]
    """The names are in lower case."""


@dataclass(frozen=True, slots=True)
class Redirect:
    """A fault: the server never sees the request, and the client is sent to another path, as by a gateway."""

    status: int
    path: str


@dataclass
class Proxy:
    """What the proxy saw, and the faults that it has still to inject."""

    url: str
    seen: list[Seen] = field(default_factory=list)
    fault: Callable[[Seen], str | tuple[int, str | bytes] | Redirect | None] = lambda _: None
    """For each request: nothing, one of the words above, or the status and code (or whole body) of a refusal."""
    ended: threading.Event = field(default_factory=threading.Event)

    def fail(self, *faults: str | tuple[int, str], method: str = "") -> None:
        """Meet the next requests, or the next of `method`, with these faults, one each."""
        left = list(faults)
        self.fault = lambda seen: left.pop(0) if method in ("", seen.method) and left else None

    def of(self, method: str) -> list[Seen]:
        """The requests of one method."""
        return [seen for seen in self.seen if seen.method == method]


def proxy_to(endpoint_url: str) -> contextlib.AbstractContextManager[Proxy]:
    """A proxy in front of a server."""
    return serving(endpoint_url, Handler)


@contextlib.contextmanager
def serving(endpoint_url: str, handler: type[Handler]) -> Iterator[Proxy]:
    """A proxy whose requests a handler of its own forwards."""
    with in_background(ThreadingHTTPServer, handler) as server:
        server.proxy = Proxy(f"http://127.0.0.1:{server.server_port}")
        server.upstream = urlsplit(endpoint_url).netloc
        try:
            yield server.proxy
        finally:
            server.proxy.ended.set()


@contextlib.contextmanager
def in_background(make: Callable[..., Any], handler: Callable[..., Any]) -> Iterator[Any]:
    """A server on loopback, in a thread of its own."""
    server = make(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Handler(BaseHTTPRequestHandler):
    """Forwards a request, or meets it with the fault that the proxy has for it."""

    protocol_version = "HTTP/1.1"

    def _forward(self) -> None:
        proxy: Proxy = self.server.proxy  # type: ignore[attr-defined]
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        seen = Seen(self.command, self.path, {name.lower(): value for name, value in self.headers.items()})
        proxy.seen.append(seen)
        fault = proxy.fault(seen)
        if fault == STALL:
            proxy.ended.wait()
        if fault in (DROP_BEFORE, STALL):
            self.close_connection = True
            return
        if isinstance(fault, Redirect):
            self._answer(fault.status, [("Location", proxy.url + fault.path)], b"")
            return
        if isinstance(fault, tuple):
            code = fault[1]
            text = f"<Error><Code>{code}</Code><Message>by the proxy</Message></Error>".encode()
            headers = [("Content-Type", "application/xml"), ("Date", self.date_time_string())]
            self._answer(fault[0], headers, code if isinstance(code, bytes) else text)
            return
        upstream = http.client.HTTPConnection(self.server.upstream, timeout=60)  # type: ignore[attr-defined]
        try:
            sent = {name: value for name, value in self.headers.items() if name.lower() not in HOP_HEADERS}
            upstream.request(self.command, self.path, body, sent | {"Content-Length": str(len(body))})
            answer = upstream.getresponse()
            data = answer.read()
            if fault == HOLD:
                proxy.ended.wait()
            if fault in (DROP_AFTER, HOLD):
                self.close_connection = True
                return
            kept = [(name, value) for name, value in answer.getheaders() if name.lower() not in HOP_HEADERS]
            length = answer.getheader("Content-Length") if self.command == "HEAD" else None
            if fault == CUT:
                self.close_connection = True
                length, data = str(len(data)), data[: len(data) // 2]
            self._answer(answer.status, kept, data, length)
        finally:
            upstream.close()

    def _answer(self, status: int, headers: list[tuple[str, str]], data: bytes, length: str | None = None) -> None:
        self.send_response_only(status)
        for name, value in headers:
            self.send_header(name, value)
        if status not in (204, 304):
            self.send_header("Content-Length", length or str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _forward  # noqa: N815 - http.server's names
