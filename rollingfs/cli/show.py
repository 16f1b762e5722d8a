"""Commands that list, describe and read paths: ``ls``, ``info``, ``map``, ``cat``, ``head``, ``tail``."""

from __future__ import annotations

import base64
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from rich.text import Text

from rollingfs.cli import output
from rollingfs.cli.command import PathOf, PathsOf
from rollingfs.cli.output import WrongUsage, date_text, value_of
from rollingfs.cli.session import Session
from rollingfs.cli.stores import split
from rollingfs.cli.upkeep import policy_text
from rollingfs.errors import visible
from rollingfs.folders.info import Info
from rollingfs.fs.segment_handle import SegmentHandle
from rollingfs.segment.segment import Spot
from rollingfs.show.readable import STEPS, prices_of, size_text, upkeep_texts
from rollingfs.show.segment_map import (
    AGES,
    CELLS,
    GARBAGE,
    GONE,
    LISTED_RUNS_MAX,
    RUN,
    TAIL,
    Class,
    MapOutline,
    draw,
    outline,
)
from rollingfs.stream.states import SIZES

MAP_COLUMNS_MAX = 120
MAP_MARGIN_COLUMNS = 3


def ls(
    session: Session, path: Annotated[list[str] | None, typer.Argument(show_default=False)] = None, long: bool = False
) -> None:
    """List segments, plain files and folders.

    An unreadable entry is listed with its error; then the exit code is 3. With --json: an array of fsspec's infos.

    Parameters
    ----------
    long : -l
        State, chunks, start, size and date.
    path : [PATH]...
        Names, or patterns in quotes ('s3://bucket/log-*'), which are expanded on the store. By default the current
        folder.
    """
    infos: list[Info] = []
    names: list[str] = []
    places = list(session.each(path or ["."]))
    for _, place in places:
        found = cast("list[Info]", place.fs.ls(place.path, detail=True))
        infos += found
        for one in found:
            name = one["name"] if len(places) > 1 else one["name"].rpartition("/")[2]
            names.append(name + ("/" if one["type"] == "directory" else ""))
    if session.json:
        output.write_json(infos)
    elif long:
        output.say(*_listing(infos, names))
    else:
        output.say(*names)
    for one in infos:
        if "error" in one:
            session.code = output.DAMAGED
            output.complain(f"{one['name']} cannot be read: {one['error']}")


def _listing(infos: Iterable[dict[str, Any]], names: Sequence[str]) -> list[str]:
    """Return the rows of ``ls -l``, one for each info, with its shown name."""
    rows = [("state", "chunks", "start", "size", "modified", "name")]
    for info, name in zip(infos, names, strict=True):
        if info["type"] == "directory" or "error" in info:
            rows.append(("unreadable" if "error" in info else "folder", "", "", "", "", name))
            continue
        state = "sealed" if info["sealed"] else "open" if info["version"] else "plain"
        numbers = (f"{info['chunks']:,}", f"{info['start_offset']:,}", size_text(info["size"]))
        rows.append((state, *numbers, date_text(info["mtime"]), name))
    return output.columns(rows, right=(1, 2, 3))


def info(session: Session, path: PathsOf) -> None:
    """Show what is known of segments, plain files or folders.

    With --json: for each, an object with the names of fs.info, on a line of its own; of segments and plain files also
    policy, epoch, owner, rewritten, write_amplification and attrs.
    """
    for _, place in session.each(path):
        found = place.fs.info(place.path)
        segment = place.fs.segment(place.path) if found["type"] == "file" else None
        if session.json:
            more = {} if segment is None else output.picked(segment, "policy epoch owner rewritten")
            if segment is not None:
                more |= {"write_amplification": _amplification(segment), "attrs": dict(segment.attrs)}
            output.write_json(found | more)
            continue
        rows = [(name, _value(name, value)) for name, value in found.items()]
        rows += _details(segment) if segment is not None else []
        output.say(*output.columns(rows))


def _value(name: str, value: Any) -> str:
    if name in ("created", "mtime"):
        return date_text(value)
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _amplification(segment: SegmentHandle) -> float:
    """Return the average number of writes of a byte.

    Its append and consolidations count.
    """
    return round(1 + segment.rewritten / max(segment.length, 1), 3)


def _details(segment: SegmentHandle) -> list[tuple[str, str]]:
    """Return the fields of a segment's handle beyond `fs.info`, for people."""
    rows = [
        ("rolls at", policy_text(segment.policy)),
        ("rewritten", f"{segment.rewritten:,} (write amplification {_amplification(segment):.2f})"),
        ("epoch", f"{segment.epoch}" + (f", held by {segment.owner}" if segment.owner else "")),
    ]
    return rows + [(f"attr {name}", value) for name, value in sorted(segment.attrs.items())]


