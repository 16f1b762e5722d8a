"""The objects of one bucket through obstore, which signs and sends without Python: the usual data path."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from rollingfs.backend.contract import Buffer, Metadata, Over
from rollingfs.backend.obstores.answers import is_unread, is_whole_instead_of_range, is_without_credentials
from rollingfs.backend.obstores.ending import is_over, watched
from rollingfs.backend.obstores.forks import keep_from_children
from rollingfs.backend.obstores.requests import (
    READS_MAX,
    SEND_S_MAX,
    Places,
    Proof,
    body,
    can_name,
    get_options,
    is_quick,
    new_token,
    put_mode,
)
from rollingfs.backend.s3.errors import CLIENT_ERRORS, errors_of_machine, from_obstore
from rollingfs.backend.s3.objects import Answer, Listed, Objects, token_of
from rollingfs.format.sizes import read_bytes_max

if TYPE_CHECKING:
    from obstore.store import S3Credential

    from rollingfs.backend.s3.obstore_options import Options


PAGE_KEYS_MAX = 1000
"""The keys of one listing. obstore asks for a further one if it is asked for more."""


class RefusedOptionsError(Exception):
    """obstore refuses to make a store with these options."""


class Credentials:
    """The credential provider that obstore asks. It keeps the reason if it has no credentials.

    Parameters
    ----------
    find
        Asks for them; see `S3Client.credentials`.
    """

    def __init__(self, find: Callable[[], Awaitable[S3Credential]]) -> None:
        self._find = find
        self.refusal: Exception | None = None

    async def __call__(self) -> S3Credential:
        try:
            with errors_of_machine():
                found = await self._find()
        except Exception as error:
            self.refusal = error  # obstore would only show its text
            raise
        self.refusal = None  # not before: another request may not have read its own yet
        return found


class ObstoreObjects:
    """The objects of one bucket.

    Parameters
    ----------
    options
        For obstore, as `rollingfs.backend.s3.obstore_options` makes them.
    credentials
        obstore asks it before a request if the known credentials are too old; None to sign nothing.
    places
        Shared by all buckets of a client.
    others
        Takes keys that obstore cannot name, answers that obstore cannot read (of unknown length, or the whole for a
        range), and the requests at the end of the process.
    """

    def __init__(self, options: Options, credentials: Credentials | None, places: Places, others: Objects) -> None:
        self._options = options
        self._credentials = credentials
        self._places = places
        self._others = others
        self._proof = Proof()
        self._quick = self._store(READS_MAX * options.read_timeout, options.read_timeout)
        keep_from_children(self)

    @functools.cached_property
    def _patient(self) -> S3Store:
        """The store for large bodies, with one limit for the time of the whole request."""
        return self._store(timedelta(seconds=SEND_S_MAX) + self._options.read_timeout, None)

    @property
    def stores(self) -> list[S3Store]:
        """The stores that send the requests."""
        return [self._quick, self._patient]

    def _store(self, whole: timedelta, each_read: timedelta | None) -> S3Store:
        client: dict[str, Any] = {**self._options.client, "timeout": whole}
        if each_read is not None:
            client["read_timeout"] = each_read
        try:
            return S3Store(
                self._options.bucket,
                config=self._options.config,  # type: ignore[arg-type]  # the keys of its TypedDict
                client_options=client,  # type: ignore[arg-type]
                retry_config={"max_retries": 0},
                credential_provider=self._credentials,
            )
        except (BaseError, ValueError):
            raise RefusedOptionsError from None  # the text of obstore's error may show a secret

    async def get(
        self, key: str, span: tuple[int, int] | None = None, *, if_match: str = "", unless_match: str = ""
    ) -> Answer:
        """As `Objects.get`."""
        if is_over() or not can_name(key):
            return await self._others.get(key, span, if_match=if_match, unless_match=unless_match)
        options = get_options(span, if_match, unless_match)
        try:
            async with self._places.taken():
                found = await watched(obstore.get_async(self._quick, key, options=options))
                limit = read_bytes_max(key) if span is None else None
                is_long = limit is not None and found.meta["size"] > limit
                if not is_long:
                    data = await watched(found.bytes_async())
        except (BaseError, FileNotFoundError) as error:
            is_other = is_unread(error) or (span is not None and is_whole_instead_of_range(error))
            if not is_other:
                raise self._refused(error, "GetObject") from None
        else:
            meta = found.meta
            if is_long:  # nothing of it was read
                return await self.get(key, (0, limit or 0), if_match=token_of(meta["e_tag"]))
            return Answer(memoryview(data), token_of(meta["e_tag"], span is None), meta["last_modified"].timestamp())
        return await self._others.get(key, span, if_match=if_match, unless_match=unless_match)

    async def put(
        self,
        key: str,
        data: Sequence[Buffer],
        over: Over | str | None = None,
        metadata: Metadata = None,
    ) -> str:
        """As `Objects.put`."""
        if is_over() or not can_name(key):
            return await self._others.put(key, data, over, metadata)
        store = self._quick if is_quick(data) else self._patient
        hashed = None if isinstance(over, str) else self._proof.begin(data)
        try:
            async with self._places.taken():
                # no variable holds the future: an error that somebody keeps would hold it as well, see `ending`
                answer = await watched(
                    obstore.put_async(
                        store,
                        key,
                        body(data),
                        attributes={**self._options.attributes, **(metadata or {})},
                        mode=put_mode(over),
                        use_multipart=False,
                    )
                )
        except (BaseError, FileNotFoundError) as error:
            raise self._refused(error, "PutObject") from None
        token = new_token(token_of(answer["e_tag"]), over)
        await self._proof.check(hashed, token, data, partial(self._read_back, key))
        return token

    async def list_prefix(self, folder: str, prefix: str) -> Sequence[Listed]:
        """As `Objects.list_prefix`.

        obstore asks for whole folders only. But it asks for the keys after `folder` and `prefix`, and those that begin
        so come first: further ones in the page are in vain. A directory bucket (S3 Express) has no order, and would
        be listed whole.
        """
        start = folder + prefix
        if is_over() or self._options.config["s3_express"] or not can_name(start):
            return await self._others.list_prefix(folder, prefix)
        try:
            async with self._places.taken():
                stream = obstore.list(self._quick, folder.rstrip("/"), offset=start, chunk_size=PAGE_KEYS_MAX)
                found = await watched(stream.__anext__())
        except StopAsyncIteration:
            return []
        except (BaseError, FileNotFoundError) as error:
            raise self._refused(error, "ListObjectsV2") from None
        return [
            Listed(meta["path"], meta["size"], meta["last_modified"].timestamp(), token_of(meta["e_tag"]))
            for meta in found
            if meta["path"].startswith(start) and "/" not in meta["path"][len(start) :]
        ]

    async def _read_back(self, key: str) -> Answer:
        try:
            return await self.get(key)
        except CLIENT_ERRORS as error:
            raise ConnectionError(f"whether it was written could not be looked up: {error}") from error

    def _refused(self, error: Exception, operation: str) -> Exception:
        """The error to raise, without obstore's own text, which shows all that obstore knows of the request."""
        if self._credentials is not None and self._credentials.refusal is not None and is_without_credentials(error):
            return self._credentials.refusal
        return from_obstore(error, operation)
