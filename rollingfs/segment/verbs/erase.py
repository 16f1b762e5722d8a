"""Erase: a truncation after which no file of the segment holds bytes before its start.

1. Write the retained bytes of each file that also holds others as a new file, and read it back.
2. Commit the new start and the new files at once, on condition that the map needs no further file.
3. Delete at once what may be deleted; collect; report the files that are left.
"""

from __future__ import annotations

import contextlib
import errno
import logging
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import partial

from rollingfs.backend.tiers import check_aliases
from rollingfs.errors import (
    FULL,
    ConflictError,
    CorruptChunkError,
    CorruptHeaderError,
    MissingTierError,
    SegmentTruncatedError,
    StagedExpiredError,
    UnknownTierError,
    if_interrupted,
)
from rollingfs.format import drops, names, transitions
from rollingfs.format.drops import hinted, pages_to_truncate, with_hints
from rollingfs.format.header import DROPS_MAX, GRACE_S, Chunk, Header, Page, Phase
from rollingfs.format.transitions import NO_GUARD, Guard
from rollingfs.runtime.meters import Steps
from rollingfs.runtime.values import value_class
from rollingfs.segment.at import At
from rollingfs.segment.commit.attempt import Attempt
from rollingfs.segment.commit.chunk_files import Stored, Uploads
from rollingfs.segment.commit.index_pages import LOOKS_MAX, successor
from rollingfs.segment.commit.removals import delete_shadowed, finish_drops
from rollingfs.segment.files.adopt import adopt
from rollingfs.segment.files.rewrite import new_file, written
from rollingfs.segment.files.rewrite_commits import is_there, young_line
from rollingfs.segment.files.survey import Survey, pending_uploads, survey_folder
from rollingfs.segment.segment import Segment, names_file
from rollingfs.segment.verbs.collect import collect, settle
from rollingfs.segment.verbs.truncate import cut_head
from rollingfs.segment.write.append_to_header import behead

logger = logging.getLogger("rollingfs")

YOUNG = "younger than the grace: a collection deletes it after that"
PINNED = "a pin protects it, and the segment that the pin names is absent"
KEPT = "the former name of a part of the segment keeps it for readers of older snapshots"
NAMED = "another segment refers to it"
HIDDEN = "a plain file of the segment's name, which the segment hides"
UNREADABLE = "a folder that cannot be read, so nothing in it may be deleted"
UPLOAD = "unfinished upload: a collection aborts it after the grace"


@value_class
class Remains:
    """A file that may still hold erased bytes."""

    file: str
    """Path on the backend; the path of a file in a tier begins with ``tier:`` and its alias."""
    size: int
    """Bytes of the file; 0 for an unfinished upload."""
    reason: str
    """Why it is still there."""
    held: bool
    """True: it held the erased bytes. False: no header refers to it, and its content is not known."""
    until: float | None = None
    """When a collection may delete it, seconds since 1970 by the store's clock; None if that is not known."""
    kept_by: str | None = None
    """The former name that keeps it for readers: a collection of that name deletes it, or another erase."""


@value_class
class Erased:
    """The bytes that an erase dropped, and the files that are left."""

    start: int
    """The segment begins at this offset; no file that it refers to holds a byte before it."""
    bytes: int = 0
    """Bytes of the segment that this call has dropped; 0 if it only finished an earlier erase."""
    rewritten_files: int = 0
    """Files that this call has rewritten, because they held bytes before and after the start."""
    rewritten_bytes: int = 0
    """Retained bytes in these."""
    remains: tuple[Remains, ...] = ()
    """Files that may still hold erased bytes."""
    versions: Mapping[str, bool | None] = field(default_factory=dict)
    """Whether the store keeps former versions of files, by the alias of a tier ("" for the segment's own store). None:
    the store does not answer that."""

    @property
    def is_gone(self) -> bool:
        """Whether the erased bytes are gone from all places that rollingfs knows and can see."""
        return not self.remains and all(kept is False for kept in self.versions.values())


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
    """Commit the cut, and return the headers before and after."""
    for _ in range(LOOKS_MAX):
        with if_interrupted(run.path, "not committed"):
            found = await at.commits.merges.settled(run.path)
        seen = transitions.check(found.header, run.guard, run.path)
        try:
            header = await behead(at, run.path, seen, run.offset, is_erase=True)
            for part in drops.to_rewrite(await _parts(at, run, header)):
                if part not in run.written:
                    await _write(at, run, header, part)
            if (committed := await _commit_once(at, run)) is not None:
                return committed
        except FileNotFoundError as gone:  # an index page has gone, or another segment has the name
            await successor(at.headers, run.path, seen, gone)
        except StagedExpiredError as error:
            logger.info("%s: what was written anew was collected, so it is written again: %s", run.path, error)
            run.written.clear()
    raise ConflictError(f"{run.path}: its map changed {LOOKS_MAX} times; nothing was erased, try again")


