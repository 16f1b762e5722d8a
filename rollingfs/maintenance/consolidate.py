"""Consolidation: runs of small neighbouring chunks become chunks of the policy's size.

1. Join the bytes of each run to a new file: on the server where the store can, else by reading and writing them once.
2. Commit the new chunks instead of the old ones, if exactly those are still there.
3. Delete the old files later, so that readers with old snapshots are not disturbed.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from rollingfs.backend.contract import Part
from rollingfs.commit.chunk_files import Stored, checksum
from rollingfs.commit.commits import Commits
from rollingfs.commit.drop_files import finish_drops
from rollingfs.commit.uploads import Uploads
from rollingfs.errors import CorruptChunkError, SegmentTruncatedError
from rollingfs.format import names
from rollingfs.format.crc import combined, crc32c
from rollingfs.format.header import Chunk, Header
from rollingfs.maintenance.passing import READ_BYTES_MAX, pass_through
from rollingfs.maintenance.runs import ASKED, BY_ITSELF, Rule, may_join, plan, size_of
from rollingfs.maintenance.steps import Progress, Steps
from rollingfs.maintenance.swaps import Swap, Swapper, clipped, is_there, live, window
from rollingfs.policy import READERS_GRACE_S
from rollingfs.read.piece_checks import PieceChecks
from rollingfs.read.ranges import Fetcher
from rollingfs.read.snapshot import Lookup, Snapshot
from rollingfs.runtime.clock import Moment

logger = logging.getLogger("rollingfs")

BATCH_BYTES = 1024 * 1024 * 1024
"""Bytes that one commit consolidates, or two chunks if those are larger."""
RUNS_AT_ONCE_MAX = 2


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

    @property
    def bytes(self) -> int:
        """Written anew."""
        return self.joined_bytes + self.copied_bytes

    def plus(self, other: Consolidated) -> Consolidated:
        """Both together."""
        return Consolidated(
            self.replaced + other.replaced,
            self.written + other.written,
            self.joined_bytes + other.joined_bytes,
            self.copied_bytes + other.copied_bytes,
        )


class Consolidator:
    """Joins the small chunks of segments."""

    def __init__(self, commits: Commits, fetcher: Fetcher) -> None:
        self.commits = commits
        self.store = commits.store
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
            header = await live(self.store, path, segment)
        except FileNotFoundError:
            if segment is None and await self._is_plain(path):
                return Consolidated()
            raise
        return await self._consolidate(path, header, ASKED, grace_s, Steps(header.size, progress))

    async def keep(self, path: str, header: Header, grace_s: float = READERS_GRACE_S) -> Consolidated:
        """Join what upkeep joins by the segment's policy, if there is anything; otherwise as `consolidate`.

        Parameters
        ----------
        header
            The segment's newest, as far as is known.
        """
        if not may_join(header):
            return Consolidated()
        return await self._consolidate(path, header, BY_ITSELF, grace_s, Steps(header.size, None))

    async def _consolidate(self, path: str, header: Header, rule: Rule, grace_s: float, steps: Steps) -> Consolidated:
        await finish_drops(self.commits, path, header)
        start = header.start
        known: Header | None = header
        result, position, is_last = Consolidated(), 0, False
        damaged: list[CorruptChunkError] = []
        while not is_last:
            bytes_max = max(BATCH_BYTES, 2 * header.policy.max_bytes)
            found = await window(self.store, path, header.segment, position, bytes_max, known)
            header = known = found.header
            is_last, max_bytes = found.is_last, header.policy.max_bytes
            position, runs = plan(found.chunks, max_bytes, is_last=is_last, sealed=header.sealed, rule=rule)
            if runs:
                head = runs[0][0]
                runs[0] = (clipped(head, max(head.start, header.start)), *runs[0][1:])
                joined = await self._join_and_swap(path, header, runs, grace_s, steps, damaged)
                result, known = result.plus(joined), None
            steps.reach(position - start)
        steps.reach(steps.total)
        if damaged:
            raise damaged[0]
        return result

    async def _is_plain(self, path: str) -> bool:
        lookup = Lookup(self.backend, self.store.headers)
        return await lookup.plain(path, await self.store.headers.load(path)) is not None

    # -- new chunks ----------------------------------------------------------------------------------------

    async def _join_and_swap(
        self,
        path: str,
        header: Header,
        runs: Sequence[tuple[Chunk, ...]],
        grace_s: float,
        steps: Steps,
        damaged: list[CorruptChunkError],
    ) -> Consolidated:
        await self.store.abilities(path)
        swaps: list[Swap] = []
        uploads = Uploads(self.store.chunks, path)
        done: list[Swap] = []

        async def joined(run: tuple[Chunk, ...]) -> None:
            try:
                await self._joined(path, header, run, swaps, steps)
            except CorruptChunkError as error:  # the other runs are joined; else each round wrote them in vain
                damaged.append(error)

        calls = [partial(joined, run) for run in runs]
        try:
            await self.store.runtime.gather(calls, RUNS_AT_ONCE_MAX)
        except BaseException:
            uploads.add(swap.stored for swap in swaps)
            await uploads.discard()
            raise
        uploads.add(swap.stored for swap in swaps)
        if swaps:
            swapper = Swapper(self.commits, path, header.segment, grace_s, rewrites=True)
            done = await uploads.settle(swapper.commit(swaps, uploads))
        result = Consolidated()
        for swap in done:
            size, is_joined = swap.stored.size, self._can_join(swap.run)
            result = result.plus(Consolidated(len(swap.run), 1, size * is_joined, size * (not is_joined)))
        return result

    async def _joined(self, path: str, header: Header, run: tuple[Chunk, ...], swaps: list[Swap], steps: Steps) -> None:
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
            if await is_there(self.store, path, header.segment, run):
                raise CorruptChunkError(f"{path}: a chunk that its header names is missing: {error}") from error
            logger.info("%s: bytes %d to %d are not consolidated: %s", path, run[0].start, run[-1].end, error)
            return
        try:
            await self._read_back(path, target, size_of(run), crc)
        except FileNotFoundError:  # this machine slept for so long that a collection took it for an orphan
            logger.info("%s: bytes %d to %d are not consolidated: %s is gone", path, run[0].start, run[-1].end, target)
            return
        at_ms = max(chunk.at_ms for chunk in run)  # of the newest byte, for cuts at points in time
        swaps.append(Swap(run, Stored(target, size_of(run), crc, at_ms, began)))

    async def _read_back(self, path: str, target: str, size: int, crc: int) -> None:
        """Compare a new file with what it stands for, because the old files go; delete it if it differs."""
        if await checksum(self.backend, target, size) == crc:
            return
        await self.backend.delete([target])
        raise CorruptChunkError(
            f"{target}: the file that was just written does not have the checksum of the chunks that it was to "
            f"replace: one of them is damaged, or the store is at fault; {path} still names the old chunks, and "
            "`rollingfs verify` reads them"
        )

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
            crc = crc32c(await self.fetcher.read(view, start, end, checks=checks), crc)
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
