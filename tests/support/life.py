"""What the tests of a segment's life share: a client in memory whose clock the test turns."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rollingfs import RollingPolicy
from rollingfs.backend.contract import Backend
from rollingfs.format import names
from rollingfs.format.header import Chunk, Header
from rollingfs.format.transitions import NO_GUARD, Guard
from rollingfs.fs.core import Core
from rollingfs.fs.stream_handle import Stream
from rollingfs.policy import BLOCK_BYTES
from rollingfs.runtime.bridge import Bridge
from rollingfs.runtime.concurrency import drive
from rollingfs.segment.at import At
from rollingfs.segment.commit.chunk_files import Staged
from rollingfs.segment.files.rewrite_plan import Asked, Chosen
from rollingfs.segment.files.survey import Collected
from rollingfs.segment.verbs.append import stage
from rollingfs.segment.verbs.change import seal
from rollingfs.segment.verbs.collect import collect
from rollingfs.segment.verbs.concat import concat
from rollingfs.segment.verbs.consolidate import Consolidated, consolidate
from rollingfs.segment.verbs.create import create, overwrite
from rollingfs.segment.verbs.delete import delete
from rollingfs.segment.verbs.erase import Erased, erase
from rollingfs.segment.verbs.offload import Offloaded, offload, onload
from rollingfs.segment.verbs.rename import rename
from rollingfs.segment.verbs.truncate import truncate
from rollingfs.segment.verbs.verify import Verified, verify
from rollingfs.stream.cut import StreamCut
from tests.support.backends import private_memory
from tests.support.segment_verbs import append

NOON_S = 4_000_000_000.0
"""In 2096: files have dates by the real clock, and no test may depend on whether that is behind this one."""
CHUNKS = RollingPolicy(max_bytes=1000, inline_bytes=0)
"""Every append becomes a chunk."""


class Turned:
    """A clock that stands still until it is turned."""

    def __init__(self, now_s: float = NOON_S) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s


class World:
    """A client, its clock, and short forms of its verbs."""

    def __init__(
        self, backend: Backend | None = None, policy: RollingPolicy | None = None, clock: Turned | None = None
    ) -> None:
        self.backend = backend or private_memory()
        self.clock = clock or Turned()
        self.client = At.of(self.backend, policy, header_cache_s=0.0, clock=self.clock)
        self.bridge = Bridge(self.backend, on_fork=self.client.after_fork)

    def stream(self, path: str = "/stream") -> Stream:
        return Stream(Core(self.client, self.bridge), path)

    def create(
        self, path: str, pieces: Iterable[bytes] = (), policy: RollingPolicy | None = None, *, sealed: bool = False
    ) -> str:
        drive(create(self.client, path, policy))
        for piece in pieces:
            self.append(path, piece)
        if sealed:
            self.seal(path)
        return path

    def append(self, path: str, data: bytes | Staged) -> int:
        return drive(append(self.client, path, [data]))

    def stage(self, path: str, data: bytes) -> Staged:
        return drive(stage(self.client, path, data))

    def overwrite(self, path: str, data: bytes) -> None:
        drive(overwrite(self.client, path, [data]))

    def seal(self, path: str) -> None:
        drive(seal(self.client, path))

    def truncate(self, path: str, offset: int) -> None:
        drive(truncate(self.client, path, offset))

    def erase(self, path: str, offset: int, guard: Guard = NO_GUARD) -> Erased:
        return drive(erase(self.client, path, offset, guard))

    def delete(self, path: str) -> None:
        drive(delete(self.client, path))

    def rename(self, source: str, target: str) -> None:
        drive(rename(self.client, source, target))

    def concat(self, target: str, sources: Sequence[str]) -> None:
        """Seal the sources, and join them to the target."""
        for source in sources:
            self.seal(source)
        drive(concat(self.client, target, sources))

    def collect(self, path: str, grace_s: float | None = 0.0, **options: Any) -> Collected:
        return drive(collect(self.client, path, grace_s=grace_s, **options))

    def write(self, path: str, data: bytes) -> str:
        """Write a file as another program does; its path."""
        drive(self.backend.write(path, [data]))
        return path

    def orphan(self, path: str, name: str = "", data: bytes = b"orphan") -> str:
        """Leave a file in a segment's chunk folder that its header does not name, by default a chunk; its path."""
        return self.write(f"{names.chunks_folder(path)}/{name or names.new_chunk_name(0)}", data)

    def consolidate(self, path: str, **options: Any) -> Consolidated:
        return drive(consolidate(self.client, path, **options))

    def offload(self, path: str, *, lag_s: float = 0.0, block_bytes: int = BLOCK_BYTES, **chosen: Any) -> Offloaded:
        """To the tier ``cold``."""
        return drive(offload(self.client, path, Asked("cold", Chosen(**chosen), lag_s, block_bytes)))

    def onload(self, path: str, *, lag_s: float = 0.0) -> Offloaded:
        return drive(onload(self.client, path, lag_s=lag_s))

    def rows(self, path: str) -> list[Verified]:
        """What a verification finds."""
        return drive(verify(self.client, path))

    def chunks(self, path: str) -> list[Chunk]:
        """All that the map names, also what lies before the start."""
        return drive(self.client.pages.unfold(path, self.header(path).entries))

    def header(self, path: str) -> Header:
        header = drive(self.client.headers.load(path)).header
        assert header is not None
        return header

    def content(self, path: str) -> bytes:
        view = drive(self.client.headers.view(path, fresh=True))
        return drive(self.client.fetcher.read(view, view.start, view.length))

    def files(self, path: str) -> list[str]:
        """The names in a segment's chunk folder, but for its lock."""
        try:
            listing = drive(self.backend.list(names.chunks_folder(path)))
        except FileNotFoundError:
            return []
        found = [entry.path.rpartition("/")[2] for entry in listing.entries]
        return [name for name in found if name != names.LOCK_NAME]


def cut_of(stream: Stream, offsets: Mapping[str, int]) -> StreamCut:
    """A cut at these offsets of the segments that have these names now."""
    return StreamCut(offsets, NOON_S, 0, stream.cut().incarnations)


def pieces_of(data: bytes, sizes: Sequence[int]) -> list[bytes]:
    """The data, cut into pieces of these sizes."""
    found, start = [], 0
    for size in sizes:
        found.append(data[start : start + size])
        start += size
    return found
