"""Index pages: loaded through a cache, and written for entries that have outgrown the header."""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict, defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from rollingfs.backend.contract import Backend
from rollingfs.backend.patience import read_fitting
from rollingfs.errors import ConflictError, CorruptHeaderError
from rollingfs.format import names, placement
from rollingfs.format.codec import format_text
from rollingfs.format.crc import crc32c
from rollingfs.format.drops import drop_line, is_deletable, is_own, merge_drops, shed_drops
from rollingfs.format.header import TEXT_BYTES_MAX, Chunk, Drop, Entry, Header, Page
from rollingfs.format.side_files import ListedChunks, format_page, parse_page
from rollingfs.format.transitions import STAMP_BYTES_MAX
from rollingfs.runtime.concurrency import Runtime
from rollingfs.segment.commit.header_cache import Headers
from rollingfs.segment.segment import Segment

CACHED_BYTES_MAX = 32 * 1024 * 1024
PAGE_READS_MAX = 8
LOOKS_MAX = 16
"""Maximum looks at a segment, or at a folder, that others go on changing."""

FILES_KNOWN_MAX = 64 * 4096
"""When more files than this are known, all are forgotten."""

File = tuple[str, str]
"""A file's tier and name."""
Files = Mapping[str, frozenset[File]]
"""Files by their folder; a file in a tier belongs to the parallel folder of the hot store.

Folders are folded: a disk that ignores case may have renamed a folder since the reference was written. Elsewhere, two
such folders never have files of the same name.
"""

T = TypeVar("T")


class PageGoneError(FileNotFoundError):
    """An index page is gone: the header that named it has been replaced, or it is corrupt."""


def lost_page(segment: str, file: str | None) -> CorruptHeaderError:
    """Return the error for a missing index page whose header is still in place."""
    return CorruptHeaderError(f"{segment}: an index page that its header names is missing: {file}")


def names_page(segment: str, header: Header | None, path: str | None) -> bool:
    """Return whether a header has an entry for the index page of this path."""
    pages = [one.file for one in header.entries if isinstance(one, Page)] if header is not None else []
    return any(names.resolve(segment, file) == path for file in pages)


async def successor(headers: Headers, path: str, seen: Header, gone: FileNotFoundError) -> Segment:
    """Return the present header, after a file of the header `seen` was gone.

    Raises
    ------
    CorruptHeaderError
        An index page is lost: the header is the same, or names the page still, and no page comes back.
    FileNotFoundError
        It is the same, and another file is gone.
    """
    loaded = await headers.load(path)
    now = loaded.header
    is_same = now is not None and (now.segment, now.version) == (seen.segment, seen.version)
    if not isinstance(gone, PageGoneError):
        if is_same:
            raise gone
    elif is_same or names_page(path, now, gone.filename):
        raise lost_page(path, gone.filename) from gone
    return loaded


async def read_map(headers: Headers, path: str, read: Callable[[Segment], Awaitable[T]], loaded: Segment) -> T:
    """Return the result of `read` for a header and its index pages, or for its successor if a page goes.

    Raises
    ------
    CorruptHeaderError
        An index page is lost.
    ConflictError
        Its index pages change all the time.
    """
    for _ in range(LOOKS_MAX):
        try:
            return await read(loaded)
        except PageGoneError as gone:
            assert loaded.header is not None
            loaded = await successor(headers, path, loaded.header, gone)
    raise ConflictError(
        f"{path}: others replaced its index pages {LOOKS_MAX} times while they were read; what was committed stays, "
        "try again"
    )


def _place(segment: str, line: Chunk | Page | Drop) -> tuple[str, File]:
    folder, _, name = names.resolve(segment, line.file).rpartition("/")
    return names.folded(folder), (line.tier, name)


