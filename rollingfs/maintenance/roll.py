"""Roll: the inline tail of a segment becomes a chunk now, in one commit, so that it can move to a tier."""

from __future__ import annotations

from rollingfs.commit.attempt import Attempt
from rollingfs.commit.commits import Commits
from rollingfs.commit.header_cache import Loaded
from rollingfs.format import transitions
from rollingfs.format.header import Header, Phase
from rollingfs.write.grow import grow


class Roller:
    """Rolls segments. No byte changes, so it rolls those that are sealed or held by an owner, too."""

    def __init__(self, commits: Commits) -> None:
        self.commits = commits

    async def roll(self, path: str, segment: str | None = None) -> int:
        """Make the inline tail a chunk; returns the offset before which all bytes lie in chunks then.

        Parameters
        ----------
        segment
            Only of this incarnation.

        Raises
        ------
        FileNotFoundError
            There is no such segment.
        AppendOutcomeUnknown, CommitTimeoutError
            The commit was not confirmed. The bytes are in the segment with either outcome.
        """

        async def step(base: Loaded, attempt: Attempt) -> Header | None:
            found = transitions.check_incarnation(transitions.live(base.header, path), segment, path)
            if found.phase is Phase.MERGING:
                raise transitions.MergeFoundError(path, found)
            return await grow(found, (), attempt.files, spill_all=True) if found.tail else None

        committed = await self.commits.commit(path, step)
        assert committed.header is not None
        return committed.header.length
