"""Reading bytes: from a snapshot and segment offsets to ranges of files, many at a time."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from rollingfs.backend.contract import Backend
from rollingfs.commit.header_cache import Loaded
from rollingfs.commit.index_pages import PAGE_READS_MAX, Pages
from rollingfs.errors import ConflictError
from rollingfs.format import placement
from rollingfs.format.header import Chunk, Page
from rollingfs.read.piece_checks import PieceChecks
from rollingfs.read.read_job import Job, Piece, corrupt, gone, missing_chunk, said_now, too_short
from rollingfs.read.snapshot import Lookup, Snapshot
from rollingfs.runtime.concurrency import Runtime

RANGE_BYTES_MIN = 2 * 1024 * 1024
"""A larger read is split into ranges that are read at once."""
RANGE_BYTES_MAX = 8 * 1024 * 1024
SYNC_RANGE_BYTES_MAX = 64 * 1024 * 1024
"""Where nothing is read at once, ranges are only there to bound what is held beside the answer."""

Request = tuple[Snapshot, int, int]
"""What is to be read: a snapshot, and the segment offsets ``[start, end)``."""


class Fetcher:
    """Reads the bytes of segments and plain files.

    What is checked: a chunk whose bytes are all read, by one call or by several that share a `PieceChecks`, must have
    the checksum that its header says. The error is that of the piece that came last, and of all reads after it. A plain
    file must be the one that the snapshot was taken of.
    """

    def __init__(self, backend: Backend, runtime: Runtime, lookup: Lookup, pages: Pages) -> None:
        self.backend = backend
        self.runtime = runtime
        self.lookup = lookup
        self.pages = pages

    async def read(
        self,
        view: Snapshot,
        start: int,
        end: int,
        *,
        limit: int | None = None,
        range_bytes: int | None = None,
        checks: PieceChecks | None = None,
        verify: bool = False,
    ) -> bytes:
        """The bytes ``[start, end)`` of a snapshot, in segment offsets.

        Parameters
        ----------
        limit
            How many reads of the backend may be under way; by default what the backend says makes sense.
        range_bytes
            Ask the backend for at most so many bytes at once; by default as suits the size of the read.
        checks
            What the same reader has read before: chunks read by several calls are verified as well.
        verify
            Read all of each chunk of which only a part is wanted, and verify it.

        Raises
        ------
        SegmentTruncatedError
            They, or their beginning, have been truncated away.
        ValueError
            The range is negative, or ends beyond the snapshot.
        FileNotFoundError
            What the snapshot was taken of is gone: deleted, or replaced by something else.
        CorruptChunkError
            A chunk that the header names is missing, too short, or fails its checksum.
        """
        [result] = await self.read_many(
            [(view, start, end)], limit, range_bytes=range_bytes, checks=checks, verify=verify
        )
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
        """Read many ranges in one batch; each is its bytes, or the error that `read` would raise.

        Parameters
        ----------
        limit
            How many reads of the backend may be under way; by default what the backend says makes sense.
        """
        limit = limit or self.backend.requests_max
        jobs = [Job(view, start, end) for view, start, end in requests]
        todo = [job for job in jobs if job.error is None]
        while todo:
            await self._round(todo, limit, range_bytes, checks, verify)
            todo = [job for job in todo if job.gone is not None and job.error is None]
            await self._look_again(todo)
            todo = [job for job in todo if job.error is None]
        return [job.result() for job in jobs]

    async def complete(self, view: Snapshot, checks: PieceChecks) -> None:
        """Verify all chunks that were read in part, by reading the rest of them.

        Raises
        ------
        CorruptChunkError
            One is missing, too short, or fails its checksum.
        FileNotFoundError
            One has gone since: truncated away, or replaced.
        """
        for path, error in (await self._complete(checks, self.backend.requests_max)).items():
            if not isinstance(error, FileNotFoundError):
                raise error
            loaded = await self.lookup.headers.load(view.path)
            if loaded.header is None or view.header is None or loaded.header.version != view.header.version:
                raise gone(view, "a chunk that was read in part has gone, so it could not be verified") from error
            raise missing_chunk(path, view.path) from error
        for path in sorted(checks.damaged):
            raise corrupt(path)

    async def whole_chunks(self, view: Snapshot, start: int, end: int) -> tuple[int, int]:
        """A range widened to the bounds, within the snapshot, of the chunks that it begins and ends in."""
        if view.header is None:
            return start, end
        entries = placement.overlapping(view.header.entries, start, min(end, view.header.tail_start))
        try:
            chunks = await self.pages.unfold(view.path, entries)
        except FileNotFoundError:
            return start, end  # the map has changed, as the read itself will find
        cut = [chunk for chunk in chunks if chunk.start < end and start < chunk.end]
        first, last = min([start, *(chunk.start for chunk in cut)]), max([end, *(chunk.end for chunk in cut)])
        return max(first, min(start, view.start)), last

    def hold(self, view: Snapshot) -> object | None:
        """Keep the plain file of a snapshot as it is for as long as the caller keeps this object, where that can be.

        Raises
        ------
        FileNotFoundError, ConflictError
            It is gone, or another has its name.
        """
        if view.header is not None or view.token is None:
            return None
        return self.backend.hold(view.path, view.token)

    # -- one round -----------------------------------------------------------------------------------------

    async def _round(
        self, jobs: Sequence[Job], limit: int, range_bytes: int | None, checks: PieceChecks | None, verify: bool
    ) -> None:
        """Read all of some jobs; one that meets a file that is gone says so."""
        plain = [job for job in jobs if job.view.header is None]
        await self._know_tokens(plain)
        pages = await self._load_pages(jobs)
        for job in jobs:
            job.plan(pages, range_bytes or self._range_bytes(job.end - job.start))
        wanted = None if checks is not None or verify else _read_whole(jobs)
        checks = PieceChecks() if checks is None else checks
        held = self._held(plain)
        calls = [partial(self._read_piece, job, piece, checks, wanted) for job in jobs for piece in job.pieces]
        if calls:
            await self.runtime.gather(calls, limit)
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
        """The plain files that are to be read in several pieces, held."""
        counts = Counter(piece.path for job in jobs for piece in job.pieces)
        held = []
        for view in {job.view.path: job.view for job in jobs if counts[job.view.path] > 1}.values():
            with contextlib.suppress(FileNotFoundError, ConflictError):  # as the pieces will find
                held.append(self.hold(view))
        return held

    async def _know_tokens(self, jobs: Sequence[Job]) -> None:
        """Listings may know no tokens of plain files; one that is still as it was listed has that of now."""
        for job in jobs:
            view = job.view
            if view.token is not None:
                continue
            assert view.plain is not None
            try:
                info = await self.backend.stat(view.path)
            except OSError as error:
                job.fail(view.path, error)
                continue
            if (info.size, info.modified) == (view.plain.size, view.plain.modified):
                job.view = job.origin = replace(view, token=info.token)
            else:
                job.gone = view.path

    def _range_bytes(self, size: int) -> int:
        if not self.backend.is_async:
            return SYNC_RANGE_BYTES_MAX
        return max(RANGE_BYTES_MIN, min(RANGE_BYTES_MAX, size // self.backend.requests_max))

    async def _load_pages(self, jobs: Sequence[Job]) -> Mapping[str, Sequence[Chunk] | Exception]:
        """The index pages that some jobs need, by path."""
        wanted = {path: page for job in jobs for path, page in job.pages()}
        loaded: dict[str, Sequence[Chunk] | Exception] = {}

        async def load(path: str, page: Page) -> None:
            try:
                loaded[path] = await self.pages.raw(path, page)
            except OSError as error:  # each job that needs it raises it
                loaded[path] = error

        if wanted:
            await self.runtime.gather([partial(load, path, page) for path, page in wanted.items()], PAGE_READS_MAX)
        return loaded

    async def _read_piece(self, job: Job, piece: Piece, checks: PieceChecks, wanted: frozenset[str] | None) -> None:
        if job.failed:
            return  # another piece of it said so
        chunk = piece.chunk if wanted is None or piece.path in wanted else None
        token = () if piece.token is None else (piece.token,)
        try:
            if job.is_buffered and self.backend.is_async:
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
            job.put(piece, data)

    async def _complete(self, checks: PieceChecks, limit: int) -> dict[str, OSError]:
        """Read the rest of all files that were read in part; what failed, by file."""
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

    # -- what is there by now ------------------------------------------------------------------------------

    async def _look_again(self, jobs: Sequence[Job]) -> None:
        """Give jobs that met a missing file the map as it is now, or the error that says why there is none."""
        found: dict[str, Loaded | Exception] = {}

        async def load(path: str) -> None:
            try:
                found[path] = await self.lookup.headers.load(path)
            except OSError as error:  # each job that needs it raises it
                found[path] = error

        paths = {job.view.path for job in jobs}
        if paths:
            await self.runtime.gather([partial(load, path) for path in paths], self.backend.requests_max)
        for job in jobs:
            loaded = found[job.view.path]
            if isinstance(loaded, Exception):
                job.error = loaded
            elif job.is_same(loaded):
                job.go_on(loaded)
            else:
                job.error = gone(job.origin, said_now(await self._now(job.view.path, loaded)))

    async def _now(self, path: str, loaded: Loaded) -> Snapshot | None:
        if loaded.live:
            return Snapshot(path, loaded.header, loaded.token)
        plain = await self.lookup.plain(path, loaded)
        return None if plain is None else Snapshot(path, None, plain.token, plain)


def _read_whole(jobs: Sequence[Job]) -> frozenset[str]:
    """The chunk files that some jobs may read all of together."""
    counts: dict[str, int] = {}
    sizes: dict[str, int] = {}
    for job in jobs:
        for piece in job.pieces:
            if piece.chunk is not None:
                counts[piece.path] = counts.get(piece.path, 0) + piece.size
                sizes[piece.path] = piece.chunk.size
    return frozenset(path for path, count in counts.items() if count >= sizes[path])
