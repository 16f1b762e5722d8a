"""Chunk files: written under names that are never used again; written again if too old to be committed.

`Uploads` and `NewFiles` belong to a change, and know which of them their writer may still delete.
"""

from __future__ import annotations

import logging
import posixpath
from collections.abc import Awaitable, Callable, Container, Coroutine, Iterable
from dataclasses import replace
from typing import Any, TypeVar

from rollingfs.backend.contract import Backend, Buffer, finished, frozen
from rollingfs.backend.tiers import can_copy
from rollingfs.errors import AppendInterrupted, AppendOutcomeUnknown, CorruptChunkError, StagedExpiredError
from rollingfs.format import names, whole_files
from rollingfs.format.crc import crc32c
from rollingfs.format.header import AGE_S_MAX, OFFSET_MAX, Chunk, Entry, Header, Page
from rollingfs.format.side_files import HEAD_BYTES, TAIL_BYTES, UNKNOWN_KINDS, Kinds, Label, Last
from rollingfs.runtime.meters import Steps
from rollingfs.runtime.system import Moment
from rollingfs.runtime.values import value_class
from rollingfs.segment.commit.store import Store

COPY_BYTES_MAX = 8 * 1024 * 1024
CHECK_BYTES_MAX = 8 * 1024 * 1024
"""Bytes of a request that only serves a checksum."""
SKEW_S_MAX = 60.0
"""A receipt that is no further than this ahead of the store's clock is young: a store has many machines."""


@value_class
class Stored:
    """A chunk file that is written; whether it is committed is not known here."""

    path: str
    size: int
    crc32c: int | None
    at_ms: int
    began: Moment
    staged: bool = False
    stored_at: float | None = None
    """For a staged chunk: when its upload began by the store's own clock, in seconds since 1970."""
    kinds: Kinds = UNKNOWN_KINDS
    """Of its first bytes, if it may begin a segment, and of its last."""
    tier: str = ""
    """Alias of its tier; `path` then names the parallel file in the hot store. No receipt has such a file."""
    pieces: tuple[tuple[int, int], ...] = ()
    """As of a `Chunk`, in a tier."""

    @property
    def file(self) -> str:
        """The path under which the backend knows it."""
        return names.in_tier(self.tier, self.path) if self.tier else self.path

    def chunk(self, segment: str, start: int) -> Chunk:
        """Return the entry in the header of `segment` that uses the whole file."""
        chunk = Chunk(start, self.size, names.relate(segment, self.path), self.crc32c, self.at_ms)
        if not self.tier:
            return chunk
        return replace(chunk, tier=self.tier, moved_ms=round(self.began.wall_s * 1000), pieces=self.pieces)


@value_class
class Staged:
    """The receipt of `stage`: chunks that are uploaded for a segment and not committed. Picklable."""

    path: str
    """The segment that it is for."""
    chunks: tuple[Stored, ...]
    id: str

    @property
    def size(self) -> int:
        """Bytes staged."""
        return sum(chunk.size for chunk in self.chunks)


async def write_chunk(
    store: Store, segment: str, data: Buffer, start: int, incarnation: str | None = None, last: Last | None = None
) -> Stored:
    """Write some bytes as a new chunk file, expected at this offset, for this incarnation and after this chunk."""
    stored = await _write(store, segment, data, names.new_chunk_name(start), Label(incarnation, start, last=last))
    view = memoryview(data)
    return replace(stored, kinds=kinds_of(view[: 0 if start else HEAD_BYTES], view[-TAIL_BYTES:]))


async def write_shared(store: Store, segment: str, data: Buffer) -> Stored:
    """Write a chunk file that several entries will name. Only collection may delete it, as for staged files."""
    return await _write(store, segment, data, names.new_staged_name(), Label())


async def _write(store: Store, segment: str, data: Buffer, name: str, label: Label) -> Stored:
    began, crc = Moment.now(store.clock), crc32c(data)
    path = f"{names.chunks_folder(segment)}/{name}"
    more = [replace(label, crc32c=crc).metadata()] if store.backend.capability.has_metadata else []
    await store.backend.write(path, [data], *more)
    return Stored(path, len(data), crc, round(began.wall_s * 1000), began)


