"""The common part of concat and rename: marks and pins in the sources, a commit of the target, tombstones.

0. Pin the target's chunk folder for each source of another folder that allows the move: the evidence for others.
1. Mark the sources, which freezes their maps, and pin the chunk folders that their entries name.
2. Commit the target. The caller makes its header of what `frozen` knows of the sources.
3. Turn the sources into tombstones.

The requests of a step are under way at once. If 2 certainly did not take place, the marks and pins are taken back.
Whoever meets a mark that a crash has left finishes or undoes the move (`rollingfs.segment.commit.recovery`).
"""

from __future__ import annotations

import itertools
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

from rollingfs.errors import AppendOutcomeUnknown, CommitTimeoutError, RollingError, if_interrupted
from rollingfs.format import merging, names, placement
from rollingfs.format.header import AGE_S_MAX, Header, Merge, MergeOutcome
from rollingfs.format.merging import is_merging
from rollingfs.format.side_files import Pin, format_pin, pin_path
from rollingfs.runtime.concurrency import backoff_s
from rollingfs.runtime.system import Moment
from rollingfs.runtime.values import value_class
from rollingfs.segment.at import At
from rollingfs.segment.commit.attempt import Attempt
from rollingfs.segment.commit.index_pages import PageGoneError, successor
from rollingfs.segment.commit.removals import check_passes, is_alone, remove_grave, remove_header
from rollingfs.segment.files.adopt import adopt
from rollingfs.segment.segment import Segment, shadow

logger = logging.getLogger("rollingfs")


class MarkLostError(RollingError):
    """Internal: another client has undone a mark, because it took this mover for dead; begin again."""


@value_class
class Source:
    """A segment on its way into another."""

    path: str
    txn: str
    target: str
    segment: str | None
    """Its incarnation, if no other is meant."""
    mark: MergeOutcome
    """The line that it gets in the target."""
    evidence: str | None
    """The target's chunk folder, in which a pin is it; None within a folder, where the mark itself is the evidence."""


@value_class
class Marked:
    """Sources that are marked."""

    sources: Sequence[Source]
    marks: Sequence[MergeOutcome]
    """The lines that the sources get in the target."""
    headers: Sequence[Header]
    """Headers that the marks' commits have made."""
    token_before: str | None
    """The token of the target's header before the first mark was sent, if the mover knew a header of it."""
    since: Moment
    """When the first file of evidence was about to be written."""
    incarnation: str
    """The incarnation of the target that the marks name."""


Make = Callable[[Segment, Attempt, Marked], Awaitable[Header]]
"""Makes the header of the target from its present header and from the sources: see `frozen_headers`."""


async def move(
    at: At,
    target: str,
    paths: Sequence[str],
    make: Make,
    *,
    sealed: bool,
    incarnation: Callable[[], Awaitable[str]] | None = None,
    meant: Mapping[str, str | None] | None = None,
) -> Header:
    """Move segments into another; begin again until other clients do not undo the marks, or the time is over.

    Parameters
    ----------
    sealed
        Whether a source that is open is refused.
    incarnation
        Gives the incarnation of the target, by default a new incarnation.
    meant
        The incarnations of sources, by path; of a source without an entry, any is taken.
    """
    deadline_s = at.commits.deadline_s()
    for attempt in itertools.count(1):
        with if_interrupted(target, "not committed"):
            found = str(uuid.uuid4()) if incarnation is None else await incarnation()
        sources = sources_of(paths, target, meant or {})
        try:
            # marks must not be left to others
            return await at.runtime.shield(_move(at, target, sources, found, make, deadline_s, sealed))
        except MarkLostError as lost:
            if time.monotonic() >= deadline_s:
                raise CommitTimeoutError(f"{target}: {lost}; tried {attempt} times, nothing was written") from lost
            logger.info("%s: %s", target, lost)
            await at.runtime.sleep(backoff_s(attempt))
    raise AssertionError("itertools.count ends")


def sources_of(paths: Sequence[str], target: str, meant: Mapping[str, str | None]) -> list[Source]:
    """Return segments that begin to move."""
    found, folder = [], names.parent(target)
    for path in paths:
        txn = str(uuid.uuid4())
        mark = MergeOutcome(txn, names.relative(folder, path))
        evidence = None if names.parent(path) == folder else names.chunks_folder(target)
        found.append(Source(path, txn, target, meant.get(path), mark, evidence))
    return found


