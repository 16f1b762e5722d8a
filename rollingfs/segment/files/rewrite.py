"""Rewrites: runs of neighbouring chunks become one file each, in the hot store or in a tier, in one commit.

Consolidation, offload and onload choose the runs, and in which store each new file lies.

1. Write the bytes of each run as a new file: what the store can copy it copies, the rest is read and written once.
2. Read the new file back: its checksum must be that of the chunks.
3. Commit the new chunks instead of the old ones, if exactly those are still there.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from rollingfs.backend.contract import Part, finished
from rollingfs.backend.tier_marks import check_marks
from rollingfs.backend.tiers import can_copy
from rollingfs.commit.chunk_files import Stored, TierStored
from rollingfs.commit.commits import Commits
from rollingfs.commit.uploads import Uploads
from rollingfs.errors import CorruptChunkError, RollingError, SegmentTruncatedError, StagedExpiredError
from rollingfs.format import names
from rollingfs.format.crc import combined, crc32c
from rollingfs.format.header import PIECES_MAX, Chunk, Header, Tier
from rollingfs.format.object_metadata import Label
from rollingfs.read.piece_checks import PieceChecks
from rollingfs.read.ranges import Fetcher
from rollingfs.read.read_job import too_short
from rollingfs.read.snapshot import Snapshot
from rollingfs.runtime.clock import Moment
from rollingfs.runtime.steps import Steps
from rollingfs.segment.files.copy_bytes import READ_BYTES_MAX, pass_through
from rollingfs.segment.files.copy_plan import Piece, plan_pieces
from rollingfs.segment.files.join_plan import Run, size_of
from rollingfs.segment.files.replace_chunks import Swap, Swapper, clipped, is_there
from rollingfs.segment.files.tier_failures import failing
from rollingfs.segment.files.tier_lines import young_line

logger = logging.getLogger("rollingfs")

RUNS_AT_ONCE_MAX = 2
"""One run is finished and read back, or joined by the store, while the bytes of another pass through this client."""
REWRITE_BYTES_MAX = 6 * READ_BYTES_MAX
"""What one rewrite may hold: on S3 four parts that are sent, one that waits, and the next bytes that were read."""
READ_BACK_BYTES, READ_BACKS_AT_ONCE_MAX = 4 * 1024 * 1024, 4
"""A new file is read back over several connections, each at some 85 MB/s, in the memory of its write."""
TRIES_MAX = 3
"""Maximum times that runs are written, because a collection took a new file before its commit."""


class Rewriter:
    """Rewrites runs of one segment.

    Parameters
    ----------
    segment
        The incarnation that alone is changed.
    lag_s
        For how many seconds the old files stay.
    protects, counts
        As `protects` and `rewrites` of a `Swapper`.
    """

    def __init__(
        self,
        commits: Commits,
        fetcher: Fetcher,
        path: str,
        segment: str,
        lag_s: float,
        *,
        protects: bool = False,
        counts: bool = False,
    ) -> None:
        self.commits = commits
        self.store = commits.store
        self.backend = self.store.backend
        self.fetcher = fetcher
        self.path = path
        self.segment = segment
        self.damaged: list[CorruptChunkError] = []
        """Why runs stay as they are; the others are rewritten. Else each round would write those in vain."""
        self._passing = self.store.runtime.lock(f"{path}: bytes of a rewrite")
        self._swapper = partial(Swapper, commits, path, segment, lag_s, protects=protects, rewrites=counts)

    async def rewrite(self, header: Header, runs: Sequence[Run], steps: Steps) -> list[Swap]:
        """Write the runs anew in one commit; returns the swaps that took place.

        Of the first chunk, only what the header retains is written.

        Raises
        ------
        TierFailedError
            A tier is part of a run, and a store failed.
        CorruptChunkError
            New files are gone before the commit, again and again.
        """
        await self.store.abilities(self.path)
        (head, *others), tier = runs[0]
        runs = [((clipped(head, max(head.start, header.start)), *others), tier), *runs[1:]]
        for _ in range(TRIES_MAX):
            try:
                return await self._once(header, runs, steps)
            except StagedExpiredError as error:  # this machine may have slept for a day
                logger.info("%s: its chunks are written anew again: %s", self.path, error)
                expired = error
        raise CorruptChunkError(
            f"{self.path}: new files were gone {TRIES_MAX} times before the segment named them; it still names the old "
            "ones, nothing is lost. The store of the new files loses files, or somebody collects without a grace: "
            f"{expired}"
        ) from expired

    async def _once(self, header: Header, runs: Sequence[Run], steps: Steps) -> list[Swap]:
        aliases = {tier for _, tier in runs} - {""}
        lines = {alias: await young_line(self.commits, self.path, header, alias) for alias in sorted(aliases)}
        swaps: list[Swap] = []
        uploads = Uploads(self.store.chunks, self.path)
        calls = [partial(self._swap, header, run, lines.get(tier), uploads, swaps, steps) for run, tier in runs]
        try:
            await self.store.runtime.gather(calls, RUNS_AT_ONCE_MAX)
            # again: the originals go after the commit
            await check_marks(self.backend, self.store.runtime, lines.values(), self.path)
        except BaseException:
            await uploads.discard()
            raise
        if not swaps:
            await uploads.discard()
            return []
        return await uploads.settle(self._swapper(tiers=tuple(lines.values())).commit(swaps, uploads))

    def server_bytes(self, run: Sequence[Chunk], target: str) -> int:
        """The bytes of a run that the store copies or joins itself; the others pass through this client."""
        return sum(piece.size for piece in self._plan(run, target) if piece.chunk is not None)

    # -- one run -------------------------------------------------------------------------------------------

    async def _swap(
        self,
        header: Header,
        run: tuple[Chunk, ...],
        line: Tier | None,
        uploads: Uploads,
        swaps: list[Swap],
        steps: Steps,
    ) -> None:
        """Write a run as a new file, and verify the file; nothing if the run is no longer part of the segment."""
        stored = self._new(run, line)
        uploads.add([stored])
        tier = next((chunk.tier for chunk in run if chunk.tier), "") if line is None else line.alias
        try:
            with failing(self.path, tier, self._file(run[0])) if tier else contextlib.nullcontext():
                stored = await self._written(header, run, stored, steps)
                found = await self._read_back(stored)
            if found != stored.crc32c:
                await self._check(header, run)
                more = "" if len(run) == 1 else f" to {self._file(run[-1])}"
                raise CorruptChunkError(
                    f"{stored.file}: the file that was just written differs from {self._file(run[0])}{more}, which is "
                    f"whole; {self.path} still names the old chunks, nothing is lost: the store of the new file is at "
                    "fault"
                )
        except CorruptChunkError as error:
            self.damaged.append(error)
        except (FileNotFoundError, SegmentTruncatedError) as error:
            logger.info("%s: bytes %d to %d stay as they are: %s", self.path, run[0].start, run[-1].end, error)
            if await is_there(self.store, self.path, header.segment, run):
                aliases = {chunk.tier for chunk in run}
                await check_marks(
                    self.backend, self.store.runtime, [one for one in header.tiers if one.alias in aliases], self.path
                )
                said = f"{self.path}: a chunk that its header names is missing: {error}"
                self.damaged.append(CorruptChunkError(said))
        else:
            swaps.append(Swap(run, stored))

    def _new(self, run: Sequence[Chunk], line: Tier | None) -> Stored:
        """A name for the file of a run; it is dated as the newest byte, for cuts at points in time."""
        folder, began = names.chunks_folder(self.path), Moment.now(self.store.clock)
        size, at_ms = size_of(run), max(chunk.at_ms for chunk in run)
        if line is None:
            return Stored(f"{folder}/{names.new_chunk_name(run[0].start)}", size, None, at_ms, began)
        path = f"{folder}/{names.new_tier_name(line.key, run[0].start)}"
        return TierStored(path, size, None, at_ms, began, tier=line.alias)

    async def _written(self, header: Header, run: tuple[Chunk, ...], stored: Stored, steps: Steps) -> Stored:
        """Write the file of a run."""
        pieces: list[tuple[int, int]] = []
        for chunk in run:
            if chunk.length == chunk.size and chunk.crc32c is not None:
                pieces += chunk.pieces or ((chunk.length, chunk.crc32c),)
            else:  # a chunk that is used in part, or that nobody has read, is read for it
                pieces.append((chunk.length, await self._checksum(header, chunk)))
        crc = _whole(pieces)
        label = Label(header.segment, run[0].start, crc, end=run[-1].end, name=self.path)
        try:
            if len(run) == 1 and run[0].length == run[0].size and self.server_bytes(run, stored.file):
                await self.backend.copy(self._file(run[0]), stored.file, None, label.metadata())
                steps.add(stored.size)
            else:
                await self._assemble(header, run, stored.file, label, steps)
        except (RollingError, FileNotFoundError):
            raise
        except OSError:
            await self._check_sizes(run)
            raise
        stored = replace(stored, crc32c=crc)
        return replace(stored, pieces=fold(pieces)) if isinstance(stored, TierStored) else stored

    async def _assemble(self, header: Header, run: Sequence[Chunk], target: str, label: Label, steps: Steps) -> None:
        view, checks = Snapshot(self.path, header, None), PieceChecks()
        async with finished(await self.backend.open_write(target, None, label.metadata())) as upload:
            for piece in self._plan(run, target):
                if piece.chunk is None:
                    call = partial(pass_through, self.fetcher, view, piece.start, piece.end, upload, checks, steps)
                    await self._passing.run(call)
                    continue
                first = piece.chunk.offset + piece.start - piece.chunk.start
                await upload.copy(Part(self._file(piece.chunk), first, first + piece.size))
                steps.add(piece.size)
            await self.fetcher.complete(view, checks)

    def _plan(self, run: Sequence[Chunk], target: str) -> list[Piece]:
        """Which bytes of a run the store copies, and which pass through this client."""
        start, end = run[0].start, run[-1].end
        if not all(can_copy(self.backend, self._file(chunk), target) for chunk in run):
            return [Piece(start, end)]
        if len(run) == 1 and run[0].length == run[0].size:
            return [Piece(start, end, run[0])]
        if not self.backend.capability.can_join:
            return [Piece(start, end)]
        return plan_pieces(run, start, end, self.backend.capability.join_part_bytes_min)

    # -- what is verified ----------------------------------------------------------------------------------

    async def _checksum(self, header: Header, chunk: Chunk) -> int:
        """The checksum of the part of a chunk that is used; the whole chunk is verified."""
        view, checks, crc = Snapshot(self.path, header, None), PieceChecks(), 0
        for start in range(chunk.start, chunk.end, READ_BYTES_MAX):
            end = min(start + READ_BYTES_MAX, chunk.end)
            crc = crc32c(await self.fetcher.read(view, start, end, checks=checks), crc)
        await self.fetcher.complete(view, checks)
        return crc

    async def _check(self, header: Header, run: Sequence[Chunk]) -> None:
        """Verify the chunks of a run, whose new file differs.

        Raises
        ------
        CorruptChunkError
            One of them is damaged.
        """
        for chunk in run:
            await self._checksum(header, chunk)

    async def _check_sizes(self, run: Sequence[Chunk]) -> None:
        """Say of a copy that failed that a file is too short, if one is: not every store tells.

        Raises
        ------
        CorruptChunkError
            A file has another size than its entry says.
        """

        async def check(chunk: Chunk) -> None:
            size = (await self.backend.stat(self._file(chunk))).size
            if size != chunk.size:
                raise too_short(self._file(chunk), chunk, size)

        await self.store.runtime.gather([partial(check, chunk) for chunk in run], self.backend.capability.requests_max)

    async def _read_back(self, stored: Stored) -> int | None:
        """The checksum of a file that was just written; None if it has another size."""

        async def read(start: int) -> tuple[int, int]:
            end = min(start + READ_BACK_BYTES, stored.size)
            more = end == stored.size  # of a file that is too long
            data = await self.backend.read_range(stored.file, start, end + more)
            return len(data), crc32c(data)

        starts = range(0, stored.size, READ_BACK_BYTES)
        try:
            pieces = await self.store.runtime.gather([partial(read, start) for start in starts], READ_BACKS_AT_ONCE_MAX)
        except FileNotFoundError as error:
            raise StagedExpiredError(f"{stored.file} is gone") from error
        return _whole(pieces) if sum(size for size, _ in pieces) == stored.size else None

    def _file(self, chunk: Chunk) -> str:
        return names.locate(self.path, chunk.file, chunk.tier)


def fold(pieces: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """The lengths and checksums of pieces, neighbours as one so that an entry has room; none of a single piece."""
    least = -(-sum(length for length, _ in pieces) // PIECES_MAX)
    found: list[tuple[int, int]] = []
    for piece in pieces:
        if found and found[-1][0] < least:
            piece = _sum(found.pop(), piece)
        found.append(piece)
    return tuple(found) if len(found) > 1 else ()


def _sum(first: tuple[int, int], second: tuple[int, int]) -> tuple[int, int]:
    return first[0] + second[0], combined(first[1], second[1], second[0])


def _whole(pieces: Sequence[tuple[int, int]]) -> int:
    total = pieces[0]
    for piece in pieces[1:]:
        total = _sum(total, piece)
    return total[1]
