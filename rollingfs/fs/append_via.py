"""Small appends through a server of rollingfs near this process, whose appends share commits with other clients.

Each append is sent until its outcome is known: it has a writer and a number, by which the commit refuses the same
append twice. A writer has a single append under way; threads and tasks that append at the same time have a writer each.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import socket
import time
import uuid
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from rollingfs.errors import (
    AppendOutcomeUnknown,
    CommitTimeoutError,
    FencedError,
    SegmentSealedError,
    UnsafeBackendError,
)
from rollingfs.format.append_keys import gone_of
from rollingfs.format.header import Phase
from rollingfs.runtime.concurrency import backoff_s
from rollingfs.runtime.meters import APPEND
from rollingfs.runtime.system import unix_family
from rollingfs.segment.at import At

VIA_BYTES_MAX = 256 * 1024
"""A longer append goes to the store directly."""
KNOWN_MAX = 1024
"""Maximum segments whose incarnation is remembered."""
TOKEN = "ROLLINGFS_SERVER_TOKEN"
"""The environment variable with the token for the server."""
RECEIVE_BYTES = 64 * 1024
NOT_SENT = (ConnectionRefusedError, FileNotFoundError, socket.gaierror)
"""Errors of a server that is not there."""
UNCHANGED = "nothing was changed"
"""The server's words for an append that it has not made."""
AGAIN = {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE}
"""Statuses of an append that was not made now, and may be made later."""
REFUSALS = {"FileNotFound": FileNotFoundError, "SegmentSealed": SegmentSealedError, "Fenced": FencedError}
REFUSALS |= {"UnsafeBackend": UnsafeBackendError, "LostCommit": UnsafeBackendError}
REFUSALS |= {"Status401": PermissionError, "Status403": PermissionError}
"""The errors for refusals by their titles; `OSError` for any other."""


@dataclass(eq=False)
class _Writer:
    """A writer, and its connection."""

    name: str = field(default_factory=lambda: uuid.uuid4().hex)
    number: int = 0
    connection: socket.socket | None = None

    def connect(self, family: int) -> socket.socket:
        """Make a connection, which is closed with its writer, also where both are garbage that refers to itself."""
        self.connection = socket.socket(family)  # a stream that ends in a child deafens the parent's loop
        self.connection.setblocking(False)
        self._closing = weakref.finalize(self, self.connection.close)
        return self.connection

    def close(self) -> None:
        if self.connection is not None:
            self._closing()
        self.connection = None