async def young(store: Store, stored: Stored, store_now: float | None, header: Header | None) -> Stored:
    """Return the chunk itself, or, if it is older than D, a new copy of it: the age rule.

    Parameters
    ----------
    stored
        The chunks to be committed.
    store_now
        The store's clock, needed for staged chunks only.
    header
        The header that the chunk is added to. A collection dates it by the store's clock, which may have been ahead,
        or this machine stood still meanwhile.

    Raises
    ------
    StagedExpiredError
        The chunk has been collected: it was staged, or its process slept for more than D.
    """
    age_s = stored.began.age_s(store.clock)
    if stored.staged:
        assert store_now is not None
        assert stored.stored_at is not None
        age_s = store_now - stored.stored_at
    # the age of one that lies further ahead is not known: a clock was set back
    is_young = age_s >= -SKEW_S_MAX and not _is_old(age_s, stored.began, header)
    return stored if is_young else await _again(store, stored, store_now)


def _is_old(age_s: float, began: Moment, header: Header | None) -> bool:
    """Return whether a collection may have taken a file, by its age, or by the date of the header that will name it."""
    return age_s > AGE_S_MAX or (header is not None and header.modified_ms / 1000 - began.wall_s > AGE_S_MAX)


async def _again(store: Store, stored: Stored, store_now: float | None) -> Stored:
    """Return a copy that was read back: its source goes, and so may the files that it has verified."""
    began = Moment.now(store.clock)
    folder, name = posixpath.split(stored.path)
    renewed = replace(stored, path=f"{folder}/{names.renewed(name)}", began=began, stored_at=store_now)
    try:
        await copy_file(store, stored.file, renewed.file)
        wanted = stored.crc32c
        if wanted is None:
            wanted, _ = await read_checksum(store.backend, stored.file, stored.size)
        found = await read_checksum(store.backend, renewed.file, stored.size)
    except FileNotFoundError as error:
        raise StagedExpiredError(
            f"{stored.path} was collected before it was committed; nothing was written: "
            f"{'stage' if stored.staged else 'write'} the data again"
        ) from error
    if found != (wanted, stored.size):
        await store.backend.delete([renewed.file])
        raise CorruptChunkError(
            f"{renewed.file}: the copy that was just made differs from what was written to {stored.file} before; "
            "nothing was committed: its store is at fault, write the data again"
        )
    return replace(renewed, crc32c=wanted)


async def copy_file(store: Store, source: str, target: str) -> None:
    """Copy a file to a new name, on the server where the store can."""
    if can_copy(store.backend, source, target):
        await store.backend.copy(source, target)
    else:
        await copy_through(store, source, target)


async def copy_through(store: Store, source: str, target: str, start: int = 0, end: int = OFFSET_MAX) -> int:
    """Copy a file, or a range of it, by reading and writing it; return the checksum."""
    crc, position = 0, start
    async with finished(await store.backend.open_write(target)) as upload:
        while position < end:
            data = frozen(await store.backend.read_range(source, position, min(position + COPY_BYTES_MAX, end)))
            if not data:
                break
            await upload.write(data)
            crc, position = crc32c(data, crc), position + len(data)
        if position == start:
            await store.backend.stat(source)
    return crc


def kinds_of(head: Buffer, tail: Buffer) -> Kinds:
    """Return `whole_files.kinds_of`; a chunk that is shorter than a tail has no kind."""
    return UNKNOWN_KINDS if len(tail) < TAIL_BYTES else whole_files.kinds_of(bytes(head), bytes(tail))


async def read_checksum(
    backend: Backend, file: str, size_max: int = OFFSET_MAX, steps: Steps | None = None, step: int = CHECK_BYTES_MAX
) -> tuple[int, int]:
    """Return the checksum and the size of a file; a file that is longer than `size_max` is read a byte further."""
    crc = position = 0
    while position <= size_max:
        end = min(position + step, size_max + 1)
        data = frozen(await backend.read_range(file, position, end))
        crc = crc32c(data, crc)
        position += len(data)
        if steps is not None:
            steps.add(len(data))
        if position < end:
            break
    return crc, position


logger = logging.getLogger("rollingfs")

T = TypeVar("T")