def map_(session: Session, path: PathOf, file: Path | None = None) -> None:
    """Draw a segment: its truncated bytes, its chunks by size and age, the tail, garbage; the next upkeep.

    The height of a chunk is its size, its colour its age. With --json: all of it as an object.

    Parameters
    ----------
    file : --output -o FILE
        Write the picture into an .svg file.
    """
    if file is not None and file.suffix.lower() != ".svg":
        raise WrongUsage(f"--output {file}: a picture is written as .svg")
    place = session.place(path)
    with session.progress(f"reading the map of {path}"):
        segment = place.fs.segment(place.path)
        loose = place.fs.collect(place.path, grace=0, dry_run=True)
        garbage = Class(GARBAGE, len(loose.files), loose.bytes)
        columns = max(1, min(output.screen().width - MAP_MARGIN_COLUMNS, MAP_COLUMNS_MAX)) if file is None else CELLS
        chunks = segment.chunks
        found = outline(chunks.snapshot, chunks, now_s=time.time(), width=columns, garbage=garbage)
        states = [one for one in place.fs.states(place.path) if one.path == segment.path]
    if file is not None:
        draw(found, file)
    if session.json:
        output.write_json(_as_object(segment, garbage, file))
    elif file is not None:
        output.say(f"{file}: the map of {segment.path}")
    else:
        prices = prices_of(split(path)[0], place.path)
        texts = [upkeep_texts(one.outlook, one.cold_bytes, one.rewritten, prices) for one in states]
        output.show(*map_lines(found), *(Text(line) for lines in texts for line in lines))


def _as_object(segment: SegmentHandle, garbage: Class, file: Path | None) -> dict[str, Any]:
    chunks = [
        {
            "start": max(chunk.start, segment.start),
            "end": chunk.end,
            "file": chunk.file,
            "file_size": chunk.size,
            "written": chunk.at_ms / 1000,
            **({"tier": chunk.tier} if chunk.tier else {}),
        }
        for chunk in segment.chunks
    ]
    tail_start = chunks[-1]["end"] if chunks else segment.start
    return {
        "name": segment.path,
        "state": segment.state,
        "version": segment.version,
        "start_offset": segment.start,
        "length": segment.length,
        "chunks": chunks,
        "inline": {"start": tail_start, "end": segment.length},
        "garbage": {"files": garbage.count, "bytes": garbage.bytes},
        "output": None if file is None else str(file),
    }


AGE_STYLES = ("bright_green", "green", "cyan", "blue", "magenta")
"""The youngest first."""
MARKS = {
    **{GONE: ("·", "bright_black"), TAIL: ("░", "yellow"), GARBAGE: ("▒", "red"), RUN: ("→", "")},
    **{label: (STEPS[-1], style) for (_, label), style in zip(AGES, AGE_STYLES, strict=True)},
    **{label: (step, "") for (_, label), step in zip(SIZES, STEPS[:: len(STEPS) // 4] + STEPS[-1], strict=True)},
}
"""The letter and the style of each kind of part; the letter of a chunk shows its size."""


def map_lines(found: MapOutline, runs_max: int = LISTED_RUNS_MAX) -> list[Text]:
    """Return the picture of a segment, line by line."""
    bar, largest = Text("["), max((cell.size for cell in found.cells), default=0)
    for cell in found.cells:
        mark, style = MARKS[cell.kind]
        bar.append(STEPS[(len(STEPS) - 1) * cell.size // largest] if cell.size else mark, style)
    lines = [Text(f"{visible(found.path.rpartition('/')[2])}: {found.title}"), bar.append("]")]
    if found.garbage.count:
        cells = min(len(found.cells) or 1, max(1, len(found.cells) * found.garbage.bytes // max(1, found.length)))
        mark, style = MARKS[GARBAGE]
        lines.append(Text(" ").append(mark * cells, style))
    return lines + [Text("  ").append(*MARKS[kind]).append(f" {text}") for kind, text in found.legend(runs_max)]


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
        *whole, rest = data.split(b"\n", left)
        left -= len(whole)
        _put(session, segment.path, offset, data if left else data[: len(data) - len(rest)])
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
    while position > segment.start and count:
        first = max(segment.start, position - PEEK_BYTES)
        data = segment.read(first, position)
        # a line feed at the very end ends the last line and begins none
        before, *lines = (data.removesuffix(b"\n") if position == segment.length else data).rsplit(b"\n", count)
        count -= len(lines)
        if count == 0:
            return first + len(before) + 1
        position = first
    return segment.start if count else position


def _pieces(segment: SegmentHandle, start: int, end: int, size: int) -> Iterator[tuple[int, bytes]]:
    for offset in range(start, end, size):
        yield offset, segment.read(offset, min(offset + size, end))


def _check_one(*given: object) -> None:
    if sum(one is not None for one in given) > 1:
        raise WrongUsage("--lines, --bytes and --offset each say where to begin: give only one of them")
