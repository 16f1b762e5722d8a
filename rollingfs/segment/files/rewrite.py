"""Rewrites: runs of neighbouring chunks become a file each, in the hot store or in a tier, in a single commit.

Consolidation, offload and onload choose the runs, and the store of each new file.

1. Write the bytes of each run as a new file: the store copies what it can; the rest is read and written once.
2. Read the new file back: its checksum must equal the chunks'.
3. Commit the new chunks instead of the old chunks, if exactly the old chunks are still there.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice

from rollingfs.backend.contract import finished
from rollingfs.backend.tier_marks import check_marks
from rollingfs.backend.tiers import can_copy
from rollingfs.errors import CorruptChunkError, RollingError, SegmentTruncatedError, StagedExpiredError, partly
from rollingfs.format import names
from rollingfs.format.crc import combined, crc32c
from rollingfs.format.header import PIECES_MAX, Chunk, Header, Tier
from rollingfs.format.placement import clip
from rollingfs.format.side_files import Label
from rollingfs.runtime.concurrency import Lock
from rollingfs.runtime.meters import Steps
from rollingfs.runtime.system import Moment
from rollingfs.segment.at import At
from rollingfs.segment.commit.chunk_files import Stored, Uploads
from rollingfs.segment.files.copies import READ_BYTES_MAX, CopyPiece, fill, plan_pieces
from rollingfs.segment.files.rewrite_commits import Swap, failing, is_there, swap_chunks, window, young_line
from rollingfs.segment.files.rewrite_plan import Plan, Run, size_of
from rollingfs.segment.read.piece_checks import PieceChecks
from rollingfs.segment.read.read_job import too_short
from rollingfs.segment.segment import Segment

logger = logging.getLogger("rollingfs")

RUNS_AT_ONCE_MAX = 2
"""A run is finished and read back, or joined by the store, while the bytes of another pass through this client."""
REWRITE_BYTES_MAX = 6 * READ_BYTES_MAX
"""Bytes that a rewrite may hold: on S3 four parts that are sent, a part that waits, and the next bytes."""
READ_BACK_BYTES, READ_BACKS_AT_ONCE_MAX = 4 * 1024 * 1024, 4
"""A new file is read back over several connections, each at some 85 MB/s, in the memory of its write."""
TRIES_MAX = 3
"""Maximum times that runs are written, because a collection took a new file before its commit."""


BATCH_BYTES = 1024 * 1024 * 1024
"""About the bytes of a window, or of two files if these are more."""
FILES_MAX = 1024
"""Maximum files that a commit swaps."""

Commit = Callable[..., Coroutine[None, None, list[Swap]]]
"""`swap_chunks` of a segment."""
Rewritten = tuple[list[Swap], list[CorruptChunkError]]
"""The swaps that took place, and the damage due to which other runs stay as they are."""


async def rewrite_all(
    at: At,
    path: str,
    header: Header,
    *,
    plan: Plan,
    file_bytes: int,
    steps: Steps,
    lag_s: float,
    start: int = 0,
    upto: int | None = None,
    protects: bool = False,
    counts: bool = False,
) -> tuple[tuple[int, int, int, int], list[CorruptChunkError]]:
    """Rewrite the runs of a plan, a window at a time; runs that are damaged stay.

    Parameters
    ----------
    file_bytes
        Maximum bytes of a new file.
    start, upto
        The segment offsets from which to plan, and at which the work ends.
    lag_s, protects, counts
        As in `swap_chunks`.

    Returns
    -------
    tuple
        The chunks that were rewritten, the files that have their bytes now, these bytes, and how many of them the
        server copied; and the damage due to which runs stay, or else each round would write the others in vain.

    Raises
    ------
    TierFailedError
        A tier is part of a run, and a store failed.
    CorruptChunkError
        New files are gone before the commit, again and again.
    """
    segment, first = header.segment, header.start
    swap = partial(swap_chunks, at, path, segment, lag_s=lag_s, protects=protects, counts=counts)
    known: Header | None = header
    position, is_last = start, False
    chunks = files = size = by_server = 0
    damaged: list[CorruptChunkError] = []
    while not is_last:
        header, found, is_last = await window(at, path, segment, position, max(BATCH_BYTES, 2 * file_bytes), known)
        end = found[-1].end if found else position
        is_last = is_last or (upto is not None and end >= upto)
        position, runs = plan(header, found, at.now_ms(), is_last)
        waiting = iter(runs)
        while batch := list(islice(waiting, FILES_MAX)):
            swaps, bad = await _rewrite(at, Segment(path, header), batch, swap, steps)
            damaged += bad
            for run, stored in swaps:
                chunks, files, size = chunks + len(run), files + 1, size + stored.size
                by_server += _server_bytes(at, path, run, stored.file)
        known = None if runs else header
        steps.reach(position - first)
    steps.reach(steps.total)
    return (chunks, files, size, by_server), damaged


async def _rewrite(at: At, view: Segment, runs: Sequence[Run], swap: Commit, steps: Steps) -> Rewritten:
    """Rewrite runs in a commit. Of the first chunk, only the part that the snapshot retains is written."""
    await at.abilities(view.path)
    (head, *others), tier = runs[0]
    runs = [((clip(head, max(head.start, view.start), head.end), *others), tier), *runs[1:]]
    for _ in range(TRIES_MAX):
        try:
            return await _rewrite_once(at, view, runs, swap, steps)
        except StagedExpiredError as error:  # this machine may have slept for a day
            logger.info("%s: its chunks are written anew again: %s", view.path, error)
            expired = error
    raise CorruptChunkError(
        f"{view.path}: new files were gone {TRIES_MAX} times before the segment named them; it still names the old "
        "ones, nothing is lost. The store of the new files loses files, or somebody collects without a grace: "
        f"{expired}"
    ) from expired


async def _rewrite_once(at: At, view: Segment, runs: Sequence[Run], swap: Commit, steps: Steps) -> Rewritten:
    path, header = view.path, view.header
    assert header is not None
    lines = {alias: await young_line(at, path, header, alias) for alias in sorted({tier for _, tier in runs} - {""})}
    uploads, passing = Uploads(at, path), at.runtime.lock(f"{path}: bytes of a rewrite")
    calls = [partial(_run, at, view, run, lines.get(tier), uploads, passing, steps) for run, tier in runs]
    try:
        results = await at.runtime.gather(calls, RUNS_AT_ONCE_MAX)
        # again: the originals go after the commit
        await check_marks(at.backend, at.runtime, lines.values(), path)
    except BaseException:
        await uploads.discard()
        raise
    damaged = [one for one in results if isinstance(one, CorruptChunkError)]
    swaps = [one for one in results if isinstance(one, tuple)]
    if not swaps:
        await uploads.discard()
        return [], damaged
    return await uploads.settle(swap(swaps, uploads, tiers=tuple(lines.values()))), damaged


def _server_bytes(at: At, path: str, run: Sequence[Chunk], target: str) -> int:
    """Return the bytes of a run that the store copies or joins itself; the others pass through this client."""
    return sum(piece.size for piece in _pieces(at, path, run, target) if piece.chunk is not None)


# -- one run -------------------------------------------------------------------------------------------------


async def _run(
    at: At, view: Segment, run: tuple[Chunk, ...], line: Tier | None, uploads: Uploads, passing: Lock, steps: Steps
) -> Swap | CorruptChunkError | None:
    """Write a run as a new file, and verify the file.

    Returns
    -------
    Swap or CorruptChunkError or None
        The swap; or the damage due to which the run stays; None if the run is no longer part of the segment.
    """
    path, header = view.path, view.header
    assert header is not None
    stored = new_file(at, path, run, line)
    uploads.add([stored])
    tier = next((chunk.tier for chunk in run if chunk.tier), "") if line is None else line.alias
    try:
        with failing(path, tier, _file(path, run[0])) if tier else contextlib.nullcontext():
            stored = await written(at, view, run, stored, steps, passing)
    except CorruptChunkError as error:
        return error
    except (FileNotFoundError, SegmentTruncatedError) as error:
        logger.info("%s: bytes %d to %d stay as they are: %s", path, run[0].start, run[-1].end, error)
        if not await is_there(at, path, header.segment, run):
            return None
        aliases = {chunk.tier for chunk in run}
        await check_marks(at.backend, at.runtime, [one for one in header.tiers if one.alias in aliases], path)
        return CorruptChunkError(f"{path}: a chunk that its header names is missing: {error}")
    return run, stored


def new_file(at: At, path: str, run: Sequence[Chunk], line: Tier | None) -> Stored:
    """Return a name for the file of a run; it is dated as the newest byte, for cuts at points in time."""
    folder, began = names.chunks_folder(path), Moment.now(at.clock)
    size, at_ms = size_of(run), max(chunk.at_ms for chunk in run)
    if line is None:
        return Stored(f"{folder}/{names.new_chunk_name(run[0].start)}", size, None, at_ms, began)
    name = names.new_tier_name(line.key, run[0].start)
    return Stored(f"{folder}/{name}", size, None, at_ms, began, tier=line.alias)


async def written(
    at: At, view: Segment, run: Sequence[Chunk], stored: Stored, steps: Steps, passing: Lock | None = None
) -> Stored:
    """Write the bytes of a run as a file, and read it back.

    Raises
    ------
    CorruptChunkError
        The new file differs, or an old chunk is damaged.
    StagedExpiredError
        The new file is gone: this machine slept for so long that a collection took it for an orphan.
    """
    stored = await _written(at, view, run, stored, steps, passing)
    if await _read_back(at, stored) != stored.crc32c:
        for chunk in run:  # an old chunk may be damaged
            await _checksum(at, view, chunk)
        first, last = _file(view.path, run[0]), _file(view.path, run[-1])
        raise CorruptChunkError(
            f"{stored.file}: the file that was just written differs from {first}{f' to {last}' if run[1:] else ''}, "
            f"which is whole; {view.path} still names the old chunks, nothing is lost: the store of the new file is at "
            "fault"
        )
    return stored


async def _written(
    at: At, view: Segment, run: Sequence[Chunk], stored: Stored, steps: Steps, passing: Lock | None
) -> Stored:
    assert view.header is not None
    parts: list[tuple[int, int]] = []
    for chunk in run:
        if chunk.length == chunk.size and chunk.crc32c is not None:
            parts += chunk.pieces or ((chunk.length, chunk.crc32c),)
        else:  # a chunk that is used in part, or that nobody has read, is read for it
            parts.append((chunk.length, await _checksum(at, view, chunk)))
    crc = _whole(parts)
    label = Label(view.header.segment, run[0].start, crc, end=run[-1].end, name=view.path)
    try:
        if len(run) == 1 and run[0].length == run[0].size and _server_bytes(at, view.path, run, stored.file):
            await at.backend.copy(_file(view.path, run[0]), stored.file, None, label.metadata())
            steps.add(stored.size)
        else:
            checks, pieces = PieceChecks(), _pieces(at, view.path, run, stored.file)
            async with finished(await at.backend.open_write(stored.file, None, label.metadata())) as upload:
                await fill(at, view, upload, pieces, checks, steps, passing)
                await at.fetcher.complete(view, checks)
    except (RollingError, FileNotFoundError):
        raise
    except OSError as error:
        await _check_sizes(at, view.path, run)
        partly(error, f"{view.path}: bytes {run[0].start} to {run[-1].end} are as before")
        raise
    stored = replace(stored, crc32c=crc)
    return replace(stored, pieces=fold(parts)) if stored.tier else stored


def _pieces(at: At, path: str, run: Sequence[Chunk], target: str) -> list[CopyPiece]:
    """Return the pieces of a run: bytes that the store copies, and bytes that pass through this client."""
    start, end = run[0].start, run[-1].end
    if not all(can_copy(at.backend, _file(path, chunk), target) for chunk in run):
        return [CopyPiece(start, end)]
    if len(run) == 1 and run[0].length == run[0].size:
        return [CopyPiece(start, end, run[0])]
    if not at.backend.capability.can_join:
        return [CopyPiece(start, end)]
    return plan_pieces(run, start, end, at.backend.capability.join_part_bytes_min)


# -- checks --------------------------------------------------------------------------------------------------


async def _checksum(at: At, view: Segment, chunk: Chunk) -> int:
    """Return the checksum of the part of a chunk that is used; the whole chunk is verified.

    Raises
    ------
    CorruptChunkError
        It is damaged.
    """
    checks, crc = PieceChecks(), 0
    for start in range(chunk.start, chunk.end, READ_BYTES_MAX):
        end = min(start + READ_BYTES_MAX, chunk.end)
        crc = crc32c(await at.fetcher.read(view, start, end, checks=checks), crc)
    await at.fetcher.complete(view, checks)
    return crc


async def _check_sizes(at: At, path: str, run: Sequence[Chunk]) -> None:
    """Raise an error that names the short file, if a copy failed due to it: not every store does.

    Raises
    ------
    CorruptChunkError
        A file has another size than its entry.
    """

    async def check(chunk: Chunk) -> None:
        size = (await at.backend.stat(_file(path, chunk))).size
        if size != chunk.size:
            raise too_short(_file(path, chunk), chunk, size)

    await at.runtime.gather([partial(check, chunk) for chunk in run], at.backend.capability.requests_max)


async def _read_back(at: At, stored: Stored) -> int | None:
    """Return the checksum of a file that was just written; None if it has another size."""

    async def read(start: int) -> tuple[int, int]:
        end = min(start + READ_BACK_BYTES, stored.size)
        more = end == stored.size  # of a file that is too long
        data = await at.backend.read_range(stored.file, start, end + more)
        return len(data), crc32c(data)

    starts = range(0, stored.size, READ_BACK_BYTES)
    try:
        pieces = await at.runtime.gather([partial(read, start) for start in starts], READ_BACKS_AT_ONCE_MAX)
    except FileNotFoundError as error:
        raise StagedExpiredError(f"{stored.file} is gone") from error
    return _whole(pieces) if sum(size for size, _ in pieces) == stored.size else None


def _file(path: str, chunk: Chunk) -> str:
    return names.locate(path, chunk.file, chunk.tier)


def fold(pieces: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Return the lengths and checksums of pieces, with neighbours joined to fit an entry; () of a single piece."""
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
