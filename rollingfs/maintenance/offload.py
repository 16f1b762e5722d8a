"""Offload and onload: the chunks of a segment move to a tier, or back, while writers and readers go on.

1. Commit the line of the tier, which leads to all that a crash may leave there.
2. Copy whole files, each once, and read each copy back: its checksum must be that of the map.
3. Commit the new places, each on condition that its chunk is still there, to the letter.
4. Delete the old files once the deletion lag has passed, so that readers of older snapshots are not disturbed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from rollingfs.backend.tiers import can_copy, check_aliases, check_tier
from rollingfs.commit.chunk_files import Stored, TierStored, checksum
from rollingfs.commit.commits import Commits
from rollingfs.commit.drop_files import finish_drops
from rollingfs.commit.uploads import Uploads
from rollingfs.errors import BadOffsetError, CorruptChunkError, StagedExpiredError
from rollingfs.format import names
from rollingfs.format.header import Chunk, Header, Tier
from rollingfs.maintenance.steps import Progress, Steps
from rollingfs.maintenance.swaps import Swap, Swapper, is_there, live, window
from rollingfs.maintenance.tier_failures import failing
from rollingfs.maintenance.tier_lines import young_line
from rollingfs.policy import DELETION_LAG_S, parse_bytes, parse_seconds
from rollingfs.runtime.clock import Moment

logger = logging.getLogger("rollingfs")

BATCH_BYTES = 1024 * 1024 * 1024
"""About the bytes that one commit swaps."""
FILES_MAX = 1024
"""Maximum files that one commit swaps."""
COPIES_AT_ONCE_MAX = 4
COPIES_MAX = 3
"""Maximum times that a file is copied, because its copy is gone."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which chunks an offload moves: those that end by `upto` and are far enough or old enough.

    Parameters
    ----------
    upto
        A segment offset; None for the end.
    after_bytes
        Bytes at the segment's end; chunks before them are far enough.
    after_age_s
        Age in seconds from which a chunk's newest byte is old enough.
    start
        Chunks that end before this segment offset are not looked at.
    """

    upto: int | None = None
    after_bytes: int | None = None
    after_age_s: float | None = None
    start: int = 0

    def has(self, chunk: Chunk, header: Header, now_ms: int) -> bool:
        """Whether a chunk of a segment is chosen."""
        if self.upto is not None and chunk.end > self.upto:
            return False
        if self.after_bytes is None and self.after_age_s is None:
            return True
        is_far = self.after_bytes is not None and chunk.end <= header.length - self.after_bytes
        return is_far or (self.after_age_s is not None and now_ms - chunk.at_ms >= self.after_age_s * 1000)

    @staticmethod
    def parse(upto: int | None, after_bytes: int | str | None, after_age: float | str | None) -> Chosen:
        """The same from numbers, or from text like ``"64MiB"`` and ``"7d"``."""
        return Chosen(
            upto,
            None if after_bytes is None else parse_bytes(after_bytes),
            None if after_age is None else parse_seconds(after_age),
        )

    def check(self, path: str, header: Header) -> None:
        """Refuse what cannot be meant.

        Raises
        ------
        BadOffsetError, ValueError
            The offset lies outside the segment; or a number is negative.
        """
        if self.upto is not None and not 0 <= self.upto <= header.length:
            raise BadOffsetError(
                f"{path}: upto is {self.upto}; it holds bytes {header.start} to {header.length}; nothing was moved"
            )
        for name, value in (("after_bytes", self.after_bytes), ("after_age", self.after_age_s)):
            if value is not None and value < 0:
                raise ValueError(f"{path}: {name} is {value}: it must be at least 0; nothing was moved")


@dataclass(frozen=True, slots=True)
class Offloaded:
    """What an offload or an onload moved."""

    chunks: int = 0
    """Entries of the map that name another file now."""
    files: int = 0
    """Files that were copied for them."""
    bytes: int = 0
    """Bytes of these files."""
    server_bytes: int = 0
    """Of them, those that the server copied; the others were read and written by this client."""

    def plus(self, other: Offloaded) -> Offloaded:
        """Both together."""
        return Offloaded(
            self.chunks + other.chunks,
            self.files + other.files,
            self.bytes + other.bytes,
            self.server_bytes + other.server_bytes,
        )


class Offloader:
    """Moves chunks of segments between the hot store and tiers."""

    def __init__(self, commits: Commits) -> None:
        self.commits = commits
        self.store = commits.store
        self.backend = self.store.backend

    async def offload(
        self,
        path: str,
        tier: str,
        chosen: Chosen | None = None,
        *,
        segment: str | None = None,
        lag_s: float = DELETION_LAG_S,
        progress: Progress | None = None,
    ) -> Offloaded:
        """Move the chunks of a segment that lie in the hot store to a tier; those of other tiers and the tail stay.

        Parameters
        ----------
        segment
            Only of this incarnation.
        lag_s
            For how many seconds the old files stay.
        progress
            Takes the number of bytes that were done since the last call; all of them are the segment's size.

        Raises
        ------
        UnknownTierError
            The filesystem was not told of this tier.
        FileNotFoundError
            There is no such segment.
        BadOffsetError, ValueError
            A number cannot be meant, or it is the memory of a stream. Nothing was moved.
        CorruptChunkError, TierFailedError
            A chunk is missing or damaged, or its copy is; or a store failed. What was committed before stays moved;
            this chunk is where it was.
        """
        check_tier(self.backend, tier, path)
        check_may_move(path)
        return await self._move(path, segment, tier, lambda chunk: not chunk.tier, chosen or Chosen(), lag_s, progress)

    async def onload(
        self,
        path: str,
        tier: str | None = None,
        chosen: Chosen | None = None,
        *,
        segment: str | None = None,
        lag_s: float = DELETION_LAG_S,
        progress: Progress | None = None,
    ) -> Offloaded:
        """Move the chunks of a segment back from a tier, or from all tiers; otherwise as `offload`."""
        header = await live(self.store, path, segment)
        check_aliases(self.backend, header.tiers, path)
        if tier is not None:
            check_tier(self.backend, tier, path)

        def is_wanted(chunk: Chunk) -> bool:
            return bool(chunk.tier) and tier in (None, chunk.tier)

        return await self._move(path, segment, "", is_wanted, chosen or Chosen(), lag_s, progress)

    async def _move(
        self,
        path: str,
        segment: str | None,
        tier: str,
        is_wanted: Callable[[Chunk], bool],
        chosen: Chosen,
        lag_s: float,
        progress: Progress | None,
    ) -> Offloaded:
        if lag_s < 0:
            raise ValueError(f"{path}: deletion_lag is {lag_s} s: it must be at least 0; nothing was moved")
        header = await live(self.store, path, segment)
        chosen.check(path, header)
        await finish_drops(self.commits, path, header)
        start, steps = header.start, Steps(header.size, progress)
        result, position, is_last = Offloaded(), chosen.start, False
        while not is_last:
            found = await window(self.store, path, header.segment, position, BATCH_BYTES)
            header, is_last = found.header, found.is_last
            wanted = [c for c in found.chunks if is_wanted(c) and chosen.has(c, header, self.store.now_ms())]
            for files in _batches(wanted):
                result = result.plus(await self._copy_and_swap_surely(path, header, tier, files, lag_s))
            position = found.chunks[-1].end if found.chunks else position
            is_last = is_last or (chosen.upto is not None and position >= chosen.upto)
            steps.reach(position - start)
        steps.reach(steps.total)
        return result

    async def _copy_and_swap_surely(
        self, path: str, header: Header, tier: str, files: Sequence[Sequence[Chunk]], lag_s: float
    ) -> Offloaded:
        """Copy again what a collection took before it was committed: this machine may have slept for a day."""
        for count in range(1, COPIES_MAX + 1):
            try:
                return await self._copy_and_swap(path, header, tier, files, lag_s)
            except StagedExpiredError as error:
                if count == COPIES_MAX:
                    raise CorruptChunkError(
                        f"{path}: copies of its chunks were gone {COPIES_MAX} times before the segment named them; the "
                        "segment still names the chunks, nothing is lost. The store of the copies loses files, or "
                        f"somebody collects without a grace: {error}"
                    ) from error
                logger.info("%s: its chunks are copied again: %s", path, error)
        raise AssertionError("the loop ends")

    # -- one commit ----------------------------------------------------------------------------------------

    async def _copy_and_swap(
        self, path: str, header: Header, tier: str, files: Sequence[Sequence[Chunk]], lag_s: float
    ) -> Offloaded:
        await self.store.abilities(path)
        line = await young_line(self.commits, path, header, tier) if tier else None
        swaps: list[Swap] = []
        uploads = Uploads(self.store.chunks, path)
        calls = [partial(self._copied, path, header, line, chunks, uploads, swaps) for chunks in files]
        try:
            await self.store.runtime.gather(calls, COPIES_AT_ONCE_MAX)
        except BaseException:
            await uploads.discard()
            raise
        if not swaps:
            await uploads.discard()
            return Offloaded()
        swapper = Swapper(self.commits, path, header.segment, lag_s, protects=True, tier=line)
        done = await uploads.settle(swapper.commit(swaps, uploads))
        moved = {swap.stored.path: swap for swap in done}.values()
        server_bytes = sum(swap.stored.size for swap in moved if self._can_copy(path, swap))
        return Offloaded(len(done), len(moved), sum(swap.stored.size for swap in moved), server_bytes)

    def _can_copy(self, path: str, swap: Swap) -> bool:
        return can_copy(self.backend, _file(path, swap.run[0]), swap.stored.file)

    # -- one file ------------------------------------------------------------------------------------------

    async def _copied(
        self,
        path: str,
        header: Header,
        line: Tier | None,
        chunks: Sequence[Chunk],
        uploads: Uploads,
        swaps: list[Swap],
    ) -> None:
        """Copy the file that some chunks name, and verify the copy; nothing if it is no longer part of the segment."""
        stored = self._new(path, chunks, line)
        source = _file(path, chunks[0])
        uploads.add([stored])
        try:
            with failing(path, chunks[0].tier if line is None else line.alias, source):
                await self.store.chunks.copy(source, stored.file)
                crc = await self._verified(path, chunks[0], source, stored)
        except FileNotFoundError as error:
            if await is_there(self.store, path, header.segment, chunks):
                if not await self._exists(source):
                    raise CorruptChunkError(f"{path}: a chunk that its header names is missing: {source}") from error
                raise StagedExpiredError(f"{stored.file} is gone") from error
            logger.info("%s: %s is not moved: %s", path, source, error)
            return
        verified = replace(stored, crc32c=crc)
        swaps += [Swap((chunk,), verified, is_whole=False) for chunk in chunks]

    def _new(self, path: str, chunks: Sequence[Chunk], line: Tier | None) -> Stored:
        """A name for the copy of a file; a file that several entries name is deleted by collection alone."""
        first, is_shared = chunks[0], len(chunks) > 1
        folder, began = names.chunks_folder(path), Moment.now(self.store.clock)
        if line is None:
            name = names.new_staged_name() if is_shared else names.new_chunk_name(first.start)
            return Stored(f"{folder}/{name}", first.size, first.crc32c, first.at_ms, began)
        name = names.new_shared_tier_name(line.key) if is_shared else names.new_tier_name(line.key, first.start)
        return TierStored(f"{folder}/{name}", first.size, first.crc32c, first.at_ms, began, tier=line.alias)

    async def _verified(self, path: str, chunk: Chunk, source: str, stored: Stored) -> int:
        """The checksum of a copy, read back; it must be that of the map, or of the source if the map has none.

        Raises
        ------
        CorruptChunkError
            It is another, or the copy is too short or too long; or the source itself is damaged.
        """
        found = await checksum(self.backend, stored.file, chunk.size)
        wanted = chunk.crc32c if chunk.crc32c is not None else await checksum(self.backend, source, chunk.size)
        if found is not None and found == wanted:
            return found
        there = await checksum(self.backend, source, chunk.size)
        if there is None or (chunk.crc32c is not None and there != chunk.crc32c):
            raise CorruptChunkError(
                f"{source}: the chunk does not have the size or the checksum that the header of {path} says; it is "
                "damaged, so it was not moved"
            )
        raise CorruptChunkError(
            f"{stored.file}: the copy that was just written differs from {source}, which is whole; the segment still "
            "names that one, nothing is lost: the store of the copy is at fault"
        )

    async def _exists(self, file: str) -> bool:
        try:
            await self.backend.stat(file)
        except FileNotFoundError:
            return False
        return True


def check_may_move(path: str) -> None:
    """Refuse the memory of a stream: every client of the stream reads it, also those that were told of no tier.

    Raises
    ------
    ValueError
        It is one.
    """
    if names.is_ledger(path):
        raise ValueError(f"{path} is the memory of a stream, which never moves; nothing was moved")


def _file(path: str, chunk: Chunk) -> str:
    return names.locate(path, chunk.file, chunk.tier)


def _batches(chunks: Sequence[Chunk]) -> list[list[list[Chunk]]]:
    """Chunks by the file that they name, in groups that one commit can take."""
    files: dict[tuple[str, str], list[Chunk]] = {}
    for chunk in chunks:
        files.setdefault((chunk.tier, chunk.file), []).append(chunk)
    found: list[list[list[Chunk]]] = []
    size = 0
    for group in files.values():
        if not found or size >= BATCH_BYTES or len(found[-1]) >= FILES_MAX:
            found.append([])
            size = 0
        found[-1].append(group)
        size += group[0].size
    return found
