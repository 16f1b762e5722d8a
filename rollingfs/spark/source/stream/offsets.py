"""Offsets of a stream: its position in each segment, as Spark keeps it in its checkpoint. Pure.

Spark compares offsets as JSON text, so an offset that has not moved must have the same text::

    {"/data/events/a": {"segment": "7b0c2f6e-…", "offset": 1048576, "check": [64, 2774183001], "sealed": true}, …}

If a batch is the first to read a segment, or skips its head, the field ``from`` is the begin of the batch.
Of a plain file, the field ``head`` is a checksum of its first bytes.
``"$idle": true`` distinguishes an offset from an equal offset before it: Spark calls a batch done only
when the next begins. The values of paths are objects, so no path is taken for this name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rollingfs.runtime.values import value_class
from rollingfs.spark.source.partitions import Extent

IDLE = "$idle"


@value_class
class ReadMark:
    """The offset up to which the stream has read a segment."""

    identity: str
    offset: int
    begin: int | None = None
    """Begin of the batch that ends here; None: the end of the batch before it."""
    sealed: bool = False
    """Whether the segment is sealed and read to its end."""
    check: tuple[int, int] | None = None
    """Number of bytes before the offset, with their checksum: it reveals a restored older copy that has grown."""
    head: tuple[int, int] | None = None
    """Number of first bytes of a plain file, with their checksum: it reveals a file that was written again."""

    def as_json(self) -> dict[str, Any]:
        """Return the mark as Spark keeps it."""
        found: dict[str, Any] = {"segment": self.identity, "offset": self.offset}
        if self.begin is not None:
            found["from"] = self.begin
        if self.check is not None:
            found["check"] = list(self.check)
        if self.head is not None:
            found["head"] = list(self.head)
        return found | ({"sealed": True} if self.sealed else {})

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> ReadMark:
        """Return the inverse of `as_json`.

        Raises
        ------
        ValueError
            No query has written it.
        """
        known: Any = found
        if not isinstance(known, dict) or not isinstance(known.get("segment"), str):
            raise ValueError(f"{known!r} names no segment")
        sums = [known.get("check", [0, 0]), known.get("head", [0, 0])]
        numbers = [
            known.get("offset"),
            known.get("from", 0),
            *(n for one in sums if isinstance(one, list) for n in one),
        ]
        is_right = len(numbers) == 6 and all(type(one) is int and one >= 0 for one in numbers)
        if not is_right or not isinstance(known.get("sealed", False), bool):
            raise ValueError(f"{known} has an offset that is not a number of bytes, or a value of another type")
        check, head = (tuple(known[name]) if name in known else None for name in ("check", "head"))
        return cls(known["segment"], known["offset"], known.get("from"), known.get("sealed", False), check, head)


def is_idle(offset: Mapping[str, Any]) -> bool:
    """Return whether a batch was made only to end the batch before it."""
    return offset.get(IDLE) is True


def parse(offset: Mapping[str, Any]) -> dict[str, ReadMark]:
    """Return the marks of an offset, by path."""
    marks = {}
    for path in (one for one in offset if one != IDLE):
        try:
            marks[path] = ReadMark.from_json(offset[path])
        except ValueError as error:
            raise ValueError(
                f"the offset of {path} in the query's checkpoint is none that a query has written: {error}. Nothing "
                "was read; bring the checkpoint's file back, or begin a query with a new checkpoint and "
                "startingOffsets"
            ) from error
    return marks


def format_offset(marks: Mapping[str, ReadMark], *, is_idle: bool = False) -> dict[str, Any]:
    """Return the inverse of `parse`."""
    return {path: marks[path].as_json() for path in sorted(marks)} | ({IDLE: True} if is_idle else {})


def extents(start: Mapping[str, ReadMark], end: Mapping[str, ReadMark]) -> list[Extent]:
    """Return the bytes between two offsets.

    They depend only on the offsets, so that a repeated batch reads the same bytes.
    """
    found = []
    for path, mark in sorted(end.items()):
        before = start.get(path)
        begin = mark.begin if mark.begin is not None or before is None else before.offset
        if begin is not None and begin < mark.offset:
            found.append(Extent(path, mark.identity, begin, mark.offset))
    return found
