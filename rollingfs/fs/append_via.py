"""Small appends through a server of rollingfs near this process, whose appends share commits with other clients.

Each append is sent until its outcome is known: it has a writer and a number, by which the commit refuses the same
append twice. A writer has a single append under way; threads and tasks that append at the same time have a writer each.
"""

from __future__ import annotations

import asyncio
import errno
import os
import time
import uuid
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import aiohttp
from yarl import URL

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
from rollingfs.runtime.system import check_unix_socket
from rollingfs.segment.at import At

VIA_BYTES_MAX = 256 * 1024
"""A longer append goes to the store directly."""
KNOWN_MAX = 1024
"""Maximum segments whose incarnation is remembered."""
TOKEN = "ROLLINGFS_SERVER_TOKEN"
"""The environment variable with the token for the server."""
UNCHANGED = "nothing was changed"
"""The server's words for an append that it has not made."""
AGAIN = {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE}
"""Statuses of an append that was not made now, and may be made later."""
REFUSALS = {"FileNotFound": FileNotFoundError, "SegmentSealed": SegmentSealedError, "Fenced": FencedError}
REFUSALS |= {"UnsafeBackend": UnsafeBackendError, "LostCommit": UnsafeBackendError}
REFUSALS |= {"Status401": PermissionError, "Status403": PermissionError}
"""The errors for refusals by their titles; `OSError` for any other."""


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
        is_whole = parts.hostname and parts.port != 0 and not parts.query and not parts.username
        if parts.scheme not in ("http", "http+unix") or not is_whole:
            raise ValueError(f"append_via is {url!r}: give http://HOST:PORT/FOLDER or http+unix://SOCKET/FOLDER")
        if not client.backend.is_async:
            raise ValueError("append_via is for object stores; on a disk and in memory appends need no server")
        self.url, self._client, self._timeout_s = url, client, timeout_s
        self._socket = check_unix_socket(unquote(parts.netloc)) if parts.scheme == "http+unix" else None
        self._origin = f"http://{parts.netloc if self._socket is None else 'localhost'}"
        self._below = f"{unquote(parts.path).strip('/')}/".lstrip("/")
        self._process = os.getpid()
        self._idle: list[tuple[str, int]] = []
        """Writers whose last append has a known outcome: the name, and the number of that append."""
        self._known: dict[str, tuple[str, int]] = {}

    async def append(self, path: str, data: bytes) -> int | None:
        """Append through the server; None if the append is to go to the store directly."""
        if self._process != os.getpid():
            self._idle, self._process = [], os.getpid()  # those are the parent's
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
        place = quote(path.removeprefix(self._below), errors="surrogateescape")
        while True:
            name, number = self._idle.pop() if self._idle else (uuid.uuid4().hex, 0)
            # in the query, because an older server refuses a parameter that it does not know, and skips a header
            words = quote(f"{name} {number + 1} {known[1]} {known[0]}")
            url = URL(f"{self._origin}/v1/segments/{place}?writer={words}", encoded=True)
            status, answer = await self._sent(path, url, data, until_s)
            self._idle.append((name, number + 1))  # its outcome is known
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

    async def _sent(self, path: str, url: URL, data: bytes, until_s: float) -> tuple[int, Mapping[str, Any]]:
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
                    status, answer = await self._answer(url, data)
            except (OSError, aiohttp.ClientError, ValueError) as error:
                # without a connection, no byte was sent
                is_open, why = is_open or not isinstance(error, aiohttp.ClientConnectorError), repr(error)
            else:
                why, is_changed = f"{status}: {answer.get('detail')}", answer.get("changed") != UNCHANGED
                if status == HTTPStatus.OK or not (is_open or is_changed or status in AGAIN):
                    return status, answer
                if not is_changed and status not in AGAIN:
                    break
                is_open = is_open or is_changed
            attempt += 1
            await asyncio.sleep(min(backoff_s(attempt), max(0.0, until_s - time.monotonic())))
        if is_open:
            said = f"{path}: whether the append took place is unknown: the server at {self.url} did not say so ({why})"
            raise AppendOutcomeUnknown(f"{said}; read the segment before repeating it")
        raise CommitTimeoutError(f"{path}: the server at {self.url} took no append ({why}); nothing was written")

    async def _answer(self, url: URL, data: bytes) -> tuple[int, Mapping[str, Any]]:
        """Send a request once, on a connection of its own; returns the status, and the fields of the JSON.

        A connection that stays would have to be closed on its loop and never in a child process.
        """
        token, limits = os.environ.get(TOKEN), aiohttp.ClientTimeout()
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        place = None if self._socket is None else aiohttp.UnixConnector(self._socket, force_close=True)
        sent: dict[str, Any] = {"data": data, "headers": headers, "timeout": limits, "allow_redirects": False}
        async with aiohttp.request("POST", url, connector=place, **sent) as answer:
            found = await answer.json(content_type=None)
            if not isinstance(found, dict) or not found.keys() & {"offset", "changed"}:
                raise ValueError(f"{answer.status} without the words of a server of rollingfs, as of a proxy")
            return answer.status, found
