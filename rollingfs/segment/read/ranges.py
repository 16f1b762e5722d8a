"""Reads bytes: from snapshots and segment offsets to ranges of files, many at a time."""

from __future__ import annotations

import contextlib
import errno
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from time import perf_counter_ns
from typing import Any

from rollingfs.backend.contract import Backend, Buffer, frozen
from rollingfs.backend.tier_marks import why_missing
from rollingfs.backend.tiers import check_tiers
from rollingfs.errors import ConflictError, UnknownTierError
from rollingfs.format import names, placement
from rollingfs.format.header import Chunk, Header, Page
from rollingfs.format.side_files import ListedChunks
from rollingfs.runtime.concurrency import Runtime
from rollingfs.runtime.meters import READ, Meters
from rollingfs.segment.commit.header_cache import Headers
from rollingfs.segment.commit.index_pages import PAGE_READS_MAX, Pages
from rollingfs.segment.read.piece_checks import PieceChecks
from rollingfs.segment.read.read_job import Job, ReadPiece, corrupt, gone, missing_chunk, too_short
from rollingfs.segment.segment import Segment

RANGE_BYTES_MIN = 2 * 1024 * 1024
"""A larger read is split into ranges that are read at once."""
RANGE_BYTES_MAX = 8 * 1024 * 1024
RANGES_WANTED = 32
"""Ranges of a split read, if their size stays between the two limits."""
UNDER_WAY_BYTES_MAX = 256 * 1024 * 1024
"""Maximum bytes of a call that are under way in addition to the answer."""
SYNC_RANGE_BYTES_MAX = 64 * 1024 * 1024
"""Over a sync backend ranges are read in order; this bounds the memory in addition to the answer."""

Request = tuple[Segment, int, int]
"""A snapshot, and the segment offsets ``[start, end)`` to read from it."""


