"""The way of each bucket's objects: through obstore, or through s3fs if obstore cannot do what is asked for."""

from __future__ import annotations

import logging
import os
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import s3fs
from botocore.exceptions import NoCredentialsError

from rollingfs.backend.obstores.forks import obstore_is_lost
from rollingfs.backend.obstores.requests import Places
from rollingfs.backend.s3.errors import CLIENT_ERRORS, errors_of_machine, is_elsewhere, is_untrusted
from rollingfs.backend.s3.objects import Objects
from rollingfs.backend.s3.obstore_options import Connection, InexpressibleError, obstore_options
from rollingfs.backend.s3.resolved import Resolved
from rollingfs.backend.s3.s3fs_objects import S3fsObjects

if TYPE_CHECKING:
    from obstore.store import S3Credential

T = TypeVar("T")

BUCKETS_MAX = 64
"""Buckets whose way, and whose idle connections, are kept."""
CREDENTIALS_S = 360.0
"""How long credentials that botocore may renew last for obstore, which asks again 300 s earlier: after a minute."""

logger = logging.getLogger("rollingfs")


class Below(Protocol):
    """What the ways need of an `S3Client`."""

    @property
    def fs(self) -> Any: ...
    async def resolved(self, bucket: str) -> tuple[Resolved, Connection]: ...
    async def call(self, verb: str, **arguments: Any) -> dict[str, Any]: ...
    async def repeatable(self, verb: str, **arguments: Any) -> dict[str, Any]: ...


class Routes:
    """The ways to the buckets of one client.

    Parameters
    ----------
    client
        The client to which the ways belong.
    use_obstore
        Whether a bucket may go through obstore.
    """

    def __init__(self, client: Below, use_obstore: bool) -> None:
        self._client = client
        self._use_obstore = use_obstore
        self._objects: OrderedDict[str, Objects] = OrderedDict()
        self._regions: dict[str, str] = {}
        self._places: Places | None = None
        self._told: set[str] = set()

    def forget(self) -> None:
        """Let go of all connections; the next request opens new ones."""
        self._objects.clear()

    @property
    def open(self) -> list[Objects]:
        """The objects in use."""
        return list(self._objects.values())

    async def to(self, bucket: str) -> Objects:
        """The objects of a bucket."""
        if bucket not in self._objects:
            with errors_of_machine():
                made = await self._new(bucket)
            self._objects.setdefault(bucket, made)  # another request may have made them meanwhile
            if len(self._objects) > BUCKETS_MAX:
                self._objects.popitem(last=False)
        self._objects.move_to_end(bucket)
        return self._objects[bucket]

    async def following(self, bucket: str, request: Callable[[Objects], Awaitable[T]]) -> T:
        """Send a request to a bucket. If it was refused because of the way, and so took no effect, send it another way.

        The way is wrong if the bucket lies in another region, or if obstore does not trust the store's certificate.
        s3fs may trust it (a certificate that is its own CA), or says why not.
        """
        objects = await self.to(bucket)
        try:
            return await request(objects)
        except CLIENT_ERRORS as error:
            if isinstance(objects, S3fsObjects) or not (is_elsewhere(error) or is_untrusted(error)):
                raise
            region = await self._region(bucket) if is_elsewhere(error) else None
            if self._objects.get(bucket) is objects:  # else another request that was refused has found the way
                self._change(bucket, region, error)
        return await request(await self.to(bucket))

    def _change(self, bucket: str, region: str | None, error: BaseException) -> None:
        """Go to another region, or through s3fs."""
        if is_untrusted(error):
            self._objects[bucket] = self._through_s3fs(bucket, f"obstore finds that {error}")
        elif region is None or self._regions.get(bucket) == region:
            self._objects[bucket] = self._through_s3fs(bucket, "the store does not say in which region the bucket lies")
        else:
            self._regions[bucket] = region
            del self._objects[bucket]

    async def _region(self, bucket: str) -> str | None:
        try:
            answer = await self._client.repeatable("head_bucket", Bucket=bucket)
        except CLIENT_ERRORS as error:
            answer = getattr(error, "response", {})
        region: str | None = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("x-amz-bucket-region")
        return region

    async def _new(self, bucket: str) -> Objects:
        if not self._use_obstore:
            return S3fsObjects(self._client.call, bucket)
        if obstore_is_lost():
            return self._through_s3fs(bucket, "this process was forked from one that had used obstore")
        if type(self._client.fs) is not s3fs.S3FileSystem:
            return self._through_s3fs(bucket, f"{type(self._client.fs).__name__} may do more than s3fs.S3FileSystem")
        try:  # not before it is needed: a process that is forked after this import cannot use it
            from rollingfs.backend.s3.obstore_objects import Credentials, ObstoreObjects, RefusedOptionsError
        except ImportError:
            return self._through_s3fs(bucket, "obstore is not installed (pip install 'rollingfs[s3]')")
        fs = self._client.fs
        resolved, connection = await self._client.resolved(bucket)
        if self._places is None:
            self._places = Places(fs.config_kwargs["max_pool_connections"])
        region = self._regions.get(bucket)
        try:
            options = obstore_options(bucket, fs, resolved, connection, os.environ, region)
            credentials = Credentials(partial(_credentials, fs)) if options.is_signed else None
            return ObstoreObjects(options, credentials, self._places, S3fsObjects(self._client.call, bucket))
        except InexpressibleError as error:
            return self._through_s3fs(bucket, f"obstore has no counterpart of {error}")
        except RefusedOptionsError:
            return self._through_s3fs(bucket, "obstore refuses the options")

    def _through_s3fs(self, bucket: str, why: str) -> Objects:
        if why not in self._told:
            self._told.add(why)
            logger.info("s3://%s: objects are read and written through s3fs, which is slower: %s", bucket, why)
        return S3fsObjects(self._client.call, bucket)


async def _credentials(fs: Any) -> S3Credential:
    """The credentials as they are now, as botocore's client has them.

    obstore holds what finds them, and Python's garbage collection cannot look into obstore: what finds them must not
    hold the client, which holds obstore's stores.
    """
    given = fs.key or fs.client_kwargs.get("aws_access_key_id")
    secret = fs.secret or fs.client_kwargs.get("aws_secret_access_key")
    if given and secret:
        token = fs.token or fs.client_kwargs.get("aws_session_token")
        return {"access_key_id": given, "secret_access_key": secret, "token": token, "expires_at": None}
    found = await fs.session.get_credentials()
    if found is None:
        raise NoCredentialsError
    frozen = await found.get_frozen_credentials()
    return {
        "access_key_id": frozen.access_key,
        "secret_access_key": frozen.secret_key,
        "token": frozen.token,
        "expires_at": datetime.now(UTC) + timedelta(seconds=CREDENTIALS_S),
    }
