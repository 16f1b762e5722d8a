"""The plans of consolidation and offload: which neighbouring chunks become a file. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from itertools import groupby

from rollingfs.errors import BadOffsetError, worded
from rollingfs.format.header import Chunk, Header, Phase
from rollingfs.policy import (
    BLOCK_BYTES,
    DELETION_LAG_S,
    NO_TIER,
    TIER_DEFAULT,
    OffloadPolicy,
    parse_bytes,
    parse_seconds,
)
from rollingfs.runtime.values import value_class

PARTS_MAX = 10_000
"""Maximum parts of an object, on S3."""
RUN_BYTES_MAX = 1024**4
"""Maximum bytes of a run. S3 takes objects of up to 5 TiB, in parts of at most 5 GiB, so a run has few parts."""
GAIN_MIN = 1.25
"""A run has at least this many times the bytes of its largest chunk. So a byte is copied few times."""
SMALL_SHARE = 1 / 4
"""Upkeep leaves chunks of at least this share of ``max_bytes`` as they are."""
NEIGHBOURS_MIN = 32
"""Upkeep leaves fewer small neighbours than this as they are."""
LAYER = 8
"""A chunk of layer n has at least ``max_bytes / LAYER**n`` bytes, and fewer than a chunk of layer n - 1."""

Run = tuple[tuple[Chunk, ...], str]
"""Neighbouring chunks, and the tier of their new file ("" is the hot store)."""
Plan = Callable[[Header, Sequence[Chunk], int, bool], tuple[int, list[Run]]]
"""Makes of a header, some consecutive chunks, the time in ms, and whether these chunks are the last: the runs to
rewrite, and the offset from which to plan on. Upkeep carries plans out, and a picture shows them."""


def joins(stores: Collection[str], *, by_itself: bool) -> Plan:
    """Return the plan of a consolidation; the parameters are as of `plan`."""

    def made(header: Header, chunks: Sequence[Chunk], now_ms: int, is_last: bool) -> tuple[int, list[Run]]:
        max_bytes, sealed = header.policy.max_bytes, header.sealed
        end, found = plan(chunks, max_bytes, is_last=is_last, sealed=sealed, by_itself=by_itself, stores=stores)
        return end, [(run, _store(run)) for run in found]

    return made


def _store(run: Sequence[Chunk]) -> str:
    """Return the store with most bytes of a run; of equals, the hot store."""
    sizes: Counter[str] = Counter()
    for chunk in run:
        sizes[chunk.tier] += chunk.length
    return max(sorted(sizes), key=lambda tier: sizes[tier])


def may_join(header: Header) -> bool:
    """Return whether upkeep may find chunks to join, by the header without its index pages."""
    count_min = 2 if header.sealed else NEIGHBOURS_MIN
    return header.policy.consolidate and header.phase is not Phase.MERGING and header.chunk_count >= count_min


def size_of(chunks: Sequence[Chunk]) -> int:
    """Return the bytes of the segment that some chunks hold."""
    return sum(chunk.length for chunk in chunks)


def plan(
    chunks: Sequence[Chunk],
    max_bytes: int,
    *,
    is_last: bool,
    sealed: bool,
    by_itself: bool = False,
    stores: Collection[str] = ("",),
) -> tuple[int, list[tuple[Chunk, ...]]]:
    """Return the runs to join, each into a chunk, and the offset from which to plan on.

    Parameters
    ----------
    chunks
        Consecutive chunks. The first counts as long as it was before a truncation cut it, so that no truncation changes
        the runs after it.
    max_bytes
        Of a chunk.
    is_last
        Whether the chunks are the last; else the last run is left to the next plan, which sees more of it.
    sealed
        Whether the segment will not grow; then all chunks that fit are joined.
    by_itself
        Whether upkeep joins them. It joins small chunks of one store, if there are many, and chunks that do not fill
        `max_bytes` yet only to a chunk that stays small, and that has a higher layer than all its parts have. So a byte
        is rewritten at most ceil(log8(max_bytes / size of its first chunk)) + 1 times: once for each layer that its
        chunk has above itself, and once after the seal. Otherwise a user asks, and all is joined now.
    stores
        The tiers that this client knows ("" is the hot store); chunks in others stay as they are.
    """
    groups: list[tuple[Chunk, ...]] = []
    runs: list[list[tuple[Chunk, ...]]] = []
    small_bytes = max_bytes * SMALL_SHARE if by_itself and not sealed else math.inf
    for stretch in _stretches(chunks, small_bytes, stores, mixes=not by_itself):
        *full, last = found = list(_groups(stretch, min(max_bytes, RUN_BYTES_MAX)))
        groups += found
        if sealed:
            runs += [[group] for group in found]
        elif by_itself and len(stretch) < NEIGHBOURS_MIN:
            runs += [[] for _ in found]
        else:
            runs += [_worthy(group, _gains) for group in full]
            is_worth = partial(_rises, max_bytes) if by_itself else _gains
            small = _groups(last, min(max_bytes, small_bytes - 1))
            runs.append([run for group in small for run in _worthy(group, is_worth)])
    if not is_last and len(groups) > 1:
        del groups[-1], runs[-1]
    return groups[-1][-1].end if groups else 0, [run for found in runs for run in found if len(run) > 1]


def _stretches(
    chunks: Sequence[Chunk], small_bytes: float, stores: Collection[str], *, mixes: bool
) -> Iterator[tuple[Chunk, ...]]:
    """Cut into neighbours that may be joined; a chunk that is large, or in an unknown tier, is a run by itself."""
    first = 0
    for index, chunk in enumerate(chunks):
        stands_alone = chunk.tier not in stores or chunk.length >= small_bytes
        if stands_alone or (not mixes and chunk.tier != chunks[first].tier):
            yield from filter(None, [tuple(chunks[first:index])])
            first = index
        if stands_alone:
            yield (chunk,)
            first = index + 1
    yield from filter(None, [tuple(chunks[first:])])


def blocks(
    chunks: Sequence[Chunk], is_wanted: Callable[[Chunk], bool], block_bytes: int, *, is_last: bool
) -> tuple[int, list[tuple[Chunk, ...]]]:
    """Return the runs that an offload moves, each as a file of up to `block_bytes`; otherwise as `plan`."""
    found: list[tuple[Chunk, ...]] = []
    for wanted, stretch in groupby(chunks, is_wanted):
        if wanted:
            found += _groups(tuple(stretch), min(block_bytes, RUN_BYTES_MAX))
    if not is_last and len(found) > 1 and found[-1][-1] is chunks[-1]:
        return found.pop()[0].start, found
    return chunks[-1].end if chunks else 0, found


@value_class
class Chosen:
    """The chunks that an offload moves: they end by `upto` and are far enough or old enough.

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
        """Return whether a chunk of a segment is chosen."""
        if chunk.end <= self.start or (self.upto is not None and chunk.end > self.upto):
            return False
        if self.after_bytes is None and self.after_age_s is None:
            return True
        is_far = self.after_bytes is not None and chunk.end <= header.length - self.after_bytes
        return is_far or (self.after_age_s is not None and now_ms - chunk.at_ms >= self.after_age_s * 1000)

    @staticmethod
    def parse(upto: int | None, after_bytes: int | str | None, after_age: float | str | None) -> Chosen:
        """Return the same from numbers, or from text like ``"64MiB"`` and ``"7d"``."""
        return Chosen(
            upto,
            None if after_bytes is None else parse_bytes(after_bytes),
            None if after_age is None else parse_seconds(after_age),
        )

    def check(self, path: str, header: Header) -> None:
        """Refuse values without meaning.

        Raises
        ------
        BadOffsetError, ValueError
            The offset is outside the segment; or a number is negative.
        """
        if self.upto is not None and not 0 <= self.upto <= header.length:
            raise BadOffsetError(
                f"{path}: upto is {self.upto}; it holds bytes {header.start} to {header.length}; nothing was moved"
            )
        for name, value in (("after_bytes", self.after_bytes), ("after_age", self.after_age_s)):
            if value is not None and value < 0:
                shown = worded(**{name: ...})
                raise ValueError(f"{path}: {shown} is {value}: it must be at least 0; nothing was moved")


