"""Policies: when the bytes of a segment leave the header, when a chunk is full, when chunks move to a tier."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Mapping
from dataclasses import field, fields
from typing import Any

from rollingfs.errors import worded
from rollingfs.runtime.values import value_class

MAX_BYTES_DEFAULT = 64 * 1024 * 1024
INLINE_BYTES_DEFAULT = 256 * 1024
INLINE_BYTES_MAX = 1024 * 1024
CHUNK_BYTES_MAX = 2**63 - 1
MAX_AGE_S_MIN = 0.001
MAX_AGE_S_MAX = 100 * 366 * 86400.0
FOREVER = "forever"
"""Text for the longest time."""
BYTES_MAX = 2**63 - 1
TIER_ALIAS_CHARACTERS_MAX = 32
TIER_DEFAULT = "cold"
DELETION_LAG_S = 4 * 3600.0
"""The old files of chunks that have moved to another tier stay this long."""
BLOCK_BYTES = 64 * 1024 * 1024
"""An offload joins neighbouring chunks up to this size."""
READERS_GRACE_S = 600.0
"""The old files of chunks that were joined stay this long, for readers that opened the segment before."""
NO_TIER = ""
"""The tier of a policy that moves no chunk, in spite of all levels above."""
_ALIAS = rf"[a-z0-9][a-z0-9_-]{{0,{TIER_ALIAS_CHARACTERS_MAX - 1}}}"

_BYTE_UNITS = {
    "": 1,
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KIB": 2**10,
    "MIB": 2**20,
    "GIB": 2**30,
    "TIB": 2**40,
}
_TIME_UNITS = {"": 1, "ms": 0.001, "s": 1, "sec": 1, "min": 60, "m": 60, "h": 3600, "d": 86400}
_QUANTITY = r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*"


def parse_bytes(value: int | float | str) -> int:
    """Return a number of bytes, from a number or a text like ``"64MiB"`` or ``"1.5 GB"``.

    Raises
    ------
    ValueError
        The value is neither.
    """
    if isinstance(value, str):
        match = re.fullmatch(_QUANTITY, value)
        if not match or match[2].upper() not in _BYTE_UNITS:
            raise ValueError(f"{value!r} is not a size: give a number of bytes, or a text like '64MiB'")
        size = float(match[1]) * _BYTE_UNITS[match[2].upper()]
        if size > BYTES_MAX:
            raise ValueError(f"{value!r} is too large a size: at most {BYTES_MAX} bytes")
        return int(size)
    if isinstance(value, bool) or (isinstance(value, float) and not value.is_integer()):
        raise ValueError(f"{value!r} is not a size: give a whole number of bytes")
    return int(value)


def parse_seconds(value: int | float | str) -> float:
    """Return a time in seconds, from a number or a text like ``"30min"``, ``"7d"`` or ``"forever"`` (100 years).

    Raises
    ------
    ValueError
        The value is neither.
    """
    if value == FOREVER:
        return MAX_AGE_S_MAX
    if isinstance(value, str):
        match = re.fullmatch(_QUANTITY, value)
        if not match or match[2] not in _TIME_UNITS:
            raise ValueError(f"{value!r} is not a duration: give seconds, or a text like '30min', '12h', '7d'")
        return float(match[1]) * _TIME_UNITS[match[2]]
    if isinstance(value, bool):
        raise ValueError(f"{value!r} is not a duration: give a number of seconds")
    return float(value)


@value_class
class RollingPolicy:
    """The rule by which a segment rolls to a new chunk, and joins chunks. The segment's header keeps it.

    Parameters
    ----------
    max_bytes
        The largest chunk, in bytes (or text like ``"64MiB"``); at least 1.
    max_age
        Seconds (or text like ``"1h"``), 1 ms to 100 years. Once the inline tail is older, the next append makes it a
        chunk; None for never. Rounded to milliseconds.
    inline_bytes
        The header keeps at most this many of the newest bytes (0 to 1 MiB); never more than `max_bytes`.
    consolidate
        Whether upkeep (``rollingfs run``) joins small neighbouring chunks to chunks of about `max_bytes`.
    own
        The names of the fields that the segment has itself; the others come from its folders (`fs.set_policy`), with
        their values of the last change by them.

    Raises
    ------
    ValueError
        A value is outside its range.
    """

    max_bytes: int
    max_age: float | None
    inline_bytes: int
    consolidate: bool
    own: frozenset[str] = field(compare=False, repr=False)

    def __init__(
        self,
        max_bytes: int | str = MAX_BYTES_DEFAULT,
        max_age: float | str | None = None,
        inline_bytes: int | str = INLINE_BYTES_DEFAULT,
        consolidate: bool = True,
        own: Iterable[str] = (),
    ) -> None:
        size, inline = parse_bytes(max_bytes), parse_bytes(inline_bytes)
        age = None if max_age is None else parse_seconds(max_age)
        if not 1 <= size <= CHUNK_BYTES_MAX:
            raise ValueError(f"max_bytes is {size}: a chunk must hold at least 1 byte, at most {CHUNK_BYTES_MAX}")
        if not 0 <= inline <= INLINE_BYTES_MAX:
            raise ValueError(f"inline_bytes is {inline}: it must be 0 to {INLINE_BYTES_MAX}")
        if age is not None and not MAX_AGE_S_MIN <= age <= MAX_AGE_S_MAX:
            raise ValueError(f"max_age is {age}: it must be {MAX_AGE_S_MIN} to {MAX_AGE_S_MAX:.0f} seconds, or None")
        if not isinstance(consolidate, bool):
            raise ValueError(f"consolidate is {consolidate!r}: it must be true or false")
        object.__setattr__(self, "max_bytes", size)
        object.__setattr__(self, "max_age", None if age is None else round(age * 1000) / 1000)
        object.__setattr__(self, "inline_bytes", inline)
        object.__setattr__(self, "consolidate", consolidate)
        object.__setattr__(self, "own", frozenset(own))

    def as_fields(self) -> dict[str, Any]:
        """Return all fields, by name."""
        return {name: getattr(self, name) for name in ROLLING_FIELDS}

    def inheriting(self, fields: Mapping[str, Any]) -> RollingPolicy:
        """Return the policy with these values in the fields that are not its own."""
        taken = {name: value for name, value in fields.items() if name not in self.own}
        return RollingPolicy(**{**self.as_fields(), **taken}, own=self.own) if taken else self

    @property
    def tail_bytes_max(self) -> int:
        """Return the longest inline tail: a tail that becomes a chunk must not exceed `max_bytes`."""
        return min(self.inline_bytes, self.max_bytes)


ROLLING_FIELDS = tuple(field.name for field in fields(RollingPolicy) if field.name != "own")


class Keep(enum.Enum):
    """The value of an argument that is not given, where None means something."""

    KEEP = "as it is"


KEEP = Keep.KEEP


def check_alias(alias: str) -> str:
    """Return the alias of a tier, unless it cannot stand in a header.

    Raises
    ------
    ValueError
        It has other characters, or is too long.
    """
    if not re.fullmatch(_ALIAS, alias):
        raise ValueError(
            f"{alias!r} is not an alias of a tier: 1 to {TIER_ALIAS_CHARACTERS_MAX} of a-z, 0-9, '_' and '-', the "
            "first a letter or a digit"
        )
    return alias


@value_class
class OffloadPolicy:
    """The rule by which chunks move to a tier; each field may be left to the next level.

    There are three levels: a segment (`fs.set_policy`), the folder that it is in (`fs.set_policy` too, or
    ``stream.offload_policy``), and the filesystem (its argument `offload_policy`). As in Pulsar, the nearest level that
    has a field wins, field by field. Without a tier at any level no chunk moves.

    Parameters
    ----------
    tier
        An alias among the filesystem's `tiers`; ``""`` to move no chunk, in spite of all other levels.
    after_bytes, after_age
        A chunk moves when this many newer bytes are after it (or text like ``"64MiB"``), or when it is older than
        this many seconds (or text like ``"7d"``). Either is enough; without both, all chunks move.
    deletion_lag
        Seconds (or text like ``"4h"``) for which the old files stay, for readers that opened the segment before; by
        default 4 hours.
    block_bytes
        Neighbouring chunks move as a single file of up to this many bytes (or text like ``"64MiB"``); by default 64
        MiB.
    max_delay
        Seconds (or text like ``"600s"``) for which chunks that may move wait for a block to be full; then they move as
        they are, and so do the inline bytes. A `Follower` waits 600 s by default, a round of ``rollingfs run`` not
        at all.

    Raises
    ------
    ValueError
        A value is outside its range.
    """

    tier: str | None
    after_bytes: int | None
    after_age: float | None
    deletion_lag: float | None
    block_bytes: int | None
    max_delay: float | None

    def __init__(
        self,
        tier: str | None = None,
        after_bytes: int | str | None = None,
        after_age: float | str | None = None,
        deletion_lag: float | str | None = None,
        block_bytes: int | str | None = None,
        max_delay: float | str | None = None,
    ) -> None:
        if not isinstance(tier, str | None):
            raise TypeError(f"tier is {tier!r}: it must be the alias of a tier")
        if tier:
            check_alias(tier)
        object.__setattr__(self, "tier", tier)
        object.__setattr__(self, "after_bytes", _size("after_bytes", after_bytes, 0))
        object.__setattr__(self, "block_bytes", _size("block_bytes", block_bytes, 1))
        object.__setattr__(self, "max_delay", _age("max_delay", max_delay))
        object.__setattr__(self, "after_age", _age("after_age", after_age))
        object.__setattr__(self, "deletion_lag", _age("deletion_lag", deletion_lag))

    @staticmethod
    def of(given: Any, name: str = "the offload policy") -> OffloadPolicy:
        """Return the policy itself, or the policy of a mapping of its fields.

        Raises
        ------
        TypeError, ValueError
            It is no policy and no mapping, or a value is outside its range.
        """
        if isinstance(given, OffloadPolicy):
            return given
        known = [field.name for field in fields(OffloadPolicy)]
        if not isinstance(given, Mapping) or not given.keys() <= set(known):
            raise TypeError(f"{name} is {given!r}: it must be an OffloadPolicy, or map some of {', '.join(known)}")
        return OffloadPolicy(**given)

    def over(self, other: OffloadPolicy | None) -> OffloadPolicy:
        """Return the policy, with missing fields from another policy."""
        return self if other is None else OffloadPolicy(**{**other.as_fields(), **self.as_fields()})

    def as_fields(self) -> dict[str, Any]:
        """Return the fields that are set, by name."""
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in found.items() if value is not None}


def _size(name: str, value: int | str | None, least: int) -> int | None:
    size = None if value is None else parse_bytes(value)
    if size is not None and not least <= size <= CHUNK_BYTES_MAX:
        raise ValueError(f"{worded(**{name: ...})} is {size}: it must be {least} to {CHUNK_BYTES_MAX}")
    return size


def _age(name: str, value: float | str | None) -> float | None:
    """Return a time in seconds, in whole milliseconds."""
    seconds = None if value is None else parse_seconds(value)
    if seconds is not None and not 0 <= seconds <= MAX_AGE_S_MAX:
        raise ValueError(f"{worded(**{name: ...})} is {seconds}: it must be 0 to {MAX_AGE_S_MAX:.0f} seconds")
    return None if seconds is None else round(seconds * 1000) / 1000
