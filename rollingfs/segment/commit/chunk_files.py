"""Chunk files: written under names that are never used again; written again if too old to be committed."""

from __future__ import annotations

import posixpath
from dataclasses import replace

from rollingfs.backend.contract import Backend, Buffer, finished, frozen
from rollingfs.backend.tiers import can_copy
from rollingfs.errors import CorruptChunkError, StagedExpiredError
from rollingfs.format import names
from rollingfs.format.crc import crc32c
from rollingfs.format.edges import HEAD_BYTES, TAIL_BYTES, UNKNOWN, Kinds
from rollingfs.format.header import AGE_S_MAX, OFFSET_MAX, Chunk
from rollingfs.format.side_files import Label, Last
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
    kinds: Kinds = UNKNOWN
    """Of its first bytes, if it may begin a segment, and of its last."""

    @property
    def file(self) -> str:
        """The path under which the backend knows it."""
        return self.path

    def chunk(self, segment: str, start: int) -> Chunk:
        """The entry in the header of `segment` that uses the whole file."""
        return Chunk(start, self.size, names.relate(segment, self.path), self.crc32c, self.at_ms)


@value_class
class TierStored(Stored):
    """A chunk file in a tier; `path` names the parallel file in the hot store. A receipt has no such file."""

    tier: str = ""
    """Alias of the tier."""
    pieces: tuple[tuple[int, int], ...] = ()
    """As of a `Chunk`."""

    @property
    def file(self) -> str:
        return names.in_tier(self.tier, self.path)

    def chunk(self, segment: str, start: int) -> Chunk:
        chunk = Stored.chunk(self, segment, start)
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


async def young(store: Store, stored: Stored, store_now: float | None) -> Stored:
    """The chunk itself, or, if it is older than D, a new copy of it: the age rule.

    Parameters
    ----------
    stored
        The chunks to be committed.
    store_now
        The store's clock, needed for staged chunks only.

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
    return stored if -SKEW_S_MAX <= age_s <= AGE_S_MAX else await _again(store, stored, store_now)


async def _again(store: Store, stored: Stored, store_now: float | None) -> Stored:
    """A copy that was read back: its source goes, and so may the files that it has verified."""
    began = Moment.now(store.clock)
    folder, name = posixpath.split(stored.path)
    renewed = replace(stored, path=f"{folder}/{names.renewed(name)}", began=began, stored_at=store_now)
    try:
        await copy_file(store, stored.file, renewed.file)
        known = stored.crc32c
        wanted = known if known is not None else await checksum(store.backend, stored.file, stored.size)
        found = await checksum(store.backend, renewed.file, stored.size)
    except FileNotFoundError as error:
        raise StagedExpiredError(
            f"{stored.path} was collected before it was committed; nothing was written: "
            f"{'stage' if stored.staged else 'write'} the data again"
        ) from error
    if found is None or found != wanted:
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
    """Return `whole_files.kinds_of`, whose tables are loaded for the first chunk that is long enough."""
    if len(tail) < TAIL_BYTES:
        return UNKNOWN
    from rollingfs.format import whole_files

    return whole_files.kinds_of(bytes(head), bytes(tail))


async def checksum(backend: Backend, file: str, size: int) -> int | None:
    """The checksum of a file; None if it has another size."""
    crc, found = await read_checksum(backend, file, size)
    return crc if found == size else None


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
