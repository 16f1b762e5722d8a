"""The files of a bucket of S3 through obstore: the usual way."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from obstore.exceptions import BaseError
from obstore.store import S3Store

from rollingfs.backend.objects.errors import Refusal
from rollingfs.backend.objects.obstores.objects import ObstoreObjects, Store
from rollingfs.backend.objects.obstores.requests import Places
from rollingfs.backend.objects.s3.botocore import errors_of_botocore
from rollingfs.backend.objects.s3.options import Options

if TYPE_CHECKING:
    from obstore.store import S3Credential


class Credentials:
    """The credential provider that obstore asks. It keeps the reason if it has no credentials.

    Parameters
    ----------
    find
        Asks for them.
    """

    def __init__(self, find: Callable[[], Awaitable[S3Credential]]) -> None:
        self._find = find
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


def through_obstore(options: Options, find: Callable[[], Awaitable[S3Credential]], places: Places) -> ObstoreObjects:
    """What reads and writes the files of a bucket.

    Raises
    ------
    Refusal
        obstore refuses to make a store with these options.
    """
    credentials = Credentials(find) if options.is_signed else None
    objects = ObstoreObjects(
        options.bucket,
        partial(_store, options, credentials),
        places,
        options.read_timeout,
        options.attributes,
        lambda: None if credentials is None else credentials.refusal,
        lists_in_order=not options.config["s3_express"],
    )
    _ = objects.quick
    return objects


def _store(options: Options, credentials: Credentials | None, client: dict[str, Any], retries_max: int) -> Store:
    try:
        return S3Store(
            options.bucket,
            config=options.config,  # type: ignore[arg-type]  # the keys of its TypedDict
            client_options={**options.client, **client},  # type: ignore[arg-type]
            retry_config={"max_retries": retries_max},
            credential_provider=credentials,
        )
    except (BaseError, ValueError):
        # the text of obstore's error may show a secret
        raise Refusal(400, "InvalidOptions", "obstore refuses the options") from None
