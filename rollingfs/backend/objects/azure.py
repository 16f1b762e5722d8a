"""An account of Azure and its containers, through obstore; two requests that obstore has not, by aiohttp.

It is made from options named as adlfs names them, from an adlfs filesystem, or from obstore's own.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote, urlencode

import aiohttp
import obstore
from fsspec import AbstractFileSystem
from fsspec.asyn import get_loop
from obstore.store import AzureStore

from rollingfs.backend import patience
from rollingfs.backend.contract import FileInfo, Listing, Metadata, Over
from rollingfs.backend.objects.azure_options import OPTIONS, AzureAccount, azure_options
from rollingfs.backend.objects.backend import ObjectBackend
from rollingfs.backend.objects.bucket import (
    CONNECT_S_MAX,
    READ_S_MAX,
    Answer,
    Bucket,
    Parts,
    Places,
    RecentBuckets,
    Span,
)
from rollingfs.backend.objects.clouds import FSSPEC_OPTIONS, OBSTORE, cloud_of, is_of, names_of, options_of
from rollingfs.backend.objects.obstore_files import MakeStore, ObstoreObjects, Store, can_name, store_of
from rollingfs.backend.objects.obstore_process import check_usable
from rollingfs.backend.objects.request_errors import Refusal, date_of, is_conflict, retrying
from rollingfs.backend.objects.upload import PART_BYTES, PARTS_IN_FLIGHT_MAX, check_absent

HEADERS = frozenset(
    {"Content-Disposition", "Content-Encoding", "Content-Language", "Content-Type", "Cache-Control", "Storage-Class"}
)
"""Attributes of obstore other than metadata."""
FOR_FSSPEC = FSSPEC_OPTIONS | {"blocksize", "default_cache_type", "default_fill_cache"}
"""Options of adlfs without effect on requests."""
CONNECTIONS_MAX = 64
COPY_POLL_S = 0.2
COPY_S_MAX = 300.0
SIGNATURE_VERSION = "2018-11-09"
SIGNED_S = 300
"""Validity of the signature of a conditional DELETE."""


async def _delete_if(account: AzureAccount, container: str, key: str, token: str) -> None:
    """Delete a file if it has a token.

    Raises
    ------
    Refusal
        The store did not do it.
    """
    url = f"{account.url}/{container}/{quote(key)}?{account.sas or _signature(account, container, key)}"
    status, headers = await _send(account, "DELETE", url, {"If-Match": token})
    if status >= 300:
        code = headers.get("x-ms-error-code", str(status))
        raise Refusal(status, code, "the file was not deleted")


def _signature(account: AzureAccount, container: str, key: str) -> str:
    """Return the right to delete one file, signed by the account's key; obstore 0.12 signs the name in its URL."""
    until = (datetime.now(UTC) + timedelta(seconds=SIGNED_S)).strftime("%Y-%m-%dT%H:%M:%SZ")
    given = {"sp": "d", "se": until, "sv": SIGNATURE_VERSION, "sr": "b"}
    name = f"/blob/{account.config['account_name']}/{container}/{key}"
    fields = ["d", "", until, name, "", "", "", SIGNATURE_VERSION, "b", *[""] * 6]
    secret = base64.b64decode(account.config["account_key"])
    signed = hmac.digest(secret, "\n".join(fields).encode(), hashlib.sha256)
    return urlencode(given | {"sig": base64.b64encode(signed).decode()})


async def _send(account: AzureAccount, method: str, url: str, headers: dict[str, str]) -> tuple[int, Mapping[str, str]]:
    """Send a request without a body, which needs no signature of its own; return status and headers."""
    import yarl

    limits = aiohttp.ClientTimeout(connect=CONNECT_S_MAX, total=READ_S_MAX)
    try:
        async with (
            aiohttp.ClientSession(timeout=limits, trust_env=True) as session,
            session.request(
                method,
                yarl.URL(url, encoded=True),
                headers=headers,
                proxy=account.client.get("proxy_url"),
                ssl=account.trust,
                allow_redirects=False,  # a DELETE would become a GET
            ) as answer,
        ):
            return answer.status, answer.headers
    except aiohttp.ClientError as error:
        raise ConnectionError(f"no answer came from the store: {type(error).__name__}") from None


