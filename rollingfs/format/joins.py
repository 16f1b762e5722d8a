"""Decide whether the files of a concat join, by the ends of each. Pure.

A reader of the result must find what it finds in the parts. So files of whole formats do not join, and lines of text
need a line feed between two parts.
"""

from __future__ import annotations

from collections.abc import Sequence

from rollingfs.errors import WholeFileError, worded
from rollingfs.format import whole_files
from rollingfs.format.edges import SAMPLES, TAIL_BYTES, Kinds, is_text
from rollingfs.format.header import Header
from rollingfs.format.whole_files import AVRO, AVRO_MARKER_BYTES
from rollingfs.runtime.values import value_class

LINE_FEED = b"\n"
OPENS = (b"{", b"[")
"""First bytes of JSON."""


@value_class
class JoinPart:
    """The target or a source of a concat: its two ends."""

    path: str
    incarnation: str | None
    extent: tuple[int, int]
    """Start and end, in segment offsets."""
    head: bytes
    tail: bytes

    @property
    def is_empty(self) -> bool:
        return self.extent[0] == self.extent[1]


def kinds_of(head: bytes, tail: bytes) -> Kinds:
    """Return the kinds of the first and the last bytes of a file; a head that is too short has no kind."""
    head_kind = tail_kind = ""
    if len(head) >= whole_files.head_bytes(head) and not whole_files.begins_a_file(head):
        head_kind = _kind(head, is_lines=LINE_FEED in head or head[:1] in OPENS)
    if not whole_files.ends_a_file(tail):
        tail_kind = _kind(tail, is_lines=tail.endswith(LINE_FEED))
    return head_kind, tail_kind


def _kind(data: bytes, *, is_lines: bool) -> str:
    if not is_text(data):
        return "data"
    return "lines" if is_lines else "open" if LINE_FEED in data else "text"


def noted(header: Header) -> tuple[bytes, bytes] | None:
    """Return bytes that join as the two ends of a segment do, if its header knows the kinds of these."""
    edges, tail = header.edges, header.tail
    if edges is None or edges.start != header.start or edges.head not in SAMPLES:
        return None
    head = SAMPLES[edges.head]
    if len(tail) >= TAIL_BYTES:
        return head, tail[-TAIL_BYTES:]
    if edges.end != header.tail_start or edges.tail not in SAMPLES:
        return None
    sample = SAMPLES[edges.tail]
    return (head, sample + tail) if not tail or is_text(sample + tail) else None


def unended(parts: Sequence[JoinPart], *, adds_line_feeds: bool) -> list[str]:
    """Return the paths of parts that need a line feed before the next part.

    Parameters
    ----------
    parts
        The target, if it is there, and the sources, in order.
    adds_line_feeds
        The caller adds these line feeds. Otherwise such a part is refused.

    Raises
    ------
    WholeFileError
        A reader of the result would not find what it finds in the parts.
    """
    parts = [part for part in parts if not part.is_empty]
    if len(parts) < 2:  # the result is the one part
        return []
    for part in parts:
        name = whole_files.unjoinable(part.head, part.tail)
        if name is not None and not (part is parts[0] and name == AVRO and _are_blocks(parts)):
            raise _whole(part.path, name)
    open_ended = [part.path for part in parts[:-1] if not part.tail.endswith(LINE_FEED) and is_text(part.tail)]
    if open_ended and not adds_line_feeds:
        if not any(map(_is_of_lines, parts)):
            return []  # pieces of one text, maybe
        raise WholeFileError(
            f"{open_ended[0]} is text without a line feed at its end, so its last line and the first of the next file "
            f"would become one. {_nothing()}, and {worded(newline=True)} adds the line feed"
        )
    return open_ended


def _are_blocks(parts: Sequence[JoinPart]) -> bool:
    """Return whether all parts after an Avro file are blocks of it: they end with its marker, and begin no file."""
    marker = parts[0].tail[-AVRO_MARKER_BYTES:]
    return all(
        part.tail.endswith(marker) and whole_files.unjoinable(part.head, part.tail) is None for part in parts[1:]
    )


def _is_of_lines(part: JoinPart) -> bool:
    """Return whether a part is text in lines, or a JSON record."""
    is_in_lines = LINE_FEED in part.head or LINE_FEED in part.tail or part.head[:1] in OPENS
    return is_in_lines and is_text(part.head) and is_text(part.tail)


def _nothing() -> str:
    return f"Nothing was joined; {worded(as_bytes=True)} joins the bytes all the same"


def _whole(path: str, name: str) -> WholeFileError:
    more = {
        "Parquet": f", and {worded(as_format='parquet')} makes one file of all",
        "Arrow stream": f", and {worded(as_format='arrow-stream')} makes one stream of all",
    }
    return WholeFileError(
        f"{path} is {whole_files.a_file(name)}, and such files do not join: a reader would find only one of them. "
        f"{_nothing()}{more.get(name, '')}"
    )
