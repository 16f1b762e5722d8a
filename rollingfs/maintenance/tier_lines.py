"""The line of a tier in a header: committed before the first file is written in the tier, and renewed if it is old."""

from __future__ import annotations

from dataclasses import replace

from rollingfs.backend.tiers import check_root, mark_root
from rollingfs.commit.attempt import Attempt
from rollingfs.commit.commits import Commits
from rollingfs.commit.header_cache import Loaded
from rollingfs.format import names, transitions
from rollingfs.format.header import AGE_S_MAX, Header, Phase, Tier
from rollingfs.maintenance.tier_failures import failing


async def young_line(commits: Commits, path: str, header: Header, tier: str) -> Tier:
    """The line of a tier in the header of a segment; it is committed if it is missing or old.

    Raises
    ------
    FileNotFoundError
        The segment is gone, or has another incarnation than `header`.
    MissingTierError
        The root of the tier lacks its mark, though the segment has files in the tier.
    TierFailedError
        The tier's store failed.
    """
    backend, now_ms = commits.store.backend, commits.store.now_ms()

    def is_young(line: Tier | None) -> bool:
        return line is not None and 0 <= now_ms - line.at_ms <= AGE_S_MAX * 1000

    line = header.tier(tier)
    if line is not None and is_young(line):
        return line
    with failing(path, tier):
        await (mark_root(backend, tier) if line is None else check_root(backend, tier, path))
    new = Tier(tier, line.key if line is not None else names.new_tier_key(), now_ms)

    async def step(base: Loaded, attempt: Attempt) -> Header | None:
        nonlocal new
        found = transitions.live(base.header, path, header.segment)
        if found.phase is Phase.MERGING:
            raise transitions.MergeFoundError(path, found)
        there = found.tier(tier)
        if there is not None:  # another offload may have made it, with another key
            new = there if is_young(there) else replace(new, key=there.key)
        if new is there:
            return None
        others = tuple(one for one in found.tiers if one.alias != tier)
        return replace(found, tiers=(*others, new))

    await commits.commit(path, step)
    return new