class Via:
    """The way of small appends through a server.

    Parameters
    ----------
    url
        ``http://HOST:PORT/FOLDER``, or ``http+unix://SOCKET/FOLDER`` with ``%2F`` for the slashes of the socket's path.
        The server serves FOLDER; an append outside of it goes to the store directly.
    timeout_s
        An append gives up after this many seconds.

    Raises
    ------
    ValueError
        The URL is another, or the calls of the store are not awaited: a disk needs no server.
    """

    def __init__(self, url: str, client: At, timeout_s: float) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "http+unix") or not parts.netloc or parts.query or parts.username:
            raise ValueError(f"append_via is {url!r}: give http://HOST:PORT/FOLDER or http+unix://SOCKET/FOLDER")
        if not client.backend.is_async:
            raise ValueError("append_via is for object stores; on a disk and in memory appends need no server")
        self.url, self._client, self._timeout_s = url, client, timeout_s
        self._family: int = socket.AF_INET6 if ":" in (parts.hostname or "") else socket.AF_INET
        self._address: Any = parts.hostname, parts.port or 80
        if parts.scheme == "http+unix":
            self._family, self._address = unix_family(), unquote(parts.netloc)
        folder = unquote(parts.path).strip("/")
        self._below = f"{folder}/" if folder else ""
        self._begin()

    def _begin(self) -> None:
        """Begin without writers and connections: at first, and in a child process."""
        self._process = os.getpid()
        self._idle: list[_Writer] = []
        self._known: dict[str, tuple[str, int]] = {}

    async def append(self, path: str, data: bytes) -> int | None:
        """Append through the server; None if the append is to go to the store directly."""
        if self._process != os.getpid():
            self._begin()
        if len(data) > VIA_BYTES_MAX or not path.startswith(self._below):
            return None
        known = self._known.get(path) or await self._learn(path)
        if known is None:
            return None
        call = self._client.runtime.shield(self._append_and_forget(path, data, known))
        return await self._client.meters.measure(APPEND, call, len(data))

    async def _learn(self, path: str) -> tuple[str, int] | None:
        """Look which incarnation is there, and how many entries of writers have gone; None if it is not open to all."""
        header = (await self._client.headers.load(path)).header
        if header is None or header.phase is not Phase.OPEN or header.owner is not None:
            return None
        if len(self._known) >= KNOWN_MAX:
            self._known.clear()
        self._known[path] = known = header.segment, gone_of(header.attrs)
        return known

    async def _append_and_forget(self, path: str, data: bytes, known: tuple[str, int]) -> int:
        """Append, and let the next read show what is there, also if the outcome is unknown or the caller is gone."""
        try:
            return await self._append(path, data, known)
        finally:
            if self._client.headers.cache_s:
                self._client.headers.forget(path)

    async def _append(self, path: str, data: bytes, known: tuple[str, int]) -> int:
        until_s = time.monotonic() + self._timeout_s
        token = os.environ.get(TOKEN)
        while True:
            writer = self._idle.pop() if self._idle else _Writer()
            writer.number += 1
            place = quote(path.removeprefix(self._below), errors="surrogateescape")
            # in the query, because an older server refuses a parameter that it does not know, and skips a header
            words = quote(f"{writer.name} {writer.number} {known[1]} {known[0]}")
            lines = [f"POST /v1/segments/{place}?writer={words} HTTP/1.1", "Host: localhost"]
            lines += [f"Content-Length: {len(data)}", *([f"Authorization: Bearer {token}"] if token else []), "", ""]
            status, answer = await self._sent(path, writer, "\r\n".join(lines).encode() + data, until_s)
            self._idle.append(writer)  # its outcome is known
            if status == HTTPStatus.OK:
                return int(answer["offset"])
            title = str(answer.get("title"))
            found = await self._learn(path) if title in ("FileNotFound", "Forgotten") else None
            if found is None or found == known:
                why = f"the server at {self.url} refused the append, and nothing was written: {answer.get('detail')}"
                kind = REFUSALS.get(title, OSError)
                hint = "; it must serve the folder that the URL names" if kind is FileNotFoundError else ""
                raise kind(errno.EIO, f"{why}{hint}", path)
            known = found  # another segment has the name, or more entries of writers have gone

    async def _sent(self, path: str, writer: _Writer, request: bytes, until_s: float) -> tuple[int, Mapping[str, Any]]:
        """Return the answer to a request, which is sent again until it is answered.

        Raises
        ------
        CommitTimeoutError
            There is no answer in time, and the server has never had the request.
        AppendOutcomeUnknown
            There is no answer in time, or the server refuses a repeat and does not know of the request before.
        """
        attempt, is_open, why = 0, False, "no time was left"
        while (left_s := until_s - time.monotonic()) > 0:
            try:
                async with asyncio.timeout(left_s):
                    status, answer = await self._answer(writer, request)
            except (OSError, EOFError, ValueError) as error:
                is_open, why = is_open or not isinstance(error, NOT_SENT), repr(error)
                writer.close()
            else:
                why, is_changed = f"{status}: {answer.get('detail')}", answer.get("changed") != UNCHANGED
                if status == HTTPStatus.OK or not (is_open or is_changed or status in AGAIN):
                    return status, answer
                if not is_changed and status not in AGAIN:
                    break
                is_open = is_open or is_changed
            attempt += 1
            await asyncio.sleep(min(backoff_s(attempt), max(0.0, until_s - time.monotonic())))
        writer.close()
        if is_open:
            said = f"{path}: whether the append took place is unknown: the server at {self.url} did not say so ({why})"
            raise AppendOutcomeUnknown(f"{said}; read the segment before repeating it")
        raise CommitTimeoutError(f"{path}: the server at {self.url} took no append ({why}); nothing was written")

    async def _answer(self, writer: _Writer, request: bytes) -> tuple[int, Mapping[str, Any]]:
        """Send a request once; returns the status, and the fields of the JSON."""
        loop, got = asyncio.get_running_loop(), b""
        connection = writer.connection
        if connection is None or _has_ended(connection):  # while it was idle, so nothing is in doubt
            writer.close()
            connection = writer.connect(self._family)
            await loop.sock_connect(connection, self._address)
        await loop.sock_sendall(connection, request)
        while True:
            head, is_whole, body = got.partition(b"\r\n\r\n")
            size = head.lower().partition(b"content-length: ")[2].partition(b"\r")[0]
            if is_whole and len(body) >= int(size):
                return int(head.split(b" ", 2)[1]), json.loads(body)
            part = await loop.sock_recv(connection, RECEIVE_BYTES)
            if not part:
                raise EOFError("the server ended the connection")
            got += part


def _has_ended(connection: socket.socket) -> bool:
    """Whether the server has ended an idle connection."""
    try:
        connection.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except OSError:
        return True  # it is reset
    return True  # its end, or bytes for which no request asked
