"""Offsets of a stream: its position in each segment, as Spark keeps it in its checkpoint. Pure.

Spark compares offsets as JSON text, so an offset that has not moved must have the same text::

    {"/data/events/a": {"segment": "7b0c2f6e-…", "offset": 1048576, "check": [64, 2774183001], "sealed": true}, …}

If a batch is the first to read a segment, or skips its head, the field ``from`` is the begin of the batch.
Of a plain file, the field ``head`` is a checksum of its first bytes.
``"$idle": true`` distinguishes an offset from an equal offset before it: Spark calls a batch done only
when the next begins. The values of paths are objects, so no path is taken for this name.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from datetime import UTC, datetime
from typing import Any

from rollingfs.runtime.values import value_class
from rollingfs.segment.segment import Segment
from rollingfs.spark.source import segments
from rollingfs.spark.source.segments import PLAIN, Extent, PlainFile
from rollingfs.stream.cut import CUT_FORMAT, StreamCut

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
        sums = [one and list(one) for one in (self.check, self.head)]
        values = (self.identity, self.offset, self.begin, *sums, self.sealed or None)
        names = ("segment", "offset", "from", "check", "head", "sealed")
        return {name: value for name, value in zip(names, values, strict=True) if value is not None}

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
        sums = [known.get(name, [0, 0]) for name in ("check", "head")]
        numbers = [known.get("offset"), known.get("from", 0)]
        numbers += [number for one in sums if isinstance(one, list) for number in one]
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
        if begin is not None and begin < mark.offset and before != mark:
            found.append(Extent(path, mark.identity, begin, mark.offset))
    return found


Moves = dict[str, tuple[str, ReadMark]]
"""By the new path of a segment: its old path, and its mark."""


def has_moved(before: Mapping[str, ReadMark], after: Mapping[str, ReadMark]) -> bool:
    """Return whether there are bytes to read, or something to remember: the end of a segment, or a loss of bytes."""
    if any(path not in after and not mark.sealed for path, mark in before.items()):
        return True
    for path, mark in after.items():
        known = before.get(path)
        if known is None:
            if mark.begin is not None and mark.offset > mark.begin:
                return True
        elif mark.begin is not None or mark.offset > known.offset or mark.sealed != known.sealed:
            return True
    return False


def moves(
    before: Mapping[str, ReadMark],
    views: Mapping[str, Segment],
    goes_on: Callable[[Segment, ReadMark], bool],
    became: Callable[[str, str, Mapping[str, Segment]], str | None],
) -> Moves:
    """Return the segments that a rename has given other names.

    A segment keeps its incarnation. A plain file keeps its inode, or has become a segment, and its bytes, which
    `goes_on` compares; where a store has no inodes, a plain file under another name is another file.

    Parameters
    ----------
    became
        Tells, by path and identity, which segment a plain file may have become.
    """
    old = {path: mark for path, mark in before.items() if not _is_at(views.get(path), mark)}
    new = {path: view for path, view in views.items() if path not in before or not _is_at(view, before[path])}
    if not old or not new:
        return {}
    lineages = {mark.identity: path for path, mark in old.items() if not mark.identity.startswith(PLAIN)}
    plain = {path: mark.identity for path, mark in old.items() if mark.identity.startswith(PLAIN)}
    inodes = {PlainFile.parse(identity).inode: path for path, identity in plain.items()}
    is_segment = any(view.header is not None for view in new.values())
    heirs = {became(path, identity, new): path for path, identity in plain.items()} if is_segment else {}
    found: Moves = {}
    for path, view in new.items():
        now = segments.identity(view)
        was = inodes.get(PlainFile.of(view.plain).inode or "") if view.plain else lineages.get(now, heirs.get(path))
        may_be = was is not None and (view.plain is None or segments.is_kept(view, old[was].identity))
        if was is not None and may_be and (was not in plain or goes_on(view, old[was])):
            found[path] = (was, old[was] if view.plain else replace(old[was], identity=now))
    return found


def _is_at(view: Segment | None, mark: ReadMark) -> bool:
    return view is not None and segments.is_same(view, mark.identity)


def known(before: Mapping[str, ReadMark], views: Mapping[str, Segment], moved: Moves) -> dict[str, ReadMark | None]:
    """Return the marks of the present segments, also of renamed segments.

    It is None for a segment that the query does not know.
    """
    gone = {was for was, _ in moved.values()}
    stay = {path: before[path] if path in before and path not in gone else None for path in views}
    return stay | {path: mark for path, (_, mark) in moved.items()}


def lag(views: Mapping[str, Segment], marks: Mapping[str, ReadMark]) -> dict[str, Any]:
    """Return what `reportLatestOffset` gives."""
    behind: dict[str, Any] = {}
    for path, view in views.items():
        begin = max(view.start, marks[path].offset) if path in marks else view.start
        if view.length > begin:
            age_s = max(0.0, time.time() - segments.committed_ms(view, begin) / 1000)
            lags = {"lagBytes": view.length - begin, "lagSeconds": round(age_s, 3)}
            behind[path] = {"segment": segments.identity(view), "offset": view.length, **lags}
    lag_bytes = sum(found["lagBytes"] for found in behind.values())
    lag_s = max((found["lagSeconds"] for found in behind.values()), default=0.0)
    return {"lagBytes": lag_bytes, "lagSeconds": lag_s, "segments": behind}


EARLIEST, LATEST = "earliest", "latest"
FORMS = "earliest, latest, a time like 2026-11-21T08:00:00Z, or a stream cut, as str(stream.cut()) gives it"


@value_class
class ReadPosition:
    """A place in all segments that a query reads. At most one of the fields is set."""

    name: str = ""
    """`EARLIEST` or `LATEST`."""
    at_s: float | None = None
    """A time, in seconds since 1970."""
    points: Mapping[str, ReadMark] = field(default_factory=dict)
    """By path on the backend; of a cut, the identity is the incarnation, or empty in an old cut."""


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


def _points(option: str, text: str) -> dict[str, ReadMark]:
    try:
        found = json.loads(text)
        if CUT_FORMAT in found:
            cut = StreamCut.parse(text)
            return {path: ReadMark(cut.incarnations.get(path, ""), offset) for path, offset in cut.items()}
        return parse(found)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"option {option} is neither a stream cut nor an offset of a query: {error}") from error
