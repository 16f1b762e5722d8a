"""Offload and onload: the chunks of a segment move to a tier, or back, while writers and readers go on.

1. Commit the line of the tier, which leads to all that a crash may leave there.
2. Write blocks: neighbouring chunks as a file, which is read back.
3. Commit the new places, each on condition that its chunks are still there, to the letter.
4. Delete the old files once the deletion lag has passed, so that readers of older snapshots are not disturbed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from rollingfs.backend.tiers import check_aliases, check_tier
from rollingfs.errors import ConflictError, CorruptChunkError, worded
from rollingfs.format import names
from rollingfs.format.header import Chunk, Header
from rollingfs.policy import DELETION_LAG_S
from rollingfs.runtime.meters import Progress, Steps
from rollingfs.runtime.values import value_class
from rollingfs.segment.at import At
from rollingfs.segment.commit.index_pages import LOOKS_MAX
from rollingfs.segment.commit.removals import finish_drops
from rollingfs.segment.files.rewrite import rewrite_all
from rollingfs.segment.files.rewrite_commits import live
from rollingfs.segment.files.rewrite_plan import Asked, Chosen, is_hot, moves


class DamagedBlocksError(CorruptChunkError):
    """Chunks are damaged, so their blocks were not moved; all others were."""


@value_class
class Offloaded:
    """The chunks and bytes that an offload or an onload moved."""

    chunks: int = 0
    """Chunks whose bytes are in another file now."""
    files: int = 0
    """Files that were written for them: blocks of neighbouring chunks."""
    bytes: int = 0
    """Bytes of these files."""
    server_bytes: int = 0
    """Of them, the bytes that the server copied; the others were read and written by this client."""


async def offload(
    at: At,
    path: str,
    asked: Asked,
    *,
    segment: str | None = None,
    progress: Progress | None = None,
    known: Header | None = None,
) -> Offloaded:
    """Move the chunks of a segment that are in the hot store to a tier; chunks of other tiers and the tail stay.

    Parameters
    ----------
    segment
        Only of this incarnation.
    progress
        Takes the number of bytes that were done since the last call; all of them are the segment's size.
    known
        A header that was just loaded; by default it is loaded.

    Raises
    ------
    UnknownTierError
        The filesystem has no such tier.
    FileNotFoundError
        There is no such segment.
    BadOffsetError, ValueError
        A number cannot be meant, or it is the memory of a stream. No chunk was moved.
    CorruptChunkError, TierFailedError
        A chunk is missing or damaged, or its copy is; or a store failed. Other blocks are moved; the chunks of this
        block are in their old files.
    """
    check_tier(at.backend, asked.tier, path)
    check_may_move(path)
    return await _move(at, path, known, known.segment if known is not None else segment, asked, is_hot, progress)


async def onload(
    at: At,
    path: str,
    tier: str | None = None,
    chosen: Chosen | None = None,
    *,
    segment: str | None = None,
    lag_s: float = DELETION_LAG_S,
    progress: Progress | None = None,
) -> Offloaded:
    """Move the chunks of a segment back from a tier, or from all tiers; otherwise as `offload`."""
    header = await live(at, path, segment)
    check_aliases(at.backend, header.tiers, path)
    if tier is not None:
        check_tier(at.backend, tier, path)

    def is_wanted(chunk: Chunk) -> bool:
        return bool(chunk.tier) and tier in (None, chunk.tier)

    return await _move(at, path, header, segment, Asked("", chosen or Chosen(), lag_s, 1), is_wanted, progress)


async def _move(
    at: At,
    path: str,
    known: Header | None,
    segment: str | None,
    asked: Asked,
    is_wanted: Callable[[Chunk], bool],
    progress: Progress | None,
) -> Offloaded:
    lag_s, block_bytes, chosen = asked.lag_s, asked.block_bytes, asked.chosen
    if lag_s < 0:
        name = worded(deletion_lag=...)
        raise ValueError(f"{path}: {name} is {lag_s} s: it must be at least 0; nothing was moved")
    if block_bytes < 1:
        name = worded(block_bytes=...)
        raise ValueError(f"{path}: {name} is {block_bytes}: it must be at least 1; nothing was moved")
    plan = moves(asked, is_wanted)
    rewrite = partial(rewrite_all, at, path, plan=plan, file_bytes=block_bytes, lag_s=lag_s, protects=True)
    for _ in range(LOOKS_MAX):
        header = await live(at, path, segment) if known is None else known
        chosen.check(path, header)
        await finish_drops(at, path, header)
        steps = Steps(header.size, progress)
        call = partial(rewrite, header, steps=steps, start=chosen.start, upto=chosen.upto)
        try:
            did, damaged = await at.with_room(path, call)
            break
        except FileNotFoundError:
            known = await live(at, path, segment)
            if known.segment == header.segment:
                raise  # else another segment has the name now, which is meant as well
    else:
        raise ConflictError(
            f"{path}: others replaced the segment {LOOKS_MAX} times while it was moved; the one that is there now "
            "lies where it did, try again"
        )
    if damaged:
        raise DamagedBlocksError(f"{damaged[0]}, so it was not moved") from damaged[0]
    return Offloaded(*did)


def check_may_move(path: str) -> None:
    """Refuse the memory of a stream: every client of the stream reads it, also clients without tiers.

    Raises
    ------
    ValueError
        It is the memory of a stream.
    """
    if names.is_ledger(path):
        raise ValueError(f"{path} is the memory of a stream, which never moves; nothing was moved")