async def _move(
    at: At, target: str, sources: Sequence[Source], incarnation: str, make: Make, deadline_s: float, sealed: bool
) -> Header:
    with if_interrupted(target, "not committed"):
        marked = await mark_all(at, sources, incarnation, deadline_s, sealed=sealed)
    return await commit_target(at, target, marked, make, deadline_s)


async def mark_all(at: At, sources: Sequence[Source], incarnation: str, deadline_s: float, *, sealed: bool) -> Marked:
    """Mark and pin all sources at once, or leave all as they were.

    Parameters
    ----------
    incarnation
        The incarnation of the target.
    sealed
        Whether a source that is open is refused.
    """
    target = at.headers.seen(sources[0].target) if sources else None
    token_before = target.token if target is not None else None
    since = Moment.now(at.clock)
    marks = [source.mark for source in sources]
    calls = [partial(_mark, at, source, incarnation, marks, deadline_s, sealed) for source in sources]
    try:
        headers = await at.each(calls)
    except (OSError, ValueError):
        await _undo(at, sources)
        raise
    return Marked(sources, marks, headers, token_before, since, incarnation)


async def _forget(at: At, sources: Sequence[Source]) -> bool:
    """Delete the evidence of moves that certainly took place, or certainly will not; else collection does."""
    files = [pin_path(source.evidence, source.txn) for source in sources if source.evidence is not None]
    try:
        if files:
            await at.backend.delete(files)
    except OSError as error:
        logger.info("%s: a pin is left to collection: %s", sources[0].target, error)
        return False
    return True


async def _mark(
    at: At, source: Source, incarnation: str, marks: Sequence[MergeOutcome], deadline_s: float, sealed: bool
) -> Header:
    """Freeze a source, then pin the folders that its entries name."""
    witnessed: str | None = None

    async def step(base: Segment, attempt: Attempt) -> Header | None:
        nonlocal witnessed
        if is_merging(base.header, source.txn):
            return None
        merging.check_other(base.header, marks, source.path)
        found = merging.check_source(base.header, source.path, sealed=sealed, segment=source.segment)
        await check_passes(at, source.path, found.adopted, attempt.deadline_s)
        await _folders(at, source.path, found)  # who cannot read the map could not undo the mark
        if witnessed is None and source.evidence is not None:
            # before the mark that others may find, but not before a check: a refused source leaves no folder there
            await _write_pin(at, source, found.segment, source.evidence)
        elif witnessed not in (None, found.segment):
            raise MarkLostError(f"{source.path} was made anew by another client")
        witnessed = found.segment
        target = names.relative(names.parent(source.path), source.target)
        merge = Merge(source.txn, target, incarnation, found.phase, at.now_ms())
        return merging.mark_merging(found, merge)

    try:
        committed = await at.commits.commit(source.path, step, deadline_s=deadline_s)
    except FileNotFoundError:
        if sealed:
            await _refuse_plain(at, source.path)
        plain = await at.headers.plain(Segment(source.path))
        await check_passes(at, source.path, shadow(plain), deadline_s)
        if not await adopt(at, source.path):
            raise
        committed = await at.commits.commit(source.path, step, fresh=True, deadline_s=deadline_s)
    made = committed.made
    if made.entries:
        await _pin(at, source, made)
    return made


async def _refuse_plain(at: At, path: str) -> None:
    """Refuse a plain file, which counts as an open segment."""
    if await at.headers.plain(Segment(path)) is not None:
        loaded = await at.headers.load(path)
        if not loaded.live and await at.headers.plain(loaded) is not None:
            raise merging.not_sealed(path)


async def _pin(at: At, source: Source, header: Header) -> None:
    try:
        folders = await _folders(at, source.path, header)
    except PageGoneError as error:
        await successor(at.headers, source.path, header, error)
        raise MarkLostError(f"the merge of {source.path} was undone by another client") from error
    await at.each([partial(_write_pin, at, source, header.segment, folder) for folder in sorted(folders)])


async def _folders(at: At, path: str, header: Header) -> set[str]:
    if not header.entries:
        return set()
    # of the retained bytes alone: the target will not name a folder in which only dropped chunks lie
    retained = [placement.clip(entry, header.start, entry.end) for entry in header.entries if entry.end > header.start]
    return await at.pages.folders(path, retained)


