"""An account of Google's storage: requests with the credentials, the address and the connections of a gcsfs filesystem.

gcsfs' own verbs are not used, because they repeat conditional writes, and because the newest releases first ask what
kind of bucket it is, for as long as a minute. The requests belong to Google's JSON API, each sent once.

Private names in use: `_set_session` of gcsfs, which opens the connections, and `_session`, which closes them; there is
no public way.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import quote, urlencode

import aiohttp
import google.auth.exceptions
import yarl
from gcsfs import GCSFileSystem

from rollingfs.backend.objects.bucket import (
    CONNECT_S_MAX,
    READ_S_MAX,
    READS_MAX,
    SEND_S_MAX,
    RecentBuckets,
    is_quick,
    read_up_to,
)
from rollingfs.backend.objects.cloned import ClonedBackend
from rollingfs.backend.objects.clouds import names_of
from rollingfs.backend.objects.google_bucket import GoogleBucket, Reply
from rollingfs.backend.objects.request_errors import Refusal

_NO_BUCKET = "bucket does not exist"
COMMIT_INTERVAL_S = 1.0
"""Google takes one write a second of an object, and answers 429 to more."""


class GoogleBackend(ClonedBackend):
    """Buckets that a gcsfs filesystem may reach.

    Parameters
    ----------
    fs
        Its class and storage options are used, in a private clone.
    """

    scheme = "gs"
    schemes = names_of(scheme)
    capability = replace(ClonedBackend.capability, can_delete_if=True, commit_interval_s=COMMIT_INTERVAL_S)
    part_bytes = ClonedBackend.put_bytes_max  # they are sent one after the other

    def __init__(self, fs: GCSFileSystem, max_concurrency: int | None = None) -> None:
        super().__init__(fs)
        self.capability = self.capability.limited(max_concurrency)
        self.buckets = RecentBuckets(partial(GoogleBucket, self.send))

    async def list_buckets(self) -> Sequence[str]:
        names: list[str] = []
        place: str | None = None
        while True:
            reply = await self.send("GET", "b", project=self.fs.project, pageToken=place)
            names += [bucket["name"] for bucket in reply.value.get("items", [])]
            place = reply.value.get("nextPageToken")
            if not place:
                return names

    async def make_bucket(self, name: str) -> None:
        place = self.fs.default_location
        settings = {"name": name} | ({"location": place} if place else {})
        data = json.dumps(settings).encode()
        await self.send("POST", "b", data=data, kind="application/json", project=self.fs.project)

    async def remove_bucket(self, name: str) -> None:
        await self.send("DELETE", f"b/{quote(name, safe='')}")

    async def bucket_name(self, bucket: str) -> str:
        return f"{self.fs.base}{bucket}"

    def check_key(self, key: str) -> str:
        if any(part in ("", ".", "..") for part in key.split("/")):
            return "a name with empty parts, '.' or '..' is not one that all tools can name"
        return "Google has no names with line ends" if {"\r", "\n"} & set(key) else ""

    async def disconnect(self) -> None:
        session, self.fs._session = self.fs._session, None
        if session is not None:
            await session.close()

    # -- requests ------------------------------------------------------------------------------------------

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
        self.come_home()
        sent = dict(headers or {})
        if kind:
            sent["Content-Type"] = kind
        try:
            self.fs.credentials.apply(sent)
        except google.auth.exceptions.GoogleAuthError as error:
            raise Refusal(401, "NoCredentials", f"Google gave no token for these credentials: {error}") from None
        is_large = not is_quick([data])
        send_s = SEND_S_MAX if is_large else 0.0
        body = io.BytesIO(data) if is_large else data  # aiohttp sends a large one of bytes in one go, blocking its loop
        limits = aiohttp.ClientTimeout(
            READS_MAX * READ_S_MAX + send_s, sock_connect=CONNECT_S_MAX, sock_read=READ_S_MAX + send_s
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
            why = getattr(error, "os_error", None) or error
            raise ConnectionError(f"no whole answer came from {url.origin()}: {why}") from error
        if reply.status >= 300 and reply.status not in accept:
            raise _refusal(reply)
        return reply

    def _url(self, path: str, parameters: Mapping[str, Any]) -> yarl.URL:
        base = path if path.startswith("http") else f"{self.fs.base}{path}"
        if "uploadType" in parameters:  # new files have another address
            base = base.replace("/storage/v1/", "/upload/storage/v1/", 1)
        given = {name: value for name, value in parameters.items() if value is not None}
        if self.fs.requester_pays:
            given["userProject"] = (
                self.fs.requester_pays if isinstance(self.fs.requester_pays, str) else self.fs.project
            )
        mark = "&" if "?" in base else "?"
        return yarl.URL(f"{base}{mark}{urlencode(given)}" if given else base, encoded=True)


def _refusal(reply: Reply) -> Refusal:
    try:
        said = reply.value["error"]
        code, message = said["errors"][0]["reason"], said["message"]
    except (ValueError, KeyError, TypeError, IndexError):
        code, message = str(reply.status), reply.body[:200].decode(errors="replace").strip()
    if reply.status == 404 and _NO_BUCKET in message:
        code = "NoSuchBucket"
    return Refusal(reply.status, code, message)


def open_google(fs: GCSFileSystem, max_concurrency: int | None = None) -> GoogleBackend:
    """Return the backend for Google's storage, over a gcsfs filesystem; the filesystem is not altered.

    Raises
    ------
    ValueError
        The filesystem is to check what it wrote in a way that this backend has not.
    """
    if fs.consistency not in (None, "none"):
        raise ValueError(f"consistency={fs.consistency!r} of gcsfs cannot be kept here: leave it out")
    return GoogleBackend(fs, max_concurrency)