class Pages:
    """The index pages of a backend."""

    def __init__(self, backend: Backend, runtime: Runtime) -> None:
        self.backend = backend
        self.runtime = runtime
        self.after_fork()

    async def chunks(self, segment: str, page: Page) -> tuple[Chunk, ...]:
        """Return a page's chunks as loose chunks of the header of `segment`.

        Raises
        ------
        PageGoneError
            The header that named it has been replaced.
        CorruptHeaderError
            It is not the page that the header means.
        """
        return placement.unfold(page, await self.raw(names.resolve(segment, page.file), page), segment)

    async def raw(self, path: str, page: Page | None = None) -> ListedChunks:
        """Return a page's chunks as its file lists them; checked against the header's line where that is given."""
        with self._lock:
            found = self._cache.get(path)
            if found is not None:
                self._cache.move_to_end(path)
        if found is None:
            try:
                found = await read_fitting(
                    self.backend, self.runtime, path, lambda blob: parse_page(blob.data, page, path)
                )
            except FileNotFoundError as error:
                raise PageGoneError(2, "The index page is gone", path) from error
            self._keep(path, found)
        return found

    def _keep(self, path: str, listed: ListedChunks) -> None:
        with self._lock:
            if path in self._cache:
                return
            self._cache[path] = listed
            self._cached_bytes += listed.size
            while self._cached_bytes > CACHED_BYTES_MAX and len(self._cache) > 1:
                self._cached_bytes -= self._cache.popitem(last=False)[1].size

    def after_fork(self) -> None:
        """Begin again in a child process, with an empty cache and a free lock."""
        self._cache: OrderedDict[str, ListedChunks] = OrderedDict()
        self._cached_bytes = 0
        self._listed_files: dict[tuple[str, int, int], Files] = {}
        """The files that pages list, which never change: by a page's path, and a range of it."""
        self._listed_count = 0
        self._lock = threading.RLock()

    async def unfold(self, segment: str, entries: Sequence[Entry]) -> list[Chunk]:
        """Return all chunks of some entries, pages read several at a time."""

        async def one(entry: Entry) -> Sequence[Chunk]:
            return [entry] if isinstance(entry, Chunk) else await self.chunks(segment, entry)

        runs = await self.runtime.gather([partial(one, entry) for entry in entries], PAGE_READS_MAX)
        return [chunk for run in runs for chunk in run]

    async def readable(self, segment: str, entries: Sequence[Entry]) -> tuple[Entry, ...]:
        """Return entries without lost or damaged index pages."""
        found = []
        for entry in entries:
            with contextlib.suppress(PageGoneError, CorruptHeaderError):
                await self.unfold(segment, [entry])
                found.append(entry)
        return tuple(found)

    async def count(self, segment: str, header: Header) -> int:
        """Return the number of a segment's chunks; pages that begin before the retained bytes are read for it."""
        cut = header.cut_pages
        if not cut:
            return header.chunk_count
        try:
            used = sum(chunk.end > header.start for chunk in await self.unfold(segment, cut))
        except (PageGoneError, CorruptHeaderError):  # whoever reads the bytes is told
            return header.chunk_count
        return header.chunk_count - sum(page.count for page in cut) + used

    async def folders(self, segment: str, entries: Sequence[Entry]) -> set[str]:
        """Return the chunk folders that entries of a segment name, those inside index pages included."""
        found = {names.parent(names.resolve(segment, entry.file)) for entry in entries}
        for entry in entries:
            if isinstance(entry, Page) and (entry.foreign or not is_own(entry.file)):
                found |= {names.parent(names.resolve(segment, c.file)) for c in await self.chunks(segment, entry)}
        return found

    async def hints(self, segment: str, entries: Sequence[Entry], target: str | None = None) -> list[str]:
        """Return the foreign chunk folders that entries of a segment name, as drop hints of it (or of `target`)."""
        holder = target or segment
        folders = await self.folders(segment, entries) - {names.chunks_folder(holder)}
        return sorted(names.relative(names.parent(holder), folder) + "/" for folder in folders)

    async def referred(self, path: str, header: Header, folder: str) -> frozenset[str]:
        """Return the paths in a folder that the header of the segment at `path` refers to.

        Among them are files that it has dropped, but keeps for a while for readers with older snapshots.

        Raises
        ------
        PageGoneError
            The header has been replaced.
        CorruptHeaderError
            A page cannot be believed.
        """
        waiting = [drop for drop in header.drops if drop.after_ms and not drop.is_hint]
        key, lines = names.folded(folder), (*header.entries, *waiting)
        named = {file for place, file in (_place(path, one) for one in lines) if place == key}
        calls: list[Callable[[], Awaitable[Files]]] = []
        for page in (entry for entry in header.entries if isinstance(entry, Page)):
            first = page.offset + max(0, header.start - page.start)  # it may begin before the start of the segment
            calls.append(partial(self._listed, path, page, first, page.offset + page.length))
        calls += [partial(self._of_drop, path, drop) for drop in waiting if drop.is_page]
        for files in await self.runtime.gather(calls, PAGE_READS_MAX):
            named |= files.get(key, frozenset())
        return frozenset(
            names.in_tier(tier, f"{folder}/{name}") if tier else f"{folder}/{name}" for tier, name in named
        )

    async def _of_drop(self, path: str, drop: Drop) -> Files:
        try:
            return await self._listed(path, drop, drop.start, drop.end)
        except FileNotFoundError:
            return {}  # the page is deleted after its chunks

    async def _listed(self, path: str, line: Page | Drop, first: int, last: int) -> Files:
        file = names.resolve(path, line.file)
        known = self._listed_files.get((file, first, last))
        if known is not None:
            return known
        home = names.segment_of_folder(names.parent(file))
        listed: defaultdict[str, set[File]] = defaultdict(set)
        for chunk in placement.overlapping(await self.raw(file, line if isinstance(line, Page) else None), first, last):
            folder, name = _place(home, chunk)
            listed[folder].add(name)
        found = {folder: frozenset(files) for folder, files in listed.items()}
        size = sum(map(len, found.values()))
        self._listed_count += size
        if self._listed_count > FILES_KNOWN_MAX:
            self._listed_files, self._listed_count = {}, size
        self._listed_files[file, first, last] = found
        return found

    async def write(self, segment: str, chunks: Sequence[Chunk]) -> Page:
        """Write consecutive chunks of a segment as an index page; returns the line that stands for them."""
        origin = chunks[0].start
        shifted = tuple(replace(chunk, start=chunk.start - origin) for chunk in chunks)
        data = format_page(shifted)
        name = names.new_index_name(origin)
        path = f"{names.chunks_folder(segment)}/{name}"
        await self.backend.write(path, [data])
        self._keep(path, ListedChunks(data, path, len(shifted)))
        foreign = sum(not is_deletable(chunk.file) for chunk in chunks)
        return Page(origin, chunks[-1].end - origin, name, len(chunks), crc32c(data), len(data), 0, foreign)

    async def fold(
        self, segment: str, header: Header, write: Callable[[tuple[Entry, ...]], Awaitable[Page]], now_ms: int
    ) -> Header:
        """Move entries into index pages until the header keeps the limits of the format, also once it is stamped.

        Parameters
        ----------
        write
            Writes an index page for some entries.
        """
        while True:
            plan, over = placement.plan_fold(header.entries), 0
            if plan is None:
                over = len(format_text(header)) + STAMP_BYTES_MAX - TEXT_BYTES_MAX
                plan = placement.plan_squeeze(header.entries) if over > 0 else None
            if plan is None:
                return shed_drops(header, over) if over > 0 else header
            folded = header.entries[plan]
            entries = (*header.entries[: plan.start], await write(folded), *header.entries[plan.stop :])
            drops = [drop_line(entry, now_ms) for entry in folded if isinstance(entry, Page)]
            header = replace(header, entries=entries, drops=merge_drops(header.drops, drops))
