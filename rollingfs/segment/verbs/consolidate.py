"""Consolidation: runs of small neighbouring chunks become chunks of the policy's size, in the store that holds them."""

from __future__ import annotations

from rollingfs.format import transitions
from rollingfs.format.header import Header
from rollingfs.policy import READERS_GRACE_S
from rollingfs.runtime.meters import Progress, Steps
from rollingfs.runtime.values import value_class
from rollingfs.segment.at import At
from rollingfs.segment.commit.removals import finish_drops
from rollingfs.segment.files.rewrite import rewrite_all
from rollingfs.segment.files.rewrite_plan import joins, may_join


@value_class
class Consolidated:
    """The result of a consolidation."""

    replaced: int = 0
    """Chunks that are no longer part of the segment."""
    written: int = 0
    """Chunks that took their place."""
    joined_bytes: int = 0
    """Joined on the server."""
    copied_bytes: int = 0
    """Read and written through this client."""

    @property
    def bytes(self) -> int:
        """Rewritten."""
        return self.joined_bytes + self.copied_bytes


async def consolidate(
    at: At, path: str, *, segment: str | None = None, grace_s: float = READERS_GRACE_S, progress: Progress | None = None
) -> Consolidated:
    """Join the runs that are worth it; appends, truncations and readers may go on at the same time.

    A plain file is a single chunk: it stays as it is.

    Parameters
    ----------
    segment
        Consolidate only this incarnation.
    grace_s
        Seconds for which the old files stay.
    progress
        Takes the number of bytes that were done since the last call; all of them are the segment's size.

    Raises
    ------
    FileNotFoundError
        There is no such segment, nor a plain file.
    CorruptChunkError
        A chunk is missing, too short, or fails its checksum; runs that were joined before stay joined.
    """
    if grace_s < 0:
        raise ValueError(f"grace is {grace_s} s: it must be at least 0")
    loaded = await at.headers.load(path)
    if segment is None and not loaded.live and await at.headers.plain(loaded) is not None:
        return Consolidated()
    header = transitions.live(loaded.header, path, segment)
    return await _join(at, path, header, grace_s, Steps(header.size, progress), by_itself=False)


async def consolidate_by_policy(at: At, path: str, header: Header, grace_s: float = READERS_GRACE_S) -> Consolidated:
    """Join the runs that upkeep joins by the segment's policy, if there are any; otherwise as `consolidate`.

    Parameters
    ----------
    header
        The segment's newest, as far as is known.
    """
    if not may_join(header):
        return Consolidated()
    return await _join(at, path, header, grace_s, Steps(header.size, None), by_itself=True)


async def _join(at: At, path: str, header: Header, grace_s: float, steps: Steps, *, by_itself: bool) -> Consolidated:
    await finish_drops(at, path, header)
    plan = joins({"", *at.backend.tiers}, by_itself=by_itself)
    file_bytes = header.policy.max_bytes
    did, damaged = await rewrite_all(
        at, path, header, plan=plan, file_bytes=file_bytes, steps=steps, lag_s=grace_s, counts=True
    )
    if damaged:
        raise damaged[0]
    replaced, written, size, joined = did
    return Consolidated(replaced, written, joined, size - joined)
