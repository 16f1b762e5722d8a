"""Concat: the entries of segments become another segment's. No byte is moved.

The sources are marked, which freezes their maps; their chunk folders are pinned; a commit gives their entries
to the target; then they become tombstones (`moves`).
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from rollingfs.backend.tier_marks import moved_lines
from rollingfs.errors import AppendInterrupted, RollingError, interrupted, partly
from rollingfs.format import merging, names, placement, tokens, transitions
from rollingfs.format.arrow_stream import MalformedStreamError, Range
from rollingfs.format.drops import is_own, with_hints
from rollingfs.format.header import MARKS_MAX, Header
from rollingfs.format.merging import ARROW_STREAM, PARQUET
from rollingfs.format.placement import Item
from rollingfs.format.transitions import NO_GUARD, Guard
from rollingfs.format.whole_files import LINE_FEED
from rollingfs.segment.at import At
from rollingfs.segment.commit.attempt import Attempt
from rollingfs.segment.files.adopt import adopt
from rollingfs.segment.files.join_looks import ArrowJoins, JoinLooks, seen
from rollingfs.segment.files.moves import Marked, MarkLostError, frozen_headers, move
from rollingfs.segment.read.ends import one_footer
from rollingfs.segment.read.revalidate import OUTDATED
from rollingfs.segment.segment import Segment
from rollingfs.segment.write.append_to_header import grow

logger = logging.getLogger("rollingfs")

BATCH_PATH_BYTES_MAX = 24 * 1024
"""Maximum bytes of source names in the marks of a commit."""
Joins = JoinLooks | ArrowJoins | str | None
"""The way in which a concat joins: by looks at both ends, as Arrow streams, as Parquet, as bytes."""


async def concat(
    at: At,
    target: str,
    sources: Sequence[str],
    *,
    attrs: Mapping[str, str | None] | None = None,
    guard: Guard = NO_GUARD,
    meant: Mapping[str, str | None] | None = None,
    as_bytes: bool = True,
    as_format: str | None = None,
    newline: bool = False,
    create: bool = False,
    sealed: bool = True,
) -> int:
    """Append sealed segments to another without moving bytes; they are gone afterwards.

    Up to 128 sources (fewer where their names are long) become part of the target in a single commit; more
    take further commits to the same incarnation, the last of which sets the attributes.

    Parameters
    ----------
    meant
        The incarnations of sources, by path; of a source without an entry, any is taken.
    as_bytes
        Join bytes, whatever they are. Otherwise files of formats that do not join are refused, and so is text
        without a line feed at the end of each part but the last.
    as_format
        `PARQUET`: put a footer after the sources of each commit that makes a Parquet file of them and the
        target. `ARROW_STREAM`: leave out the schemas of all streams but the first, and all end marks.
    newline
        Add that line feed.
    create
        Make a target that is missing in the first of these commits.
    sealed
        Refuse a source that is open. Otherwise its mark keeps appends out, and goes if the concat is refused.

    Returns
    -------
    int
        The offset at which the first source's bytes begin.

    Raises
    ------
    ValueError
        The target is among the sources, or a source comes twice.
    WholeFileError
        The target or a source is a Parquet file, a zip, or of another such format, or text without its last line
        feed.
    MalformedFooterError
        With `PARQUET`: the target or a source is not Parquet, or they have different columns.
    MalformedStreamError
        With `ARROW_STREAM`: the target or a source is no Arrow stream, or they have different schemas.
    FileNotFoundError
        The target or a source is missing.
    SegmentNotSealedError
        A source is not sealed.
    SegmentSealedError
        The target is.
    """
    sources = list(sources)
    if target in sources:
        raise ValueError(f"{target}: a segment cannot be concatenated to itself; nothing was changed")
    if len(set(sources)) != len(sources):
        raise ValueError(f"{target}: a source comes twice; each can be given away only once; nothing was changed")
    if attrs:
        transitions.check_attrs(attrs, target)
    batches = _batches(target, sources)
    if as_format == PARQUET and len(batches) > 1:  # all are looked at before any is joined
        await seen(at, sources, partial(one_footer, at.fetcher))
    joins: Joins = None if as_bytes else JoinLooks(at, adds_line_feeds=newline)
    if as_format is not None:
        joins = ArrowJoins(at) if as_format == ARROW_STREAM else PARQUET
    if isinstance(joins, JoinLooks | ArrowJoins):  # before the marks
        await joins.first(target, sources)
    offset = -1
    for index, batch in enumerate(batches):
        last = attrs if index == len(batches) - 1 else None
        try:
            begins, segment = await _concat(at, target, batch, last or {}, guard, meant or {}, create, sealed, joins)
        except AppendInterrupted as interrupt:
            if index == {"not committed": 0, "committed": len(batches) - 1}.get(interrupt.outcome):
                raise
            raise interrupted(target, "unknown") from interrupt  # some of the sources are there
        except (OSError, ValueError) as error:
            if joined := sum(map(len, batches[:index])):
                partly(error, f"{target}: the first {joined} of {len(sources)} sources are joined, the others not")
            raise
        offset = begins if index == 0 else offset
        if index < len(batches) - 1:
            guard, create = replace(guard, expected_offset=None, segment=segment), False
    return offset


async def _concat(
    at: At,
    target: str,
    paths: Sequence[str],
    attrs: Mapping[str, str | None],
    guard: Guard,
    meant: Mapping[str, str | None],
    create: bool,
    sealed: bool,
    joins: Joins,
) -> tuple[int, str]:
    """Join by one commit; return where the sources begin, and the incarnation of the target."""
    offset, is_bound = -1, guard.segment is not None or guard.epoch is not None
    fresh = str(uuid.uuid4()) if create and not is_bound else None

    async def joined(base: Segment, attempt: Attempt, marked: Marked) -> Header:
        nonlocal offset
        if fresh is not None and marked.incarnation == fresh and not base.live:
            found = await _made(at, target, base, fresh)
        elif base.header is None or base.header.deleted or base.header.segment != marked.incarnation:
            # a verb by path goes on with the segment that has this name now, but the marks name the other one
            raise MarkLostError(f"{target} is not the segment any more that it was when its sources were marked")
        else:
            found = transitions.check(base.header, guard, target)
        transitions.check_open(found, target)
        merging.check_marks(found, marked.marks)
        frozen = await frozen_headers(at, base, marked)
        offset = found.length
        views = list(map(Segment, [target, *paths], [found, *frozen]))
        try:
            items, before = await _items(at, views, joins)
        except OUTDATED as error:  # of the target alone: the sources are marked
            raise MarkLostError(f"{target} has changed since its header was read: {error}") from error
        offset += before
        for path, header in zip(paths, frozen, strict=True):
            if header.tiers:
                found = merging.with_tiers(found, moved_lines(at.backend, header.tiers, path, target))
        grown = await grow(found, items, attempt, joint=True)
        modified_ms = max([header.modified_ms for header in frozen], default=0)
        grown = merging.with_merged(grown, marked.marks, modified_ms)
        grown = merging.with_waiting(grown, target, zip(paths, frozen, strict=True), at.now_ms())
        if isinstance(joins, ArrowJoins):
            grown = await _hinted(at, grown, target, views[1:])
        return transitions.with_attrs(grown, attrs, target)

    incarnation = partial(_target, at, target, guard, fresh)
    header = await move(at, target, paths, joined, sealed=sealed, incarnation=incarnation, meant=meant)
    return offset, header.segment


async def _made(at: At, target: str, base: Segment, incarnation: str) -> Header:
    """Return the empty header of a target that is missing."""
    if await at.contents.room(target, base) is not None:
        raise MarkLostError(f"{target} is a plain file now: it is to be adopted first")
    return transitions.create(base.header, incarnation, await at.inherited.policy(target), at.now_ms())


async def _target(at: At, target: str, guard: Guard, fresh: str | None) -> str:
    """Return the incarnation of a target as last seen, if that allows a concat; otherwise a fresh header decides.

    Parameters
    ----------
    fresh
        The incarnation that the concat makes of a missing target; None refuses it.
    """

    def checked(loaded: Segment) -> str:
        found = transitions.check(loaded.header, guard, target)
        transitions.check_open(found, target)
        return found.segment

    try:
        return checked(at.headers.seen(target) or Segment(target))
    except (RollingError, FileNotFoundError):
        logger.debug("%s: looking at the target again", target)
    while True:
        loaded = await at.headers.load(target)
        if not loaded.live and await adopt(at, target, guard.segment):
            continue
        if not loaded.live and guard.segment is None:
            await at.contents.check_no_folder(target)
        if not loaded.live and fresh is not None:
            transitions.check_absent(guard, target)
            return fresh
        try:
            return checked(loaded)
        except transitions.MergeFoundError as merge:
            await at.commits.merges.resolve(target, merge.header)


async def _items(at: At, views: Sequence[Segment], joins: Joins) -> tuple[list[Item], int]:
    """Return what the sources, all but the first view, add to the target; and the bytes before the first of them."""
    target, *sources = views
    if isinstance(joins, ArrowJoins):
        ranges = await joins.again(target, sources)
        items = [one for view, places in zip(sources, ranges, strict=True) for one in _parts(view, target, places)]
        _check_once(items, target.path)
        return items, 0
    open_ended = await joins.again(views) if isinstance(joins, JoinLooks) else []
    footer = await one_footer(at.fetcher, views) if joins == PARQUET else b""
    items = [LINE_FEED] if target.path in open_ended else []
    for view in sources:
        items += _parts(view, target)
        items += [LINE_FEED] if view.path in open_ended else []
    return [*items, *([footer] if footer else [])], int(target.path in open_ended)


def _parts(view: Segment, target: Segment, ranges: Sequence[Range] | None = None) -> list[Item]:
    """Return a source's retained bytes, or ranges of them, as items of the target."""
    header, items = view.header, list[Item]()
    assert header is not None  # it is marked
    tail_start = header.tail_start
    for start, end in [(header.start, header.length)] if ranges is None else ranges:
        items += placement.transplant(header.entries, start, end, view.path, target.path)
        if end > tail_start:
            items.append(header.tail[max(start - tail_start, 0) : end - tail_start])
    return items


