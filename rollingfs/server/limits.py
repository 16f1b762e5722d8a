"""What keeps a server's memory and time bounded: how many requests at once, how slow a client may be, and the stop."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rollingfs.server.problems import Refused, problem

T = TypeVar("T")

STALL_S = 30.0
RATE_BYTES_MIN = 1024
"""Minimum bytes a second, over the time that the server waits for a client, once that exceeds the stall."""
OPEN_PATHS = ("/healthz", "/readyz", "/metrics")
"""They answer whatever else is going on."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a server does at once."""

    requests: int = 256
    """Maximum requests at once, without tails."""
    tails: int = 5000
    """Maximum clients that follow segments."""
    body_bytes: float = math.inf
    """Maximum bytes of a body."""
    stall_s: float = STALL_S
    """Time that a client may let the server wait."""
    stop_s: float = 30.0
    """Time for requests that run when the server is told to stop."""


class Limited:
    """Wraps an application: refuses requests beyond the limits, and cuts off slow clients.

    Attributes
    ----------
    running, following : int
        Requests and tails that run.
    on_stop : callable
        Called when the server is told to stop.
    """

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self.app, self.limits = app, limits
        self.stopping = asyncio.Event()
        self.running = self.following = 0
        self.on_stop: Callable[[], None] = lambda: None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in OPEN_PATHS:
            await self.app(scope, receive, send)
            return
        is_tail = scope.get("raw_path", b"").endswith(b":tail")
        try:
            self._check(Headers(scope=scope), is_tail)
        except Refused as refused:
            refused.headers["Connection"] = "close"
            await problem(refused, "")(scope, receive, send)
            return
        self._count(is_tail, 1)
        try:
            await self.app(scope, _Wire(self, receive).receive, send)
        finally:
            self._count(is_tail, -1)

    def _check(self, headers: Headers, is_tail: bool) -> None:
        if self.stopping.is_set():
            raise Refused(503, "the server stops; nothing was changed: ask again, another server may answer")
        full = self.following >= self.limits.tails if is_tail else self.running >= self.limits.requests
        if full:
            raise Refused(429, "the server has as many requests as it takes; nothing was changed: ask again")
        size = headers.get("content-length", "0")
        if not (size.isascii() and size.isdigit()):
            raise Refused(400, "the Content-Length is not a number; nothing was changed")
        if int(size[:20]) > self.limits.body_bytes:
            raise self.too_large()

    def too_large(self) -> Refused:
        """The refusal of a body."""
        return Refused(413, f"the body has more than {self.limits.body_bytes} bytes; nothing was changed")

    def _count(self, is_tail: bool, change: int) -> None:
        if is_tail:
            self.following += change
        else:
            self.running += change

    def stop(self) -> None:
        """Refuse what comes from now on and bodies that are not whole, and end tails; what commits, commits."""
        self.stopping.set()
        self.on_stop()


class _Wire:
    """The body of one request, with the time that the server has waited for the client."""

    def __init__(self, limited: Limited, receive: Receive) -> None:
        self._limited, self._receive = limited, receive
        self._got, self._got_s = 0, 0.0
        self._is_whole = False

    async def receive(self) -> Message:
        """The next part of the body.

        Raises
        ------
        Refused
            The client is too slow, the body too large, or the server stops.
        """
        if self._is_whole:
            return await self._receive()  # Starlette waits for the client to go
        limits, began_s = self._limited.limits, time.monotonic()
        try:
            message = await self._or_stop(self._receive, self._left_s())
        except TimeoutError as error:
            text = "the body came too slowly, so it was cut off; nothing was changed"
            raise Refused(408, text, {"Connection": "close"}) from error
        self._got_s += time.monotonic() - began_s
        self._got += len(message.get("body", b""))
        self._is_whole = not message.get("more_body", False)
        if self._got > limits.body_bytes:
            raise self._limited.too_large()
        return message

    async def _or_stop(self, call: Callable[[], Awaitable[Message]], timeout_s: float) -> Message:
        """What a call gives, unless the server stops first."""
        stop = asyncio.ensure_future(self._limited.stopping.wait())
        wanted = asyncio.ensure_future(call())
        try:
            await asyncio.wait({stop, wanted}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            if wanted.done():
                return wanted.result()
            if stop.done():
                text = "the server stops and the body is not whole; nothing was changed: send it again"
                raise Refused(503, text, {"Connection": "close"})
            raise TimeoutError
        finally:
            stop.cancel()
            wanted.cancel()

    def _left_s(self) -> float:
        """How long the client may let the server wait now."""
        stall_s = self._limited.limits.stall_s
        return max(0.0, min(stall_s, stall_s + self._got / RATE_BYTES_MIN - self._got_s))
