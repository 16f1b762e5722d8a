"""Roll: the inline tail of a segment becomes a chunk now, so that it can move to a tier."""

from __future__ import annotations

from rollingfs.format import transitions
from rollingfs.format.header import Header, Phase
from rollingfs.segment.at import At
from rollingfs.segment.commit.attempt import Attempt
from rollingfs.segment.segment import Segment
from rollingfs.segment.write.append_to_header import grow


async def roll(at: At, path: str, segment: str | None = None) -> int:
    """Make the inline tail of a segment a chunk.

    No byte changes, so a segment that is sealed or held by an owner is rolled, too.

    Parameters
    ----------
    segment
        Only of this incarnation.

    Returns
    -------
    int
        The offset before which all bytes are in chunks then.

    Raises
    ------
    FileNotFoundError
        There is no such segment.
    AppendOutcomeUnknown, CommitTimeoutError
        The commit was not confirmed. The bytes are in the segment with either outcome.
    """

    async def step(base: Segment, attempt: Attempt) -> Header | None:
        found = transitions.check_incarnation(transitions.live(base.header, path), segment, path)
        if found.phase is Phase.MERGING:
            raise transitions.MergeFoundError(path, found)
        return await grow(found, (), attempt.files, spill_all=True) if found.tail else None

    committed = await at.commits.commit(path, step)
    return committed.made.length