def _check_once(items: Sequence[Item], target: str) -> None:
    """Refuse two entries of a file in the target's own folder: it would delete the file with the first of them.

    Raises
    ------
    MalformedStreamError
        No source was joined.
    """
    own = [item.file for item in items if not isinstance(item, bytes) and is_own(item.file)]
    if len(own) > len({*own}):
        raise MalformedStreamError(
            f"{target}: a file of its own folder holds several streams of a source; nothing was joined. Join to "
            "another name"
        )


async def _hinted(at: At, header: Header, target: str, sources: Sequence[Segment]) -> Header:
    """Note in a target the folders of sources of which no entry is left: collection looks there."""
    named = await at.pages.hints(target, header.entries)
    headers = [(view.path, view.header) for view in sources if view.header is not None]
    found = [hint for path, source in headers for hint in await at.pages.hints(path, source.entries, target)]
    return with_hints(header, sorted({*found} - {*named}), at.now_ms())


def _batches(target: str, sources: Sequence[str]) -> list[list[str]]:
    """Return sources in groups whose marks fit a header."""
    batches: list[list[str]] = [[]]
    size = 0
    for path in sources:
        path_bytes = len(tokens.quote(names.relative(names.parent(target), path)).encode())
        if batches[-1] and (len(batches[-1]) >= MARKS_MAX or size + path_bytes > BATCH_PATH_BYTES_MAX):
            batches.append([])
            size = 0
        batches[-1].append(path)
        size += path_bytes
    return batches
