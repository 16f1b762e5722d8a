"""Consolidation: runs of small neighbouring chunks become chunks of the policy's size, in the store where they lie."""

from __future__ import annotations

from rollingfs.commit.commits import Commits
from rollingfs.commit.drop_files import finish_drops
from rollingfs.format.header import Header
from rollingfs.policy import READERS_GRACE_S
from rollingfs.read.ranges import Fetcher
from rollingfs.read.snapshot import Lookup
from rollingfs.runtime.steps import Progress, Steps
from rollingfs.runtime.values import value_class
from rollingfs.segment.files.join_plan import ASKED, BY_ITSELF, Rule, joins, may_join
from rollingfs.segment.files.replace_chunks import live
from rollingfs.segment.files.rewrite import Rewriter
from rollingfs.segment.files.rewrite_all import rewrite_all


@value_class
class Consolidated:
    """What a consolidation did."""

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
        """Written anew."""
        return self.joined_bytes + self.copied_bytes

    def plus(self, other: Consolidated) -> Consolidated:
        """Both together."""
        return Consolidated(
            self.replaced + other.replaced,
            self.written + other.written,
            self.joined_bytes + other.joined_bytes,
            self.copied_bytes + other.copied_bytes,
        )


class Consolidator:
    """Joins the small chunks of segments."""

    def __init__(self, commits: Commits, fetcher: Fetcher) -> None:
        self.commits = commits
        self.store = commits.store
        self.fetcher = fetcher
        self.backend = self.store.backend

    async def consolidate(
        self,
        path: str,
        *,
        segment: str | None = None,
        grace_s: float = READERS_GRACE_S,
        progress: Progress | None = None,
    ) -> Consolidated:
        """Join the runs that are worth it; appends, truncations and readers may go on beside it.

        A plain file is one chunk: nothing is done.

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
        try:
            header = await live(self.store, path, segment)
        except FileNotFoundError:
            if segment is None and await self._is_plain(path):
                return Consolidated()
            raise
        return await self._consolidate(path, header, ASKED, grace_s, Steps(header.size, progress))

    async def keep(self, path: str, header: Header, grace_s: float = READERS_GRACE_S) -> Consolidated:
        """Join what upkeep joins by the segment's policy, if there is anything; otherwise as `consolidate`.

        Parameters
        ----------
        header
            The segment's newest, as far as is known.
        """
        if not may_join(header):
            return Consolidated()
        return await self._consolidate(path, header, BY_ITSELF, grace_s, Steps(header.size, None))

    async def _consolidate(self, path: str, header: Header, rule: Rule, grace_s: float, steps: Steps) -> Consolidated:
        await finish_drops(self.commits, path, header)
        rewriter = Rewriter(self.commits, self.fetcher, path, header.segment, grace_s, counts=True)
        plan = joins(rule, {"", *self.backend.tiers})
        replaced, written, size, joined = await rewrite_all(rewriter, header, plan, header.policy.max_bytes, steps)
        if rewriter.damaged:
            raise rewriter.damaged[0]
        return Consolidated(replaced, written, joined, size - joined)

    async def _is_plain(self, path: str) -> bool:
        lookup = Lookup(self.backend, self.store.headers)
        return await lookup.plain(path, await self.store.headers.load(path)) is not None
