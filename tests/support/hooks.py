"""A backend that does what a test plans for its next calls, and what tests of the core's clients share."""

from __future__ import annotations

import asyncio
import errno
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from fsspec.asyn import get_loop
from fsspec.implementations.memory import MemoryFileSystem

from rollingfs.backend.contract import Backend
from rollingfs.backend.memory import MemoryBackend
from rollingfs.backend.wrapper import BackendWrapper
from rollingfs.client import Client
from rollingfs.format import names
from rollingfs.fs.segment_handle import Segment
from rollingfs.fs.write_file import WriteFile
from rollingfs.policy import RollingPolicy
from rollingfs.runtime.bridge import Bridge
from rollingfs.runtime.concurrency import drive

FINISH_S = 0.01

Action = Callable[[], object]


@dataclass
class Plan:
    """What happens around the next call of a verb on a path that ends so."""

    verb: str
    suffix: str
    before: Action | None = None
    after: Action | None = None


class Hooked(BackendWrapper):
    """Counts calls, and carries out plans, each once and in the order in which they were made."""

    def __init__(self, inner: Backend) -> None:
        super().__init__(inner)
        self.conflicts_are_final = False  # an action may raise one after the call
        self.calls: list[tuple[str, str]] = []
        self.plans: list[Plan] = []

    def plan(self, verb: str, suffix: str = "", *, before: Action | None = None, after: Action | None = None) -> None:
        self.plans.append(Plan(verb, suffix, before, after))

    def count(self, verb: str) -> int:
        return sum(name == verb for name, _ in self.calls)

    async def call(self, verb: str, *args: Any) -> Any:
        path = args[0] if args and isinstance(args[0], str) else ""
        self.calls.append((verb, path))
        found = next((plan for plan in self.plans if plan.verb == verb and path.endswith(plan.suffix)), None)
        if found is not None:
            self.plans.remove(found)
            if found.before is not None:
                found.before()
        answer = await super().call(verb, *args)
        if found is not None and found.after is not None:
            found.after()
        return answer


class AsyncMemory(BackendWrapper):
    """A memory backend whose verbs suspend, on fsspec's loop; counts how many do at once.

    Finishing an upload takes longer than beginning the next.
    """

    def __init__(self, inner: Backend) -> None:
        super().__init__(inner)
        self.is_async = True
        self.loop = get_loop()
        self.at_once: dict[str, int] = {}
        self.at_once_max: dict[str, int] = {}

    async def call(self, verb: str, *args: Any) -> Any:
        self.at_once[verb] = self.at_once.get(verb, 0) + 1
        self.at_once_max[verb] = max(self.at_once_max.get(verb, 0), self.at_once[verb])
        try:
            await asyncio.sleep(FINISH_S if verb == "upload.finish" else 0)
            return await super().call(verb, *args)
        finally:
            self.at_once[verb] -= 1


def fail() -> None:
    """Fail as a connection does: nothing is known of the request."""
    raise OSError(errno.EIO, "the connection broke")


def private_memory() -> MemoryBackend:
    """A memory backend whose store nobody else sees."""
    fs = MemoryFileSystem(skip_instance_cache=True)
    fs.store, fs.pseudo_dirs = {}, [""]
    return MemoryBackend(fs)


class Site:
    """One segment's path, a client on it, and what a test asks of both."""

    def __init__(self, backend: Backend, folder: str, policy: RollingPolicy | None = None, **options: Any) -> None:
        self.backend = backend
        self.path = f"{folder}/{uuid.uuid4().hex}/clicks"
        self.client = Client(backend, policy, **options)
        self.bridge = Bridge(backend)

    def other(self, **options: Any) -> Client:
        """Another client, as another process would have, past all hooks."""
        inner = self.backend.inner if isinstance(self.backend, BackendWrapper) else self.backend
        return Client(inner, self.client.segments.policy, **options)

    def run(self, coroutine: Any) -> Any:
        return self.bridge.run(coroutine)

    def create(self, policy: RollingPolicy | None = None) -> None:
        self.run(self.client.segments.create(self.path, policy))

    def append(self, data: Any, **options: Any) -> int:
        appending = self.client.segments.append(self.path, data, **options)
        offset: int = self.bridge.run(appending, commits=self.path)
        return offset

    def open(self, mode: str, **options: Any) -> WriteFile:
        return WriteFile(None, self.client, self.bridge, self.path, mode, **options)

    def segment(self) -> Segment:
        handle: Segment = self.run(Segment.open(self.client, self.bridge, self.path))
        return handle

    def content(self) -> bytes:
        """All retained bytes, as another client reads them now."""
        return drive(self._content(self.other()))

    async def _content(self, client: Client) -> bytes:
        view = await client.lookup.view(self.path, fresh=True)
        return await client.fetcher.read(view, view.start, view.length) if view.size else b""

    def is_there(self) -> bool:
        return bool(drive(self.other().headers.load(self.path)).live)

    def chunk_files(self) -> list[str]:
        """The chunk files that lie in the segment's folder, committed or not."""
        return sorted(self._chunk_files())

    def _chunk_files(self) -> Iterator[str]:
        inner = self.backend.inner if isinstance(self.backend, BackendWrapper) else self.backend
        try:
            listing = drive(inner.list(names.chunks_folder(self.path)))
        except FileNotFoundError:
            return
        for entry in listing.entries:
            name = entry.path.rpartition("/")[2]
            if name[0].isdigit() or name.startswith(names.STAGED_PREFIX):
                yield name
