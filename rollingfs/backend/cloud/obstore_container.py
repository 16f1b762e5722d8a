"""A container of Azure, or a bucket of S3, through obstore."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Protocol

import obstore
from obstore.exceptions import BaseError

from rollingfs.backend.cloud.container import Answer, Found
from rollingfs.backend.cloud.upload import PART_BYTES, PARTS_IN_FLIGHT_MAX
from rollingfs.backend.contract import Buffer, Metadata, Over
from rollingfs.backend.obstores.answers import Refusal, from_obstore, is_without_credentials
from rollingfs.backend.obstores.ending import check_usable, watched
from rollingfs.backend.obstores.forks import keep_from_children
from rollingfs.backend.obstores.requests import (
    READS_MAX,
    SEND_S_MAX,
    Places,
    Proof,
    body,
    get_options,
    is_quick,
    new_token,
    put_mode,
)
from rollingfs.format.sizes import read_bytes_max

CONNECT_S_MAX = 5.0
READ_S_MAX = 15.0
PART_TRIES_MAX = 4
DELETES_MAX = 256
"""The files of one request to Azure; obstore makes such requests of any number."""
HEADERS = frozenset(
    {"Content-Disposition", "Content-Encoding", "Content-Language", "Content-Type", "Cache-Control", "Storage-Class"}
)
"""What obstore calls attributes beside metadata."""
COPY_POLL_S = 0.2
COPY_S_MAX = 300.0

Store = Any
"""A store of obstore's, of any cloud."""
_FAILURES = (BaseError, FileNotFoundError)


class MakeStore(Protocol):
    """Makes a store of obstore's for one container."""

    def __call__(self, client: dict[str, Any], retries: dict[str, Any]) -> Store:
        """With these options of the client, where the user gave no others."""


class ObstoreContainer:
    """The files of one container.

    Parameters
    ----------
    make
        Makes the stores.
    places
        Shared by all containers of an account.
    delete
        Deletes a file on the condition of a token; None if that cannot be done.
    now
        The store's clock.
    """

    def __init__(
        self,
        make: MakeStore,
        places: Places,
        delete: Callable[[Store, str, str], Any] | None,
        now: Callable[[], Any],
    ) -> None:
        self._make = make
        self._places = places
        self._delete_if = delete
        self.now = now
        self._proof = Proof()
        keep_from_children(self)

    @functools.cached_property
    def _quick(self) -> Store:
        read = timedelta(seconds=READ_S_MAX)
        return self._store({"timeout": READS_MAX * read, "read_timeout": read}, 0)

    @functools.cached_property
    def _patient(self) -> Store:
        """For large bodies: all of a request within one time."""
        return self._store({"timeout": timedelta(seconds=SEND_S_MAX + READ_S_MAX)}, 0)

    @functools.cached_property
    def _repeating(self) -> Store:
        """For parts of files, which may be sent again."""
        return self._store({"timeout": timedelta(seconds=SEND_S_MAX + READ_S_MAX)}, PART_TRIES_MAX - 1)

    def _store(self, client: dict[str, Any], retries: int) -> Store:
        client["connect_timeout"] = timedelta(seconds=CONNECT_S_MAX)
        return self._make(client, {"max_retries": retries})

    async def _ask(self, request: Callable[[], Any]) -> Any:
        """What obstore gives for a request; a failure without obstore's own text, which shows all that it knows."""
        check_usable()
        try:
            async with self._places.taken():
                # no variable holds the future: an error that somebody keeps would hold it as well, see `ending`
                return await watched(request())
        except _FAILURES as error:
            if is_without_credentials(error):
                said = str(error).partition("\n")[0].partition("credential provider: ")[2]
                raise Refusal(401, "NoCredentials", f"the credential gave no token: {said}") from None
            raise from_obstore(error) from None

    async def get(
        self, key: str, span: tuple[int, int] | None = None, *, if_token: str = "", unless_token: str = ""
    ) -> Answer | None:
        options = get_options(span, if_token, unless_token)
        try:
            found = await self._ask(lambda: obstore.get_async(self._quick, key, options=options))
            limit = read_bytes_max(key) if span is None else None
            if limit is not None and found.meta["size"] > limit:  # nothing of it was read
                return await self.get(key, (0, limit), if_token=_token(found.meta))
            data = await self._ask(found.bytes_async)
        except Refusal as error:
            if error.status == 304:
                return None
            raise
        meta = found.meta
        return Answer(memoryview(data), _token(meta), meta["last_modified"].timestamp())

    async def put(self, key: str, data: Sequence[Buffer], over: Over | str, metadata: Metadata = None) -> str:
        store = self._quick if is_quick(data) else self._patient
        hashed = None if isinstance(over, str) else self._proof.begin(data)
        options: dict[str, Any] = {"mode": put_mode(over), "attributes": _attributes(metadata), "use_multipart": False}
        answer = await self._ask(lambda: obstore.put_async(store, key, body(data), **options))
        token = new_token(_token(answer), over)
        await self._proof.check(hashed, token, data, partial(self._read_back, key))
        return token

    async def _read_back(self, key: str) -> Answer:
        try:
            found = await self.get(key)
        except Refusal as error:
            raise ConnectionError(f"whether it was written could not be looked up: {error}") from error
        assert found is not None, "only a condition has an answer without bytes"
        return found

    async def head(self, key: str) -> Found:
        return _found(await self._ask(lambda: obstore.head_async(self._quick, key)))

    async def metadata(self, key: str) -> Mapping[str, str]:
        found = await self._ask(lambda: obstore.get_async(self._quick, key, options={"head": True}))
        return {name: value for name, value in found.attributes.items() if name not in HEADERS}

    async def list(self, prefix: str) -> tuple[Sequence[Found], Sequence[str]]:
        folder = prefix.rstrip("/")
        found = await self._ask(lambda: obstore.list_with_delimiter_async(self._quick, folder))
        # obstore leaves out the empty file of the folder's own name by which tools show a folder
        files = list(map(_found, found["objects"]))
        return files, list(found["common_prefixes"])

    async def has_any(self, prefix: str) -> bool:
        stream = obstore.list(self._quick, prefix.rstrip("/"), chunk_size=1)
        try:
            await self._ask(stream.__anext__)
        except StopAsyncIteration:
            return not prefix
        return True

    async def delete(self, keys: Sequence[str]) -> None:
        for start in range(0, len(keys), DELETES_MAX):
            some = list(keys[start : start + DELETES_MAX])
            try:
                await self._delete_all(some)
            except Refusal as error:
                if error.status != 404:
                    raise
                # obstore names one missing file, and no other failure: each is asked for
                await asyncio.gather(*map(self._delete_one, some))

    async def _delete_all(self, keys: Sequence[str]) -> None:
        await self._ask(lambda: obstore.delete_async(self._quick, keys))

    async def _delete_one(self, key: str) -> None:
        try:
            await self._delete_all([key])
        except Refusal as error:
            if error.status != 404 or error.code == "ContainerNotFound":
                raise

    async def delete_if(self, key: str, token: str) -> None:
        check_usable()
        assert self._delete_if is not None, "this account has no conditional deletes"
        await self._delete_if(self._quick, key, token)

    async def copy(self, source: str, target: str, token: str | None) -> None:
        before = await self.head(source)
        if token is not None and before.token != token:
            raise Refusal(412, "ConditionNotMet", "the source has another token")
        await self._ask(lambda: obstore.copy_async(self._patient, source, target))
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

    def parts(self, key: str, over: Over, metadata: Metadata = None) -> ObstoreParts:
        return ObstoreParts(self, key, over, metadata)

    def writer(self, key: str, metadata: Metadata) -> Any:
        """Obstore's own writer of a file in parts."""
        check_usable()
        attributes = _attributes(metadata)
        return obstore.open_writer_async(
            self._repeating, key, attributes=attributes, buffer_size=PART_BYTES, max_concurrency=PARTS_IN_FLIGHT_MAX
        )

    async def ask(self, request: Callable[[], Any]) -> Any:
        """As the container's own requests."""
        return await self._ask(request)