class Fetcher:
    """Reads the bytes of segments and plain files.

    A chunk whose bytes are all read, by a call or by several calls with the same `PieceChecks`, must have the checksum
    in its header. If not, the read that completes it fails, and so do all reads of it after that. A plain file must be
    the file of the snapshot.
    """

    def __init__(self, backend: Backend, runtime: Runtime, headers: Headers, pages: Pages, meters: Meters) -> None:
        self.backend = backend
        self.runtime = runtime
        self.headers = headers
        self.pages = pages
        self.meters = meters
        self.footers: dict[Hashable, bytes] = {}
        """For `ColumnAhead`."""

    async def read(
        self,
        snapshot: Segment,
        start: int,
        end: int,
        *,
        limit: int | None = None,
        checks: PieceChecks | None = None,
        verify: bool = False,
    ) -> bytes:
        """Return the bytes ``[start, end)`` of a snapshot, in segment offsets.

        Parameters
        ----------
        limit
            Maximum number of reads of the backend at once; by default the backend's own.
        checks
            Earlier reads of the same reader, so that chunks are verified over several calls.
        verify
            Read and verify whole chunks, also where only a part is wanted.

        Raises
        ------
        SegmentTruncatedError
            The range, or its beginning, has been truncated away.
        ValueError
            The range is negative, or ends beyond the snapshot.
        FileNotFoundError
            The file of the snapshot is gone: deleted, or replaced.
        CorruptChunkError
            A chunk that the header names is missing, too short, or fails its checksum.
        """
        return frozen(await self.read_view(snapshot, start, end, limit=limit, checks=checks, verify=verify))

    async def read_view(
        self, snapshot: Segment, start: int, end: int, *, limit: int | None = None, **how: Any
    ) -> Buffer:
        """Read without a copy of a single piece of the backend.

        The caller lets go of it soon.
        """
        [result] = await self._results([(snapshot, start, end)], limit, **how)
        if isinstance(result, Exception):
            raise result
        return result

    async def read_many(
        self,
        requests: Sequence[Request],
        limit: int | None = None,
        *,
        range_bytes: int | None = None,
        checks: PieceChecks | None = None,
        verify: bool = False,
    ) -> list[bytes | Exception]:
        """Read many ranges in a batch; return the bytes or the error of each.

        Parameters
        ----------
        limit
            Maximum number of reads of the backend at once; by default the backend's own.
        range_bytes
            Maximum number of bytes to ask the backend for at once; by default it depends on the size of the read.
        """
        results = await self._results(requests, limit, range_bytes=range_bytes, checks=checks, verify=verify)
        return [result if isinstance(result, Exception) else frozen(result) for result in results]

    async def _results(
        self,
        requests: Sequence[Request],
        limit: int | None,
        *,
        range_bytes: int | None = None,
        checks: PieceChecks | None = None,
        verify: bool = False,
    ) -> list[Buffer | Exception]:
        if len(requests) == 1 and (tail := self.at_hand(*requests[0])) is not None:
            return [tail]
        limit, began_ns = limit or self.backend.capability.requests_max, perf_counter_ns()
        try:
            jobs = [Job(snapshot, start, end) for snapshot, start, end in requests]
            todo = [job for job in jobs if job.error is None]
            while todo:
                await self._round(todo, limit, range_bytes, checks, verify)
                if todo := [job for job in todo if job.gone is not None and job.error is None]:
                    await self._look_again(todo)
                    todo = [job for job in todo if job.error is None]
        except BaseException as error:
            self.meters.failed(READ, began_ns, error)
            raise
        results = [job.result() for job in jobs]
        sizes = [len(result) for result in results if not isinstance(result, Exception)]
        self.meters.count(READ, began_ns, sum(sizes), errors=len(sizes) < len(results))
        return results

    def at_hand(self, snapshot: Segment, start: int, end: int) -> bytes | None:
        """Return the bytes ``[start, end)`` if the header has them all, or None."""
        began_ns = perf_counter_ns()
        tail = snapshot.inline(start, end)
        if tail is not None:
            self.meters.count(READ, began_ns, len(tail))
        return tail

    async def complete(self, snapshot: Segment, checks: PieceChecks) -> None:
        """Verify all chunks that were read in part, by reading the rest of them.

        Raises
        ------
        CorruptChunkError
            A chunk is missing, too short, or fails its checksum.
        FileNotFoundError
            A chunk has gone since, and the segment does not need it: it was truncated away, rewritten or replaced.
        """
        for path, error in (await self._complete(checks, self.backend.capability.requests_max)).items():
            if not isinstance(error, FileNotFoundError):
                raise error
            header = (await self.headers.load(snapshot.path)).header
            if header is None or not await self._is_named(snapshot.path, header, path):
                why = "A chunk that was read in part has gone since, so it could not be verified; read it again"
                raise FileNotFoundError(errno.ENOENT, why, snapshot.path) from error
            missing = missing_chunk(path, snapshot.path)
            raise await why_missing(self.backend, self.runtime, header, path, missing) from error
        for path in sorted(checks.damaged):
            raise corrupt(path)

    async def _is_named(self, path: str, header: Header, file: str) -> bool:
        """Return whether a header that was just loaded names the file of a chunk.

        It does not if an index page has gone since.
        """
        try:
            chunks = await self.pages.unfold(path, header.entries)
        except FileNotFoundError:
            return False
        return any(file == names.locate(path, one.file, one.tier) for one in chunks if one.end > header.start)

    async def whole_chunks(self, snapshot: Segment, start: int, end: int) -> tuple[int, int]:
        """Return a range widened to the bounds, within the snapshot, of the chunks that it begins and ends in."""
        if snapshot.header is None:
            return start, end
        entries = placement.overlapping(snapshot.header.entries, start, min(end, snapshot.header.tail_start))
        try:
            chunks = await self.pages.unfold(snapshot.path, entries)
        except FileNotFoundError:
            return start, end  # the map has changed; the read itself will find that
        cut = [chunk for chunk in chunks if chunk.start < end and start < chunk.end]
        first, last = min([start, *(chunk.start for chunk in cut)]), max([end, *(chunk.end for chunk in cut)])
        return max(first, min(start, snapshot.start)), last

    def hold(self, snapshot: Segment) -> object | None:
        """Return an object that keeps the plain file of a snapshot, or None.

        It keeps the file while the caller has the object.

        Raises
        ------
        FileNotFoundError, ConflictError
            The file is gone, or another file has its name.
        """
        if snapshot.header is not None or snapshot.token is None:
            return None
        return self.backend.hold(snapshot.path, snapshot.token)

    # -- one round -----------------------------------------------------------------------------------------

    async def _round(
        self, jobs: Sequence[Job], limit: int, range_bytes: int | None, checks: PieceChecks | None, verify: bool
    ) -> None:
        """Read all that some jobs want; a job that meets a missing file sets its `gone`."""
        plain = [job for job in jobs if job.snapshot.header is None]
        await self._know_tokens(plain)
        pages = await self._load_pages(jobs)
        for job in jobs:
            job.plan(pages, range_bytes or self._range_bytes(job.end - job.start))
            if job.large and not job.failed:
                await job.see(self.backend)
                if not job.failed:
                    job.plan(pages, range_bytes or self._range_bytes(job.end - job.start))
            if job.snapshot.header is not None and job.snapshot.header.tiers:
                try:  # the other tiers and the hot store can be read
                    check_tiers(self.backend, (piece.path for piece in job.pieces))
                except UnknownTierError as error:
                    job.error, job.pieces = error, []
        wanted = None if checks is not None or verify else _read_whole(jobs)
        checks = PieceChecks() if checks is None else checks
        held = self._held(plain)
        calls = [partial(self._read_piece, job, piece, checks, wanted) for job in jobs for piece in job.pieces]
        if calls:
            largest = max(piece.size for job in jobs for piece in job.pieces)
            await self.runtime.gather(calls, min(limit, max(1, UNDER_WAY_BYTES_MAX // largest)))
        del held
        if verify:
            failed = await self._complete(checks, limit)
            for job in jobs:
                if (path := job.reads(failed)) is not None:
                    job.fail(path, failed[path])
        if damaged := checks.damaged:
            for job in jobs:
                if job.error is None and (path := job.reads(damaged)) is not None:
                    job.error = corrupt(path)

    def _held(self, jobs: Sequence[Job]) -> list[object | None]:
        """Hold the plain files from which the jobs read several pieces."""
        if not jobs:
            return []
        counts = Counter(piece.path for job in jobs for piece in job.pieces)
        held = []
        for snapshot in {job.snapshot.path: job.snapshot for job in jobs if counts[job.snapshot.path] > 1}.values():
            with contextlib.suppress(FileNotFoundError, ConflictError):  # the pieces will find the same
                held.append(self.hold(snapshot))
        return held

    async def _know_tokens(self, jobs: Sequence[Job]) -> None:
        """Look up the tokens that listings did not give; a plain file that is as it was listed has its token of now."""
        for job in jobs:
            snapshot = job.snapshot
            if snapshot.token is not None:
                continue
            assert snapshot.plain is not None
            try:
                info = await self.backend.stat(snapshot.path)
            except OSError as error:
                job.fail(snapshot.path, error)
                continue
            if (info.size, info.modified) == (snapshot.plain.size, snapshot.plain.modified):
                job.snapshot = job.origin = replace(snapshot, token=info.token)
            else:
                job.gone = snapshot.path

    def _range_bytes(self, size: int) -> int:
        if not self.backend.is_async:
            return SYNC_RANGE_BYTES_MAX
        return max(
            RANGE_BYTES_MIN, min(RANGE_BYTES_MAX, size // min(RANGES_WANTED, self.backend.capability.requests_max))
        )

    async def _load_pages(self, jobs: Sequence[Job]) -> Mapping[str, ListedChunks | Exception]:
        """Return the index pages that some jobs need, by path."""
        wanted = {path: page for job in jobs if not job.failed for path, page in job.pages()}
        loaded: dict[str, ListedChunks | Exception] = {}

        async def load(path: str, page: Page) -> None:
            try:
                loaded[path] = await self.pages.raw(path, page)
            except OSError as error:  # for each job that needs the page
                loaded[path] = error

        if wanted:
            await self.runtime.gather([partial(load, path, page) for path, page in wanted.items()], PAGE_READS_MAX)
        return loaded

    async def _read_piece(self, job: Job, piece: ReadPiece, checks: PieceChecks, wanted: frozenset[str] | None) -> None:
        if job.failed:
            return  # another piece of this job has failed
        chunk = piece.chunk if wanted is None or piece.path in wanted else None
        token = () if piece.token is None else (piece.token,)
        try:
            if job.buffer is not None:
                with job.place(piece) as target:
                    job.check_size(piece, await self.backend.read_into(piece.path, piece.start, target, *token))
                    if chunk is not None and not job.failed:
                        checks.add(piece.path, chunk, piece.start, target)
                return
            data = await self.backend.read_range(piece.path, piece.start, piece.end, *token)
        except OSError as error:
            job.fail(piece.path, error)
            return
        job.check_size(piece, len(data))
        if not job.failed:
            if chunk is not None:
                checks.add(piece.path, chunk, piece.start, data)
            job.answer = data

    async def _complete(self, checks: PieceChecks, limit: int) -> dict[str, OSError]:
        """Read the rest of all files that were read in part; returns the errors by file."""
        failed: dict[str, OSError] = {}

        async def read(path: str, chunk: Chunk, start: int, end: int) -> None:
            if path in failed:
                return
            try:
                data = await self.backend.read_range(path, start, end)
            except OSError as error:
                failed[path] = error
                return
            if len(data) == end - start:
                checks.add(path, chunk, start, data)
            else:
                failed[path] = too_short(path, chunk, start + len(data))

        calls = [
            partial(read, path, chunk, first, min(first + RANGE_BYTES_MAX, end))
            for path, chunk, ranges in checks.missing()
            for start, end in ranges
            for first in range(start, end, RANGE_BYTES_MAX)
        ]
        if calls:
            await self.runtime.gather(calls, limit)
        return failed

    # -- newer headers -------------------------------------------------------------------------------------

    async def _look_again(self, jobs: Sequence[Job]) -> None:
        """Give jobs that met a missing file the present map, or the error."""
        found: dict[str, Segment | Exception] = {}

        async def load(path: str, token: str | None) -> None:
            try:
                found[path] = await self.headers.load_newer(path, token)
            except OSError as error:  # for each job that needs the header
                found[path] = error

        seen = {job.snapshot.path: job.snapshot.token for job in jobs}
        await self.runtime.gather([partial(load, *one) for one in seen.items()], self.backend.capability.requests_max)
        for job in jobs:
            loaded = found[job.snapshot.path]
            if isinstance(loaded, Exception):
                job.error = loaded
            elif job.is_same(loaded):
                if (file := job.go_on(loaded)) is not None:
                    error = missing_chunk(file, job.snapshot.path)
                    job.error = await why_missing(self.backend, self.runtime, loaded.header, file, error)
            else:
                job.error = gone(job.origin, await self._now(job.snapshot.path, loaded))

    async def _now(self, path: str, loaded: Segment) -> Segment | None:
        if loaded.live:
            return loaded
        plain = await self.headers.plain(loaded)
        return None if plain is None else Segment.of_plain(plain)


def _read_whole(jobs: Sequence[Job]) -> frozenset[str]:
    """Return the chunk files that the jobs together may read completely."""
    counts: dict[str, int] = {}
    sizes: dict[str, int] = {}
    for job in jobs:
        for piece in job.pieces:
            if piece.chunk is not None:
                counts[piece.path] = counts.get(piece.path, 0) + piece.size
                sizes[piece.path] = min((length for length, _ in piece.chunk.pieces), default=piece.chunk.size)
    return frozenset(path for path, count in counts.items() if count >= sizes[path])
