"""The line of a tier in a header: committed before the first file is written in the tier, and renewed if it is old."""

from __future__ import annotations

from dataclasses import replace

from rollingfs.backend.tier_marks import find_mark, make_mark, missing, placed
from rollingfs.commit.attempt import Attempt
from rollingfs.commit.commits import Commits
from rollingfs.commit.header_cache import Loaded
from rollingfs.commit.store import Store
from rollingfs.commit.tier_checks import check_line
from rollingfs.errors import CorruptHeaderError
from rollingfs.format import names, transitions
from rollingfs.format.header import AGE_S_MAX, Header, Phase, Tier
from rollingfs.segment.files.tier_failures import failing

NEIGHBOURS_MAX = 128
"""Maximum headers of a folder that are read before the mark of a tier is made: their lines show an earlier use."""


async def young_line(commits: Commits, path: str, header: Header, tier: str) -> Tier:
    """The line of a tier in the header of a segment; it is committed if it is missing, old, or of an older release.

    Raises
    ------
    FileNotFoundError
        The segment is gone, or has another incarnation than `header`.
    MissingTierError
        The tier is not there, though it was in use before, or it keeps the segment's files under another path.
    TierFailedError
        The tier's store failed.
    """
    store, now_ms = commits.store, commits.store.now_ms()
    with failing(path, tier):
        identity, place = await _found(store, path, header, tier)

    def is_good(line: Tier | None) -> bool:
        is_young = line is not None and 0 <= now_ms - line.at_ms <= AGE_S_MAX * 1000
        return line is not None and is_young and (line.id, line.path) == (identity, place)

    line = header.tier(tier)
    if line is not None and is_good(line):
        return line
    new = Tier(tier, line.key if line is not None else names.new_tier_key(), now_ms, identity, place)

    async def step(base: Loaded, attempt: Attempt) -> Header | None:
        nonlocal new
        found = transitions.live(base.header, path, header.segment)
        if found.phase is Phase.MERGING:
            raise transitions.MergeFoundError(path, found)
        there = found.tier(tier)
        if there is not None:  # another offload may have made it, with another key
            new = there if is_good(there) else replace(new, key=there.key)
        if new is there:
            return None
        others = tuple(one for one in found.tiers if one.alias != tier)
        return replace(found, tiers=(*others, new))

    await commits.commit(path, step)
    return new


async def _found(store: Store, path: str, header: Header, tier: str) -> tuple[str, str]:
    """The id of a tier that is there, and the path by which it keeps the segment's files."""
    backend, line = store.backend, header.tier(tier)
    if line is None:
        if await find_mark(backend, store.runtime, tier) is None:
            await check_unused(store, path, tier)
        return await make_mark(backend, store.runtime, tier), placed(backend, path)
    identity = await check_line(store.headers, store.pages, path, header, line)
    return identity or await make_mark(backend, store.runtime, tier), placed(backend, path)


async def check_unused(store: Store, path: str, tier: str) -> None:
    """Refuse to take a root without a mark for a tier that is used for the first time, if another segment has a line.

    Raises
    ------
    MissingTierError
        The tier was in use before, so its disk is not mounted, or its bucket was emptied.
    """
    try:
        entries = (await store.backend.list(names.parent(path))).entries
    except FileNotFoundError:  # in memory, the root is no folder
        return
    headers = [info.path for info in entries if info.path.endswith(names.HEADER_SUFFIX) and not info.is_folder]
    for file in headers[:NEIGHBOURS_MAX]:
        segment = names.segment_of_header(file)
        try:
            found = (await store.headers.load(segment)).header if names.parent(segment) != segment else None
        except CorruptHeaderError:
            continue
        if found is not None and (line := found.tier(tier)) is not None:
            if await find_mark(store.backend, store.runtime, tier) is not None:
                return  # another client has made the mark, and then this line, since the first look
            raise missing(store.backend, tier, path, line.id)
