"""An account of Google's storage: its buckets."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import quote

from gcsfs import GCSFileSystem

from rollingfs.backend.objects.backend import ObjectBackend
from rollingfs.backend.objects.bucket import RecentBuckets
from rollingfs.backend.objects.clouds import names_of
from rollingfs.backend.objects.errors import errors_of
from rollingfs.backend.objects.google.bucket import GoogleBucket
from rollingfs.backend.objects.google.requests import GoogleRequests

COMMIT_INTERVAL_S = 1.0
"""Google takes one write a second of an object, and answers 429 to more."""


class GoogleBackend(ObjectBackend):
    """Buckets that a gcsfs filesystem may reach.

    Parameters
    ----------
    fs
        Its class and storage options are used, in a private clone.
    """

    scheme = "gs"
    schemes = names_of(scheme)
    capability = replace(ObjectBackend.capability, can_delete_if=True, commit_interval_s=COMMIT_INTERVAL_S)

    def __init__(self, fs: GCSFileSystem, max_concurrency: int | None = None) -> None:
        self.requests = GoogleRequests(fs)
        self.capability = self.capability.limited(max_concurrency)
        self.buckets: RecentBuckets[GoogleBucket] = RecentBuckets(partial(GoogleBucket, self.requests))

    @property
    def loop(self) -> Any:
        fs = self.requests.fs
        return None if fs.asynchronous else fs.loop

    async def list_buckets(self) -> Sequence[str]:
        names: list[str] = []
        place: str | None = None
        while True:
            reply = await self.requests.send("GET", "b", project=self.requests.fs.project, pageToken=place)
            names += [bucket["name"] for bucket in reply.value.get("items", [])]
            place = reply.value.get("nextPageToken")
            if not place:
                return names

    async def make_bucket(self, name: str) -> None:
        fs = self.requests.fs
        settings = {"name": name} | ({"location": fs.default_location} if fs.default_location else {})
        data = json.dumps(settings).encode()
        await self.requests.send("POST", "b", data=data, kind="application/json", project=fs.project)

    async def remove_bucket(self, name: str) -> None:
        await self.requests.send("DELETE", f"b/{quote(name, safe='')}")

    async def bucket_name(self, bucket: str) -> str:
        return f"{self.requests.fs.base}{bucket}"

    def check_key(self, key: str) -> str:
        if any(part in ("", ".", "..") for part in key.split("/")):
            return "a name with empty parts, '.' or '..' is not one that all tools can name"
        return "Google has no names with line ends" if {"\r", "\n"} & set(key) else ""

    async def close(self) -> None:
        with errors_of("closing the connections of", f"{self.scheme}://"):
            await self.requests.close()

    def after_fork(self) -> None:
        self.requests.after_fork()
        self.buckets.clear()


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
