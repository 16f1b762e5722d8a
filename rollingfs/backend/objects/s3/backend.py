"""An account of S3: a private clone of an s3fs filesystem, and obstore next to it.

Files are read and written through obstore, which gets the options of s3fs (`options`). Everything else goes, request by
request, through the clone's botocore client, because s3fs hides the answers that conditional writes need (status, ETag,
Date), and repeats conditional writes. If obstore cannot do a request, files go that way, too. A line in
the log reports it, once.

Four layers can send a request again:

- obstore, 10 times. ``max_retries`` switches that off.
- botocore, 4 times. The clone switches that off (``retries``).
- s3fs, 5 times. This module does not use its ``_call_s3``.
- aiohttp, once, for a PUT, DELETE or GET whose connection broke before an answer came. There is no public switch,
  but aiohttp does not repeat a body that can be sent only once: every PUT gets such a body. A conditional DELETE has
  no body and may be sent twice; the verb counts "it was gone" as success anyway.
- `errors.retrying`: as long as the caller has patience (`rollingfs.backend.patience`), for requests that may be
  repeated. It repeats no conditional write, and a conditional DELETE only if the store refused it.

So a 412 seldom answers the caller's own success. But proxies and gateways resend too: callers must not rely on it.

Private names in use: `_s3` and `_s3creator` of s3fs close the client, for which there is no public way with
``asynchronous=True``. `_get_s3_method_kwargs` adds what an operation knows of the user's ``s3_additional_kwargs``.
`_find_bucket_key` knows access points. Of botocore, no name.
"""

from __future__ import annotations

import importlib.metadata
import logging
import os
import re
import weakref
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import botocore
import s3fs
from s3fs import S3FileSystem

from rollingfs.backend.objects.bucket import READS_MAX, Places, RecentBuckets
from rollingfs.backend.objects.cloned import ClonedBackend, clone_of
from rollingfs.backend.objects.clouds import options_of
from rollingfs.backend.objects.obstore_process import obstore_is_lost
from rollingfs.backend.objects.request_errors import LastingError, NotByObstoreError, Refusal
from rollingfs.backend.objects.s3.botocore import (
    BotocoreObjects,
    StraightSession,
    errors_of_botocore,
    read_listing,
    send_once,
)
from rollingfs.backend.objects.s3.bucket import S3Bucket
from rollingfs.backend.objects.s3.obstore_options import (
    Settings,
    connection_of,
    credentials_of,
    obstore_options,
    plain_settings,
    settings_of,
)
from rollingfs.backend.objects.upload import JOIN_PART_BYTES_MIN
from rollingfs.errors import UnsafeBackendError

CONNECTIONS_MAX = 128
"""The connection pool, unless the user's `config_kwargs` set it: two reads of `REQUESTS_MAX` ranges at once."""
REQUESTS_MAX = 64
SMALL_REQUESTS_MAX = 128
"""For the headers and pins of a concat: as many as a single commit takes sources."""
HOOK_ID = "rollingfs"
ARN = "arn:"
"""With this begin the names of access points."""
REGIONS_UNNAMED = (None, "us-east-1", "aws-global")
"""Regions that CreateBucket must not name."""

logger = logging.getLogger("rollingfs")


