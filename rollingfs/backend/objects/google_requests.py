"""Requests to Google's storage, with the credentials, the address and the connections of a gcsfs filesystem.

gcsfs' own verbs are not used, because they repeat conditional writes, and because the newest releases first ask what
kind of bucket it is, for as long as a minute. The requests belong to Google's JSON API, each sent once.

Private names in use: `_set_session` of gcsfs, which opens the connections, and `_session`, which closes them; there is
no public way.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import aiohttp
import google.auth.exceptions
import yarl
from gcsfs import GCSFileSystem

from rollingfs.backend.objects.bucket import read_up_to
from rollingfs.backend.objects.errors import Refusal
from rollingfs.backend.objects.obstores import requests
from rollingfs.backend.objects.obstores.forks import HomeLoop, clone_of
from rollingfs.runtime.values import value_class

_NO_BUCKET = "bucket does not exist"


@value_class
class Reply:
    """An answer of Google's."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def value(self) -> dict[str, Any]:
        """Return the JSON in it."""
        found: dict[str, Any] = json.loads(self.body)
        return found


class GoogleRequests:
    """Service that a gcsfs filesystem may reach.

    Parameters
    ----------
    fs
        Its class and storage options are used, in a private clone.
    """

    def __init__(self, fs: GCSFileSystem) -> None:
        self.fs = clone_of(fs)
        self._home = HomeLoop()

    def after_fork(self) -> None:
        """Take a new clone, with its own connections and loop."""
        self.fs = clone_of(self.fs, forked=True)
        self._home = HomeLoop()

    async def close(self) -> None:
        """Close the connections."""
        if self._home.is_left():
            self.fs = clone_of(self.fs)
        elif self.fs._session is not None:
            session, self.fs._session = self.fs._session, None
            await session.close()

    async def send(
        self,
        method: str,
        path: str,
        *,
        data: bytes = b"",
        kind: str = "",
        headers: Mapping[str, str] | None = None,
        accept: frozenset[int] = frozenset(),
        bytes_max: int | None = None,
        **parameters: Any,
    ) -> Reply:
        """Send one request, once.

        Parameters
        ----------
        path
            Below the API, or a whole URL, quoted already.
        data, kind
            The body and its content type.
        accept
            Statuses other than success that the caller handles.
        bytes_max
            Read no more than this of the answer's body.

        Raises
        ------
        Refusal, ConnectionError, TimeoutError
        """
        if self._home.is_left():
            self.fs = clone_of(self.fs)
        sent = dict(headers or {})
        if kind:
            sent["Content-Type"] = kind
        try:
            self.fs.credentials.apply(sent)
        except google.auth.exceptions.GoogleAuthError as error:
            raise Refusal(401, "NoCredentials", f"Google gave no token for these credentials: {error}") from None
        is_large = not requests.is_quick([data])
        send_s = requests.SEND_S_MAX if is_large else 0.0
        body = io.BytesIO(data) if is_large else data  # aiohttp sends a large one of bytes in one go, blocking its loop
        read_s = requests.READ_S_MAX
        limits = aiohttp.ClientTimeout(
            requests.READS_MAX * read_s + send_s, sock_connect=requests.CONNECT_S_MAX, sock_read=read_s + send_s
        )
        if self.fs.requests_timeout is not None:
            limits = aiohttp.ClientTimeout(total=self.fs.requests_timeout)
        url = self._url(path, parameters)
        try:
            session = await self.fs._set_session()
            follows = method == "GET"  # others would become a GET, whose answer says nothing of them
            async with session.request(
                method, url, data=body, headers=sent, timeout=limits, allow_redirects=follows
            ) as answer:
                reply = Reply(answer.status, answer.headers, await read_up_to(answer.content, bytes_max))
        except TimeoutError as error:
            raise TimeoutError(f"{url.origin()} did not answer in time") from error
        except aiohttp.ClientError as error:
            raise ConnectionError(f"no whole answer came from {url.origin()}: {_reason(error)}") from error
        if reply.status >= 300 and reply.status not in accept:
            raise _refusal(reply)
        return reply

    def _url(self, path: str, parameters: Mapping[str, Any]) -> yarl.URL:
        base = path if path.startswith("http") else f"{self.fs.base}{path}"
        given = {name: value for name, value in parameters.items() if value is not None}
        if self.fs.requester_pays:
            given["userProject"] = (
                self.fs.requester_pays if isinstance(self.fs.requester_pays, str) else self.fs.project
            )
        mark = "&" if "?" in base else "?"
        return yarl.URL(f"{base}{mark}{urlencode(given)}" if given else base, encoded=True)

    @property
    def upload_base(self) -> str:
        """Return the URL for new files."""
        base: str = self.fs.base
        return base.replace("/storage/v1/", "/upload/storage/v1/")


def _refusal(reply: Reply) -> Refusal:
    try:
        said = reply.value["error"]
        code, message = said["errors"][0]["reason"], said["message"]
    except (ValueError, KeyError, TypeError, IndexError):
        code, message = str(reply.status), reply.body[:200].decode(errors="replace").strip()
    if reply.status == 404 and _NO_BUCKET in message:
        code = "NoSuchBucket"
    return Refusal(reply.status, code, message)


def _reason(error: Exception) -> str:
    return str(getattr(error, "os_error", None) or error)