@value_class
class Asked:
    """An offload as an argument list, or a policy, asks for it."""

    tier: str
    chosen: Chosen
    lag_s: float
    block_bytes: int = BLOCK_BYTES
    max_delay_s: float | None = None
    """Seconds for which chunks wait for a full block; None: they do not wait."""

    @staticmethod
    def of(
        tier: str | None,
        after_bytes: int | str | None,
        after_age: float | str | None,
        deletion_lag: float | str | None,
        block_bytes: int | str | None = None,
    ) -> Asked | None:
        """Return the request of arguments; None without arguments: the policies decide."""
        if all(value is None for value in (tier, after_bytes, after_age, deletion_lag, block_bytes)):
            return None
        lag_s = DELETION_LAG_S if deletion_lag is None else parse_seconds(deletion_lag)
        chosen = Chosen.parse(None, after_bytes, after_age)
        size = BLOCK_BYTES if block_bytes is None else parse_bytes(block_bytes)
        return Asked(TIER_DEFAULT if tier is None else tier, chosen, lag_s, size)

    @staticmethod
    def by(policy: OffloadPolicy | None) -> Asked | None:
        """Return the request of a policy, or None."""
        if policy is None or policy.tier in (None, NO_TIER):
            return None
        assert policy.tier is not None
        lag_s = DELETION_LAG_S if policy.deletion_lag is None else policy.deletion_lag
        chosen = Chosen(None, policy.after_bytes, policy.after_age)
        return Asked(policy.tier, chosen, lag_s, policy.block_bytes or BLOCK_BYTES, policy.max_delay)


