"""The process: uvicorn with bounds on its memory and time, and a stop that keeps what was acknowledged.

Requests at once, bodies and slow clients are bounded.
"""

from __future__ import annotations

import asyncio
import math
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import h11
import uvicorn
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import HANDLED_SIGNALS

from rollingfs.runtime.values import value_class
from rollingfs.server.problems import problem

STALL_S = 30.0
RATE_BYTES_MIN = 1024
"""Minimum bytes a second, over the time that the server waits for a client, once that exceeds the stall."""
OPEN_PATHS = ("/healthz", "/readyz", "/metrics")
"""They answer whatever else is going on."""
CLOSE = {"Connection": "close"}


@value_class
class Limits:
    """Work that a server does at once."""

    requests: int = 256
    """Maximum requests at once, without tails."""
    tails: int = 5000
    """Maximum clients that follow segments."""
    body_bytes: float = math.inf
    """Maximum bytes of a body."""
    stall_s: float = STALL_S
    """Time that a client may let the server wait."""
    stop_s: float = 30.0
    """Time for requests that run when the server stops."""


class Limited:
    """Wraps an application: refuses requests beyond the limits, and cuts off slow clients.

    Parameters
    ----------
    on_stop
        Called when the server begins to stop.

    Attributes
    ----------
    running : dict
        The "requests" and "tails" that run.
    """

    def __init__(self, app: ASGIApp, limits: Limits, on_stop: Callable[[], None]) -> None:
        self.app, self.limits, self.on_stop = app, limits, on_stop
        self.is_stopping = False
        self.running = {"requests": 0, "tails": 0}
        self._waits: set[asyncio.Timeout] = set()
        """For parts of bodies."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in OPEN_PATHS:
            await self.app(scope, receive, send)
            return
        kind = "tails" if scope["raw_path"].endswith(b":tail") else "requests"
        try:
            self._check(Headers(scope=scope).get("content-length", "0"), kind)
        except HTTPException as refused:
            await problem(refused)(scope, receive, send)
            return
        self.running[kind] += 1
        try:
            await self.app(scope, self._patient(receive), send)
        finally:
            self.running[kind] -= 1

    def _check(self, size: str, kind: str) -> None:
        if self.is_stopping:
            raise HTTPException(503, "the server stops; nothing was changed: ask again, another may answer", CLOSE)
        if self.running[kind] >= getattr(self.limits, kind):
            raise HTTPException(429, "the server has as many requests as it takes; nothing was changed", CLOSE)
        self._check_size(int(size))  # h11 lets no other through

    def _check_size(self, size: int) -> None:
        if size > self.limits.body_bytes:
            text = f"the body has more than {self.limits.body_bytes} bytes; nothing was changed"
            raise HTTPException(413, text, CLOSE)

    def _patient(self, receive: Receive) -> Receive:
        """Receive a body, if it is not too large, its client not too slow, and the server does not stop."""
        stall_s = self.limits.stall_s
        got, waited_s, is_whole = 0, 0.0, False

        async def part() -> Message:
            nonlocal got, waited_s, is_whole
            if is_whole:
                return await receive()  # Starlette waits for the client to go
            began_s = time.monotonic()
            left_s = 0.0 if self.is_stopping else min(stall_s, stall_s + got / RATE_BYTES_MIN - waited_s)
            try:
                async with asyncio.timeout(left_s) as wait:
                    self._waits.add(wait)
                    message = await receive()
            except TimeoutError as error:
                text = "the server stops and the body is not whole; nothing was changed: send it again"
                if not self.is_stopping:
                    text = "the body came too slowly, so it was cut off; nothing was changed"
                raise HTTPException(503 if self.is_stopping else 408, text, CLOSE) from error
            finally:
                self._waits.discard(wait)
            waited_s += time.monotonic() - began_s
            got += len(message.get("body", b""))
            is_whole = not message.get("more_body", False)
            self._check_size(got)
            return message

        return part

    def stop(self) -> None:
        """Refuse what comes from now on and bodies that are not whole, and end tails; what commits, commits."""
        self.is_stopping = True
        for wait in self._waits:
            if not wait.expired():
                wait.reschedule(0)
        self.on_stop()


KEEP_ALIVE_S = 15
HEAD_BYTES_MAX = 64 * 1024
TICKS = 10
"""uvicorn ticks so often a second."""


class Protocol(H11Protocol):
    """Takes raw UTF-8 in a path, as Hadoop's client sends it."""

    def data_received(self, data: bytes) -> None:
        if self.conn.their_state is h11.IDLE:
            line, *rest = data.split(b"\r\n", 1)
            data = b"\r\n".join([quote(line, safe=bytes(range(128))).encode(), *rest])
        super().data_received(data)


class Server(uvicorn.Server):
    """Tells the application first when it is to stop, and cuts off clients that stall outside of a body."""

    def __init__(self, config: uvicorn.Config, app: Limited, started: Callable[[int], None] | None) -> None:
        super().__init__(config)
        self._app, self._on_start = app, started
        self._waiting: dict[Any, tuple[object, float]] = {}
        """The connections that wait for their clients, in which state and since when."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._on_start is not None and self.servers:
            bound = self.servers[0].sockets[0].getsockname()
            self._on_start(bound[1] if isinstance(bound, tuple) else 0)

    async def on_tick(self, counter: int) -> bool:
        if counter % TICKS == 0:
            waiting, self._waiting = self._waiting, {}
            for one in list(self.server_state.connections):
                self._look(one, waiting)
        return await super().on_tick(counter)

    def _look(self, connection: Any, waiting: dict[Any, tuple[object, float]]) -> None:
        """Cut a client off that sends no more of a head, or takes no more of an answer."""
        cycle, now = connection.cycle, time.monotonic()
        is_in_head = connection.timeout_keep_alive_task is None and (cycle is None or cycle.response_complete)
        if not (is_in_head or connection.flow.write_paused):
            return
        state = cycle, connection.transport.get_write_buffer_size()
        before, since = waiting.get(connection, (None, now))
        self._waiting[connection] = state, since if before == state else now
        if now - self._waiting[connection][1] > self._app.limits.stall_s:
            connection.transport.abort()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._app.stop()
        await super().shutdown(sockets)


def serve(
    app: Limited,
    host: str,
    port: int,
    started: Callable[[int], None] | None = None,
    *,
    uds: str | None = None,
    **tls: Path | None,
) -> None:
    """Serve until SIGTERM or Ctrl-C; what was acknowledged by then is committed. Then the process ends.

    Parameters
    ----------
    started
        Called with the port, once it listens; with 0 for a Unix socket.
    uds
        The path of a Unix socket, in place of the host and the port.
    tls
        uvicorn's `ssl_certfile` and `ssl_keyfile`.
    """
    for number in HANDLED_SIGNALS:
        signal.signal(number, lambda *_: sys.exit())  # uvicorn raises the signal again once it has stopped
    options: dict[str, Any] = {"ws": "none", "loop": "asyncio", "lifespan": "on", **tls}
    options |= {"http": Protocol, "h11_max_incomplete_event_size": HEAD_BYTES_MAX, "server_header": False}
    options |= {"timeout_keep_alive": KEEP_ALIVE_S, "timeout_graceful_shutdown": int(app.limits.stop_s)}
    options |= {"access_log": False, "log_config": None}  # a URL of WebHDFS may have a token
    config = uvicorn.Config(app, host=host, port=port, uds=uds, **options)
    Server(config, app, started).run()
