"""The rolling policy of a segment: when bytes leave the header, and when a chunk is full."""

from __future__ import annotations

import re
from dataclasses import dataclass

MAX_BYTES_DEFAULT = 64 * 1024 * 1024
INLINE_BYTES_DEFAULT = 256 * 1024
INLINE_BYTES_MAX = 1024 * 1024
CHUNK_BYTES_MAX = 2**63 - 1
MAX_AGE_S_MIN = 0.001
MAX_AGE_S_MAX = 100 * 366 * 86400.0

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
_TIME_UNITS = {"": 1, "s": 1, "sec": 1, "min": 60, "m": 60, "h": 3600, "d": 86400}
_QUANTITY = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*")


def parse_bytes(value: int | float | str) -> int:
    """A number of bytes, from a number or a text like ``"64MiB"`` or ``"1.5 GB"``.

    Raises
    ------
    ValueError
        The value is neither.
    """
    if isinstance(value, str):
        match = _QUANTITY.fullmatch(value)
        if not match or match[2].upper() not in _BYTE_UNITS:
            raise ValueError(f"{value!r} is no size: give a number of bytes, or a text like '64MiB'")
        return int(float(match[1]) * _BYTE_UNITS[match[2].upper()])
    if isinstance(value, bool) or (isinstance(value, float) and not value.is_integer()):
        raise ValueError(f"{value!r} is no size: give a whole number of bytes")
    return int(value)


def parse_seconds(value: int | float | str) -> float:
    """A time in seconds, from a number or a text like ``"30min"`` or ``"7d"``.

    Raises
    ------
    ValueError
        The value is neither.
    """
    if isinstance(value, str):
        match = _QUANTITY.fullmatch(value)
        if not match or match[2] not in _TIME_UNITS:
            raise ValueError(f"{value!r} is no time: give seconds, or a text like '30min', '12h', '7d'")
        return float(match[1]) * _TIME_UNITS[match[2]]
    if isinstance(value, bool):
        raise ValueError(f"{value!r} is no time: give a number of seconds")
    return float(value)


@dataclass(frozen=True, slots=True, init=False)
class RollingPolicy:
    """The rule by which a segment rolls to a new chunk. The segment's header keeps it.

    Parameters
    ----------
    max_bytes
        The largest chunk, in bytes (or text like ``"64MiB"``); at least 1.
    max_age
        Seconds (or text like ``"1h"``), 1 ms to 100 years. Once the inline tail is older, the next append makes it a
        chunk; None for never. Rounded to milliseconds.
    inline_bytes
        The header keeps at most this many of the newest bytes (0 to 1 MiB); never more than `max_bytes`.

    Raises
    ------
    ValueError
        A value is outside its range.
    """

    max_bytes: int
    max_age: float | None
    inline_bytes: int

    def __init__(
        self,
        max_bytes: int | str = MAX_BYTES_DEFAULT,
        max_age: float | str | None = None,
        inline_bytes: int | str = INLINE_BYTES_DEFAULT,
    ) -> None:
        size, inline = parse_bytes(max_bytes), parse_bytes(inline_bytes)
        age = None if max_age is None else parse_seconds(max_age)
        if not 1 <= size <= CHUNK_BYTES_MAX:
            raise ValueError(f"max_bytes is {size}: a chunk must hold at least 1 byte, at most {CHUNK_BYTES_MAX}")
        if not 0 <= inline <= INLINE_BYTES_MAX:
            raise ValueError(f"inline_bytes is {inline}: it must be 0 to {INLINE_BYTES_MAX}")
        if age is not None and not MAX_AGE_S_MIN <= age <= MAX_AGE_S_MAX:
            raise ValueError(f"max_age is {age}: it must be {MAX_AGE_S_MIN} to {MAX_AGE_S_MAX:.0f} seconds, or None")
        object.__setattr__(self, "max_bytes", size)
        object.__setattr__(self, "max_age", None if age is None else round(age * 1000) / 1000)
        object.__setattr__(self, "inline_bytes", inline)

    @property
    def tail_bytes_max(self) -> int:
        """The longest inline tail: a tail that becomes a chunk must not exceed `max_bytes`."""
        return min(self.inline_bytes, self.max_bytes)
