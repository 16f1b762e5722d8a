"""Numbers and names as people read them."""

from __future__ import annotations

_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def size_text(size: float) -> str:
    """Return a number of bytes as people read it."""
    if size < 1024:
        return f"{size:.0f} B"
    power = 1
    while size >= 1024 ** (power + 1) and power < len(_UNITS):
        power += 1
    return f"{size / 1024**power:.1f} {_UNITS[power - 1]}"


def count_text(count: int, noun: str) -> str:
    """``1 file``, ``2 files``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
