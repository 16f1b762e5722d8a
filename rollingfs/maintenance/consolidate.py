"""Consolidation: runs of small neighbouring chunks become chunks of the policy's size, in the store where they lie."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rollingfs.commit.commits import Commits
from rollingfs.commit.drop_files import finish_drops
from rollingfs.format.header import Chunk, Header
from rollingfs.maintenance.rewrite import Rewriter
from rollingfs.maintenance.runs import ASKED, BY_ITSELF, Rule, may_join, plan
from rollingfs.maintenance.steps import Progress, Steps
from rollingfs.maintenance.swaps import live, window
from rollingfs.policy import READERS_GRACE_S
from rollingfs.read.ranges import Fetcher
from rollingfs.read.snapshot import Lookup
from rollingfs.runtime.values import value_class

BATCH_BYTES = 1024 * 1024 * 1024
"""Bytes that one commit consolidates, or two chunks if those are larger."""


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
        start, stores = header.start, {"", *self.backend.tiers}
        known: Header | None = header
        rewriter = Rewriter(self.commits, self.fetcher, path, header.segment, grace_s, counts=True)
        result, position, is_last = Consolidated(), 0, False
        while not is_last:
            bytes_max = max(BATCH_BYTES, 2 * header.policy.max_bytes)
            found = await window(self.store, path, header.segment, position, bytes_max, known)
            header = known = found.header
            is_last, max_bytes = found.is_last, header.policy.max_bytes
            position, runs = plan(
                found.chunks, max_bytes, is_last=is_last, sealed=header.sealed, rule=rule, stores=stores
            )
            if runs:
                for swap in await rewriter.rewrite(header, [(run, _store(run)) for run in runs], steps):
                    joined = rewriter.server_bytes(swap.run, swap.stored.file)
                    result = result.plus(Consolidated(len(swap.run), 1, joined, swap.stored.size - joined))
                known = None
            steps.reach(position - start)
        steps.reach(steps.total)
        if rewriter.damaged:
            raise rewriter.damaged[0]
        return result

    async def _is_plain(self, path: str) -> bool:
        lookup = Lookup(self.backend, self.store.headers)
        return await lookup.plain(path, await self.store.headers.load(path)) is not None


def _store(run: Sequence[Chunk]) -> str:
    """Where most bytes of a run lie; of equals, the hot store."""
    sizes: Counter[str] = Counter()
    for chunk in run:
        sizes[chunk.tier] += chunk.length
    return max(sorted(sizes), key=lambda tier: sizes[tier])
