"""A file that is read: a client, what its backend sees, and another client that changes things behind its back."""

import random
import uuid
from typing import Any

from rollingfs import RollingPolicy
from rollingfs.backend.local.backend import LocalBackend
from rollingfs.backend.memory import MemoryBackend
from rollingfs.format import names
from rollingfs.fs.core import Core
from rollingfs.fs.read_file import ReadFile
from rollingfs.runtime.concurrency import drive
from tests.support.backends import Scripted
from tests.support.site import Site


class World(Site):
    """A client, what its backend sees, and another client that changes things behind its back."""

    def __init__(self, inner: Any, root: str, is_async: bool = False, **options: Any) -> None:
        super().__init__(Scripted(inner, suspends=is_async), root, RollingPolicy(100, None, 50), **options)
        self.behind = self.other()

    def ranges(self) -> list[tuple[int, int]]:
        """Beginning and end of what was read."""
        return [(start, end) for _, start, end in self.backend.ranges]

    def make(self, data: bytes, policy: RollingPolicy | None = None, start: int = 0, step: int = 70) -> None:
        self.by_another("create", policy)
        for first in range(0, len(data), step):
            self.by_another("append", [data[first : first + step]])
        if start:
            self.by_another("truncate", start)

    def header(self) -> Any:
        return drive(self.behind.headers.view(self.path, fresh=True)).header

    def chunk_paths(self) -> list[str]:
        chunks = drive(self.behind.pages.unfold(self.path, self.header().entries))
        return [names.resolve(self.path, chunk.file) for chunk in chunks]

    def delete(self, *paths: str) -> None:
        drive(self.behind.backend.delete(paths))

    def put(self, path: str, data: bytes) -> None:
        self.delete(path)
        drive(self.behind.backend.write(path, [data]))

    def open(self, **options: Any) -> ReadFile:
        return ReadFile(Core(self.client, self.bridge), self.path, **options)

    def read(self, view: Any, start: int, end: int) -> bytes:
        return self.run(self.client.fetcher.read(view, start, end))

    def view(self) -> Any:
        return self.run(self.client.headers.view(self.path, fresh=True))


def make_world(kind: str, folder: Any = None, **options: Any) -> World:
    if kind == "local":
        return World(LocalBackend(sync=False), str(folder), **options)
    return World(MemoryBackend(), f"/{uuid.uuid4().hex}", kind == "async", **options)


def letters(size: int, seed: int = 0) -> bytes:
    return bytes(random.Random(seed).choices(b"abcdefgh\n", k=size))