class Uploads:
    """Chunk files that their writer may still delete, because no attempt that names them took place or may take place.

    1. The writer adds the files that it has uploaded.
    2. The commit calls `name` before it sends an attempt. From then on only collection may delete the files that the
       attempt names.
    3. The commit calls `lose` once the attempt certainly did not take place and never will.
    4. The writer calls `discard` when the change is over.

    Parameters
    ----------
    path
        The segment.
    """

    def __init__(self, store: Store, path: str, stored: Iterable[Stored] = ()) -> None:
        self.path = path
        self.store = store
        self._unnamed = list(stored)
        self._named: list[Stored] = []

    def add(self, stored: Iterable[Stored]) -> None:
        """Take files that were just written."""
        self._unnamed += stored

    def name(self, files: Container[str]) -> None:
        """Let go of the files that an attempt is about to name; `files` are references in the segment's header."""
        free, self._unnamed = self._unnamed, []
        for one in free:
            (self._named if names.relate(self.path, one.path) in files else self._unnamed).append(one)

    def lose(self) -> None:
        """Take back the files of an attempt that lost its race: its condition can never hold again."""
        self._unnamed, self._named = self._unnamed + self._named, []

    async def delete(self) -> None:
        """Delete the files that no attempt names which took place or may take place."""
        unnamed, self._unnamed = self._unnamed, []
        if unnamed:
            await self.store.backend.delete([one.file for one in unnamed])

    async def discard(self) -> None:
        """Delete files; a failure is only logged, because the caller must hear the outcome of the commit."""
        try:
            await self.delete()
        except OSError as error:
            logger.info("%s: uploads that were not committed are left to collect(): %s", self.path, error)

    async def settle(self, call: Coroutine[Any, Any, T]) -> T:
        """Await the commit of these files, then delete the files that no header names.

        The files are left to collection if more attempts may arrive: the outcome is unknown, or an interrupt came that
        was not judged.
        """
        try:
            return await call
        except BaseException as error:
            is_judged = isinstance(error, AppendInterrupted) and error.outcome != "unknown"
            if isinstance(error, AppendOutcomeUnknown) or not (isinstance(error, Exception) or is_judged):
                self._unnamed, self._named = [], []
            raise
        finally:
            await self.discard()


class NewFiles(Uploads):
    """Chunks and index pages that a commit writes: all its attempts use them, and the files given to it.

    Parameters
    ----------
    path
        The segment.
    given
        The files that the caller has written for this change.
    """

    def __init__(self, store: Store, path: str, given: Iterable[Uploads]) -> None:
        super().__init__(store, path)
        self._pages: dict[tuple[Entry, ...], tuple[Page, Moment]] = {}
        """Index pages, and when they were begun, by the entries that they stand for."""
        self._written: dict[tuple[bytes, int], Stored] = {}
        """Chunks, by their bytes and their number among equal chunks."""
        self._given = list(given)
        self._renewed: dict[Stored, Stored] = {}
        self.kinds: dict[str, Kinds] = {}
        """Of the files of entries, by reference."""

    def name(self, files: Container[str]) -> None:
        """Note which files an attempt names, before it is sent."""
        super().name(files)
        for uploads in self._given:
            uploads.name(files)

    def lose(self) -> None:
        """Note that the newest attempt certainly did not take place and never will."""
        super().lose()
        for uploads in self._given:
            uploads.lose()

    async def once(self, data: bytes, nth: int, write: Callable[[], Awaitable[Stored]], header: Header) -> Stored:
        """Write a file for a header once for all attempts, but again when it has grown too old."""
        found = self._written.get((data, nth))
        stored = await write() if found is None else await young(self.store, found, None, header)
        if stored is not found:
            self.add([stored])
        self._written[data, nth] = stored
        return stored

    async def page(self, header: Header, entries: tuple[Entry, ...]) -> Page:
        """Write an index page for consecutive entries, once for all attempts, but again when it has grown too old.

        Returns the line that stands for them.
        """
        known = self._pages.get(entries)
        if known is not None and not _is_old(known[1].age_s(self.store.clock), known[1], header):
            return known[0]
        pages, now_ms, began = self.store.pages, self.store.now_ms(), Moment.now(self.store.clock)
        page = await pages.write(self.path, await pages.unfold(self.path, entries))
        self._pages[entries] = page, began
        self.add([Stored(names.resolve(self.path, page.file), page.size, page.crc32c, now_ms, began)])
        return page

    async def young(self, stored: Stored, header: Header | None, store_now: float | None = None) -> Stored:
        """Return a chunk that the commit was given, or the copy that it has made because the chunk was too old."""
        known = self._renewed.get(stored, stored)
        renewed = await young(self.store, known, store_now, header)
        if renewed is not known:
            self._renewed[stored] = renewed
            if not renewed.staged:  # only collection deletes staged files
                self.add([renewed])
        return renewed

    def entry(self, stored: Stored, start: int) -> Chunk:
        """Return the entry that uses a whole file."""
        chunk = stored.chunk(self.path, start)
        self.kinds[chunk.file] = stored.kinds
        return chunk
