"""`Edges`: the kinds of bytes that a segment begins and ends with, so that a concat need not read them. Pure."""

from __future__ import annotations

from rollingfs.runtime.values import value_class

HEAD_BYTES = 4096 + 8
"""HDF5 begins after 0, 512, 1024, 2048, 4096 bytes or more, which users own; the marks of others come sooner."""
TAIL_BYTES = 1024
"""A tar ends with two empty blocks, of 512 bytes each; the ends of all others are shorter, but for a comment in a
zip."""
SAMPLES = {"data": b"\0", "lines": b"\n", "open": b"\nx", "text": b"x"}
"""A sample of each kind, which joins as all bytes of the kind do: they have no mark of a format.

Lines end in a line feed; open text has one before its end; other text has none.
"""
_CONTROLS = frozenset(range(32)) - frozenset(b"\t\n\f\r\x1b") | {127}
Kinds = tuple[str, str]
"""Of the first and the last bytes of a file; each is empty if only a look shows how they join."""
UNKNOWN: Kinds = ("", "")


@value_class
class Edges:
    """The kind of the bytes after one offset of a segment, and of the bytes before another."""

    start: int
    head: str
    """Of the first `HEAD_BYTES` from `start` on."""
    end: int
    tail: str
    """Of the last `TAIL_BYTES` before `end`."""


def is_text(data: bytes) -> bool:
    """Return whether bytes are without control characters, in any encoding that has ASCII in it."""
    return _CONTROLS.isdisjoint(data)