class S3Backend(ClonedBackend):
    """Requests to an object store, on the event loop of a private clone of `fs`.

    Parameters
    ----------
    fs : s3fs.S3FileSystem
        Gives class and options. The instance itself is neither used nor changed. The first request connects.
    max_concurrency, use_obstore
        As in `open_s3`, with the same error.
    """

    makes_parents = True
    capability = replace(
        ClonedBackend.capability,
        can_join=True,
        can_delete_if=True,
        can_list_uploads=True,
        join_part_bytes_min=JOIN_PART_BYTES_MIN,
        date_step_s=1.0,  # an ETag is a hash of the bytes, and dates are whole seconds
    )

    def __init__(self, fs: S3FileSystem, max_concurrency: int | None = None, use_obstore: bool = True) -> None:
        self._connections_max = max(CONNECTIONS_MAX, 2 * (max_concurrency or 0))
        super().__init__(fs)
        pool: int = self.fs.config_kwargs["max_pool_connections"]
        if max_concurrency is not None and max_concurrency > pool:
            raise ValueError(
                f"max_concurrency is {max_concurrency}, but config_kwargs gives max_pool_connections={pool}: "
                "give at least as many connections, or leave max_pool_connections out"
            )
        self.capability = replace(
            self.capability,
            requests_max=max_concurrency or max(1, min(REQUESTS_MAX, pool)),
            small_requests_max=max_concurrency or max(1, min(SMALL_REQUESTS_MAX, pool)),
        )
        protocols = (fs.protocol,) if isinstance(fs.protocol, str) else fs.protocol
        self.scheme, self.schemes = protocols[0], frozenset(protocols)
        self._use_obstore = use_obstore
        self.buckets = RecentBuckets(partial(S3Bucket, self))
        self._connections: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        self._places = Places(pool)
        self._told: set[str] = set()
        self._product = ""

    def clone(self, fs: S3FileSystem, forked: bool = False) -> S3FileSystem:
        config = dict(options_of(fs).get("config_kwargs") or {})
        mode = {key: value for key, value in (config.get("retries") or {}).items() if key == "mode"}
        config["retries"] = mode | {"total_max_attempts": 1}
        config.setdefault("max_pool_connections", self._connections_max)
        config.setdefault("http_session_cls", StraightSession)
        if not config.keys() & {"user_agent", "user_agent_extra", "user_agent_appid"}:
            # botocore would build its own for each request: a twelfth of the CPU time of a small append
            config["user_agent"] = f"rollingfs s3fs/{s3fs.__version__} Botocore/{botocore.__version__}{_obstore()}"
        if "AWS_REQUEST_CHECKSUM_CALCULATION" not in os.environ:
            config.setdefault("request_checksum_calculation", "when_required")
        return clone_of(fs, forked, config_kwargs=config)

    def renew(self, forked: bool = False) -> None:
        self._connections = weakref.WeakKeyDictionary()
        super().renew(forked)

    async def disconnect(self) -> None:
        if self.fs._s3 is not None:
            await self.fs._s3creator.__aexit__(None, None, None)
            self.fs._s3 = None

    # -- names ---------------------------------------------------------------------------------------------

    def split(self, path: str) -> tuple[str, str]:
        if path.startswith(ARN):  # s3fs looks for every kind of access point, which takes its time
            bucket, key = self.fs._find_bucket_key(path)
            return bucket, key
        return super().split(path)

    def product(self, path: str) -> str:
        return self._product

    async def bucket_name(self, bucket: str) -> str:
        """Return the endpoint as botocore finds it, the bucket, and the way of its files where it is s3fs."""
        settings = await self._settings(bucket)
        way = await self.buckets[bucket].find_way()
        endpoint_url = re.sub(r"//[^/]*@", "//", settings.endpoint_url)  # a name is written to files: no password
        return f"{endpoint_url}/{bucket}{' through s3fs' if isinstance(way, BotocoreObjects) else ''}"

    # -- buckets -------------------------------------------------------------------------------------------

    async def list_buckets(self) -> Sequence[str]:
        return [bucket["Name"] for bucket in (await self.call("list_buckets"))["Buckets"]]

    async def make_bucket(self, name: str) -> None:
        region = (await self.session()).meta.region_name
        place = {} if region in REGIONS_UNNAMED else {"CreateBucketConfiguration": {"LocationConstraint": region}}
        try:
            await self.call("create_bucket", Bucket=name, **place)
        except Refusal as error:
            if error.code != "BucketAlreadyOwnedByYou":  # another process has just made it
                raise

    async def remove_bucket(self, name: str) -> None:
        await self.call("delete_bucket", Bucket=name)

    # -- requests ------------------------------------------------------------------------------------------

    @property
    def answer_s_max(self) -> float | None:
        """Return the time limit of a read, up to the last byte of its answer."""
        read_s: float | None = self.fs.config_kwargs.get("read_timeout", self.fs.read_timeout)
        return None if read_s is None else READS_MAX * read_s

    async def session(self, bucket: str | None = None) -> Any:
        """Return the botocore client for a bucket, connected and with the hooks of this module."""
        self.come_home()
        with errors_of_botocore():
            await self.fs.set_session()
            client = await self.fs.get_s3(bucket)
        if client not in self._connections:
            events = client.meta.events
            for verb in ("PutObject", "UploadPart"):
                events.register(f"before-send.s3.{verb}", send_once, unique_id=f"{HOOK_ID}-once-{verb}")
            # by this pattern it comes before botocore's own hook for "s3.*", which parses the whole body for an error
            events.register("before-parse.*.ListObjectsV2", read_listing, unique_id=f"{HOOK_ID}-listing")
            self._connections[client] = connection_of(self.fs, client.meta.endpoint_url)
        return client

    async def _settings(self, bucket: str) -> Settings:
        """Return the result of all options."""
        if not self._connections:  # else a client is there, and was made of the settings of its time
            plain = plain_settings(self.fs, os.environ)
            if plain is not None:
                return plain
        client = await self.session(bucket)
        return settings_of(client, *self._connections[client])

    async def call(self, verb: str, **arguments: Any) -> dict[str, Any]:
        """Send one request, once, with the user's additional arguments.

        Raises
        ------
        UnsafeBackendError
            The installed botocore does not know an argument. Without it the request would mean something else.
        """
        method = getattr(await self.session(arguments.get("Bucket")), verb)
        if "Metadata" in arguments:  # beside the user's own
            arguments["Metadata"] = {**self.fs.s3_additional_kwargs.get("Metadata", {}), **arguments["Metadata"]}
        merged = self.fs._get_s3_method_kwargs(method, **arguments)
        unknown = sorted(arguments.keys() - merged.keys())
        if unknown:
            raise UnsafeBackendError(
                f"botocore {botocore.__version__} does not know {', '.join(unknown)} of {verb}, which rollingfs needs; "
                "the request was not sent: install a newer s3fs"
            )
        try:
            with errors_of_botocore():
                answer: dict[str, Any] = await method(**merged)
            about = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {})
            self._product = about.get("server", self._product)
        except ValueError as error:  # of botocore's parser
            raise LastingError(f"a date or a number of the store's answer cannot be read: {error}") from error
        return answer

    async def objects(self, bucket: str, region: str | None, through_s3fs: BotocoreObjects, why: str) -> Any:
        """Return the way of the files of a bucket: obstore, or `through_s3fs`, surely so with a reason `why`."""
        if not self._use_obstore:
            return through_s3fs
        found = why or await self._through_obstore(bucket, region)
        if not isinstance(found, str):
            return found
        if found not in self._told:
            self._told.add(found)
            logger.info("s3://%s: objects are read and written through s3fs, which is slower: %s", bucket, found)
        return through_s3fs

    async def _through_obstore(self, bucket: str, region: str | None) -> Any:
        """Return the way through obstore, or the reason against it."""
        if obstore_is_lost():
            return "this process was forked from one that had used obstore"
        if type(self.fs) is not s3fs.S3FileSystem:
            return f"{type(self.fs).__name__} may do more than s3fs.S3FileSystem"
        try:  # a process that opens a filesystem and sends nothing does not pay for this import
            from obstore.store import S3Store

            from rollingfs.backend.objects.obstore_files import ObstoreObjects, store_of
        except ImportError:
            return "obstore is not installed (pip install 'rollingfs[s3]')"
        settings = await self._settings(bucket)
        with errors_of_botocore():
            try:
                config, client, attributes = obstore_options(bucket, self.fs, settings, os.environ, region)
                provide, refusal = (None, lambda: None) if config["skip_signature"] else credentials_of(self.fs)
                make = partial(store_of, S3Store, bucket, config, client, credentials=provide)
                read_timeout = timedelta(seconds=settings.config.read_timeout)
                objects = ObstoreObjects(bucket, make, self._places, read_timeout, attributes, refusal)
                _ = objects.quick
            except NotByObstoreError as error:
                return f"obstore has no counterpart of {error}"
            except Refusal:
                return "obstore refuses the options"
        return objects


def _obstore() -> str:
    """Return obstore's part of the user agent; without an import of obstore, see `obstore_process`."""
    try:
        return f" obstore/{importlib.metadata.version('obstore')}"
    except importlib.metadata.PackageNotFoundError:
        return ""


def open_s3(fs: S3FileSystem, max_concurrency: int | None = None, *, use_obstore: bool = True) -> S3Backend:
    """Return the backend for S3, over an s3fs filesystem; the filesystem is not altered.

    Parameters
    ----------
    fs : s3fs.S3FileSystem
        A private clone uses its class and all its storage options. The first verb connects.
    max_concurrency : int, optional
        Requests under way at once for one purpose; by default 64 for data, 128 for headers, or a request for each
        connection.
    use_obstore : bool, optional
        False to read and write objects through s3fs, which is slower.

    Raises
    ------
    ValueError
        The user's `config_kwargs` allow fewer connections than `max_concurrency`.
    """
    return S3Backend(fs, max_concurrency, use_obstore)
