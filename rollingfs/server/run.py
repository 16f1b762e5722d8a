"""The process: uvicorn with connections that end when a client stalls, and a stop that keeps what was acknowledged."""

from __future__ import annotations

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
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import HANDLED_SIGNALS

from rollingfs.server.limits import Limited

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