def is_hot(chunk: Chunk) -> bool:
    """Return whether a chunk is in the hot store."""
    return not chunk.tier


def moves(asked: Asked, is_wanted: Callable[[Chunk], bool] = is_hot) -> Plan:
    """Return the plan of an offload, or of an onload (tier ""): chunks that are wanted and chosen move as blocks."""

    def made(header: Header, chunks: Sequence[Chunk], now_ms: int, is_last: bool) -> tuple[int, list[Run]]:
        wanted = {chunk for chunk in chunks if is_wanted(chunk) and asked.chosen.has(chunk, header, now_ms)}
        end, found = blocks(chunks, wanted.__contains__, asked.block_bytes, is_last=is_last)
        return end, [(run, asked.tier) for run in found]

    return made


def _groups(chunks: Sequence[Chunk], max_bytes: float) -> Iterator[tuple[Chunk, ...]]:
    """Cut into the longest runs that fit a chunk."""
    first = size = 0
    for index, chunk in enumerate(chunks):
        if index > first and (size + chunk.length > max_bytes or index - first >= PARTS_MAX):
            yield tuple(chunks[first:index])
            first, size = index, 0
        size += chunk.length
    yield tuple(chunks[first:])


def _gains(largest: int, whole: int) -> bool:
    return whole >= GAIN_MIN * largest


def _rises(max_bytes: int, largest: int, whole: int) -> bool:
    return _layer(whole, max_bytes) < _layer(largest, max_bytes)


def _layer(size: int, max_bytes: int) -> int:
    layer = 0
    while size * LAYER**layer < max_bytes:
        layer += 1
    return layer


def _worthy(run: tuple[Chunk, ...], is_worth: Callable[[int, int], bool]) -> list[tuple[Chunk, ...]]:
    """Return the parts of a run that are worth joining: all, or the neighbours of a chunk too large for the rest."""
    found: list[tuple[Chunk, ...]] = []
    waiting = [run]
    while waiting:
        part = waiting.pop()
        if len(part) < 2:
            continue
        sizes = [chunk.length for chunk in part]
        largest = sizes.index(max(sizes))
        if is_worth(sizes[largest], sum(sizes)):
            found.append(part)
        else:
            waiting += [part[largest + 1 :], part[:largest]]
    return found