async def _write_pin(at: At, source: Source, incarnation: str, folder: str) -> None:
    pin = Pin(source.txn, source.path, source.target, incarnation)
    await at.backend.put(pin_path(folder, source.txn), format_pin(pin, folder))


async def frozen_headers(at: At, target: Segment, marked: Marked) -> Sequence[Header]:
    """Return the sources' headers, for a commit that replaces this header of the target; all must still be marked.

    They are read again, unless the header was known before the first mark was sent: whoever undoes a mark first
    replaces the header of the target, and the commit will fail.

    Raises
    ------
    MarkLostError
        A source is not marked: another client took this mover for dead.
    """
    if marked.since.age_s(at.clock) > AGE_S_MAX and any(source.evidence for source in marked.sources):
        raise MarkLostError("the move took so long that a collection may have deleted its evidence")
    if target.header is not None and target.token is not None and target.token == marked.token_before:
        return marked.headers
    for source in marked.sources:
        if target.header is not None and merging.has_aborted(target.header, source.txn):
            raise MarkLostError(f"the merge of {source.path} was aborted by another client")
    loads = [partial(at.headers.load, source.path) for source in marked.sources]
    frozen = []
    for source, loaded in zip(marked.sources, await at.each(loads), strict=True):
        if loaded.header is None or not is_merging(loaded.header, source.txn):
            raise MarkLostError(f"the merge of {source.path} was undone by another client")
        frozen.append(loaded.header)
    return frozen


async def commit_target(at: At, target: str, marked: Marked, make: Make, deadline_s: float) -> Header:
    """Commit the target, then bury the sources; what certainly did not take place is undone.

    Neither the burial nor the undoing is bound by the deadline: a mark that stays makes others wait.
    """
    sources, marks = marked.sources, marked.marks

    async def step(base: Segment, attempt: Attempt) -> Header | None:
        if marks and base.header is not None and all(map(base.header.merges.__contains__, marks)):
            return None
        merging.check_other(base.header, marks, target)
        return await make(base, attempt, marked)

    try:
        committed = await at.commits.commit(target, step, slow=True, deadline_s=deadline_s)
    except AppendOutcomeUnknown:
        raise  # the marks stay; the next client that meets them resolves them
    except (OSError, ValueError):
        with if_interrupted(target, "not committed"):
            await _undo(at, sources)
        raise
    with if_interrupted(target, "committed"):
        bury = [partial(_bury, at, *one) for one in zip(sources, marked.headers, strict=True)]
        buried = await at.each([*bury, partial(_forget, at, sources)])
    at.slots.remember(target, marks=itertools.compress(marks, buried))
    return committed.made


async def _bury(at: At, source: Source, frozen: Header) -> bool:
    """Turn a source into a tombstone, or delete its header (P11.35); if that fails, the next client does it."""
    try:
        if is_alone(frozen) and await remove_header(at, source.path, frozen):
            return True
        finish = partial(at.commits.merges.finish, source.path, source.txn)
        grave = await at.with_room(source.path, finish)  # else readers would see both names on a full disk
        if grave is not None and not (frozen.entries or grave.drops or grave.adopted):
            await remove_grave(at, source.path, grave)
    except OSError as error:
        logger.info("%s: it became part of %s, and cannot be buried yet: %s", source.path, source.target, error)
        return False
    return True


async def _undo(at: At, sources: Sequence[Source]) -> None:
    """Take back the marks of transactions that certainly did not and will not take place."""
    undone = await at.each([partial(_undo_one, at, source) for source in sources])
    # a mark that stays keeps its evidence: the client that resolves it notes the pins at the target only by that
    await _forget(at, [source for source, is_undone in zip(sources, undone, strict=True) if is_undone])


async def _undo_one(at: At, source: Source) -> bool:
    """Take back a mark; return whether no mark is left."""
    try:
        header = (await at.headers.load(source.path)).header
        if header is not None and is_merging(header, source.txn):
            # a pin that stays would never be collected if the target is absent, so it goes. It goes before the
            # mark: if it stays, so does the mark, and the client that resolves the mark notes the pins
            folders = await at.pages.folders(source.path, header.entries)
            await at.backend.delete([pin_path(folder, source.txn) for folder in sorted(folders)])
            await at.commits.merges.reset(source.path, source.txn)
    except OSError as error:
        logger.warning("%s: its merge mark stays until a client meets it: %s", source.path, error)
        return False
    return True
