"""The line of a tier in a header: committed before the first file is written in the tier, and renewed if it is old."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace

from rollingfs.backend.tier_marks import find_mark, make_mark, missing, placed
from rollingfs.errors import CorruptHeaderError, NoBucketError, RollingError, TierFailedError
from rollingfs.format import names, transitions
from rollingfs.format.header import AGE_S_MAX, Header, Phase, Tier
from rollingfs.segment.at import At
from rollingfs.segment.commit.attempt import Attempt
from rollingfs.segment.commit.removals import check_line
from rollingfs.segment.segment import Segment

NEIGHBOURS_MAX = 128
"""Maximum headers of a folder that are read before the mark of a tier is made: their lines show an earlier use."""


async def young_line(at: At, path: str, header: Header, tier: str) -> Tier:
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
    now_ms = at.now_ms()
    with failing(path, tier):
        identity, place = await _found(at, path, header, tier)

    def is_good(line: Tier | None) -> bool:
        is_young = line is not None and 0 <= now_ms - line.at_ms <= AGE_S_MAX * 1000
        return line is not None and is_young and (line.id, line.path) == (identity, place)

    line = header.tier(tier)
    if line is not None and is_good(line):
        return line
    new = Tier(tier, line.key if line is not None else names.new_tier_key(), now_ms, identity, place)

    async def step(base: Segment, attempt: Attempt) -> Header | None:
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

    await at.commits.commit(path, step)
    return new


async def _found(at: At, path: str, header: Header, tier: str) -> tuple[str, str]:
    """The id of a tier that is there, and the path by which it keeps the segment's files."""
    backend, line = at.backend, header.tier(tier)
    if line is None:
        if await find_mark(backend, at.runtime, tier) is None:
            await check_unused(at, path, tier)
        return await make_mark(backend, at.runtime, tier), placed(backend, path)
    identity = await check_line(at, path, header, line)
    return identity or await make_mark(backend, at.runtime, tier), placed(backend, path)


async def check_unused(at: At, path: str, tier: str) -> None:
    """Refuse to take a root without a mark for a tier that is used for the first time, if another segment has a line.

    Raises
    ------
    MissingTierError
        The tier was in use before, so its disk is not mounted, or its bucket was emptied.
    """
    try:
        entries = (await at.backend.list(names.parent(path))).entries
    except FileNotFoundError:  # in memory, the root is no folder
        return
    headers = [info.path for info in entries if info.path.endswith(names.HEADER_SUFFIX) and not info.is_folder]
    for file in headers[:NEIGHBOURS_MAX]:
        segment = names.segment_of_header(file)
        try:
            found = (await at.headers.load(segment)).header if names.parent(segment) != segment else None
        except CorruptHeaderError:
            continue
        if found is not None and (line := found.tier(tier)) is not None:
            if await find_mark(at.backend, at.runtime, tier) is not None:
                return  # another client has made the mark, and then this line, since the first look
            raise missing(at.backend, tier, path, line.id)


@contextlib.contextmanager
def failing(path: str, tier: str, source: str = "") -> Iterator[None]:
    """Say of an error of a store which segment and which tier it is about, and what became of the bytes.

    Raises
    ------
    TierFailedError
        A store did not do what it was asked to. Errors that name a tier already, and missing files, pass.
    """
    try:
        yield
    except OSError as error:
        if isinstance(error, RollingError | FileNotFoundError) and not isinstance(error, NoBucketError):
            raise
        what = f"{source} could not be moved" if source else "nothing could be moved"
        raise TierFailedError(
            f"{path}: the tier {tier!r} failed, so {what}; what was not moved stays where it was, nothing is lost: "
            f"repeat the call when the store answers. It said: {error}"
        ) from error
