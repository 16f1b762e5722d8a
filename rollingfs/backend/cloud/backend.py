"""Files in the containers of a cloud. The requests are those of `rollingfs.backend.cloud.container`."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from rollingfs.backend import refusals
from rollingfs.backend.cloud.container import Answer, Container, Found, Service
from rollingfs.backend.cloud.errors import CLOUD_ERRORS, errors_of, is_conflict, is_gone, retrying
from rollingfs.backend.cloud.upload import PART_BYTES, CloudUpload
from rollingfs.backend.contract import Backend, Blob, Buffer, FileInfo, Listing, Metadata, Over, Upload
from rollingfs.backend.obstores.answers import Refusal
from rollingfs.format import names

Loop = asyncio.AbstractEventLoop


class CloudBackend(Backend):
    """Files on Azure, on Google, or on another store that obstore speaks to.

    Parameters
    ----------
    service
        The account, with its credentials.
    find_loop
        Finds the event loop on which verbs must run; None if that is the caller's. Asked again after a fork.
    max_concurrency : int, optional
        How many requests may be under way at once for one purpose; by default 32.
    """

    is_async = True
    has_metadata = True
    has_clock = True
    can_copy = True

    def __init__(
        self, service: Service, find_loop: Callable[[], Loop | None], max_concurrency: int | None = None
    ) -> None:
        self.service = service
        self._find_loop = find_loop
        self._loop = find_loop()
        self.can_delete_if = service.can_delete_if
        self.date_step_s = service.date_step_s
        self.commit_interval_s = service.commit_interval_s
        if max_concurrency is not None:
            self.requests_max = max_concurrency

    @property
    def loop(self) -> Loop | None:
        """The event loop on which verbs must run; None if that is the caller's (``asynchronous=True``)."""
        return self._loop

    # -- reading -------------------------------------------------------------------------------------------

    async def read(self, path: str) -> Blob:
        """One GET."""
        return _blob(await self._get(path))

    async def read_if_changed(self, path: str, token: str) -> Blob | None:
        """One GET with a condition."""
        container, key = self._place(path)
        with errors_of("reading", path):
            answer = await retrying(partial(container.get, key, unless_token=token))
        return None if answer is None or answer.token == token else _blob(answer)

    async def read_range(self, path: str, start: int, end: int, token: str | None = None) -> bytes:
        """One GET of a range, on the condition of a token."""
        return bytes(await self._range(path, start, end, token))

    async def read_into(self, path: str, start: int, target: memoryview, token: str | None = None) -> int:
        """One GET of a range, on the condition of a token."""
        data = await self._range(path, start, start + len(target), token)
        target[: len(data)] = data
        return len(data)

    async def _get(self, path: str) -> Answer:
        container, key = self._place(path)
        with errors_of("reading", path):
            answer = await retrying(partial(container.get, key))
        assert answer is not None, "no condition was given"
        return answer

    async def _range(self, path: str, start: int, end: int, token: str | None) -> Buffer:
        container, key = self._place(path)
        with errors_of("reading", path):
            try:
                answer = await retrying(partial(container.get, key, (start, end), if_token=token or ""))
            except Refusal as error:
                is_beyond = error.status == 416  # the file ends before `start`
                if is_beyond and token is None:
                    return b""
                if not is_beyond and (token is None or not is_conflict(error)):
                    raise
                found = (await self.stat(path)).token  # Azure says of a file that is gone, too, that it has changed
                if is_beyond and found == token:
                    return b""
                raise refusals.changed(path, token or "", "another") from error
        assert answer is not None, "an answer without bytes is one to another condition"
        if token is not None:
            refusals.check_token(path, answer.token, token)
        return answer.data

    async def stat(self, path: str) -> FileInfo:
        """One HEAD."""
        container, key = self._place(path)
        with errors_of("looking up", path):
            return _info(path, await retrying(partial(container.head, key)))

    async def metadata(self, path: str) -> Mapping[str, str]:
        """One HEAD, or Google's description."""
        container, key = self._place(path)
        with errors_of("looking up", path):
            return await retrying(partial(container.metadata, key))

    async def is_folder(self, path: str) -> bool:
        """One listing."""
        name, _, key = path.partition("/")
        if not name:
            return True
        if self.service.check_key(key or "x"):
            return False
        with errors_of("looking up", path):
            try:
                return await retrying(partial(self.service.container(name).has_any, f"{key}/" if key else ""))
            except Refusal as error:
                if error.status == 404:
                    return False
                raise

    async def list(self, folder: str) -> Listing:
        """One listing a page; of the containers, at the top."""
        name, _, key = folder.partition("/")
        if not name:
            with errors_of("listing", "the account"):
                found = await retrying(self.service.containers)
            return Listing(tuple(FileInfo(one, 0, 0.0, is_folder=True) for one in sorted(found)))
        if self.service.check_key(key or "x"):
            raise refusals.no_folder(folder)
        prefix = f"{key}/" if key else ""
        with errors_of("listing", folder):
            files, folders = await retrying(partial(self.service.container(name).list, prefix))
        entries = {one: FileInfo(one, 0, 0.0, is_folder=True) for one in (f"{name}/{below}" for below in folders)}
        for file in files:
            path = f"{name}/{file.key}"
            if file.key != prefix:  # tools make an empty file of the folder's own name, to show the folder
                entries.setdefault(path, _info(path, file))
        if not entries and key and not files:
            await self._no_folder(folder)
        return Listing(tuple(entries[path] for path in sorted(entries)))

    async def _no_folder(self, folder: str) -> None:
        try:
            await self.stat(folder)
        except FileNotFoundError as error:
            raise refusals.no_folder(folder) from error
        raise refusals.not_a_folder(folder)

    async def now(self, path: str) -> float:
        """One request, whose answer has a date."""
        with errors_of("asking the time of", path):
            return await retrying(self.service.container(path.partition("/")[0]).now)

    # -- conditional writes --------------------------------------------------------------------------------

    async def create(self, path: str, data: Buffer) -> str:
        """One PUT on the condition that nothing is there, sent once."""
        container, key = self._place(path)
        with errors_of("creating", path):
            try:
                return await container.put(key, [data], Over.NOTHING)
            except CLOUD_ERRORS as error:
                if is_conflict(error):
                    raise refusals.name_taken(path) from error
                raise

    async def replace(self, path: str, data: Buffer, token: str) -> str:
        """One PUT on the condition of a token, sent once."""
        container, key = self._place(path)
        with errors_of("replacing", path):
            try:
                return await container.put(key, [data], token)
            except CLOUD_ERRORS as error:
                if is_conflict(error):
                    raise refusals.changed(path, token, "another") from error
                if is_gone(error):
                    raise refusals.changed(path, token, None) from error
                raise

    async def delete_if(self, path: str, token: str) -> bool:
        """One DELETE on the condition of a token. A store may ignore the condition: probe it."""
        if not self.can_delete_if:
            return await super().delete_if(path, token)
        container, key = self._place(path)
        with errors_of("deleting", path):
            try:
                # not after a lost answer, where a refusal could be this request's own doing
                await retrying(partial(container.delete_if, key, token), unanswered=False)
            except Refusal as error:
                if not is_conflict(error) and not is_gone(error):
                    raise
                return is_gone(error) or not await self._is_there(path)
        return True

    async def _is_there(self, path: str) -> bool:
        """Azure says of a file that is gone, too, that it has not the token."""
        try:
            await self.stat(path)
        except FileNotFoundError:
            return False
        return True

    # -- new files -----------------------------------------------------------------------------------------

    async def write(self, path: str, data: Sequence[Buffer], metadata: Metadata = None) -> None:
        """One PUT, or an upload in parts if it is large."""
        if sum(memoryview(piece).nbytes for piece in data) <= PART_BYTES:
            container, key = self._place(path)
            with errors_of("writing", path):
                await retrying(partial(container.put, key, data, Over.ANYTHING, metadata))
            return
        upload = await self.open_write(path, metadata=metadata)
        try:
            for piece in data:
                await upload.write(piece)
            await upload.finish()
        except BaseException:
            await upload.abort()
            raise

    async def open_write(self, path: str, over: Over | None = None, metadata: Metadata = None) -> Upload:
        """An upload in parts that begins with the second part."""
        container, key = self._place(path)
        return CloudUpload(container, path, key, over, metadata)

    async def copy(self, source: str, target: str, token: str | None = None) -> None:
        """One copy on the server, and looks at both files; through this process between containers."""
        (container, key), (_, target_key) = self._place(source), self._place(target)
        if source.partition("/")[0] != target.partition("/")[0]:
            await self._copy_through(source, target, token)
            return
        with errors_of("copying", source):
            try:
                await retrying(partial(container.copy, key, target_key, token))
            except CLOUD_ERRORS as error:
                if token is not None and is_conflict(error):
                    raise refusals.changed(source, token, "another") from error
                raise

    async def _copy_through(self, source: str, target: str, token: str | None) -> None:
        info = await self.stat(source)
        if token is not None:
            refusals.check_token(source, info.token, token)
        upload = await self.open_write(target)
        try:
            for start in range(0, info.size, PART_BYTES):
                end = min(start + PART_BYTES, info.size)
                await upload.write(await self.read_range(source, start, end, info.token))
            await upload.finish()
        except BaseException:
            await upload.abort()
            raise

    # -- removing and folders ------------------------------------------------------------------------------

    async def delete(self, paths: Sequence[str]) -> None:
        """As few DELETEs as the store takes."""
        by_container: dict[str, list[str]] = {}
        for path in paths:
            name, _, key = path.partition("/")
            if not self.service.check_key(key):
                by_container.setdefault(name, []).append(key)
        for name, keys in by_container.items():
            with errors_of(f"deleting {len(keys)} files, such as", f"{name}/{keys[0]}"):
                await retrying(partial(self.service.container(name).delete, keys))

    async def make_folder(self, path: str) -> None:
        """A container; folders below are only prefixes."""
        name, _, key = path.partition("/")
        if not key:
            with errors_of("making the container", name):
                await retrying(partial(self.service.make_container, name))

    async def remove_folder(self, path: str) -> None:
        """A container; folders below are gone when they are empty."""
        if (await self.list(path)).entries:
            raise refusals.not_empty(path)
        name, _, key = path.partition("/")
        if not key:
            with errors_of("removing the container", name):
                await retrying(partial(self.service.remove_container, name))

    # -- names and processes -------------------------------------------------------------------------------

    def strip(self, path: str) -> str:
        scheme, found, rest = path.partition("://")
        bare = (rest if found and scheme in self.service.schemes else path).strip("/")
        first, slash, key = bare.partition("/")
        return f"{self.service.container_name(first)}{slash}{key}"

    def unstrip(self, path: str) -> str:
        return f"{self.service.scheme}://{path}"

    def root(self, path: str) -> str:
        return f"{self.service.scheme}-{self.service.account}/{path.partition('/')[0]}"

    async def store_name(self, path: str) -> str | None:
        return self.root(path)

    def after_fork(self) -> None:
        self.service.after_fork()
        self._loop = self._find_loop()

    def _place(self, path: str) -> tuple[Container, str]:
        """The container and the key of a file.

        Raises
        ------
        FileNotFoundError
            The path names a container, which is no file.
        OSError
            The store cannot have a file of this name.
        """
        name, _, key = path.partition("/")
        if not key:
            raise refusals.no_file(path)
        why = self.service.check_key(key)
        if why:
            raise OSError(errno.EINVAL, f"{why}, so nothing was read or written: use another name", names.shown(path))
        return self.service.container(name), key


def _blob(answer: Answer) -> Blob:
    return Blob(bytes(answer.data), answer.token, answer.modified)


def _info(path: str, found: Found) -> FileInfo:
    return FileInfo(path, found.size, found.modified, found.token)