class ObstoreParts:
    """A new file in parts, which nobody sees before the last is there.

    Where nothing may exist under its name, that is looked up right before: obstore takes no condition here.
    """

    def __init__(self, container: ObstoreContainer, key: str, over: Over, metadata: Metadata) -> None:
        self._metadata = metadata
        self._container = container
        self._key = key
        self._over = over
        self._writer: Any = None

    async def write(self, part: Buffer) -> None:
        if self._writer is None:
            self._writer = self._container.writer(self._key, self._metadata)
        await self._container.ask(lambda: self._writer.write(part))

    async def complete(self, last: Buffer) -> None:
        if len(last):
            await self.write(last)
        if self._over is Over.NOTHING:
            await self._check_absent()
        await self._container.ask(self._writer.close)

    async def _check_absent(self) -> None:
        try:
            await self._container.head(self._key)
        except Refusal as error:
            if error.status == 404:
                return
            raise
        raise Refusal(412, "BlobAlreadyExists", "there is a file of this name")

    async def abort(self) -> None:
        self._writer = None  # what was sent is never committed; Azure forgets it after a week


def _attributes(metadata: Metadata) -> dict[str, str]:
    """Metadata under names that Azure takes: those of variables."""
    return {name.replace("-", "_"): value for name, value in (metadata or {}).items()}


def _found(meta: Any) -> Found:
    return Found(meta["path"], meta["size"], meta["last_modified"].timestamp(), _token(meta))


def _token(answer: Any) -> str:
    """The ETag, with its quotes, which Azure's listings leave out.

    Raises
    ------
    ConnectionError
        The answer has none.
    """
    token: str | None = answer["e_tag"]
    if not token:
        raise ConnectionError("the store's answer has no ETag, without which nothing can be said about the file")
    return token if '"' in token else f'"{token}"'
