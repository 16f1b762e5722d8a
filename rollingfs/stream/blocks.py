"""Blocks: the next step of a follower for a growing segment. Pure.

A block is the oldest bytes that are not in the tier yet. It moves once it is full, or once its oldest byte is old.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field, replace

from rollingfs.format.header import Chunk, Header
from rollingfs.runtime.values import value_class
from rollingfs.segment.files.rewrite_plan import Asked, Chosen, Plan, Run, moves

MAX_DELAY_S = 600.0
POLL_S_MIN = 1.0
POLL_S_MAX = 30.0
"""The longest pause between two polls of a segment."""
POLLS_A_DELAY = 4
"""Minimum polls of an idle segment within the longest delay."""
RETRY_S_MAX = 300.0
SLOW_S = 60.0
"""Time after which the status calls a move slow."""


@value_class
class OffloadStatus:
    """Progress of a segment that a `Follower` follows."""

    cold_end: int
    """The segment offset before which all retained bytes are in tiers."""
    lag_bytes: int
    """Bytes from there to the end of the segment; of a policy with `after_bytes` or `after_age`, the bytes that it lets
    go, as far as they were looked at."""
    lag_s: float
    """Age in seconds of the oldest of them; 0 without any."""
    last_error: str | None
    """Why the last try failed, or what takes so long; None if the last try went well."""
    tier: str | None = field(default=None, compare=False, repr=False)
    """Tier of its blocks; None without a policy."""
    assigned: int = -1
    """The segment offset before which all retained bytes are in tiers or are on their way."""
    assigned_at: float | None = field(default=None, compare=False, repr=False)
    """When this follower assigned its newest block, in seconds since 1970."""
    offloaded_at: float | None = field(default=None, compare=False, repr=False)
    """Time of the last move of a block."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "assigned", max(self.assigned, self.cold_end))

    @property
    def offloaded(self) -> int:
        """`cold_end`, by the name that goes with `assigned`."""
        return self.cold_end


DEFAULT = Asked("", Chosen(), 0.0)
"""For a segment without a policy."""


def _delay_s(rule: Asked | None) -> float:
    """Return the age of its oldest byte at which a block moves although it is not full; `after_age` comes on top."""
    return MAX_DELAY_S if rule is None or rule.max_delay_s is None else rule.max_delay_s


def poll_s_max(rule: Asked | None) -> float:
    """Return the longest pause between two polls."""
    return max(0.05, min(POLL_S_MAX, _delay_s(rule) / POLLS_A_DELAY))


def poll_s_min(rule: Asked | None) -> float:
    """Return the shortest pause between two polls that may find no change."""
    return min(POLL_S_MIN, poll_s_max(rule))


def keeps_newest(rule: Asked) -> bool:
    """Return whether the newest bytes stay, and so the inline tail."""
    return rule.chosen.after_bytes is not None or rule.chosen.after_age_s is not None


@value_class
class Hot:
    """The bytes of a segment that are not in a tier, from the first on."""

    segment: str
    """The incarnation."""
    start: int
    """Offset of the first of them; without a chunk, of the inline tail."""
    first: int
    """Offset of the first that may move now; without a chunk, of the inline tail."""
    length: int
    """Offset of its end."""
    tail_bytes: int = 0
    """Inline bytes."""
    chunk_bytes: int = 0
    """Those in chunks that were looked at."""
    block_end: int | None = None
    """End of the chunk that fills a block."""
    oldest_ms: int = 0
    """Time of the first byte, as far as it is known."""
    is_sealed: bool = False
    kept_bytes: int = 0
    """Bytes that may not move yet."""
    end: int = 0
    """End of the last chunk that may move."""
    next_ms: float = math.inf
    """When the first of them may."""

    @property
    def hot_bytes(self) -> int:
        """Return all that were looked at."""
        return self.chunk_bytes + self.tail_bytes


def look(header: Header, now_ms: int, rule: Asked = DEFAULT) -> Hot:
    """Return the backlog by the header only, before a look at chunks."""
    inline_bytes = header.length - header.tail_start
    tail_bytes = 0 if keeps_newest(rule) else inline_bytes
    at_ms = min(header.tail_at_ms, now_ms) if tail_bytes else now_ms
    return Hot(
        header.segment,
        header.tail_start,
        header.tail_start,
        header.length,
        tail_bytes,
        oldest_ms=at_ms,
        is_sealed=header.sealed,
        kept_bytes=inline_bytes - tail_bytes,
    )


