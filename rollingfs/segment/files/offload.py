"""Offload and onload: the chunks of a segment move to a tier, or back, while writers and readers go on.

1. Commit the line of the tier, which leads to all that a crash may leave there.
2. Write blocks: neighbouring chunks as one file, which is read back.
3. Commit the new places, each on condition that its chunks are still there, to the letter.
4. Delete the old files once the deletion lag has passed, so that readers of older snapshots are not disturbed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from rollingfs.backend.tiers import check_aliases, check_tier
from rollingfs.commit.commits import Commits
from rollingfs.commit.drop_files import finish_drops
from rollingfs.commit.index_pages import LOOKS_MAX
from rollingfs.errors import BadOffsetError, ConflictError, CorruptChunkError
from rollingfs.format import names
from rollingfs.format.header import Chunk, Header
from rollingfs.policy import BLOCK_BYTES, DELETION_LAG_S, parse_bytes, parse_seconds
from rollingfs.read.ranges import Fetcher
from rollingfs.runtime.steps import Progress, Steps
from rollingfs.runtime.values import value_class
from rollingfs.segment.files.join_plan import Plan, Run, blocks
from rollingfs.segment.files.replace_chunks import live
from rollingfs.segment.files.rewrite import Rewriter
from rollingfs.segment.files.rewrite_all import rewrite_all


@value_class
class Chosen:
    """Which chunks an offload moves: those that end by `upto` and are far enough or old enough.

    Parameters
    ----------
    upto
        A segment offset; None for the end.
    after_bytes
        Bytes at the segment's end; chunks before them are far enough.
    after_age_s
        Age in seconds from which a chunk's newest byte is old enough.
    start
        Chunks that end by this segment offset stay.
    """

    upto: int | None = None
    after_bytes: int | None = None
    after_age_s: float | None = None
    start: int = 0

    def has(self, chunk: Chunk, header: Header, now_ms: int) -> bool:
        """Whether a chunk of a segment is chosen."""
        if chunk.end <= self.start or (self.upto is not None and chunk.end > self.upto):
            return False
        if self.after_bytes is None and self.after_age_s is None:
            return True
        is_far = self.after_bytes is not None and chunk.end <= header.length - self.after_bytes
        return is_far or (self.after_age_s is not None and now_ms - chunk.at_ms >= self.after_age_s * 1000)

    @staticmethod
    def parse(upto: int | None, after_bytes: int | str | None, after_age: float | str | None) -> Chosen:
        """The same from numbers, or from text like ``"64MiB"`` and ``"7d"``."""
        return Chosen(
            upto,
            None if after_bytes is None else parse_bytes(after_bytes),
            None if after_age is None else parse_seconds(after_age),
        )

    def check(self, path: str, header: Header) -> None:
        """Refuse what cannot be meant.

        Raises
        ------
        BadOffsetError, ValueError
            The offset lies outside the segment; or a number is negative.
        """
        if self.upto is not None and not 0 <= self.upto <= header.length:
            raise BadOffsetError(
                f"{path}: upto is {self.upto}; it holds bytes {header.start} to {header.length}; nothing was moved"
            )
        for name, value in (("after_bytes", self.after_bytes), ("after_age", self.after_age_s)):
            if value is not None and value < 0:
                raise ValueError(f"{path}: {name} is {value}: it must be at least 0; nothing was moved")


def is_hot(chunk: Chunk) -> bool:
    """Whether a chunk lies in the hot store."""
    return not chunk.tier


def moves(tier: str, chosen: Chosen, block_bytes: int, is_wanted: Callable[[Chunk], bool] = is_hot) -> Plan:
    """The plan of an offload, or of an onload (tier ""): which of the chunks that are wanted move, as which blocks."""

    def made(header: Header, chunks: Sequence[Chunk], now_ms: int, is_last: bool) -> tuple[int, list[Run]]:
        wanted = {chunk for chunk in chunks if is_wanted(chunk) and chosen.has(chunk, header, now_ms)}
        end, found = blocks(chunks, wanted.__contains__, block_bytes, is_last=is_last)
        return end, [(run, tier) for run in found]

    return made


class DamagedBlocksError(CorruptChunkError):
    """Chunks are damaged, so their blocks were not moved; all others were."""


@value_class
class Offloaded:
    """What an offload or an onload moved."""

    chunks: int = 0
    """Chunks whose bytes lie in another file now."""
    files: int = 0
    """Files that were written for them: blocks of neighbouring chunks."""
    bytes: int = 0
    """Bytes of these files."""
    server_bytes: int = 0
    """Of them, those that the server copied; the others were read and written by this client."""

    def plus(self, other: Offloaded) -> Offloaded:
        """Both together."""
        return Offloaded(
            self.chunks + other.chunks,
            self.files + other.files,
            self.bytes + other.bytes,
            self.server_bytes + other.server_bytes,
        )


class Offloader:
    """Moves chunks of segments between the hot store and tiers."""

    def __init__(self, commits: Commits, fetcher: Fetcher) -> None:
        self.commits = commits
        self.fetcher = fetcher
        self.store = commits.store
        self.backend = self.store.backend

    async def offload(
        self,
        path: str,
        tier: str,
        chosen: Chosen | None = None,
        *,
        segment: str | None = None,
        lag_s: float = DELETION_LAG_S,
        block_bytes: int = BLOCK_BYTES,
        progress: Progress | None = None,
        known: Header | None = None,
    ) -> Offloaded:
        """Move the chunks of a segment that lie in the hot store to a tier; those of other tiers and the tail stay.

        Parameters
        ----------
        segment
            Only of this incarnation.
        lag_s
            For how many seconds the old files stay.
        block_bytes
            Neighbouring chunks become one file of up to this many bytes.
        progress
            Takes the number of bytes that were done since the last call; all of them are the segment's size.
        known
            A header that was just loaded; by default it is loaded.

        Raises
        ------
        UnknownTierError
            The filesystem was not told of this tier.
        FileNotFoundError
            There is no such segment.
        BadOffsetError, ValueError
            A number cannot be meant, or it is the memory of a stream. Nothing was moved.
        CorruptChunkError, TierFailedError
            A chunk is missing or damaged, or its copy is; or a store failed. Other blocks are moved; the chunks of this
            one are where they were.
        """
        check_tier(self.backend, tier, path)
        check_may_move(path)
        how = tier, is_hot, chosen or Chosen(), lag_s, block_bytes, progress
        return await self._move(path, known, known.segment if known is not None else segment, *how)

    async def onload(
        self,
        path: str,
        tier: str | None = None,
        chosen: Chosen | None = None,
        *,
        segment: str | None = None,
        lag_s: float = DELETION_LAG_S,
        progress: Progress | None = None,
    ) -> Offloaded:
        """Move the chunks of a segment back from a tier, or from all tiers; otherwise as `offload`."""
        header = await live(self.store, path, segment)
        check_aliases(self.backend, header.tiers, path)
        if tier is not None:
            check_tier(self.backend, tier, path)

        def is_wanted(chunk: Chunk) -> bool:
            return bool(chunk.tier) and tier in (None, chunk.tier)

        return await self._move(path, header, segment, "", is_wanted, chosen or Chosen(), lag_s, 1, progress)

    async def _move(
        self,
        path: str,
        known: Header | None,
        segment: str | None,
        tier: str,
        is_wanted: Callable[[Chunk], bool],
        chosen: Chosen,
        lag_s: float,
        block_bytes: int,
        progress: Progress | None,
    ) -> Offloaded:
        if lag_s < 0:
            raise ValueError(f"{path}: deletion_lag is {lag_s} s: it must be at least 0; nothing was moved")
        if block_bytes < 1:
            raise ValueError(f"{path}: block_bytes is {block_bytes}: it must be at least 1; nothing was moved")
        for _ in range(LOOKS_MAX):
            header = await live(self.store, path, segment) if known is None else known
            chosen.check(path, header)
            await finish_drops(self.commits, path, header)
            rewriter = Rewriter(self.commits, self.fetcher, path, header.segment, lag_s, protects=True)
            plan, steps, upto = moves(tier, chosen, block_bytes, is_wanted), Steps(header.size, progress), chosen.upto
            try:
                how = partial(rewrite_all, start=chosen.start, upto=upto)
                did = await self.store.with_room(path, partial(how, rewriter, header, plan, block_bytes, steps))
                break
            except FileNotFoundError:
                known = await live(self.store, path, segment)
                if known.segment == header.segment:
                    raise  # else another segment has the name now, which is meant as well
        else:
            raise ConflictError(
                f"{path}: others replaced the segment {LOOKS_MAX} times while it was moved; the one that is there now "
                "lies where it did, try again"
            )
        if rewriter.damaged:
            raise DamagedBlocksError(f"{rewriter.damaged[0]}, so it was not moved") from rewriter.damaged[0]
        return Offloaded(*did)


def check_may_move(path: str) -> None:
    """Refuse the memory of a stream: every client of the stream reads it, also those that were told of no tier.

    Raises
    ------
    ValueError
        It is one.
    """
    if names.is_ledger(path):
        raise ValueError(f"{path} is the memory of a stream, which never moves; nothing was moved")
