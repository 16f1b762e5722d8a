"""Erase: a truncation after which no file of the segment holds bytes before its start.

1. Write the retained bytes of each file that also holds others as a new file, and read it back.
2. Commit the new start and the new files at once, on condition that the map needs no further file.
3. Delete at once what may be deleted; collect; report the files that are left.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import partial

from rollingfs.errors import (
    ConflictError,
    CorruptChunkError,
    CorruptHeaderError,
    MissingTierError,
    RollingError,
    SegmentTruncatedError,
    StagedExpiredError,
    UnknownTierError,
    if_interrupted,
)
from rollingfs.format import drops, names, transitions
from rollingfs.format.drops import hinted, pages_to_truncate, with_hints
from rollingfs.format.header import DROPS_MAX, Chunk, Header, Page, Phase
from rollingfs.format.transitions import NO_GUARD, Guard
from rollingfs.runtime.meters import Steps
from rollingfs.segment.at import At
from rollingfs.segment.commit.attempt import Attempt
from rollingfs.segment.commit.chunk_files import Stored, Uploads
from rollingfs.segment.commit.index_pages import LOOKS_MAX, successor
from rollingfs.segment.commit.removals import delete_shadowed, finish_drops
from rollingfs.segment.commit.store import FULL
from rollingfs.segment.files.adopt import adopt
from rollingfs.segment.files.erased import Erased, Remains, kept_versions, leftovers
from rollingfs.segment.files.replace_chunks import is_there
from rollingfs.segment.files.rewrite import new_file, written
from rollingfs.segment.files.tier_lines import young_line
from rollingfs.segment.segment import Segment
from rollingfs.segment.verbs.collect import collect, settle
from rollingfs.segment.verbs.truncate import cut_head
from rollingfs.segment.write.append_to_header import behead

logger = logging.getLogger("rollingfs")


class _MapChangedError(RollingError):
    """Internal: the header to be replaced needs a file that is not written yet."""


@dataclass
class _Run:
    """An erase: the files that were written for it, and what its last attempt would drop."""

    path: str
    offset: int
    guard: Guard
    uploads: Uploads
    written: dict[Chunk, Stored] = field(default_factory=dict)
    """New files, by the retained parts whose bytes they have."""
    known: dict[tuple[Page, int], list[Chunk]] = field(default_factory=dict)
    """Entries of index pages that are used in part, by the page and the cut."""
    gone: list[Chunk] = field(default_factory=list)
    """Old chunks that the last attempt drops."""
    parts: list[Chunk] = field(default_factory=list)
    """Retained parts that it rewrites."""


def _places(one: Remains) -> tuple[str, str]:
    """The chunk folders that may have led to a file which is left: its own folder, or the folder of its name."""
    file = names.split_tier(one.file)[1]
    return names.parent(file), names.chunks_folder(file)


async def erase(at: At, path: str, offset: int, guard: Guard = NO_GUARD) -> Erased:
    """Drop the bytes before `offset`, and leave no such byte in a file that the segment refers to.

    An offset before the start erases the bytes before the start.

    Raises
    ------
    FileNotFoundError
        There is no such segment or file.
    BadOffsetError
        The offset is negative or beyond the end.
    CorruptChunkError
        A file that must be rewritten is damaged; no byte was erased.
    ConflictError
        The map changed again and again; no byte was erased.
    OSError
        Its text states whether the segment is cut already, and not all old files could be deleted. Call it again.
    """
    if not await adopt(at, path, guard.segment):
        raise transitions.missing(path)
    try:
        return await at.with_room(path, partial(_erase, at, path, offset, guard))
    except OSError as error:
        if error.errno not in FULL:
            raise
        before = (await cut_head(at, path, offset, guard)).base
        logger.info("%s: no room to write what it retains, so it was truncated first: %s", path, error)
    did = await at.with_room(path, partial(_erase, at, path, offset, guard))
    return replace(did, bytes=did.start - before.start) if before is not None else did


async def _erase(at: At, path: str, offset: int, guard: Guard) -> Erased:
    run = _Run(path, offset, guard, Uploads(at, path))
    base, header = await run.uploads.settle(_commit(at, run))
    try:
        with if_interrupted(path, "committed"):
            return await _finish(at, run, base, header)
    except OSError as error:
        why = error.strerror or error
        text = f"{path} begins at {header.start} now, but not all old files could be deleted; erase it again: {why}"
        raise OSError(error.errno or errno.EIO, text) from error


# -- the commit ------------------------------------------------------------------------------------------


async def _commit(at: At, run: _Run) -> tuple[Header, Header]:
    """Commit the cut; returns the header before and after."""
    for _ in range(LOOKS_MAX):
        with if_interrupted(run.path, "not committed"):
            found = await at.commits.merges.settled(run.path)
        seen = transitions.check(found.header, run.guard, run.path)
        try:
            header = await behead(at, run.path, seen, run.offset, is_erase=True)
            parts = drops.to_rewrite(await _parts(at, run, header))
            for part in parts:
                if part not in run.written:
                    await _write(at, run, header, part)
            return await _commit_once(at, run)
        except _MapChangedError:
            continue
        except FileNotFoundError as gone:  # an index page has gone, or another segment has the name
            await successor(at.headers, run.path, seen, gone)
        except StagedExpiredError as error:
            logger.info("%s: what was written anew was collected, so it is written again: %s", run.path, error)
            run.written.clear()
    raise ConflictError(f"{run.path}: its map changed {LOOKS_MAX} times; nothing was erased, try again")


async def _commit_once(at: At, run: _Run) -> tuple[Header, Header]:
    async def step(base: Segment, attempt: Attempt) -> Header | None:
        found = transitions.check(base.header, run.guard, run.path)
        cut = await behead(at, run.path, found, run.offset, is_erase=True)
        new = {part: await _new(at, run, part, attempt) for part in await _needed(at, run, cut)}
        pages = await _holding(at, run, cut, new)
        header, swapped = drops.rewritten(cut, pages, new, at.now_ms())
        run.gone[:], run.parts[:] = [*await _dropped(at, run, found), *swapped], new
        header = drops.without_lags(header)
        return None if header == found else header

    committed = await at.commits.commit(run.path, step, uploads=[run.uploads], slow=True)
    assert committed.base is not None
    return committed.base, committed.made


async def _dropped(at: At, run: _Run, found: Header) -> list[Chunk]:
    """The chunks that a truncation drops, except chunks of pages that hold no chunk which others delete."""
    foreign = pages_to_truncate(found, run.offset)
    entries = [entry for entry in found.entries if isinstance(entry, Chunk) or entry in foreign]
    return [c for c in await at.pages.unfold(run.path, entries) if c.end <= run.offset]


async def _needed(at: At, run: _Run, header: Header) -> list[Chunk]:
    parts = drops.to_rewrite(await _parts(at, run, header))
    if any(part not in run.written for part in parts):
        raise _MapChangedError(f"{run.path}: its map has changed; nothing was erased yet")
    return parts


async def _new(at: At, run: _Run, part: Chunk, attempt: Attempt) -> Chunk:
    return (await attempt.files.young(run.written[part])).chunk(run.path, part.start)


async def _parts(at: At, run: _Run, header: Header) -> list[Chunk]:
    """The retained chunks that are used in part, in the whole map."""
    found: list[Chunk] = []
    for entry in header.entries:
        found += drops.parts([entry], header.start) if isinstance(entry, Chunk) else []
        found += await _parts_of(at, run, entry, header.start) if isinstance(entry, Page) else []
    return found


async def _parts_of(at: At, run: _Run, page: Page, cut: int) -> list[Chunk]:
    key = page, max(cut, page.start)
    if key not in run.known:
        run.known[key] = drops.parts(await at.pages.chunks(run.path, page), cut)
    return run.known[key]


async def _holding(at: At, run: _Run, header: Header, new: dict[Chunk, Chunk]) -> dict[Page, Sequence[Chunk]]:
    """The pages that list parts which are replaced, unfolded."""
    found: dict[Page, Sequence[Chunk]] = {}
    for entry in header.entries:
        if isinstance(entry, Page) and not new.keys().isdisjoint(await _parts_of(at, run, entry, header.start)):
            found[entry] = await at.pages.chunks(run.path, entry)
    return found


# -- one file --------------------------------------------------------------------------------------------


async def _write(at: At, run: _Run, header: Header, part: Chunk) -> None:
    """Write a retained part as a file of its own; skip it if it is no longer part of the segment."""
    await at.abilities(run.path)
    line = await young_line(at, run.path, header, part.tier) if part.tier else None
    stored = new_file(at, run.path, [part], line)
    run.uploads.add([stored])
    try:
        run.written[part] = await written(at, Segment(run.path, header), [part], stored, Steps(part.length, None))
    except CorruptChunkError as error:
        raise CorruptChunkError(f"{error}; nothing was erased") from error
    except (FileNotFoundError, SegmentTruncatedError) as error:
        if await is_there(at, run.path, header.segment, [part]):
            raise CorruptChunkError(
                f"{run.path}: a chunk that its header names is missing, so nothing was erased: {error}"
            ) from error
        logger.info("%s: bytes %d to %d are not written anew: %s", run.path, part.start, part.end, error)


# -- what goes, and what is left -------------------------------------------------------------------------


async def _finish(at: At, run: _Run, base: Header, header: Header) -> Erased:
    path = run.path
    held = {names.locate(path, chunk.file, chunk.tier) for chunk in run.gone}
    folders = await _folders(at, path, header, run.gone)
    own = {names.locate(path, chunk.file, chunk.tier) for chunk in drops.deletable(run.gone)}
    if own:
        await at.backend.delete(sorted(own))
    await finish_drops(at, path, header)
    await delete_shadowed(at, path, header.adopted)
    await _collect(at, path, folders)
    remains = await leftovers(at, path, folders, held)
    keepers = {names.chunks_folder(one.kept_by) for one in remains if one.kept_by is not None} - folders
    if keepers:  # no hint leads to these names, and nothing is left in their own folders
        folders |= keepers
        await _collect(at, path, keepers)
        remains = await leftovers(at, path, folders, held)
    await _note(at, path, {folder for one in remains for folder in _places(one)} & folders)
    return Erased(
        header.start,
        header.start - base.start,
        len(run.parts),
        sum(part.length for part in run.parts),
        remains,
        await kept_versions(at, path, header),
    )


async def _folders(at: At, path: str, header: Header, gone: Iterable[Chunk]) -> set[str]:
    """Return the chunk folders that may hold bytes of the segment, or drops that wait; a header names few of them."""
    dropped = {names.parent(names.resolve(path, chunk.file)) for chunk in gone}
    lies_in = await at.pages.folders(path, header.entries)
    return {names.chunks_folder(path), *hinted(path, header), *dropped, *lies_in}


async def _collect(at: At, path: str, folders: Iterable[str]) -> None:
    """Collect these folders; the report names the files that are left."""
    seen: dict[str, int] = {}
    others = sorted(set(map(names.segment_of_folder, folders)) - {path})
    # first, all headers let go what they need not keep any more: that may lie in the folder of another segment
    calls: list[tuple[str, Callable[[], Awaitable[object]]]] = [
        (segment, partial(settle, at, segment)) for segment in others
    ]
    calls += [(segment, partial(_collect_once, at, segment, seen)) for segment in [path, *others]]
    for segment, call in calls:
        try:
            await call()
        except (CorruptHeaderError, ConflictError, UnknownTierError, MissingTierError) as error:
            logger.info("%s: erased, but %s is not collected: %s", path, segment, error)
        except FileNotFoundError:
            if segment == path:
                raise


async def _collect_once(at: At, segment: str, seen: dict[str, int]) -> None:
    if names.chunks_folder(segment) not in seen:
        await collect(at, segment, seen=seen)


async def _note(at: At, path: str, folders: Set[str]) -> None:
    """Hint at folders where something is left, so that a later erase looks there again."""

    async def step(base: Segment, attempt: Attempt) -> Header | None:
        found = base.header
        if found is None or found.deleted or found.phase is Phase.MERGING:
            return None
        lies_in = await at.pages.folders(path, found.entries)
        lost = folders - {names.chunks_folder(path), *hinted(path, found), *lies_in}
        room = max(0, DROPS_MAX - len(found.drops))
        hints = [names.relative(names.parent(path), folder) + "/" for folder in sorted(lost)[:room]]
        return with_hints(found, hints, at.now_ms()) if hints else None

    if folders - {names.chunks_folder(path)}:
        await at.commits.commit(path, step)