async def _commit_once(at: At, run: _Run) -> tuple[Header, Header] | None:
    """Commit the cut; return None if the map has changed, and needs a file that is not written yet."""
    is_short = False

    async def step(base: Segment, attempt: Attempt) -> Header | None:
        nonlocal is_short
        found = transitions.check(base.header, run.guard, run.path)
        cut = await behead(at, run.path, found, run.offset, is_erase=True)
        parts = drops.to_rewrite(await _parts(at, run, cut))
        is_short = any(part not in run.written for part in parts)
        if is_short:
            return None
        young = [await attempt.files.young(run.written[part], found) for part in parts]
        new = {part: one.chunk(run.path, part.start) for part, one in zip(parts, young, strict=True)}
        header, swapped = drops.rewritten(cut, await _holding(at, run, cut, new), new, at.now_ms())
        # what a truncation drops, except chunks of pages that hold no chunk which others delete
        foreign = pages_to_truncate(found, run.offset)
        entries = [entry for entry in found.entries if isinstance(entry, Chunk) or entry in foreign]
        dropped = [c for c in await at.pages.unfold(run.path, entries) if c.end <= run.offset]
        run.gone[:], run.parts[:] = [*dropped, *swapped], new
        header = drops.without_lags(header)
        return None if header == found else header

    committed = await at.commits.commit(run.path, step, uploads=[run.uploads], slow=True)
    assert committed.base is not None
    return None if is_short else (committed.base, committed.made)


async def _parts(at: At, run: _Run, header: Header) -> list[Chunk]:
    """Return the retained chunks that are used in part, in the whole map."""
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
    """Return the pages that list parts which are replaced, unfolded."""
    pages = [entry for entry in header.entries if isinstance(entry, Page)]
    held = [page for page in pages if not new.keys().isdisjoint(await _parts_of(at, run, page, header.start))]
    return {page: await at.pages.chunks(run.path, page) for page in held}


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
    # all that may hold bytes of the segment, or drops that wait; a header names few of them
    dropped = {names.parent(names.resolve(path, chunk.file)) for chunk in run.gone}
    lies_in = await at.pages.folders(path, header.entries)
    folders = {names.chunks_folder(path), *hinted(path, header), *dropped, *lies_in}
    own = {names.locate(path, one.file, one.tier) for one in run.gone if drops.is_deletable(one.file)}
    if own:
        await at.backend.delete(sorted(own))
    await finish_drops(at, path, header)
    await delete_shadowed(at, path, header.adopted)
    await _collect(at, path, folders)
    remains = await _leftovers(at, path, folders, held)
    keepers = {names.chunks_folder(one.kept_by) for one in remains if one.kept_by is not None} - folders
    if keepers:  # no hint leads to these names, and nothing is left in their own folders
        folders |= keepers
        await _collect(at, path, keepers)
        remains = await _leftovers(at, path, folders, held)
    files = {names.split_tier(one.file)[1] for one in remains}
    # what may have led to such a file: its own folder, or the folder of its name
    await _note(at, path, {*map(names.parent, files), *map(names.chunks_folder, files)} & folders)
    return Erased(
        header.start,
        header.start - base.start,
        len(run.parts),
        sum(part.length for part in run.parts),
        remains,
        await _kept_versions(at, path, header),
    )


