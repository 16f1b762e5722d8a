"""How far a stream has read: the offset that Spark keeps in its checkpoint. Pure.

Spark compares offsets as JSON text, so what has not moved must come back as it was::

    {"/data/events/a": {"segment": "7b0c2f6e-…", "offset": 1048576, "sealed": true}, …}

A segment that a batch is the first to read, or whose head was skipped, also says ``from`` where the batch begins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rollingfs.spark.source.partitions import Extent


@dataclass(frozen=True, slots=True)
class Mark:
    """How far one segment was read."""

    identity: str
    offset: int
    begin: int | None = None
    """Where the batch that ends here begins, if not where the one before it ended."""
    sealed: bool = False
    """Whether that is all that it will ever have."""

    def as_json(self) -> dict[str, Any]:
        """As Spark keeps it."""
        found: dict[str, Any] = {"segment": self.identity, "offset": self.offset}
        if self.begin is not None:
            found["from"] = self.begin
        return found | ({"sealed": True} if self.sealed else {})

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Mark:
        """The inverse of `as_json`."""
        return cls(found["segment"], found["offset"], found.get("from"), found.get("sealed", False))


def parse(offset: Mapping[str, Any]) -> dict[str, Mark]:
    """An offset, by path."""
    return {path: Mark.from_json(found) for path, found in offset.items()}


def format_offset(marks: Mapping[str, Mark]) -> dict[str, Any]:
    """The inverse of `parse`."""
    return {path: marks[path].as_json() for path in sorted(marks)}


def extents(start: Mapping[str, Mark], end: Mapping[str, Mark]) -> list[Extent]:
    """What lies between two offsets: a function of them alone, so that a batch that is run again is the same."""
    found = []
    for path, mark in sorted(end.items()):
        before = start.get(path)
        begin = mark.begin if mark.begin is not None or before is None else before.offset
        if begin is not None and begin < mark.offset:
            found.append(Extent(path, mark.identity, begin, mark.offset))
    return found
