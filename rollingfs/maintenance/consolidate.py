"""Consolidation: runs of small neighbouring chunks become chunks of the policy's size.

1. Join the bytes of each run to a new file: on the server where the store can, else by reading and writing them once.
2. Commit the new chunks in the place of the old ones, on condition that exactly those are still there.
3. Delete the old files later, so that readers with old snapshots are not disturbed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import google_crc32c

from rollingfs.backend.contract import Part
from rollingfs.commit.attempt import Attempt
from rollingfs.commit.chunk_files import Stored
from rollingfs.commit.committer import Committer
from rollingfs.commit.drop_files import finish_drops
from rollingfs.commit.header_cache import Loaded
from rollingfs.commit.uploads import Uploads
from rollingfs.errors import ConflictError, CorruptChunkError, SegmentTruncatedError
from rollingfs.format import names, placement, transitions
from rollingfs.format.crc import combined
from rollingfs.format.drops import is_deletable, is_own, merge_drops
from rollingfs.format.header import LARGE_PAGE_CHUNKS, Chunk, Drop, Entry, Header, Page, Phase
from rollingfs.maintenance.passing import READ_BYTES_MAX, pass_through
from rollingfs.maintenance.runs import PARTS_MAX, plan, size_of
from rollingfs.maintenance.steps import Progress, Steps
from rollingfs.read.piece_checks import PieceChecks
from rollingfs.read.ranges import Fetcher
from rollingfs.read.snapshot import Lookup, Snapshot
from rollingfs.runtime.clock import Moment

logger = logging.getLogger("rollingfs")

READERS_GRACE_S = 600.0
"""Old files stay this long, for readers that opened the segment before."""
BATCH_BYTES = 1024 * 1024 * 1024
"""One commit consolidates so many bytes, or two chunks if those are larger."""
RUNS_AT_ONCE_MAX = 2
DROP_LINES_MAX = 16
"""More old chunks than this are listed in an index page of their own, which one line drops."""
LOOKS_MAX = 16


@dataclass(frozen=True, slots=True)
class Consolidated:
    """What a consolidation did."""

    replaced: int = 0
    """Chunks that are no longer part of the segment."""
    written: int = 0
    """Chunks that took their place."""
    joined_bytes: int = 0
    """Joined on the server."""
    copied_bytes: int = 0
    """Read and written through this client."""

    def plus(self, other: Consolidated) -> Consolidated:
        """Both together."""
        return Consolidated(
            self.replaced + other.replaced,
            self.written + other.written,
            self.joined_bytes + other.joined_bytes,
            self.copied_bytes + other.copied_bytes,
        )


@dataclass(frozen=True, slots=True)
class _Swap:
    """A run of chunks, and the file that has its bytes."""

    run: tuple[Chunk, ...]
    stored: Stored
    is_joined: bool

    def result(self) -> Consolidated:
        size = self.stored.size
        return Consolidated(len(self.run), 1, size * self.is_joined, size * (not self.is_joined))


class Consolidator:
    """Joins the small chunks of segments."""

    def __init__(self, committer: Committer, fetcher: Fetcher) -> None:
        self.committer = committer
        self.store = committer.store
        self.fetcher = fetcher
        self.backend = self.store.backend

    async def consolidate(
        self,
        path: str,
        *,
        segment: str | None = None,
        grace_s: float = READERS_GRACE_S,
        progress: Progress | None = None,
    ) -> Consolidated:
        """Join the runs that are worth it; appends, truncations and readers may go on beside it.

        A plain file is one chunk: nothing is done.

        Parameters
        ----------
        segment
            Consolidate only this incarnation.
        grace_s
            Seconds for which the old files stay.
        progress
            Takes the number of bytes that were done since the last call; all of them are the segment's size.

        Raises
        ------
        FileNotFoundError
            There is no such segment, nor a plain file.
        CorruptChunkError
            A chunk is missing, too short, or fails its checksum; runs that were joined before stay joined.
        """
        if grace_s < 0:
            raise ValueError(f"grace is {grace_s} s: it must be at least 0")
        try:
            header = await self._header(path, segment)
        except FileNotFoundError:
            if segment is None and await self._is_plain(path):
                return Consolidated()
            raise
        await finish_drops(self.committer.loop, path, header)
        start, steps = header.start, Steps(header.size, progress)
        result, position, is_last = Consolidated(), 0, False
        while not is_last:
            header, chunks, is_last = await self._window(path, header.segment, position)
            position, runs = plan(chunks, header.policy.max_bytes, is_last=is_last, sealed=header.sealed)
            if runs:
                result = result.plus(await self._join_and_swap(path, header, runs, grace_s, steps))
            steps.reach(position - start)
        steps.reach(steps.total)
        return result

    async def _is_plain(self, path: str) -> bool:
        lookup = Lookup(self.backend, self.store.headers)
        return await lookup.plain(path, await self.store.headers.load(path)) is not None

    async def _header(self, path: str, segment: str | None) -> Header:
        return transitions.live((await self.store.headers.load(path)).header, path, segment)

    async def _window(self, path: str, segment: str, position: int) -> tuple[Header, list[Chunk], bool]:
        """The header, its chunks from `position` on, enough for one commit, and whether they are the last."""
        for _ in range(LOOKS_MAX):
            header = await self._header(path, segment)
            try:
                return header, *await self._chunks_from(path, header, position)
            except FileNotFoundError:
                if (await self._header(path, segment)).version == header.version:
                    raise
        raise ConflictError(f"{path}: its index pages changed {LOOKS_MAX} times while they were read; try again")

    async def _chunks_from(self, path: str, header: Header, position: int) -> tuple[list[Chunk], bool]:
        start = max(position, header.start)
        bytes_max = max(BATCH_BYTES, 2 * header.policy.max_bytes)
        found: list[Chunk] = []
        size = 0
        for entry in placement.overlapping(header.entries, start, header.tail_start):
            if size >= bytes_max or len(found) >= 2 * PARTS_MAX:
                return found, False
            chunks = await self.store.pages.unfold(path, [entry])
            kept = [_clipped(chunk, start) for chunk in chunks if chunk.end > start]
            found += kept
            size += size_of(kept)
        return found, True

    # -- new chunks ----------------------------------------------------------------------------------------

    async def _join_and_swap(
        self, path: str, header: Header, runs: Sequence[tuple[Chunk, ...]], grace_s: float, steps: Steps
    ) -> Consolidated:
        await self.store.abilities(path)
        swaps: list[_Swap] = []
        uploads = Uploads(self.store.chunks, path)
        done: list[_Swap] = []
        calls = [partial(self._joined, path, header, run, swaps, steps) for run in runs]
        try:
            await self.store.runtime.gather(calls, RUNS_AT_ONCE_MAX)
        except BaseException:
            uploads.add(swap.stored for swap in swaps)
            await uploads.discard()
            raise
        uploads.add(swap.stored for swap in swaps)
        if swaps:
            done = await uploads.settle(self._commit(path, header.segment, swaps, grace_s, uploads))
        result = Consolidated()
        for swap in done:
            result = result.plus(swap.result())
        return result

    async def _joined(
        self, path: str, header: Header, run: tuple[Chunk, ...], swaps: list[_Swap], steps: Steps
    ) -> None:
        """Write one run as a new file, unless the run is no longer part of the segment."""
        target = f"{names.chunks_folder(path)}/{names.new_chunk_name(run[0].start)}"
        is_joined = self._can_join(run)
        began = Moment.now(self.store.clock)
        try:
            if is_joined:
                crc = await self._join(path, header, run, target)
                steps.add(size_of(run))
            else:
                crc = await self._copy(path, header, run, target, steps)
        except (FileNotFoundError, SegmentTruncatedError) as error:
            if await self._is_there(path, header.segment, run):
                raise CorruptChunkError(f"{path}: a chunk that its header names is missing: {error}") from error
            logger.info("%s: bytes %d to %d are not consolidated: %s", path, run[0].start, run[-1].end, error)
            return
        at_ms = max(chunk.at_ms for chunk in run)  # of the newest byte, for cuts at points in time
        swaps.append(_Swap(run, Stored(target, size_of(run), crc, at_ms, began), is_joined))

    async def _is_there(self, path: str, segment: str, run: Sequence[Chunk]) -> bool:
        header = (await self.store.headers.load(path)).header
        if header is None or header.segment != segment or header.start > run[0].start:
            return False
        entries = placement.overlapping(header.entries, run[0].start, run[-1].end)
        files = {chunk.file for chunk in await self.store.pages.unfold(path, entries)}
        return all(chunk.file in files for chunk in run)

    def _can_join(self, run: Sequence[Chunk]) -> bool:
        least = self.backend.join_part_bytes_min
        return self.backend.can_join and all(chunk.length >= least for chunk in run[:-1])

    async def _join(self, path: str, header: Header, run: Sequence[Chunk], target: str) -> int:
        """Join on the server; returns the checksum, combined from those of the parts, so damage can still be found.

        A chunk that is used in part, or has no checksum, is read for that.
        """
        crc = 0
        for chunk in run:
            known = chunk.crc32c if chunk.length == chunk.size else None
            if known is None:
                known = await self._checksum(path, header, chunk)
            crc = combined(crc, known, chunk.length)
        parts = [Part(names.resolve(path, c.file), c.offset, c.offset + c.length) for c in run]
        await self.backend.join(parts, target)
        return crc

    async def _checksum(self, path: str, header: Header, chunk: Chunk) -> int:
        """The checksum of the part of a chunk that is used; the whole chunk is verified."""
        view, checks, crc = Snapshot(path, header, None), PieceChecks(), 0
        for start in range(chunk.start, chunk.end, READ_BYTES_MAX):
            end = min(start + READ_BYTES_MAX, chunk.end)
            crc = google_crc32c.extend(crc, await self.fetcher.read(view, start, end, checks=checks))
        await self.fetcher.complete(view, checks)
        return crc

    async def _copy(self, path: str, header: Header, run: Sequence[Chunk], target: str, steps: Steps) -> int:
        """Read and write, each byte once, all chunks verified; returns the checksum."""
        view, checks = Snapshot(path, header, None), PieceChecks()
        upload = await self.backend.open_write(target)
        try:
            crc = await pass_through(self.fetcher, view, run[0].start, run[-1].end, upload, checks, steps)
            await self.fetcher.complete(view, checks)
            await upload.finish()
        except BaseException:
            await upload.abort()
            raise
        return crc

    # -- the swap ------------------------------------------------------------------------------------------

    async def _commit(
        self, path: str, segment: str, swaps: Sequence[_Swap], grace_s: float, uploads: Uploads
    ) -> list[_Swap]:
        """Put the new chunks in the place of the old ones; returns the swaps that took place."""
        done: list[_Swap] = []

        async def step(base: Loaded, attempt: Attempt) -> Header | None:
            done.clear()
            found = base.header
            if found is None or found.deleted or found.segment != segment:
                return None
            if found.phase is Phase.MERGING:
                raise transitions.MergeFoundError(path, found)
            swapped, gone, pages = await self._swapped(path, found, swaps, attempt, done)
            if not done:
                return None
            now_ms = self.store.now_ms()
            after_ms = now_ms + round(grace_s * 1000) if grace_s else 0
            drops = await self._drops(path, gone, pages, attempt, Drop("", now_ms, after_ms=after_ms))
            return replace(found, entries=swapped, drops=merge_drops(found.drops, drops))

        committed = await self.committer.commit(path, step, uploads=[uploads])
        if done and committed.header is not None:
            await finish_drops(self.committer.loop, path, committed.header)
        return done

    async def _swapped(
        self, path: str, header: Header, swaps: Sequence[_Swap], attempt: Attempt, done: list[_Swap]
    ) -> tuple[tuple[Entry, ...], list[Chunk], list[Page]]:
        """The entries with those runs swapped that are still there, and the chunks and pages that go."""
        first, last = min(swap.run[0].start for swap in swaps), max(swap.run[-1].end for swap in swaps)
        old = placement.overlapping(header.entries, first, min(last, header.tail_start))
        chunks = [c for c in await self.store.pages.unfold(path, old) if c.end > header.start]
        index = {chunk.end: position for position, chunk in enumerate(chunks)}
        gone: list[Chunk] = []
        kept: list[Entry] = []
        position = 0
        for swap in sorted(swaps, key=lambda swap: swap.run[0].start):
            end = index.get(swap.run[-1].end, -1) + 1
            begin = end - len(swap.run)
            if begin < position or not _is_same(chunks[begin:end], swap.run, is_first=begin == 0):
                continue
            stored = await attempt.young(swap.stored)
            kept += [*chunks[position:begin], stored.chunk(path, swap.run[0].start)]
            gone += chunks[begin:end]
            position = end
            done.append(swap)
        if not old or not done:
            return header.entries, [], []
        at = header.entries.index(old[0])
        entries = (*header.entries[:at], *kept, *chunks[position:], *header.entries[at + len(old) :])
        return entries, gone, [entry for entry in old if isinstance(entry, Page)]

    async def _drops(
        self, path: str, gone: Sequence[Chunk], pages: Sequence[Page], attempt: Attempt, model: Drop
    ) -> list[Drop]:
        """The drop lines: of few old chunks one each, of many one for an index page that lists them."""
        own = [chunk for chunk in gone if is_deletable(chunk.file)]
        entries: list[Entry] = [*gone, *pages]
        drops = [
            replace(model, file=f"{names.parent(entry.file) or '.'}/", size=entry.size, after_ms=0)
            for entry in entries
            if not is_deletable(entry.file)
        ]
        drops += [replace(model, file=page.file) for page in pages if is_own(page.file)]
        if len(own) <= DROP_LINES_MAX:
            return drops + [replace(model, file=chunk.file) for chunk in own]
        for first in range(0, len(own), LARGE_PAGE_CHUNKS):
            listed = placement.place(own[first : first + LARGE_PAGE_CHUNKS], 0)
            if listed not in attempt.pages:
                attempt.pages[listed] = await self.store.pages.write(path, _as_chunks(listed))
            page = attempt.pages[listed]
            drops.append(replace(model, file=page.file, start=0, end=page.length, whole=True))
        return drops


def _clipped(chunk: Chunk, start: int) -> Chunk:
    part = placement.clip(chunk, start, chunk.end)
    assert isinstance(part, Chunk)
    return part


def _as_chunks(entries: Iterable[Entry]) -> list[Chunk]:
    return [entry for entry in entries if isinstance(entry, Chunk)]


def _is_same(found: Sequence[Chunk], run: Sequence[Chunk], *, is_first: bool) -> bool:
    """Whether these are the chunks of a run, whose head may have been truncated before the run was planned."""
    if len(found) != len(run) or not found or not found[0].start <= run[0].start < found[0].end:
        return False
    head = found[0] if not is_first else _clipped(found[0], run[0].start)
    return (head, *found[1:]) == tuple(run)
