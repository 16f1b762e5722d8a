"""Retention: the amount that a stream keeps, and the cut of its trim. Pure: no I/O.

As in Pravega's controller, runs keep cuts as time goes by, and trim the stream to a cut. So retention is exact
to a cut, not to a byte: a stream keeps more than its policy, by up to the bytes between two runs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import fields
from functools import cached_property
from typing import Any

from rollingfs.policy import BYTES_MAX, MAX_AGE_S_MAX, parse_bytes, parse_seconds
from rollingfs.runtime.values import value_class
from rollingfs.stream.cut import StreamCut

EVERY_S_DEFAULT = 1800.0
CUTS_KEPT_MAX = 2048
"""Beyond this number cuts are dropped. Retention gets coarser, and `min` still holds."""
OFFSETS_KEPT_MAX = 2**20
"""Maximum number of offsets in all kept cuts together."""
CUTS_KEPT_MIN = 16
AHEAD_S_MAX = 60.0
"""The clocks of machines that keep the time differ by less."""


@value_class
class RetentionPolicy:
    """The rule by which a run of retention trims a stream, by time, size, or both. Each field is optional.

    Bytes that subscribers have read go as soon as `keep_age` or `keep_bytes` asks for it. Without subscribers,
    all bytes count as read. Unread bytes go as soon as `max_age` or `max_bytes` asks for it;
    without both, never. `min_age` and `min_bytes` come first: no byte goes that either keeps. With neither
    `keep_age` nor `keep_bytes`, read bytes go as soon as the minima let them; without minima, as the unread.
    ``RetentionPolicy(keep_age="7d", keep_bytes="1TB")`` keeps 7 days, at most 1 TB.

    Parameters
    ----------
    min_age, min_bytes
        Seconds (or text like ``"7d"``), bytes (or text like ``"10GiB"``): bytes that are not older, and the newest
        bytes, stay in any case. With ``min_age="forever"`` all stay, in spite of the folders above.
    keep_age, keep_bytes
        Bytes that were read go once they are older, or once this many newer bytes are after them.
    max_age, max_bytes
        The same, for unread bytes.
    every
        Seconds (or text like ``"30min"``, the default) between two cuts.
    align
        Cut only after this delimiter, so that no record is cut in two.

    Raises
    ------
    ValueError
        A value is outside its range, or a minimum exceeds the amount to be kept.
    """

    min_age: float | None
    min_bytes: int | None
    keep_age: float | None
    keep_bytes: int | None
    max_age: float | None
    max_bytes: int | None
    every: float | None
    align: bytes | None

    def __init__(
        self,
        *,
        min_age: float | str | None = None,
        min_bytes: int | str | None = None,
        keep_age: float | str | None = None,
        keep_bytes: int | str | None = None,
        max_age: float | str | None = None,
        max_bytes: int | str | None = None,
        every: float | str | None = None,
        align: bytes | None = None,
    ) -> None:
        ages = {"min_age": min_age, "keep_age": keep_age, "max_age": max_age}
        sizes = {"min_bytes": min_bytes, "keep_bytes": keep_bytes, "max_bytes": max_bytes}
        for group, parse, most in ((ages, parse_seconds, MAX_AGE_S_MAX), (sizes, parse_bytes, float(BYTES_MAX))):
            before, least = "0", 0.0
            for name, given in group.items():
                value = None if given is None else parse(given)
                if value is not None and not least <= value <= most:
                    raise ValueError(
                        f"{name} is {value}: it must be at least {before} ({least:.0f}), at most {most:.0f}"
                    )
                before, least = (before, least) if value is None else (name, value)
                object.__setattr__(self, name, value)
        pause = None if every is None else parse_seconds(every)
        if pause is not None and not 0 <= pause <= MAX_AGE_S_MAX:
            raise ValueError(f"every is {pause}: it must be at least 0 seconds, at most {MAX_AGE_S_MAX:.0f}")
        if align == b"":
            raise ValueError(f"align is {align!r}: it must be a delimiter, for example b'\\n'")
        object.__setattr__(self, "every", pause)
        object.__setattr__(self, "align", align)

    @classmethod
    def by_size(
        cls,
        min: int | str,
        max: int | str | None = None,
        every: float | str | None = None,
        *,
        align: bytes | None = None,
    ) -> RetentionPolicy:
        """Keep the newest `min` bytes, and unread bytes up to `max`: `min_bytes` and `max_bytes`."""
        return cls(min_bytes=min, max_bytes=max, every=every, align=align)

    @classmethod
    def by_time(
        cls,
        min: float | str,
        max: float | str | None = None,
        every: float | str | None = None,
        *,
        align: bytes | None = None,
    ) -> RetentionPolicy:
        """Keep the bytes of the last `min` seconds, and unread bytes for up to `max`: `min_age` and `max_age`."""
        return cls(min_age=min, max_age=max, every=every, align=align)

    @property
    def every_s(self) -> float:
        """Minimum age in seconds of the last cut before a run takes a new cut."""
        return EVERY_S_DEFAULT if self.every is None else self.every

    @property
    def of_read(self) -> tuple[float | None, int | None] | None:
        """Return the age and the bytes from which on read bytes go, or None.

        None: they go as soon as the minima let them.
        """
        if self.keep_age is not None or self.keep_bytes is not None:
            return self.keep_age, self.keep_bytes
        return (self.max_age, self.max_bytes) if self.min_age is None and self.min_bytes is None else None

    @property
    def keeps_all(self) -> bool:
        """Return whether all bytes stay."""
        return self.min_age == MAX_AGE_S_MAX

    def over(self, other: RetentionPolicy | None) -> RetentionPolicy:
        """Return the policy, with missing fields from another policy."""
        merged = object.__new__(RetentionPolicy)
        for name in FIELDS:  # unchecked: a maximum from above may be less than a minimum here, which comes first
            value = getattr(self, name)
            object.__setattr__(merged, name, getattr(other, name, None) if value is None else value)
        return merged

    def as_fields(self) -> dict[str, Any]:
        """Return the fields that are set, by name, as the ledger stores them."""
        fields = {name: value for name in FIELDS if (value := getattr(self, name)) is not None}
        return fields if self.align is None else fields | {"align": self.align.decode("latin-1")}

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> RetentionPolicy:
        """Return the inverse of `as_fields`.

        Raises
        ------
        TypeError, ValueError
            A field is unknown, or a value is outside its range.
        """
        align = fields.get("align")
        return cls(**{**fields, "align": None if align is None else align.encode("latin-1")})


FIELDS = tuple(field.name for field in fields(RetentionPolicy))


@value_class
class Holding:
    """The bytes of a segment that a stream holds."""

    start: int
    end: int
    incarnations: tuple[str, ...]
    """The incarnations by which it is known; offsets of others are not valid here."""
    sealed: bool = False


Holdings = Mapping[str, Holding]
Positions = dict[str, int]
"""An offset for every segment of a stream, within its extent."""


def positions(cut: StreamCut, extents: Holdings) -> Positions:
    """Return where a cut is now. It is at the start of segments whose name or incarnation it does not have."""
    offset_of, incarnation_of = dict(cut.items()).get, dict(cut.incarnations).get
    return {
        name: offset
        if extent.start < (offset := offset_of(name, 0)) <= extent.end and incarnation_of(name) in extent.incarnations
        else extent.start
        for name, extent in extents.items()
    }


def least(several: Sequence[Positions]) -> Positions:
    """Return the least position of each segment."""
    return {name: min(one[name] for one in several) for name in several[0]}


def most(several: Sequence[Positions]) -> Positions:
    """Return the greatest position of each segment."""
    return {name: max(one[name] for one in several) for name in several[0]}


def bytes_left(at: Positions, extents: Holdings) -> int:
    """Return the bytes that a trim to these positions leaves."""
    return sum(extent.end - at[name] for name, extent in extents.items())


def choose(
    policy: RetentionPolicy, kept: Sequence[Kept], subscribers: Iterable[StreamCut], extents: Holdings
) -> Positions:
    """Return the positions to which a run trims a stream.

    Parameters
    ----------
    kept
        The cuts that the stream keeps.
    subscribers
        The cut that each subscriber published.
    """
    allowed = [cut for cut in kept if cut.leaves(policy.min_age, policy.min_bytes)]
    if not allowed:
        return {name: extent.start for name, extent in extents.items()}
    newest = allowed[-1].place
    target = _goes(policy, allowed, extents)
    read = [positions(cut, extents) for cut in subscribers]
    if read:
        target = least([*read, target])
    if not _is_over(policy, target, kept, extents):
        return target
    return least([most([target, *_oldest(allowed, policy.max_age, policy.max_bytes)]), newest])


@value_class(slots=False)
class Kept:
    """A cut that a stream keeps, and the bytes after a trim to it. Most policies need few cuts."""

    cut: StreamCut
    age_s: float
    extents: Holdings

    @staticmethod
    def of(cuts: Iterable[StreamCut], extents: Holdings, now: float) -> list[Kept]:
        """Return all of a stream, the oldest first, at a time in seconds since 1970."""
        ordered = sorted(cuts, key=lambda cut: cut.at)
        return [Kept(cut, now - cut.at, extents) for cut in ordered]

    @cached_property
    def place(self) -> Positions:
        """Return where it is now."""
        return positions(self.cut, self.extents)

    @cached_property
    def bytes(self) -> int:
        """Return the number of bytes after a trim to it."""
        return bytes_left(self.place, self.extents)

    def leaves(self, age_s: float | None, size: int | None) -> bool:
        """Return whether a trim to it leaves at least this of both."""
        return (age_s is None or self.age_s >= age_s) and (size is None or self.bytes >= size)

    def exceeds(self, age_s: float | None, size: int | None) -> bool:
        """Return whether a trim to it leaves more of a segment."""
        return (age_s is not None and self.age_s > age_s) or (size is not None and self.bytes > size)


def _goes(policy: RetentionPolicy, allowed: Sequence[Kept], extents: Holdings) -> Positions:
    """Return the cut up to which read bytes go, by time or size.

    It is the later of the newest cut that still leaves the age, and the oldest that leaves no more than the bytes.
    """
    if policy.of_read is None:
        return allowed[-1].place
    age_s, size = policy.of_read
    nowhere = {name: extent.start for name, extent in extents.items()}
    aged = [cut.place for cut in allowed if age_s is not None and cut.age_s >= age_s]
    target = aged[-1] if aged else nowhere
    if size is None or bytes_left(nowhere, extents) <= size:
        return target
    return most([target, *_oldest(allowed, None, size)])


def _oldest(allowed: Sequence[Kept], age_s: float | None, size: int | None) -> Sequence[Positions]:
    """Return the place of the oldest cut that leaves no more than an age and a size, or of the newest.

    The list has one place, and is empty if no cut counts: one that leaves no byte does not count by size, because
    the first run of a policy has no other.
    """
    some = [cut for cut in allowed if cut.bytes or not size]
    return [cut.place for cut in some if not cut.exceeds(age_s, size)][:1] or [cut.place for cut in some[-1:]]


def ended(policy: RetentionPolicy, kept: Sequence[Kept], extents: Holdings) -> set[str]:
    """Return segments that a cut which retains enough no longer needs, so that sealed segments may go."""
    read_age_s, _ = policy.of_read or (None, None)
    age_s = max(policy.min_age or 0.0, read_age_s or 0.0)
    enough = [one.cut for one in kept if one.leaves(age_s, policy.min_bytes)]
    return {
        name
        for name, one in extents.items()
        if one.sealed and any(cut.incarnation(name) in one.incarnations and cut[name] == one.end for cut in enough)
    }


def _is_over(policy: RetentionPolicy, target: Positions, kept: Sequence[Kept], extents: Holdings) -> bool:
    """Return whether a trim to `target` would leave more than `max_age` or `max_bytes`."""
    if policy.max_bytes is not None and bytes_left(target, extents) > policy.max_bytes:
        return True
    old = [cut.place for cut in kept if policy.max_age is not None and cut.age_s > policy.max_age]
    return any(place[name] > target[name] for place in old for name in target)


Gone = Collection[tuple[str, str | None]]
"""Names with incarnations that are no longer there."""


def is_due(cuts: Sequence[StreamCut], every: float, now: float) -> bool:
    """Return whether a run takes a new cut. A last cut that is ahead has a wrong date, and does not count."""
    return not cuts or now - cuts[-1].at >= every or cuts[-1].at - now > AHEAD_S_MAX


def following(cuts: Iterable[StreamCut], cut: StreamCut) -> tuple[StreamCut, ...]:
    """Return the cuts with another cut, which was taken after them.

    Bytes before an older cut are before this cut, too. So the older cut's time is no later, in spite of the clocks of
    the runs.
    """
    older = (one if one.at <= cut.at else StreamCut(one, cut.at, one.size, one.incarnations) for one in cuts)
    return (*older, cut)


def prune(cuts: Iterable[StreamCut], extents: Holdings, gone: Gone | None = None) -> tuple[StreamCut, ...]:
    """Return the cuts to keep: the newest, and the offsets of the others that a later run may need; not too many.

    Parameters
    ----------
    gone
        Segments outside of `extents` that are known to be gone; by default all. The rest could not be read now.
    """
    ordered = sorted(cuts, key=lambda cut: cut.at)
    kept = [left for cut in ordered[:-1] if (left := _inside(cut, extents, gone))] + ordered[-1:]
    return tuple(_thinned(kept))


def _thinned(cuts: Sequence[StreamCut]) -> list[StreamCut]:
    """Return cuts within the limits: the cut that leaves the smallest gap for its age is dropped.

    So gaps grow with age, and the excess is about the same part of each policy by time.
    """
    kept, offsets = list(cuts), sum(map(len, cuts))

    def share(index: int) -> float:
        age = kept[-1].at - kept[index].at
        return (kept[index + 1].at - kept[index - 1].at) / age if age else 0.0

    while len(kept) > CUTS_KEPT_MIN and (len(kept) > CUTS_KEPT_MAX or offsets > OFFSETS_KEPT_MAX):
        offsets -= len(kept.pop(min(range(1, len(kept) - 1), key=share)))
    return kept


def _inside(cut: StreamCut, extents: Holdings, gone: Gone | None) -> StreamCut:
    """Return the part of a cut before which there are still bytes, or by which a sealed segment goes."""
    columns = zip(cut.columns(), cut.values(), strict=True)
    kept = [column[0] for column, offset in columns if _is_useful(column, offset, extents, gone)]
    return cut if len(kept) == len(cut) else cut.only(kept)


def _is_useful(column: tuple[str, str | None], offset: int, extents: Holdings, gone: Gone | None) -> bool:
    name, incarnation = column
    extent = extents.get(name)
    if extent is None:
        return gone is not None and column not in gone
    if incarnation not in extent.incarnations:
        return False
    return extent.start < offset <= extent.end or (extent.sealed and offset == extent.end)