class AzureContainer(ObstoreObjects, Bucket):
    """The files of a container.

    Parameters
    ----------
    make
        Makes the stores.
    places
        Shared by all containers of an account.
    account
        For requests that obstore cannot send.
    """

    deletes_max = 256  # obstore makes requests of any number

    def __init__(self, name: str, make: MakeStore, places: Places, account: AzureAccount) -> None:
        super().__init__(name, make, places, timedelta(seconds=READ_S_MAX))
        self._account = account

    async def get(self, key: str, span: Span = None, *, if_token: str = "", unless_token: str = "") -> Answer | None:
        try:
            return await super().get(key, span, if_token=if_token, unless_token=unless_token)
        except Refusal as error:
            if if_token and is_conflict(error):
                await self.head(key)  # Azure says of a file that is gone, too, that it has changed
            raise

    async def head(self, key: str) -> FileInfo:
        return self.found(await self.ask(lambda: obstore.head_async(self.quick, key)))

    async def metadata(self, key: str) -> Mapping[str, str]:
        found = await self.ask(lambda: obstore.get_async(self.quick, key, options={"head": True}))
        return {name: value for name, value in found.attributes.items() if name not in HEADERS}

    async def page(self, prefix: str, place: str | None = None, *, keys_max: int | None = None) -> Listing:
        found = await self.ask(lambda: obstore.list_with_delimiter_async(self.quick, prefix.rstrip("/")))
        folders = list(found["common_prefixes"])
        # obstore leaves out the empty file of the folder's own name by which tools show a folder
        files = [one for one in found["objects"] if one["path"].startswith(prefix)]
        shown = (self.found(one) for one in files if one["path"] not in folders)
        return Listing((*map(self.folder_of, folders), *shown))

    async def has_any(self, prefix: str) -> bool:
        stream = obstore.list(self.quick, prefix.rstrip("/"), chunk_size=1)
        try:
            await self.ask(stream.__anext__)
        except StopAsyncIteration:
            return not prefix
        return True

    async def delete(self, keys: Sequence[str]) -> None:
        try:
            await retrying(lambda: self.ask(lambda: obstore.delete_async(self.quick, list(keys))))
        except Refusal as error:
            if error.status != 404 or error.code == "ContainerNotFound":
                raise
            if len(keys) > 1:  # obstore names one missing file, and no other failure: each is asked for
                await asyncio.gather(*(self.delete([key]) for key in keys))

    async def delete_if(self, key: str, token: str) -> None:
        check_usable()
        await _delete_if(self._account, self.name, key, token)

    async def copy(self, bucket: str, source: str, target: str, token: str | None, metadata: Metadata = None) -> None:
        before = await self.head(source)
        if token is not None and before.token != token:
            raise Refusal(412, "ConditionNotMet", "the source has another token")
        await self.ask(lambda: obstore.copy_async(self.patient, source, target))
        try:
            # a large copy on Azure goes on after its answer; until it is done, the file has no bytes
            async with asyncio.timeout(COPY_S_MAX):
                while (await self.head(target)).size != before.size:
                    await asyncio.sleep(COPY_POLL_S)
            if token is not None and (await self.head(source)).token != token:
                raise Refusal(412, "ConditionNotMet", "the source was replaced while it was copied")
        except BaseException:
            await self.delete([target])
            raise

    def parts(self, key: str, over: Over | None, metadata: Metadata = None) -> Parts:
        return _BlockParts(self, key, over, dict(metadata or {}))

    async def now(self) -> float:
        _, headers = await _send(self._account, "HEAD", self._account.url, {})
        return date_of(headers)  # even a refusal has a date


class _BlockParts(Parts):
    """A new file in parts, by obstore's own writer, which sends several at once.

    If the name must be free, that is looked up right before: obstore takes no condition here.
    """

    def __init__(self, bucket: AzureContainer, key: str, over: Over | None, attributes: dict[str, str]) -> None:
        self._bucket = bucket
        self._key = key
        self._over = over
        self._attributes = attributes
        self._writer: Any = None
        self._handed_bytes = 0

    @property
    def held_bytes(self) -> int:
        # obstore does not say how many of the parts that it was handed are on their way
        return min(self._handed_bytes, PARTS_IN_FLIGHT_MAX * PART_BYTES)

    async def write(self, part: bytes) -> None:
        if self._writer is None:
            check_usable()
            self._writer = obstore.open_writer_async(
                self._bucket.repeating(patience.wanted_s()),
                self._key,
                attributes=self._attributes,
                buffer_size=PART_BYTES,
                max_concurrency=PARTS_IN_FLIGHT_MAX,
            )
        self._handed_bytes += len(part)
        await self._bucket.ask(lambda: self._writer.write(part))

    async def complete(self, last: bytes) -> None:
        if last:
            await self.write(last)
        if self._over is Over.NOTHING:
            await check_absent(self._bucket, self._key)
        await self._bucket.ask(self._writer.close)

    async def abort(self) -> None:
        self._writer = None  # what was sent is never committed; Azure forgets it after a week


