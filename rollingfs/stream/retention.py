"""Retention: how much of a stream is kept, and to which of its cuts it is trimmed. Pure: no I/O.

As in Pravega's controller, runs keep cuts as time goes by, and trim the stream to one of them. So retention is exact
to a cut, not to a byte: a stream keeps more than its policy says, by up to what is written between two runs.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rollingfs.policy import BYTES_MAX, MAX_AGE_S_MAX, parse_bytes, parse_seconds
from rollingfs.stream.cut import StreamCut

EVERY_DEFAULT = "30min"
BY_SIZE = "size"
BY_TIME = "time"
CUTS_KEPT_MAX = 2048
"""Beyond this number cuts are dropped. Retention gets coarser, and `min` still holds."""
OFFSETS_KEPT_MAX = 2**20
"""Maximum number of offsets in all kept cuts together."""
CUTS_KEPT_MIN = 16
AHEAD_S_MAX = 60.0
"""The clocks of machines that keep the time differ by less."""


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
        most = BYTES_MAX if by == BY_SIZE else MAX_AGE_S_MAX
        if not 0 <= min <= most:
            raise ValueError(f"min is {min}: it must be at least 0, at most {most:.0f}")
        if max is not None and not min <= max <= most:
            raise ValueError(f"max is {max}: it must be at least min, which is {min}, at most {most:.0f}")
        if not 0 <= every <= MAX_AGE_S_MAX:
            raise ValueError(f"every is {every}: it must be at least 0 seconds, at most {MAX_AGE_S_MAX:.0f}")
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
class Holding:
    """What a stream holds of one segment."""

    start: int
    end: int
    incarnations: tuple[str, ...]
    """The incarnations by which it is known; offsets of others mean nothing here."""
    sealed: bool = False


Holdings = Mapping[str, Holding]
Positions = dict[str, int]
"""An offset for every segment of a stream, within its extent."""


def positions(cut: StreamCut, extents: Holdings) -> Positions:
    """Where a cut lies now. It lies at the start of segments whose name or incarnation it does not have."""
    return {name: _position(cut, name, extent) for name, extent in extents.items()}


def _position(cut: StreamCut, name: str, extent: Holding) -> int:
    return max(cut[name], extent.start) if _says(cut, name, extent) else extent.start


def _is_end(cut: StreamCut, name: str, extent: Holding) -> bool:
    return extent.sealed and _says(cut, name, extent) and cut[name] >= extent.end


def _says(cut: StreamCut, name: str, extent: Holding) -> bool:
    """Whether a cut is about this segment."""
    return cut.incarnations.get(name) in extent.incarnations and cut[name] <= extent.end


def least(several: Sequence[Positions]) -> Positions:
    """The least position of each segment."""
    return {name: min(one[name] for one in several) for name in several[0]}


def most(several: Sequence[Positions]) -> Positions:
    """The greatest position of each segment."""
    return {name: max(one[name] for one in several) for name in several[0]}


def bytes_left(at: Positions, extents: Holdings) -> int:
    """The bytes that a trim to these positions leaves."""
    return sum(extent.end - at[name] for name, extent in extents.items())


def choose(
    policy: RetentionPolicy,
    cuts: Iterable[StreamCut],
    subscribers: Iterable[StreamCut],
    extents: Holdings,
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


def ended(policy: RetentionPolicy, cuts: Iterable[StreamCut], extents: Holdings, now: float) -> set[str]:
    """Segments that a cut which retains enough no longer needs, so that sealed ones may go."""
    enough = [cut for cut in cuts if _left(policy, cut.at, positions(cut, extents), extents, now) >= policy.min]
    return {name for name, extent in extents.items() if any(_is_end(cut, name, extent) for cut in enough)}


def _left(policy: RetentionPolicy, at: float, place: Positions, extents: Holdings, now: float) -> float:
    """What a trim to a kept cut leaves: bytes, or seconds, as the policy counts."""
    return bytes_left(place, extents) if policy.by == BY_SIZE else now - at


def _is_over(
    limit: float,
    policy: RetentionPolicy,
    target: Positions,
    kept: Sequence[tuple[float, Positions]],
    extents: Holdings,
    now: float,
) -> bool:
    """Whether a trim to `target` would leave more than `limit`."""
    if policy.by == BY_SIZE:
        return bytes_left(target, extents) > limit
    old = [place for at, place in kept if now - at > limit]
    return any(place[name] > target[name] for place in old for name in target)


Gone = Collection[tuple[str, str | None]]
"""Names with incarnations that are no longer there."""


def is_due(cuts: Sequence[StreamCut], every: float, now: float) -> bool:
    """Whether a run takes a new cut. A last one that lies ahead was dated by a wrong clock, so it says nothing."""
    return not cuts or now - cuts[-1].at >= every or cuts[-1].at - now > AHEAD_S_MAX


def following(cuts: Iterable[StreamCut], cut: StreamCut) -> tuple[StreamCut, ...]:
    """The cuts, and one that was taken after them.

    What had been written by this one's time had been before each older one. So that one's time is no later, whatever
    the clocks of the runs said.
    """
    older = (one if one.at <= cut.at else StreamCut(one, cut.at, one.size, one.incarnations) for one in cuts)
    return (*older, cut)


def prune(cuts: Iterable[StreamCut], extents: Holdings, gone: Gone | None = None) -> tuple[StreamCut, ...]:
    """The cuts to keep: the newest one, and the offsets of the others that a later run may need; not too many.

    Parameters
    ----------
    gone
        What is known to be gone of all that is not in `extents`; by default all. The rest could not be read now.
    """
    ordered = sorted(cuts, key=lambda cut: cut.at)
    kept = [left for cut in ordered[:-1] if (left := _inside(cut, extents, gone))] + ordered[-1:]
    return tuple(_thinned(kept))


def _thinned(cuts: Sequence[StreamCut]) -> list[StreamCut]:
    """Cuts within the limits: dropped is always the one that leaves the smallest gap, as seen from its age.

    So gaps grow with age, and what a run leaves too much is about the same part of each policy by time.
    """
    before, after = list(range(-1, len(cuts) - 1)), list(range(1, len(cuts) + 1))
    count, offsets, kept = len(cuts), sum(len(cut) for cut in cuts), [True] * len(cuts)

    def share(index: int) -> float:
        age = cuts[-1].at - cuts[index].at
        return (cuts[after[index]].at - cuts[before[index]].at) / age if age else 0.0

    waiting = [(share(index), index) for index in range(1, len(cuts) - 1)] if _is_too_much(count, offsets) else []
    heapq.heapify(waiting)
    while waiting and _is_too_much(count, offsets):
        found, index = heapq.heappop(waiting)
        if not kept[index] or found != share(index):
            continue  # a neighbour was dropped since
        kept[index] = False
        count, offsets = count - 1, offsets - len(cuts[index])
        after[before[index]], before[after[index]] = after[index], before[index]
        for neighbour in (before[index], after[index]):
            if 0 < neighbour < len(cuts) - 1:
                heapq.heappush(waiting, (share(neighbour), neighbour))
    return [cut for cut, stays in zip(cuts, kept, strict=True) if stays]


def _is_too_much(count: int, offsets: int) -> bool:
    return count > CUTS_KEPT_MIN and (count > CUTS_KEPT_MAX or offsets > OFFSETS_KEPT_MAX)


def _inside(cut: StreamCut, extents: Holdings, gone: Gone | None) -> StreamCut:
    """The part of a cut before which there are still bytes, or by which a sealed segment goes."""
    kept = [name for name in cut if _is_useful(cut, name, extents, gone)]
    return cut if len(kept) == len(cut) else cut.only(kept)


def _is_useful(cut: StreamCut, name: str, extents: Holdings, gone: Gone | None) -> bool:
    extent = extents.get(name)
    if extent is None:
        return gone is not None and (name, cut.incarnations.get(name)) not in gone
    return _is_end(cut, name, extent) or _position(cut, name, extent) > extent.start
