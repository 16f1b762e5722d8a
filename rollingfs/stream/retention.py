"""Retention: how much of a stream is kept, and to which of its cuts it is trimmed. Pure: no I/O.

As in Pravega's controller, runs keep cuts as time goes by, and trim the stream to one of them. So retention is exact
to a cut, not to a byte: a stream keeps more than its policy says, by up to what is written between two runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rollingfs.policy import parse_bytes, parse_seconds
from rollingfs.stream.cut import StreamCut

EVERY_DEFAULT = "30min"
BY_SIZE = "size"
BY_TIME = "time"
CUTS_KEPT_MAX = 2048
"""Beyond this number every second one of the older cuts is dropped. Retention gets coarser, and `min` still holds."""
OFFSETS_KEPT_MAX = 2**20
"""Maximum number of offsets in all kept cuts together."""
CUTS_KEPT_MIN = 16


@dataclass(frozen=True, slots=True, init=False)
class RetentionPolicy:
    """How much of a stream a run of retention leaves. `by_size` and `by_time` make a policy.

    Without subscribers, a run trims to the newest cut that still retains `min`. With subscribers, it does not trim
    beyond the least of the cuts that they published, unless that retains more than `max`: then it trims to the oldest
    cut that leaves no more than `max`. A run never chooses a cut that would leave less than `min`.
    """

    by: str
    """``"size"`` (then `min` and `max` are bytes) or ``"time"`` (seconds)."""
    min: float
    max: float | None
    every: float
    """Minimum age in seconds of the last cut before a run takes a new one."""
    align: bytes | None
    """Delimiter behind which cuts lie, so that they cut no record in two."""

    def __init__(
        self, by: str, min: float, max: float | None = None, every: float = 1800.0, align: bytes | None = None
    ) -> None:
        if by not in (BY_SIZE, BY_TIME):
            raise ValueError(f"retention by {by!r}: it must be by 'size' or by 'time'")
        if not 0 <= min < math.inf:
            raise ValueError(f"min is {min}: it must be at least 0")
        if max is not None and not min <= max < math.inf:
            raise ValueError(f"max is {max}: it must be at least min, which is {min}")
        if not 0 <= every < math.inf:
            raise ValueError(f"every is {every}: it must be at least 0 seconds")
        if align == b"":
            raise ValueError(f"align is {align!r}: it must be a delimiter, for example b'\\n'")
        for name, value in (("by", by), ("min", min), ("max", max), ("every", every), ("align", align)):
            object.__setattr__(self, name, value)

    @classmethod
    def by_size(
        cls,
        min: int | str,
        max: int | str | None = None,
        every: float | str = EVERY_DEFAULT,
        *,
        align: bytes | None = None,
    ) -> RetentionPolicy:
        """Keep the newest `min` bytes, and unread ones up to `max`.

        Parameters
        ----------
        min, max
            Bytes, or text like ``"10GiB"``; without `max` nothing unread is ever dropped.
        every
            Seconds, or text like ``"30min"``, between two cuts.
        align
            Cut only behind this delimiter.
        """
        most = None if max is None else parse_bytes(max)
        return cls(BY_SIZE, parse_bytes(min), most, parse_seconds(every), align)

    @classmethod
    def by_time(
        cls,
        min: float | str,
        max: float | str | None = None,
        every: float | str = EVERY_DEFAULT,
        *,
        align: bytes | None = None,
    ) -> RetentionPolicy:
        """Keep the bytes of the last `min` seconds, and unread bytes for up to `max`.

        Parameters
        ----------
        min, max
            Seconds, or text like ``"7d"``; without `max` nothing unread is ever dropped.
        every
            Seconds, or text like ``"30min"``, between two cuts.
        align
            Cut only behind this delimiter.
        """
        most = None if max is None else parse_seconds(max)
        return cls(BY_TIME, parse_seconds(min), most, parse_seconds(every), align)

    def as_fields(self) -> dict[str, Any]:
        """The policy as the ledger stores it."""
        fields: dict[str, Any] = {"by": self.by, "min": self.min, "max": self.max, "every": self.every}
        return fields | ({} if self.align is None else {"align": self.align.decode("latin-1")})

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> RetentionPolicy:
        """The inverse of `as_fields`."""
        align = fields.get("align")
        marked = None if align is None else align.encode("latin-1")
        return cls(fields["by"], fields["min"], fields["max"], fields["every"], marked)


@dataclass(frozen=True, slots=True)
class Extent:
    """What a stream holds of one segment."""

    start: int
    end: int
    incarnations: tuple[str, ...]
    """The incarnations by which it is known; offsets of others mean nothing here."""
    sealed: bool = False


Extents = Mapping[str, Extent]
Positions = dict[str, int]
"""An offset for every segment of a stream, within its extent."""


def positions(cut: StreamCut, extents: Extents) -> Positions:
    """Where a cut lies now. It lies at the start of segments whose name or incarnation it does not have."""
    return {name: _position(cut, name, extent) for name, extent in extents.items()}


def _position(cut: StreamCut, name: str, extent: Extent) -> int:
    offset = cut.get(name, 0)
    is_known = cut.incarnations.get(name) in extent.incarnations and offset <= extent.end
    return max(offset, extent.start) if is_known else extent.start


def least(several: Sequence[Positions]) -> Positions:
    """The least position of each segment."""
    return {name: min(one[name] for one in several) for name in several[0]}


def most(several: Sequence[Positions]) -> Positions:
    """The greatest position of each segment."""
    return {name: max(one[name] for one in several) for name in several[0]}


def bytes_left(at: Positions, extents: Extents) -> int:
    """The bytes that a trim to these positions leaves."""
    return sum(extent.end - at[name] for name, extent in extents.items())


def choose(
    policy: RetentionPolicy,
    cuts: Iterable[StreamCut],
    subscribers: Iterable[StreamCut],
    extents: Extents,
    now: float,
) -> Positions:
    """The positions to which one run trims a stream.

    Parameters
    ----------
    cuts
        The cuts that the stream keeps.
    subscribers
        The cut that each subscriber published.
    now
        Seconds since 1970.
    """
    kept = [(cut.at, positions(cut, extents)) for cut in sorted(cuts, key=lambda cut: cut.at)]
    allowed = [(at, place) for at, place in kept if _left(policy, at, place, extents, now) >= policy.min]
    if not allowed:
        return {name: extent.start for name, extent in extents.items()}
    newest = allowed[-1][1]
    read = [positions(cut, extents) for cut in subscribers]
    if not read:
        return newest
    target = least([*read, newest])
    if policy.max is None or not _is_over(policy.max, policy, target, kept, extents, now):
        return target
    within = [place for at, place in allowed if _left(policy, at, place, extents, now) <= policy.max]
    return least([most([target, within[0] if within else newest]), newest])


def _left(policy: RetentionPolicy, at: float, place: Positions, extents: Extents, now: float) -> float:
    """What a trim to a kept cut leaves: bytes, or seconds, as the policy counts."""
    return bytes_left(place, extents) if policy.by == BY_SIZE else now - at


def _is_over(
    limit: float,
    policy: RetentionPolicy,
    target: Positions,
    kept: Sequence[tuple[float, Positions]],
    extents: Extents,
    now: float,
) -> bool:
    """Whether a trim to `target` would leave more than `limit`."""
    if policy.by == BY_SIZE:
        return bytes_left(target, extents) > limit
    old = [place for at, place in kept if now - at > limit]
    return any(place[name] > target[name] for place in old for name in target)


def prune(cuts: Iterable[StreamCut], extents: Extents) -> tuple[StreamCut, ...]:
    """The cuts to keep: the newest one, and the offsets of the others before which there are bytes; not too many."""
    ordered = sorted(cuts, key=lambda cut: cut.at)
    kept = [left for cut in ordered[:-1] if (left := _inside(cut, extents))] + ordered[-1:]
    while len(kept) > CUTS_KEPT_MIN and (len(kept) > CUTS_KEPT_MAX or sum(len(cut) for cut in kept) > OFFSETS_KEPT_MAX):
        half = len(kept) // 2
        kept = kept[:half:2] + kept[half:]
    return tuple(kept)


def _inside(cut: StreamCut, extents: Extents) -> StreamCut:
    """The part of a cut before which there are still bytes."""
    kept = [name for name in cut if name in extents and _position(cut, name, extents[name]) > extents[name].start]
    return cut if len(kept) == len(cut) else cut.only(kept)