async def _collect(at: At, path: str, folders: Iterable[str]) -> None:
    """Collect these folders; the report names the files that are left."""
    seen: dict[str, int] = {}
    others = sorted(set(map(names.segment_of_folder, folders)) - {path})
    # first, all headers let go what they need not keep any more: that may lie in the folder of another segment
    for segment, is_first in [*((one, True) for one in others), *((one, False) for one in (path, *others))]:
        try:
            if is_first:
                await settle(at, segment)
            elif names.chunks_folder(segment) not in seen:
                await collect(at, segment, seen=seen)
        except (CorruptHeaderError, ConflictError, UnknownTierError, MissingTierError) as error:
            logger.info("%s: erased, but %s is not collected: %s", path, segment, error)
        except FileNotFoundError:
            if segment == path:
                raise


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


# -- what is left ----------------------------------------------------------------------------------------


async def _leftovers(at: At, path: str, folders: Iterable[str], held: Set[str]) -> tuple[Remains, ...]:
    """Return the files in some chunk folders that may hold erased bytes of the segment at `path`, and its plain file.

    Parameters
    ----------
    held
        Files that certainly held the erased bytes.
    """
    found: list[Remains] = []
    for folder in sorted(folders):
        try:
            found += _of_survey(await survey_folder(at, folder), path, held)
        except FileNotFoundError:
            pass  # nothing is there any more
        except (CorruptHeaderError, UnknownTierError, MissingTierError) as error:
            found.append(Remains(folder, 0, f"{UNREADABLE}: {error}", False))
        found += [
            Remains(upload.path, 0, UPLOAD, False, upload.began + GRACE_S)
            for upload in await pending_uploads(at, folder)
        ]
        if folder != names.chunks_folder(path):
            found += await _plain_of(at, names.segment_of_folder(folder))
    with contextlib.suppress(FileNotFoundError):
        plain = await at.backend.stat(path)
        found.append(Remains(path, plain.size, HIDDEN, True))
    return tuple(found)


async def _plain_of(at: At, segment: str) -> list[Remains]:
    """Return the plain file from which a former segment was adopted, which another segment has taken in or renamed."""
    with contextlib.suppress(CorruptHeaderError, FileNotFoundError):
        header = (await at.headers.load(segment)).header
        info = await at.backend.stat(segment)
        if header is not None and names_file(header, info):
            return [Remains(segment, info.size, HIDDEN, True)]
    return []


async def _kept_versions(at: At, path: str, header: Header) -> dict[str, bool | None]:
    """Return whether each store of a segment keeps former versions of files."""
    check_aliases(at.backend, header.tiers, path)
    file = names.header_path(path)
    places = {"": file, **{tier.alias: names.in_tier(tier.alias, file) for tier in header.tiers}}
    return {alias: await at.backend.keeps_versions(place) for alias, place in places.items()}


def _of_survey(survey: Survey, path: str, held: Set[str]) -> list[Remains]:
    """Return the files that may hold erased bytes, by a look at a folder; pure."""
    itself = {file for referrer in survey.referrers if referrer.path == path for file in referrer.files}
    blocked, kept = survey.blocked_until(), survey.kept
    found, uploads = [], [Remains(one.path, 0, UPLOAD, False, one.began + GRACE_S) for one in survey.tier_uploads]
    for info in survey.files:
        name = info.path.rpartition("/")[2]
        if info.path in itself or info.is_folder or name.startswith((names.INDEX_PREFIX, names.PROBE_PREFIX)):
            continue  # it holds no bytes of a segment that are to go
        is_held, until = info.path in held, info.modified + GRACE_S
        if info.path in kept:
            keeper = kept[info.path]
            found.append(Remains(info.path, info.size, KEPT, is_held, keeper.until, keeper.path))
        elif info.path in survey.named:
            if is_held:
                found.append(Remains(info.path, info.size, NAMED, is_held))
        elif info.modified <= blocked:
            found.append(Remains(info.path, info.size, PINNED, is_held))
        else:
            found.append(Remains(info.path, info.size, YOUNG, is_held, until))
    return found + uploads
