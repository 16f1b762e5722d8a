"""Commands that read bytes: ``cat``, ``head``, ``tail``."""

from __future__ import annotations

import base64
import sys
from collections.abc import Iterator
from typing import Annotated

import typer

from rollingfs.cli import output
from rollingfs.cli.command import PathOf, PathsOf
from rollingfs.cli.exit_codes import WrongUsage, value_of
from rollingfs.cli.session import Session
from rollingfs.fs.segment_handle import SegmentHandle
from rollingfs.segment.read.spot import Spot

PIECE_BYTES = 4 * 1024 * 1024
PEEK_BYTES = 64 * 1024
"""Size of a read that looks for lines."""
LINES_DEFAULT = 10

Lines = Annotated[int | None, typer.Option("-n", "--lines", min=0, help="How many lines (by default 10).")]
Bytes = Annotated[int | None, typer.Option("-c", "--bytes", min=0, help="How many bytes, rather than lines.")]


def _put(session: Session, name: str, offset: int, data: bytes, **more: str) -> None:
    """Write a piece of a segment: as it is, or as a line of JSON."""
    if session.json:
        text = base64.b64encode(data).decode("ascii")
        output.write_json({"name": name, "offset": offset, "size": len(data), **more, "base64": text})
    else:
        output.write(data)


def cat(session: Session, path: PathsOf) -> None:
    """Write the retained bytes of segments to standard output.

    With --json: a line for each piece, with its segment offset and its bytes in base64.
    """
    for text, place in session.each(path):
        if session.json:
            segment = place.fs.segment(place.path)
            for offset, data in _pieces(segment, segment.start, segment.length, PIECE_BYTES):
                _put(session, segment.path, offset, data)
            continue
        with (
            place.fs.open(place.path, "rb") as file,
            session.progress(text, file.size, of_bytes=True, shown=not sys.stdout.isatty()) as advance,
        ):
            while data := file.read(PIECE_BYTES):
                output.write(data)
                advance.relative_update(len(data))


def head(session: Session, path: PathOf, lines: Lines = None, bytes_: Bytes = None) -> None:
    """Write the first retained lines, or bytes, to standard output.

    With --json: as cat.
    """
    _check_one(lines, bytes_)
    place = session.place(path)
    segment = place.fs.segment(place.path)
    if bytes_ is not None:
        end = min(segment.length, segment.start + bytes_)
        for offset, data in _pieces(segment, segment.start, end, PIECE_BYTES):
            _put(session, segment.path, offset, data)
        return
    left = LINES_DEFAULT if lines is None else lines
    for offset, data in _pieces(segment, segment.start, segment.length if left else segment.start, PEEK_BYTES):
        end = _end_of_line(data, left)
        _put(session, segment.path, offset, data[:end])
        left -= data.count(b"\n", 0, end)
        if left == 0:
            return


def tail(
    session: Session,
    path: PathOf,
    lines: Lines = None,
    bytes_: Bytes = None,
    offset: str | None = None,
    follow: bool = False,
    retry: bool = False,
) -> None:
    """Write the last lines, or bytes, to standard output.

    With --json: as cat, and `next` is what --offset takes to go on in this very segment.

    Parameters
    ----------
    follow : -f
        Go on as the segment grows, until its seal.
    retry : -F
        As -f; and when another segment or file has the name, go on with that, from its start.
    offset : OFFSET
        Begin at this segment offset.
    """
    _check_one(lines, bytes_, offset)
    place = session.place(path)
    segment = place.fs.segment(place.path)
    start: int | str
    if offset is not None:
        start = str(value_of("--offset", offset, Spot.of))
    elif bytes_ is not None:
        start = max(segment.start, segment.length - bytes_)
    else:
        start = last_lines(segment, LINES_DEFAULT if lines is None else lines)
    pieces = segment.tail(start, follow=follow or retry, retry=retry)
    pieces.pause = output.wait
    for data in pieces:
        assert pieces.position is not None
        _put(session, segment.path, pieces.position - len(data), data, next=str(pieces.spot))
        output.flush()


def last_lines(segment: SegmentHandle, count: int) -> int:
    """Return the segment offset at which the last `count` lines begin."""
    position = segment.length
    if count == 0:
        return position
    while position > segment.start:
        first = max(segment.start, position - PEEK_BYTES)
        data = segment.read(first, position)
        # a line feed at the very end ends the last line and begins none
        index = len(data) - 1 if position == segment.length else len(data)
        while (index := data.rfind(b"\n", 0, index)) >= 0:
            count -= 1
            if count == 0:
                return first + index + 1
        position = first
    return segment.start


def _pieces(segment: SegmentHandle, start: int, end: int, size: int) -> Iterator[tuple[int, bytes]]:
    for offset in range(start, end, size):
        yield offset, segment.read(offset, min(offset + size, end))


def _end_of_line(data: bytes, count: int) -> int:
    """Return the end of this many lines; the end of the data if it has fewer."""
    end = 0
    for _ in range(count):
        end = data.find(b"\n", end) + 1
        if end == 0:
            return len(data)
    return end


def _check_one(*given: object) -> None:
    if sum(one is not None for one in given) > 1:
        raise WrongUsage("--lines, --bytes and --offset each say where to begin: give only one of them")
