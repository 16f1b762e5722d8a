"""The state of a segment's maintenance: what lies in which store, what waits to be moved or deleted. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from rollingfs.format.header import Chunk, Header
from rollingfs.runtime.values import value_class
from rollingfs.segment.files.outlook import Outlook
from rollingfs.segment.files.rewrite_plan import Chosen


@value_class
class SegmentState:
    """A segment or plain file as maintenance sees it. Sizes are in bytes, offsets are segment offsets."""

    path: str
    state: str
    """``"open"``, ``"sealed"``, ``"merging"``, ``"plain"`` or ``"unreadable"``; then only `error` says more."""
    start: int = 0
    """Offset of the first retained byte."""
    length: int = 0
    """End offset."""
    hot_bytes: int = 0
    """Retained bytes in the hot store, with those inside the header."""
    cold_bytes: int = 0
    """Retained bytes in tiers."""
    inline_bytes: int = 0
    """Bytes inside the header, which no offload moves."""
    cold_end: int = 0
    """All retained bytes before this offset lie in tiers."""
    lag_bytes: int = 0
    """Bytes that an offload would move now."""
    lag_s: float = 0.0
    """The age, in seconds, of the oldest chunk that an offload would move now; 0.0 if there is none."""
    drops: int = 0
    """Drop lines: things that are no longer part of the segment and that wait to be deleted."""
    chunks: int = 0
    version: int = 0
    """Number of the last commit."""
    committed: float = 0.0
    """Date of the last commit, in seconds since 1970."""
    rewritten: int = 0
    """Bytes that consolidations have written anew so far."""
    outlook: Outlook = Outlook()
    """Its chunks by size, and what the next round of upkeep does with them."""
    error: str | None = None

    @property
    def size(self) -> int:
        """Bytes retained."""
        return self.length - self.start

    @staticmethod
    def of(path: str, header: Header, chunks: Sequence[Chunk], count: int, chosen: Chosen, now_ms: int) -> SegmentState:
        """The state of a segment.

        Parameters
        ----------
        chunks
            Those of the header, index pages unfolded. Without any, all bytes are hot, and none wait for an offload.
        count
            Number of the segment's chunks.
        chosen
            What an offload would move.
        """
        cold = sum(_retained(chunk, header) for chunk in chunks if chunk.tier)
        cold_end = header.start
        for chunk in chunks:
            if not chunk.tier:
                break
            cold_end = chunk.end
        waiting = [chunk for chunk in chunks if not chunk.tier and chosen.has(chunk, header, now_ms)]
        oldest_ms = min((chunk.at_ms for chunk in waiting), default=now_ms)
        return SegmentState(
            path,
            str(header.phase),
            header.start,
            header.length,
            header.size - cold,
            cold,
            len(header.tail),
            cold_end,
            sum(_retained(chunk, header) for chunk in waiting),
            max(0, now_ms - oldest_ms) / 1000,
            len(header.drops),
            count,
            header.version,
            header.modified_ms / 1000,
            header.rewritten,
        )

    @staticmethod
    def of_plain(path: str, size: int, modified: float) -> SegmentState:
        """The state of a plain file; `modified` is in seconds since 1970."""
        return SegmentState(path, "plain", 0, size, size, chunks=int(size > 0), committed=modified)

    @staticmethod
    def unreadable(path: str, error: OSError) -> SegmentState:
        """What is known of a segment or folder that cannot be read."""
        return SegmentState(path, "unreadable", error=str(error))


def _retained(chunk: Chunk, header: Header) -> int:
    """The bytes of a chunk that have not been truncated away."""
    return chunk.end - max(chunk.start, header.start)
