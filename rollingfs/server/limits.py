"""Bounds on a server's memory and time: concurrent requests, slow clients, and the stop."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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
        """Receives a body, as long as it is not too large, its client not too slow, and the server does not stop."""
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
