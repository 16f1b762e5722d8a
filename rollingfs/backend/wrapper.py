"""A backend over a backend, whose one hook sees every verb: for faults, counts, traces and clocks."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from rollingfs.backend.contract import (
    Backend,
    Blob,
    Buffer,
    FileInfo,
    Listing,
    Metadata,
    Over,
    Page,
    Part,
    PendingUpload,
    Upload,
)

T = TypeVar("T")

_ABILITIES = tuple(Backend.__annotations__)


class BackendWrapper(Backend):
    """Forwards every verb to another backend, through `call`.

    Attributes
    ----------
    inner : Backend
        The backend that does the work.
    shift_s : float
        Seconds added to the store's *now*, so that files look older by that much. Their dates do not change.
    """

    def __init__(self, inner: Backend, shift_s: float = 0.0) -> None:
        self.inner = inner
        self.shift_s = shift_s
        for ability in _ABILITIES:
            setattr(self, ability, getattr(inner, ability))

    async def call(self, verb: str, *args: Any) -> Any:
        """Do one verb. A subclass overrides it to fail before or after the verb, to count or to wait.

        Parameters
        ----------
        verb : str
            The name of the method, or ``"upload.write"``, ``"upload.copy"``, ``"upload.finish"``, ``"upload.abort"``.
        args
            Its arguments. For an upload: the path, the inner `Upload`, and the bytes of a write or the part of a copy.
        """
        if verb.startswith("upload."):
            _path, upload, *rest = args
            return await getattr(upload, verb.removeprefix("upload."))(*rest)
        return await getattr(self.inner, verb)(*args)

    def __getattr__(self, name: str) -> Any:
        # for what a backend has beyond the contract, such as `loop`; "inner" is missing while unpickling
        if name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)

    async def read(self, path: str) -> Blob:
        blob: Blob = await self.call("read", path)
        return blob

    async def read_if_changed(self, path: str, token: str) -> Blob | None:
        blob: Blob | None = await self.call("read_if_changed", path, token)
        return blob

    async def read_range(self, path: str, start: int, end: int, token: str | None = None) -> Buffer:
        data: Buffer = await self.call("read_range", path, start, end, *_given(token))
        return data

    def hold(self, path: str, token: str) -> object | None:
        return self.inner.hold(path, token)

    async def stat(self, path: str) -> FileInfo:
        info: FileInfo = await self.call("stat", path)
        return info

    async def metadata(self, path: str) -> Mapping[str, str]:
        found: Mapping[str, str] = await self.call("metadata", path)
        return found

    async def is_folder(self, path: str) -> bool:
        answer: bool = await self.call("is_folder", path)
        return answer

    async def list(self, folder: str) -> Listing:
        listing: Listing = await self.call("list", folder)
        return listing if listing.now is None else dataclasses.replace(listing, now=listing.now + self.shift_s)

    async def list_page(self, folder: str, place: str | None = None) -> Page:
        page: Page = await self.call("list_page", folder, *_given(place))
        return page

    async def list_prefix(self, folder: str, prefix: str) -> Listing:
        listing: Listing = await self.call("list_prefix", folder, prefix)
        return listing if listing.now is None else dataclasses.replace(listing, now=listing.now + self.shift_s)

    async def now(self, path: str) -> float:
        now: float = await self.call("now", path)
        return now + self.shift_s

    async def create(self, path: str, data: Buffer) -> str:
        token: str = await self.call("create", path, data)
        return token

    async def replace(self, path: str, data: Buffer, token: str) -> str:
        new_token: str = await self.call("replace", path, data, token)
        return new_token

    async def flush(self, path: str) -> None:
        await self.call("flush", path)

    async def delete_if(self, path: str, token: str) -> bool:
        deleted: bool = await self.call("delete_if", path, token)
        return deleted

    async def write(self, path: str, data: Sequence[Buffer], metadata: Metadata = None) -> None:
        await self.call("write", path, data, *_given(metadata))

    async def put(self, path: str, data: Buffer) -> None:
        await self.call("put", path, data)

    async def open_write(self, path: str, over: Over | None = None, metadata: Metadata = None) -> Upload:
        more = _given(over) if metadata is None else (over, metadata)
        return _WrappedUpload(self, path, await self.call("open_write", path, *more))

    async def copy(self, source: str, target: str, token: str | None = None) -> None:
        await self.call("copy", source, target, token)

    async def join(self, parts: Sequence[Part], target: str) -> None:
        await self.call("join", parts, target)

    async def delete(self, paths: Sequence[str]) -> None:
        await self.call("delete", paths)

    async def list_uploads(self, folder: str, name: str | None = None) -> Sequence[PendingUpload]:
        uploads: Sequence[PendingUpload] = await self.call("list_uploads", folder, *_given(name))
        return uploads

    async def abort_upload(self, upload: PendingUpload) -> None:
        await self.call("abort_upload", upload)

    async def make_folder(self, path: str) -> None:
        await self.call("make_folder", path)

    async def remove_folder(self, path: str) -> None:
        await self.call("remove_folder", path)

    async def remove_whole(self, header: str, token: str) -> bool:
        return bool(await self.call("remove_whole", header, token))

    async def move_whole(self, header: str, token: str, target: str) -> bool:
        return bool(await self.call("move_whole", header, token, target))

    async def take_link(self, path: str, target: str | None = None) -> bool:
        return bool(await self.call("take_link", path, *_given(target)))

    async def keeps_versions(self, path: str) -> bool | None:
        answer: bool | None = await self.call("keeps_versions", path)
        return answer

    def strip(self, path: str) -> str:
        return self.inner.strip(path)

    def unstrip(self, path: str) -> str:
        return self.inner.unstrip(path)

    def root(self, path: str) -> str:
        return self.inner.root(path)

    def after_fork(self) -> None:
        self.inner.after_fork()


def _given(argument: T | None) -> tuple[T, ...]:
    return () if argument is None else (argument,)


class _WrappedUpload(Upload):
    def __init__(self, wrapper: BackendWrapper, path: str, inner: Upload) -> None:
        self._wrapper = wrapper
        self._path = path
        self._inner = inner

    @property
    def held_bytes(self) -> int:
        return self._inner.held_bytes

    async def write(self, data: Buffer) -> None:
        await self._wrapper.call("upload.write", self._path, self._inner, data)

    async def copy(self, part: Part) -> None:
        await self._wrapper.call("upload.copy", self._path, self._inner, part)

    async def finish(self) -> None:
        await self._wrapper.call("upload.finish", self._path, self._inner)

    async def abort(self) -> None:
        await self._wrapper.call("upload.abort", self._path, self._inner)
