"""A store in memory under the one object backend: what the backend itself does, without a server."""

from __future__ import annotations

import asyncio
import bisect
import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from fsspec.asyn import get_loop

from rollingfs.backend.contract import Buffer, FileInfo, Metadata, Over, Part, PendingUpload
from rollingfs.backend.objects.backend import ObjectBackend
from rollingfs.backend.objects.bucket import Answer, Bucket, Kept, Listed, Parts
from rollingfs.backend.objects.errors import Refusal, errors_of, only_of
from rollingfs.backend.objects.upload import JOIN_PART_BYTES_MIN
from rollingfs.format.sizes import read_bytes_max

PAGE_KEYS_MAX = 100
_tokens = itertools.count(1)


@dataclass
class File:
    """A file."""

    data: bytes
    about: dict[str, str] = field(default_factory=dict)
    token: str = field(default_factory=lambda: f'"{next(_tokens)}"')
    modified: float = field(default_factory=time.time)


class MemoryObjects(ObjectBackend):
    """An account in memory; each request suspends, as a request to a server does.

    Attributes
    ----------
    requests : list of (str, str)
        What was asked for, and the key.
    """

    scheme = "mem"
    schemes = frozenset({"mem"})
    makes_parents = True
    can_join = True
    can_delete_if = True
    can_list_uploads = True
    join_part_bytes_min = JOIN_PART_BYTES_MIN

    def __init__(self) -> None:
        self.buckets: Kept[MemoryBucket] = Kept(partial(MemoryBucket, self))
        self.files: dict[str, dict[str, File]] = {}
        self.uploads: dict[str, PendingUpload] = {}
        self.requests: list[tuple[str, str]] = []

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        loop: asyncio.AbstractEventLoop = get_loop()
        return loop

    async def list_buckets(self) -> Sequence[str]:
        return list(self.files)

    async def make_bucket(self, name: str) -> None:
        self.files.setdefault(name, {})

    async def remove_bucket(self, name: str) -> None:
        del self.files[name]

    async def bucket_name(self, bucket: str) -> str:
        return f"mem-{id(self)}/{bucket}"


def memory_objects() -> ObjectBackend:
    """The object backend over an account of its own, with the bucket ``bucket``."""
    backend = MemoryObjects()
    backend.files["bucket"] = {}
    return backend


