"""Rename: the entries of a segment become another segment's. No byte is moved."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from rollingfs.backend.tier_marks import moved_lines
from rollingfs.format import merging, names, placement, transitions
from rollingfs.format.drops import with_hints
from rollingfs.format.header import Header, Phase
from rollingfs.format.transitions import NO_GUARD
from rollingfs.segment.at import At
from rollingfs.segment.commit.attempt import Attempt
from rollingfs.segment.commit.removals import check_there, take_whole, try_drops
from rollingfs.segment.files.moves import Marked, frozen_headers, move
from rollingfs.segment.segment import Segment, shadow


async def rename(at: At, path: str, target: str, *, overwrite: bool = True) -> None:
    """Give a segment another name; start, length, state, policy and attributes stay.

    Parameters
    ----------
    overwrite
        Replace what has the new name. Otherwise the commit of the target refuses.

    Raises
    ------
    FileNotFoundError
        No segment is at `path`.
    FileExistsError
        Without `overwrite`: a segment or plain file has the new name.
    FencedError
        An exclusive owner holds either name.
    FolderOccupiedError
        A folder with something in it has the new name.
    """
    names.check_segment_name(target)
    if path == target:
        await at.headers.view(path, fresh=True)
        return
    if at.backend.capability.removes_whole:
        loaded = await at.headers.load(path)
        if await take_whole(at, target, {path: loaded}, {path: target}):
            return
    renamed = partial(_renamed, at, overwrite=overwrite)
    header = await move(at, target, [path], renamed, sealed=False)
    await try_drops(at, target, header)


async def _renamed(at: At, base: Segment, attempt: Attempt, marked: Marked, *, overwrite: bool) -> Header:
    (source,), now_ms, there = marked.sources, at.now_ms(), base.header
    path, target = source.path, source.target
    if not overwrite and base.live and not (there and there.phase is Phase.MERGING):
        raise transitions.exists(target)
    if base.live:  # a segment that is on its way elsewhere must get there first
        await check_there(at, target, transitions.check(there, NO_GUARD, target))
    (frozen,) = await frozen_headers(at, base, marked)
    plain = None if base.live else await at.contents.room(target, base)
    if plain is not None and not overwrite:
        raise transitions.exists(target)
    adopted = shadow(plain) or (there.adopted if there else None)
    entries = placement.transplant(frozen.entries, frozen.start, frozen.length, path, target)
    source_header = replace(frozen, tiers=moved_lines(at.backend, frozen.tiers, path, target))
    found = merging.renamed(source_header, entries, there, source.mark, marked.incarnation, adopted, now_ms)
    hints = await at.pages.hints(target, there.entries) if there else []
    return merging.with_waiting(with_hints(found, hints, now_ms), target, [(path, frozen)], now_ms)