def with_chunks(hot: Hot, chunks: Sequence[Chunk], rule: Asked, header: Header, now_ms: int) -> Hot:
    """Take more chunks into account, in the order of their offsets, until a block is full."""
    after_ms = round((rule.chosen.after_age_s or 0) * 1000)
    for chunk in chunks:
        if chunk.tier or hot.block_end is not None:
            continue
        if hot.start == header.tail_start:
            hot = replace(hot, start=max(chunk.start, header.start))
        if not rule.chosen.has(chunk, header, now_ms):
            next_ms = chunk.at_ms + after_ms if rule.chosen.after_age_s is not None else math.inf
            kept = hot.kept_bytes + chunk.length
            hot = replace(hot, kept_bytes=kept, next_ms=min(hot.next_ms, next_ms))
            continue
        if not hot.chunk_bytes:
            first = max(chunk.start, header.start)
            hot = replace(hot, first=first, oldest_ms=min(chunk.at_ms + after_ms, hot.oldest_ms))
        size = hot.chunk_bytes + chunk.length
        hot = replace(hot, chunk_bytes=size, block_end=chunk.end if size >= rule.block_bytes else None, end=chunk.end)
    return hot


def since(hot: Hot, before: Hot | None) -> Hot:
    """Add the age of the oldest inline byte, as an earlier look has found it."""
    if before is None or not before.hot_bytes or (before.segment, before.first) != (hot.segment, hot.first):
        return hot
    return replace(hot, oldest_ms=min(hot.oldest_ms, before.oldest_ms))


@value_class
class Wait:
    """Time until there may be something to do though the header stays the same; `is_over` if no work can come."""

    pause_s: float
    is_over: bool = False


@value_class
class Move:
    """Move the hot chunks that end by `upto`; None: roll first, and then move all."""

    start: int
    upto: int | None


def plan(hot: Hot, now_ms: int, rule: Asked) -> Wait | Move:
    """Return the next step for a segment.

    A block that its chunks fill moves without a roll, which would be another commit among the writers.
    """
    if hot.block_end is not None:
        return Move(hot.first, hot.block_end)
    delay_s, least_s = _delay_s(rule), poll_s_min(rule)
    age_s = max(0.0, (now_ms - hot.oldest_ms) / 1000)
    is_due = hot.is_sealed or hot.hot_bytes >= rule.block_bytes or age_s >= delay_s
    if hot.hot_bytes and is_due:
        return Move(hot.first, None if hot.tail_bytes else hot.end)
    next_s = max(least_s, (hot.next_ms - now_ms) / 1000)
    if not hot.hot_bytes:
        return Wait(next_s, is_over=hot.is_sealed and not hot.kept_bytes)
    return Wait(max(least_s, min(delay_s - age_s, next_s)))


def retry_s(failures: int, chance: float) -> float:
    """Return the pause after a number of failures in a row: it doubles; `chance`, 0 to 1, keeps followers apart."""
    return min(RETRY_S_MAX, POLL_S_MIN * 2.0 ** min(failures, 30)) * (0.5 + chance / 2)


def mover_of(asked: Asked) -> Plan:
    """Return the plan of an offload by a policy, without inline bytes."""
    if asked.max_delay_s is None:
        return moves(asked)

    def made(header: Header, chunks: Sequence[Chunk], now_ms: int, is_last: bool) -> tuple[int, list[Run]]:
        end, found = header.start, list[Run]()
        while True:
            left = [chunk for chunk in chunks if chunk.end > end]
            block = plan(with_chunks(look(header, now_ms, asked), left, asked, header, now_ms), now_ms, asked)
            if not isinstance(block, Move):
                return end, found
            chosen = replace(asked.chosen, upto=block.upto, start=block.start)
            runs = moves(replace(asked, chosen=chosen))(header, left, now_ms, True)[1]
            if not runs:
                return end, found
            found, end = found + runs, runs[-1][0][-1].end

    return made
