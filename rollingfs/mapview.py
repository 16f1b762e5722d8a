"""A segment's map as a picture in text: what is truncated, which chunks hold the rest, and where they lie."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rollingfs.header import Chunk

if TYPE_CHECKING:
    from rollingfs.handle import Segment

WIDTH = 72
"""Characters of the bar."""
ROWS_MAX = 24
"""Rows of runs that are shown; of more, the middle ones are left out."""
GONE, TAIL = "·", "░"
SHADES = "█▓"
OWN = "its own folder"


@dataclass(frozen=True, slots=True)
class Run:
    """Neighbouring chunks that lie in one folder, or the inline tail."""

    start: int
    """Segment offset of the first byte retained."""
    end: int
    count: int
    """Chunks; 0 for the inline tail."""
    where: str


def runs(chunks: Iterable[Chunk], start: int, length: int) -> Iterator[Run]:
    """The retained bytes of a segment as runs of chunks by folder, the inline tail last.

    Parameters
    ----------
    start, length
        Segment offsets of the first retained byte and of the end.
    """
    run: Run | None = None
    end = start
    for chunk in chunks:
        where = chunk.file.rpartition("/")[0] or OWN
        end = chunk.end
        if run is not None and run.where == where:
            run = Run(run.start, end, run.count + 1, where)
            continue
        if run is not None:
            yield run
        run = Run(max(chunk.start, start), end, 1, where)
    if run is not None:
        yield run
    if end < length:
        yield Run(end, length, 0, "inline in the header")


def picture(segment: Segment, *, width: int = WIDTH, rows_max: int = ROWS_MAX) -> str:
    """Draw the map of a segment, as its snapshot says.

    Parameters
    ----------
    width
        Characters of the bar that stands for the offsets from 0 to the length.
    rows_max
        How many runs of chunks to list.

    Returns
    -------
    str
        Several lines, without a line break at the end.
    """
    found = list(runs(segment.chunks, segment.start, segment.length))
    state = "sealed" if segment.sealed else "open"
    count = sum(run.count for run in found)
    title = (
        f"{segment.path.rpartition('/')[2]}: {state}, version {segment.version}, start {segment.start:,}, "
        f"length {segment.length:,}: {segment.length - segment.start:,} bytes in {count:,} "
        f"{'chunk' if count == 1 else 'chunks'}"
    )
    return "\n".join([title, f"[{_bar(found, segment.length, width)}]", *_rows(segment.start, found, rows_max)])


def _bar(found: list[Run], length: int, width: int) -> str:
    """One character for each equal part of the offsets, by what holds the part's first byte."""
    marks = [(run.start, TAIL if run.count == 0 else SHADES[index % 2]) for index, run in enumerate(found)]
    bar = []
    for column in range(width if length else 0):
        offset = column * length // width
        bar.append(next((mark for start, mark in reversed(marks) if start <= offset), GONE))
    return "".join(bar)


def _rows(start: int, found: list[Run], rows_max: int) -> list[str]:
    rows = [_row(0, start, GONE, "truncated")] if start else []
    for index, run in enumerate(found):
        mark = SHADES[index % 2] if run.count else TAIL
        chunks = f"{run.count:,} {'chunk' if run.count == 1 else 'chunks'} in " if run.count else ""
        rows.append(_row(run.start, run.end, mark, chunks + run.where))
    left_out = len(rows) - rows_max
    if left_out > 0:
        first = rows_max // 2
        rows[first : first + left_out] = [f"  … {left_out:,} more runs …"]
    return rows


def _row(start: int, end: int, mark: str, what: str) -> str:
    return f"  {mark} {start:>15,} to {end:>15,}  {what}"
