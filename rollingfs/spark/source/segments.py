"""Segments as they are now: a look at them, their identity, their bytes, and the ranges of bytes that tasks read.

A name and a date do not identify a plain file: another file may get both. So its identity has the inode on a disk,
which a rename and an append keep, and the token on an object store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import TypeVar

from rollingfs.backend.contract import FileInfo
from rollingfs.errors import CorruptHeaderError, SegmentTruncatedError
from rollingfs.format import names
from rollingfs.format.header import Chunk, Header
from rollingfs.fs.core import core
from rollingfs.fs.filesystem import RollingFileSystem
from rollingfs.fs.read_file import ReadFile
from rollingfs.runtime.values import value_class
from rollingfs.segment.read.piece_checks import RUNS_MAX, PieceChecks
from rollingfs.segment.segment import Segment

PLAIN = "plain "
"""With this begins the identity of a plain file."""
_INODE = "inode:"


@value_class
class PlainFile:
    """A plain file as it was at a moment; its text is its identity."""

    modified_s: int
    """In whole seconds: a listing may know milliseconds where a look at the same file does not."""
    size: int
    key: str = ""
    """On a disk the inode and the date in milliseconds, else the token; empty if a listing has neither."""

    @staticmethod
    def of(info: FileInfo) -> PlainFile:
        """Return what a listing, or a look, shows of a file."""
        key = info.token or ""
        if info.inode is not None:
            key = f"{_INODE}{info.inode:x}:{round(info.modified * 1000)}"
        return PlainFile(int(info.modified), info.size, key)

    @staticmethod
    def parse(identity: str) -> PlainFile:
        """Return the file of an identity; an older checkpoint has no key."""
        _, modified_s, size, *key = identity.split(" ", 3)
        return PlainFile(int(modified_s), int(size), *key)

    def __str__(self) -> str:
        return f"{PLAIN}{self.modified_s} {self.size} {self.key}".rstrip()

    @property
    def inode(self) -> str | None:
        """Return the inode, on a disk."""
        return self.key.split(":")[1] if self.key.startswith(_INODE) else None

    def is_unchanged(self, now: PlainFile) -> bool:
        """Return whether the file of this name is still this file, and has been written by no program since."""
        if self.key and now.key:
            return (self.key, self.size) == (now.key, now.size)
        return (self.modified_s, self.size) == (now.modified_s, now.size)

    def is_kept(self, now: PlainFile) -> bool:
        """Return whether this file of a disk is there and has at most grown.

        Its name may be another; date and size show the growth.
        """
        return self.inode is not None and self.inode == now.inode and (now.size > self.size or self.is_unchanged(now))


T = TypeVar("T")
U = TypeVar("U")

Look = Segment | CorruptHeaderError | None
"""State of a path: a segment, the error of its header, or None."""
THREADS_MAX = 16
"""Maximum number of segments that are looked into at the same time."""
KEPT_BYTES = 31 * 1024 * 1024
"""Size of the block by which `keep_memory` sets the limit of the C library; glibc heeds at most 32 MiB."""


def look(fs: RollingFileSystem, paths: Sequence[str]) -> list[Look]:
    """Return the segments at some paths, or their errors, or None.

    The requests go out together.
    """
    client = core(fs).client

    async def one(path: str) -> Look:
        try:
            return await client.headers.view(path, fresh=True)
        except FileNotFoundError:
            return None
        except CorruptHeaderError as error:
            return error

    return core(fs).run(
        client.runtime.gather([partial(one, path) for path in paths], client.backend.capability.requests_max)
    )


def view_now(fs: RollingFileSystem, path: str) -> Segment | None:
    """Return the segment at a path now, or None.

    Raises
    ------
    CorruptHeaderError
        Its header cannot be read.
    """
    [found] = look(fs, [path])
    if isinstance(found, CorruptHeaderError):
        raise found
    return found


def header_now(fs: RollingFileSystem, path: str) -> Header | None:
    """Return the header at a path, also a tombstone, or None."""
    return core(fs).run(core(fs).client.headers.load(path)).header


def identity(view: Segment) -> str:
    """Return the identity of a segment: another segment that gets its name later has another."""
    if view.header is not None:
        return view.header.lineage  # a rename keeps it, as it keeps the offsets
    assert view.plain is not None
    return str(PlainFile.of(view.plain))


def is_same(view: Segment, known: str) -> bool:
    """Return whether offsets of a known identity are valid in this segment.

    They stay valid when a plain file of a disk grows, and when a plain file is adopted: the header keeps its date.
    """
    if identity(view) == known or not known.startswith(PLAIN):
        return identity(view) == known
    if view.header is None:
        return is_unchanged(view, known) or is_kept(view, known)
    origin_ms = view.header.origin_ms
    return origin_ms is not None and PlainFile.parse(known).modified_s == origin_ms // 1000


def is_unchanged(view: Segment, known: str) -> bool:
    """Return whether the bytes of a plain file before the known end cannot have changed.

    It may be overwritten in place.
    """
    return view.plain is not None and PlainFile.parse(known).is_unchanged(PlainFile.of(view.plain))


def is_kept(view: Segment, known: str) -> bool:
    """Return whether a plain file is a known file that has at most grown.

    Its name may differ on a disk.
    """
    return view.plain is not None and PlainFile.parse(known).is_kept(PlainFile.of(view.plain))


def became(fs: RollingFileSystem, path: str, known: str, views: Mapping[str, Segment]) -> str | None:
    """Return where the segment may be that a renamed plain file became; its bytes decide.

    None if the store has no trace of it.

    The header under the old name, a tombstone or that of the next segment, names the plain file. The file's copy is in
    the folder of that name, with the file's date. Without it, a tombstone names this segment, or a later one.
    """
    header, was = header_now(fs, path), PlainFile.parse(known)
    if header is None or (adopted := header.adopted) is None:
        return None
    if was.key != adopted.token if was.inode is None else not adopted.token.startswith(f"{was.inode}-"):
        return None
    copy = (names.chunks_folder(path), adopted.modified_ms, None, 0)
    firsts = {place: view.header.entries[0] for place, view in views.items() if view.header and view.header.entries}
    for place, one in firsts.items():
        folder = names.parent(names.resolve(place, one.file))
        if isinstance(one, Chunk) and copy == (folder, one.at_ms, one.crc32c, one.start - one.offset):
            return place
    return next((place for place, view in views.items() if header.deleted and identity(view) == header.lineage), None)


def committed_ms(view: Segment, offset: int) -> float:
    """Return the commit time of a byte by the header, in milliseconds.

    It counts from 1970.
    """
    header = view.header
    if header is None:
        return view.modified.timestamp() * 1000
    if offset >= header.tail_start:
        return header.tail_at_ms
    entry = next(entry for entry in header.entries if entry.end > offset)
    return entry.at_ms if isinstance(entry, Chunk) else header.created_ms


def extent_of(view: Segment, start: int | None = None, end: int | None = None) -> Extent:
    """Return the bytes ``[start, end)`` of a segment; by default all that it retains."""
    start, end = (view.start if start is None else start), (view.length if end is None else end)
    return Extent(view.path, identity(view), start, end)


class SegmentReader:
    """Reads a snapshot of a segment, by segment offsets."""

    def __init__(self, fs: RollingFileSystem, view: Segment) -> None:
        self.fs = fs
        self.view = view
        self._checks = PieceChecks(RUNS_MAX)

    @classmethod
    def of(cls, fs: RollingFileSystem, extent: Extent) -> SegmentReader:
        """Return the reader of a task, for the segment of the plan.

        Raises
        ------
        FileNotFoundError
            It is gone, or another segment has its name.
        SegmentTruncatedError
            Its head was truncated into the extent.
        """
        view = view_now(fs, extent.path)
        if view is None:
            raise FileNotFoundError(2, "The segment was deleted since this query was planned", extent.path)
        if not is_same(view, extent.identity):
            raise FileNotFoundError(2, "The segment was replaced since this query was planned", extent.path)
        if view.start > extent.start:
            raise SegmentTruncatedError(
                f"{extent.path}: bytes {extent.start} to {extent.end} are to be read, but the segment was truncated "
                f"since this query was planned and holds {view.start} to {view.length}"
            )
        if view.length < extent.end:
            raise SegmentTruncatedError(
                f"{extent.path}: bytes {extent.start} to {extent.end} are to be read, but the segment ends at "
                f"{view.length} now: an older copy of it was restored since this query was planned"
            )
        return cls(fs, view)

    def read(self, start: int, end: int) -> bytes:
        """Return the bytes ``[start, end)``, all of them."""
        if start == end:
            return b""
        return core(self.fs).run(core(self.fs).client.fetcher.read(self.view, start, end, checks=self._checks))

    def file(self) -> ReadFile:
        """Return a file whose position 0 is the first retained byte."""
        return ReadFile(core(self.fs), self.view.path, self.view)


@cache
def keep_memory() -> None:
    """Let this process keep the memory of a block for the next, and for the next task.

    glibc gives free memory back to the system when it is twice the size of the largest block that was ever freed. Each
    page that a task then takes again costs more than to read into it. So a large block is freed here, which takes no
    memory, because no code touches it. With another C library it has no effect.
    """
    bytes(KEPT_BYTES)


def is_remote(fs: RollingFileSystem) -> bool:
    """Return whether a request takes long, however small it is."""
    return core(fs).is_async


def each(fs: RollingFileSystem, call: Callable[[T], U], items: Iterable[T]) -> list[U]:
    """Return the answers of a call for each item, together from a remote store."""
    if not is_remote(fs):
        return [call(item) for item in items]
    with ThreadPoolExecutor(THREADS_MAX, "rollingfs-spark") as pool:
        return list(pool.map(call, items))


def prefetched(fs: RollingFileSystem, items: Iterator[T]) -> Iterator[T]:
    """Yield the same items; from a remote store, the next item is fetched ahead."""
    if not is_remote(fs):
        yield from items
        return
    end = object()
    with ThreadPoolExecutor(1, "rollingfs-spark") as pool:
        waiting = pool.submit(next, items, end)
        while (item := waiting.result()) is not end:
            waiting = pool.submit(next, items, end)
            yield item  # type: ignore[misc]


# -- ranges of tasks -----------------------------------------------------------------------------------------------

OPEN_BYTES = 256 * 1024
"""Cost of opening a segment, in bytes read. It lets thousands of small segments share a task."""
RANGES_MAX = 1000
"""Maximum number of ranges of a task."""


@value_class
class Extent:
    """Bytes of a segment to read, by segment offsets. A record begins at the first of them."""

    path: str
    """Path on the backend."""
    identity: str
    """Identity of the incarnation: another segment that gets the name has other offsets."""
    start: int
    end: int

    @property
    def size(self) -> int:
        """Return bytes."""
        return self.end - self.start


@value_class
class Range:
    """A part of an extent: the records whose first byte is in ``[start, end)``."""

    extent: Extent
    start: int
    end: int
    head: tuple[int, int] = (0, 0)
    """Bytes of the same segment that a task must read first: the schema of an Arrow stream."""

    @property
    def size(self) -> int:
        """Return bytes, without the head."""
        return self.end - self.start


def split(extent: Extent, size_max: int) -> Iterator[Range]:
    """Cut an extent into equal ranges of at most `size_max` bytes; an empty extent gives no range."""
    count = -(-extent.size // size_max)
    for nth in range(count):
        start = extent.start + extent.size * nth // count
        yield Range(extent, start, extent.start + extent.size * (nth + 1) // count)


def gather(ranges: Iterable[Range], size_max: int) -> list[tuple[Range, ...]]:
    """Put neighbours together while their bytes and the cost of opening them stay below `size_max`.

    They keep their order, so that rows come in the order of the segments' names and offsets.
    """
    groups: list[tuple[Range, ...]] = []
    group: list[Range] = []
    cost = 0
    for one in ranges:
        own = one.size + OPEN_BYTES
        if group and (cost + own > size_max + OPEN_BYTES or len(group) == RANGES_MAX):
            groups.append(tuple(group))
            group, cost = [], 0
        group.append(one)
        cost += own
    return [*groups, tuple(group)] if group else groups
