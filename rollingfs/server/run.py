"""The process: uvicorn with connections that end when a client stalls, and a stop that keeps what was acknowledged."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from rollingfs.server.access import LOOPBACK
from rollingfs.server.limits import Limited

PORT = 9870
KEEP_ALIVE_S = 15
BACKLOG = 1024
HEAD_BYTES_MAX = 64 * 1024


@dataclass(frozen=True, slots=True)
class Listen:
    """Where a server listens."""

    host: str = "127.0.0.1"
    port: int = PORT
    certificate: str | None = None
    key: str | None = None

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches it."""
        with contextlib.suppress(ValueError):
            return ipaddress.ip_address(self.host).is_loopback
        return self.host == "localhost"


def protocol(stall_s: float) -> type[H11Protocol]:
    """Connections that are cut off when their client stalls in a head, or takes no bytes of an answer."""

    class Patient(H11Protocol):
        _timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._wait()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            cycle: RequestResponseCycle | None = self.cycle
            if cycle is not None and not cycle.response_complete:
                self._done()
            elif self._timer is None:
                self._wait()

        def pause_writing(self) -> None:
            super().pause_writing()
            self._wait()

        def resume_writing(self) -> None:
            super().resume_writing()
            self._done()

        def connection_lost(self, exc: Exception | None) -> None:
            self._done()
            super().connection_lost(exc)

        def _wait(self) -> None:
            self._done()
            self._timer = self.loop.call_later(stall_s, self.transport.abort)

        def _done(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    return Patient


class Server(uvicorn.Server):
    """Tells the application first when it is to stop."""

    def __init__(self, config: uvicorn.Config, app: Limited, started: Callable[[int], None] | None = None) -> None:
        super().__init__(config)
        self._app, self._on_start = app, started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._on_start is not None and self.servers:
            self._on_start(self.servers[0].sockets[0].getsockname()[1])

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._app.stop()
        await super().shutdown(sockets)


def make_server(app: Limited, listen: Listen, started: Callable[[int], None] | None = None) -> Server:
    """A server for an application of `make_app`.

    Parameters
    ----------
    started
        Called with the port, once it listens.
    """
    limits = app.limits
    config = uvicorn.Config(
        app,
        host=listen.host,
        port=listen.port,
        http=protocol(limits.stall_s),
        ws="none",
        loop="asyncio",
        lifespan="on",
        access_log=False,  # a URL of WebHDFS may have a token
        log_config=None,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=int(limits.stop_s),
        backlog=BACKLOG,
        h11_max_incomplete_event_size=HEAD_BYTES_MAX,
        ssl_certfile=listen.certificate,
        ssl_keyfile=listen.key,
    )
    return Server(config, app, started)


def serve(app: Limited, listen: Listen, started: Callable[[int], None] | None = None) -> None:
    """Serve until SIGTERM or Ctrl-C; what was acknowledged by then is committed."""
    before = {number: signal.signal(number, _ignored) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        make_server(app, listen, started).run()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _ignored(number: int, frame: FrameType | None) -> None:
    """Take the signal that uvicorn raises again once it has stopped."""


def default_hosts(listen: Listen) -> tuple[str, ...]:
    """The names by which a browser may call a server on the loopback."""
    return (*LOOPBACK, listen.host) if listen.is_loopback else ()
