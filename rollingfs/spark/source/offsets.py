"""Offsets of a stream: how far it has read each segment, as Spark keeps it in its checkpoint. Pure.

Spark compares offsets as JSON text, so an offset that has not moved must have the same text::

    {"/data/events/a": {"segment": "7b0c2f6e-…", "offset": 1048576, "sealed": true}, …}

If a batch is the first to read a segment, or skips its head, the field ``from`` says where the batch begins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rollingfs.spark.source.partitions import Extent


@dataclass(frozen=True, slots=True)
class Mark:
    """The offset up to which the stream has read one segment."""

    identity: str
    offset: int
    begin: int | None = None
    """Where the batch that ends here begins; None if it begins where the one before it ended."""
    sealed: bool = False
    """Whether the segment is sealed and read to its end."""

    def as_json(self) -> dict[str, Any]:
        """The mark as Spark keeps it."""
        found: dict[str, Any] = {"segment": self.identity, "offset": self.offset}
        if self.begin is not None:
            found["from"] = self.begin
        return found | ({"sealed": True} if self.sealed else {})

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Mark:
        """The inverse of `as_json`."""
        return cls(found["segment"], found["offset"], found.get("from"), found.get("sealed", False))


def parse(offset: Mapping[str, Any]) -> dict[str, Mark]:
    """The marks of an offset, by path."""
    return {path: Mark.from_json(found) for path, found in offset.items()}


def format_offset(marks: Mapping[str, Mark]) -> dict[str, Any]:
    """The inverse of `parse`."""
    return {path: marks[path].as_json() for path in sorted(marks)}


def extents(start: Mapping[str, Mark], end: Mapping[str, Mark]) -> list[Extent]:
    """The bytes between two offsets; they depend on nothing else, so that a repeated batch reads the same bytes."""
    found = []
    for path, mark in sorted(end.items()):
        before = start.get(path)
        begin = mark.begin if mark.begin is not None or before is None else before.offset
        if begin is not None and begin < mark.offset:
            found.append(Extent(path, mark.identity, begin, mark.offset))
    return found
