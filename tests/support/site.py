"""A segment's path, a client, and short forms of what tests ask of both."""

import uuid
from typing import Any

from rollingfs.backend.contract import Backend
from rollingfs.backend.wrapper import BackendWrapper
from rollingfs.format import names
from rollingfs.fs import opening
from rollingfs.fs.core import Core
from rollingfs.fs.segment_handle import SegmentHandle
from rollingfs.fs.write_file import WriteFile
from rollingfs.policy import RollingPolicy
from rollingfs.runtime.bridge import Bridge
from rollingfs.runtime.concurrency import drive
from rollingfs.segment.at import At
from rollingfs.segment.verbs.create import create
from rollingfs.segment.write.ingest import SMALL_BYTES_MAX
from tests.support.segment_verbs import VERBS, append

LARGE = b"0123456789" * (SMALL_BYTES_MAX // 10 + 1)
"""So much that an append uploads it before the commit."""


class Site:
    """A segment's path, and a client on its backend."""

    def __init__(self, backend: Backend, folder: str, policy: RollingPolicy | None = None, **options: Any) -> None:
        self.backend: Any = backend  # most often a `Scripted`
        self.path = f"{folder}/{uuid.uuid4().hex}/clicks"
        self.client = At.of(backend, policy, **options)
        self.bridge = Bridge(backend)

    def other(self, **options: Any) -> At:
        """Another client, as in another process; it goes past the wrapper."""
        inner = self.backend.inner if isinstance(self.backend, BackendWrapper) else self.backend
        return At.of(inner, self.client.inherited.default, **options)

    def by_another(self, verb: str, *args: Any, **options: Any) -> Any:
        """What a verb of the segment gives to another client."""
        return drive(VERBS[verb](self.other(), self.path, *args, **options))

    def run(self, coroutine: Any) -> Any:
        return self.bridge.run(coroutine)

    def create(self, policy: RollingPolicy | None = None) -> None:
        self.run(create(self.client, self.path, policy))

    def append(self, data: Any, **options: Any) -> int:
        return self.bridge.run(append(self.client, self.path, data, **options), commits=self.path)

    def open(self, mode: str, **options: Any) -> WriteFile:
        return WriteFile(Core(self.client, self.bridge), self.path, mode, **options)

    def segment(self) -> SegmentHandle:
        return self.run(opening.segment(Core(self.client, self.bridge), self.path))

    def content(self) -> bytes:
        """All retained bytes, read now by another client."""
        other = self.other()
        view = drive(other.headers.view(self.path, fresh=True))
        return drive(other.fetcher.read(view, view.start, view.length)) if view.size else b""

    def is_there(self) -> bool:
        return bool(drive(self.other().headers.load(self.path)).live)

    def chunk_files(self) -> list[str]:
        """The names of the chunk files in the segment's folder, committed or not."""
        try:
            listing = drive(self.other().backend.list(names.chunks_folder(self.path)))
        except FileNotFoundError:
            return []
        found = sorted(entry.path.rpartition("/")[2] for entry in listing.entries)
        return [name for name in found if name[0].isdigit() or name.startswith(names.STAGED_PREFIX)]