class AzureBackend(ObjectBackend):
    """An account of Azure.

    Parameters
    ----------
    asynchronous
        Requests run on the caller's event loop.
    loop
        Else their event loop; None for fsspec's own.
    """

    schemes = names_of("az")
    copies_between = False

    def __init__(
        self, scheme: str, account: AzureAccount, asynchronous: bool, loop: Any, max_concurrency: int | None = None
    ) -> None:
        self._account = account
        self.scheme = scheme
        can_delete_if = account.can_sign or bool(account.sas)
        self.capability = replace(self.capability.limited(max_concurrency), can_delete_if=can_delete_if)
        self.buckets: RecentBuckets[AzureContainer] = RecentBuckets(self._container)
        self._places = Places(CONNECTIONS_MAX)
        self.loop = None if asynchronous else loop or get_loop()

    def _container(self, name: str) -> AzureContainer:
        account = self._account

        def make(limits: dict[str, Any], patience_s: float) -> Store:
            client = {"connect_timeout": timedelta(seconds=CONNECT_S_MAX)} | limits
            return store_of(AzureStore, name, account.config, client, account.client, patience_s, account.credentials)

        return AzureContainer(name, make, self._places, account)

    async def list_buckets(self) -> Sequence[str]:
        raise Refusal(400, "NotPossible", "obstore cannot list containers: name one")

    async def make_bucket(self, name: str) -> None:
        text = f"there is no container {name!r}, and obstore cannot make one: make it first"
        raise Refusal(400, "NotPossible", text)

    async def remove_bucket(self, name: str) -> None:
        raise Refusal(400, "NotPossible", "obstore cannot remove containers; it is empty, and still there")

    async def bucket_name(self, bucket: str) -> str:
        return f"{self._account.url}/{bucket}"

    def strip(self, path: str) -> str:
        first, slash, key = super().strip(path).partition("/")
        container, at, host = first.partition("@")
        account, asked = self._account.config.get("account_name"), host.partition(".")[0]
        if at and asked != account:
            raise ValueError(f"the URL names the account {asked!r} of Azure, but this filesystem is for {account!r}")
        return f"{container}{slash}{key}"

    def check_key(self, key: str) -> str:
        if not can_name(key):
            return "obstore has no names with empty parts, '.', '..' or control characters"
        return "Azure takes a backslash for a slash" if "\\" in key else ""

    def after_fork(self) -> None:
        self.buckets.clear()  # a call says that obstore cannot be used here
        self.loop = self.loop and get_loop()


def open_azure(
    scheme: str,
    options: Mapping[str, Any],
    asynchronous: bool = False,
    loop: asyncio.AbstractEventLoop | None = None,
    max_concurrency: int | None = None,
) -> AzureBackend:
    """Return the backend for an account of Azure, through obstore.

    Parameters
    ----------
    options
        Named as adlfs names them.

    Raises
    ------
    ValueError
        An option cannot be expressed.
    """
    return AzureBackend(scheme, azure_options(options, os.environ), asynchronous, loop, max_concurrency)


open_options = open_azure


def open_filesystem(fs: AbstractFileSystem, max_concurrency: int | None = None) -> AzureBackend:
    """Return the backend for the account that a filesystem of adlfs or of obstore is for.

    Raises
    ------
    ValueError
        As `open_azure`; or obstore's filesystem is open on another store.
    """
    if is_of(OBSTORE, type(fs)):
        return _open_obstore(fs, max_concurrency)
    options = options_of(fs)
    given = {name: value for name, value in options.items() if value is not None and name not in FOR_FSSPEC}
    if unknown := sorted(given.keys() - OPTIONS):
        raise ValueError(f"{', '.join(unknown)} of adlfs cannot be expressed")
    scheme = fs.protocol if isinstance(fs.protocol, str) else fs.protocol[0]
    return open_azure(scheme, given, options.get("asynchronous", False), options.get("loop"), max_concurrency)


def _open_obstore(fs: AbstractFileSystem, max_concurrency: int | None) -> AzureBackend:
    scheme = str(fs.protocol)
    cloud = cloud_of(scheme)
    if cloud is None or not cloud.is_direct:
        raise ValueError(f"obstore's own filesystem is taken for Azure only: name {scheme} by protocol and options")
    # obstore's filesystem has no public way to its options; a store has
    store: Any = fs._construct_store("rollingfs")
    config = {name: value for name, value in store.config.items() if name != "container_name"}
    url = str(config.get("endpoint") or f"https://{config.get('account_name')}.blob.core.windows.net").rstrip("/")
    account = AzureAccount(url, config, dict(store.client_options or {}), store.credential_provider)
    return AzureBackend(scheme, account, fs.asynchronous, fs.loop, max_concurrency)


def options_of_url(url: str) -> dict[str, Any]:
    """Return the options that a URL names: the account of ``abfss://container@account.dfs.core.windows.net/key``."""
    _, at, host = url.partition("://")[2].partition("/")[0].partition("@")
    return {"account_name": host.partition(".")[0]} if at else {}
