"""The files of a bucket of S3 through obstore: the usual way."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from botocore.exceptions import NoCredentialsError
from obstore.store import S3Store
from s3fs import S3FileSystem

from rollingfs.backend.objects.obstores.objects import ObstoreObjects, Store, store_of
from rollingfs.backend.objects.obstores.requests import Places
from rollingfs.backend.objects.s3.botocore import errors_of_botocore
from rollingfs.backend.objects.s3.obstore_options import BucketOptions

if TYPE_CHECKING:
    from obstore.store import S3Credential


CREDENTIALS_S = 360.0
"""Validity for obstore of credentials that botocore may renew; obstore asks again 300 s earlier: after a minute."""


class Credentials:
    """The credential provider that obstore asks. It keeps the reason if it has no credentials.

    obstore holds the provider, and Python's garbage collection cannot look into obstore: the provider must not hold the
    client, which holds obstore's stores.
    """

    def __init__(self, fs: S3FileSystem) -> None:
        self._fs = fs
        self.refusal: Exception | None = None

    async def __call__(self) -> S3Credential:
        try:
            with errors_of_botocore():
                found = await self._find()
        except Exception as error:
            self.refusal = error  # obstore would only show its text
            raise
        self.refusal = None  # not before: another request may not have read its own yet
        return found

    async def _find(self) -> S3Credential:
        """Return the credentials as they are now, as botocore's client has them."""
        fs = self._fs
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


def through_obstore(options: BucketOptions, fs: S3FileSystem, places: Places) -> ObstoreObjects:
    """Return the reader and writer of the files of a bucket.

    Raises
    ------
    Refusal
        obstore refuses to make a store with these options.
    """
    credentials = Credentials(fs) if options.is_signed else None
    objects = ObstoreObjects(
        options.bucket,
        partial(_store, options, credentials),
        places,
        options.read_timeout,
        options.attributes,
        lambda: None if credentials is None else credentials.refusal,
    )
    _ = objects.quick
    return objects


def _store(options: BucketOptions, credentials: Credentials | None, client: dict[str, Any], patience_s: float) -> Store:
    return store_of(S3Store, options.bucket, options.config, {**options.client, **client}, patience_s, credentials)
