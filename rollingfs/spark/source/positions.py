"""Begin and end of a read: `startingOffsets` and `endingOffsets`. Pure.

Spark's Kafka source has given both options their names; the word for the value of a cut is Pravega's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field
from datetime import UTC, datetime

from rollingfs.runtime.values import value_class
from rollingfs.spark.source.stream.offsets import parse
from rollingfs.stream.cut import CUT_FORMAT, StreamCut

EARLIEST, LATEST = "earliest", "latest"
FORMS = "earliest, latest, a time like 2026-11-21T08:00:00Z, or a stream cut, as str(stream.cut()) gives it"


@value_class
class Point:
    """A place in a segment."""

    offset: int
    incarnation: str | None
    """The incarnation that the offset belongs to, or its identity; None in an old cut."""


@value_class
class ReadPosition:
    """A place in all segments that a query reads. At most one of the fields is set."""

    name: str = ""
    """`EARLIEST` or `LATEST`."""
    at_s: float | None = None
    """A time, in seconds since 1970."""
    points: Mapping[str, Point] = field(default_factory=dict)
    """By path on the backend."""

    @property
    def is_cut(self) -> bool:
        """Return whether it is a cut: segments that it does not name came later."""
        return not self.name and self.at_s is None


def parse_position(option: str, text: str) -> ReadPosition:
    """Return a position as a user writes it.

    Parameters
    ----------
    option
        The option's name, for errors.

    Raises
    ------
    ValueError
        The text fits neither `FORMS` nor the offset of a streaming query.
    """
    said = text.strip()
    if said.lower() in (EARLIEST, LATEST):
        return ReadPosition(said.lower())
    if said.startswith("{"):
        return ReadPosition(points=_points(option, said))
    try:
        at = datetime.fromisoformat(said)
    except ValueError as error:
        raise ValueError(f"option {option} is {text!r}: it must be {FORMS}") from error
    return ReadPosition(at_s=(at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp())


def _points(option: str, text: str) -> dict[str, Point]:
    try:
        found = json.loads(text)
        if CUT_FORMAT in found:
            cut = StreamCut.parse(text)
            return {path: Point(offset, cut.incarnations.get(path)) for path, offset in cut.items()}
        return {path: Point(mark.offset, mark.identity) for path, mark in parse(found).items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"option {option} is neither a stream cut nor an offset of a query: {error}") from error
