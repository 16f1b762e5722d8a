"""`Committer` runs the commit loop, and resolves a merge that the loop meets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rollingfs.commit.attempt import Change, Committed, Step
from rollingfs.commit.header_cache import Loaded
from rollingfs.commit.recovery import Merges
from rollingfs.commit.uploads import Uploads
from rollingfs.errors import if_interrupted
from rollingfs.format.transitions import MergeFoundError


class Committer:
    """Commits changes, resolving the merges that are found under way."""

    def __init__(self, merges: Merges) -> None:
        self.merges = merges
        self.loop = merges.loop
        self.slots = merges.loop.slots
        self.store = merges.loop.store

    async def commit(
        self,
        path: str,
        step: Step,
        *,
        fresh: bool = False,
        seen: Loaded | None = None,
        uploads: Sequence[Uploads] = (),
        slow: bool = False,
        deadline_s: float | None = None,
    ) -> Committed:
        """Commit what `step` makes of the header of a segment; the other arguments are those of `Change`.

        Parameters
        ----------
        deadline_s
            By default, the time for a commit begins now.

        Raises
        ------
        AppendOutcomeUnknown
            Whether it took place cannot be said.
        CommitTimeoutError
            It did not take place within the time allowed.
        """
        deadline_s = self.loop.deadline_s() if deadline_s is None else deadline_s
        return await self.store.runtime.shield(self._commit(Change(path, step, deadline_s, fresh, seen, uploads, slow)))

    async def _commit(self, change: Change) -> Committed:
        while True:
            try:
                return await self.merges.commit(change)
            except MergeFoundError as found:
                with if_interrupted(change.path, "not committed"):
                    await self.merges.resolve(change.path, found.header)
                change = replace(change, fresh=True)