class MemoryBucket(Bucket):
    """The files of one bucket."""

    deletes_max = 10

    def __init__(self, account: MemoryObjects, name: str) -> None:
        self.name = name
        self._account = account

    async def _files(self, request: str, key: str) -> dict[str, File]:
        self._account.requests.append((request, key))
        await asyncio.sleep(0)
        if self.name not in self._account.files:
            raise Refusal(404, "NoSuchBucket", "no such bucket")
        return self._account.files[self.name]

    async def _file(self, request: str, key: str) -> File:
        found = (await self._files(request, key)).get(key)
        if found is None:
            raise Refusal(404, "NoSuchKey", "no such file")
        return found

    async def get(
        self, key: str, span: tuple[int, int] | None = None, *, if_token: str = "", unless_token: str = ""
    ) -> Answer | None:
        file = await self._file("get", key)
        if if_token and if_token != file.token:
            raise Refusal(412, "PreconditionFailed", "another token")
        if unless_token == file.token:
            return None
        if span is not None and span[0] >= len(file.data):
            raise Refusal(416, "InvalidRange", "the file ends before this range")
        data = file.data[slice(*span)] if span is not None else file.data[: read_bytes_max(key)]
        return Answer(data, file.token, file.modified)

    async def put(
        self, key: str, data: Sequence[Buffer], over: Over | str | None = None, metadata: Metadata = None
    ) -> str:
        files = await self._files("put", key)
        if isinstance(over, str) and key not in files:
            raise Refusal(404, "NoSuchKey", "no such file")
        if (over is Over.NOTHING and key in files) or (isinstance(over, str) and over != files[key].token):
            raise Refusal(412, "PreconditionFailed", "the condition does not hold")
        files[key] = File(b"".join(data), dict(metadata or {}))
        return files[key].token

    async def head(self, key: str) -> FileInfo:
        return self._info(key, await self._file("head", key))

    def _info(self, key: str, file: File) -> FileInfo:
        return FileInfo(f"{self.name}/{key}", len(file.data), file.modified, file.token)

    async def metadata(self, key: str) -> Mapping[str, str]:
        return (await self._file("metadata", key)).about

    async def page(
        self, prefix: str, place: str | None = None, *, begin: str = "", keys_max: int | None = None
    ) -> Listed:
        files = await self._files("page", prefix)
        rows: dict[str, File | None] = {}
        for key in sorted(key for key in files if key.startswith(prefix + begin)):
            name, below, _ = key[len(prefix) :].partition("/")
            rows[f"{prefix}{name}{below}"] = None if below else files[key]
        keys = list(rows)
        start = 0 if place is None else bisect.bisect_left(keys, place)
        end = start + (keys_max or PAGE_KEYS_MAX)
        shown = [(key, rows[key]) for key in keys[start:end]]
        return Listed(
            [self._info(key, file) for key, file in shown if file is not None],
            [key[:-1] for key, file in shown if file is None],
            keys[end] if end < len(keys) else None,
            time.time(),
        )

    async def has_any(self, prefix: str) -> bool:
        files = await self._files("has_any", prefix)
        return not prefix or any(key.startswith(prefix) for key in files)

    async def delete(self, keys: Sequence[str]) -> None:
        assert len(keys) <= self.deletes_max
        files = await self._files("delete", keys[0])
        for key in keys:
            files.pop(key, None)

    async def delete_if(self, key: str, token: str) -> None:
        file = await self._file("delete_if", key)
        if file.token != token:
            raise Refusal(412, "PreconditionFailed", "another token")
        del self._account.files[self.name][key]

    async def copy(self, bucket: str, source: str, target: str, token: str | None, metadata: Metadata = None) -> None:
        file = await MemoryBucket(self._account, bucket)._file("copy", source)
        if token not in (None, file.token):
            raise Refusal(412, "PreconditionFailed", "another token")
        (await self._files("copy", target))[target] = File(file.data, dict(metadata or file.about))

    def parts(self, key: str, over: Over | None, metadata: Metadata = None) -> Parts:
        return _Parts(self, self._account, key, over, metadata)

    async def now(self) -> float:
        self._account.requests.append(("now", ""))
        return time.time()

    async def pending(self, prefix: str, name: str) -> Sequence[PendingUpload]:
        start = f"{self.name}/{prefix}"
        uploads = [one for one in self._account.uploads.values() if one.path.startswith(start)]
        names = [(one, one.path.removeprefix(start)) for one in uploads]
        return [one for one, rest in names if "/" not in rest and rest == (name or rest)]

    async def forget(self, key: str, id: str) -> None:
        self._account.uploads.pop(id, None)


class _Parts(Parts):
    def __init__(
        self, bucket: MemoryBucket, account: MemoryObjects, key: str, over: Over | None, metadata: Metadata
    ) -> None:
        self._bucket = bucket
        self._account = account
        self._key = key
        self._over = over
        self._metadata = metadata
        self._data = b""
        self._id = ""

    def _begin(self) -> None:
        if not self._id:
            self._id = str(next(_tokens))
            self._account.uploads[self._id] = PendingUpload(f"{self._bucket.name}/{self._key}", time.time(), self._id)

    async def write(self, part: bytes) -> None:
        self._begin()
        self._data += part

    async def copy(self, part: Part, bucket: str, key: str) -> None:
        self._begin()
        with errors_of("copying", part.path), only_of(part.path, part.token):
            file = await MemoryBucket(self._account, bucket)._file("copy", key)
            if part.token not in (None, file.token):
                raise Refusal(412, "PreconditionFailed", "another token")
            if part.end > len(file.data):
                raise Refusal(416, "InvalidRange", "the file ends before the end of this range")
        self._data += file.data[part.start : part.end]

    async def complete(self, last: bytes) -> None:
        if self._id not in self._account.uploads:
            raise Refusal(404, "NoSuchUpload", "somebody aborted it")
        await self._bucket.put(self._key, [self._data, last], self._over, self._metadata)
        del self._account.uploads[self._id]

    async def abort(self) -> None:
        self._account.uploads.pop(self._id, None)
