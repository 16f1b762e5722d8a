"""A picture of a segment: the truncated bytes, the chunks with the rest, and their folders; also as SVG."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby
from pathlib import Path

from rollingfs.errors import visible
from rollingfs.format.header import Chunk, Entry, Page
from rollingfs.runtime.values import value_class
from rollingfs.segment.segment import Segment
from rollingfs.show.readable import count_text, size_text
from rollingfs.stream.states import SIZES, size_class

WIDTH = 72
"""Characters of the bar."""
OWN = "its own folder"
INLINE = "inline in the header"
PAGES = "index pages"
"""Folder of chunks that only index pages list."""
AGES = ((60, "< 1 min"), (3600, "< 1 h"), (86400, "< 1 day"), (7 * 86400, "< 1 week"), (None, "1 week or more"))
"""Classes of chunks by the seconds since they were written."""
GONE, TAIL, GARBAGE, RUN = "gone", "tail", "garbage", "run"
"""Kinds of parts of a picture; the other kinds are the labels of `AGES` and `SIZES`."""
LISTED_RUNS_MAX = 24
"""Maximum number of runs of chunks in other folders that a legend lists."""


@value_class
class ChunkRun:
    """Neighbouring chunks of a folder, or the inline tail."""

    start: int
    """Segment offset of the first byte retained."""
    end: int
    count: int
    """Chunks; 0 for the inline tail."""
    where: str


def _where(entry: Entry) -> str:
    if isinstance(entry, Page):
        return PAGES
    folder = entry.file.rpartition("/")[0] or OWN
    return f"{folder}, tier {entry.tier}" if entry.tier else folder


def runs(entries: Iterable[Entry], start: int, length: int) -> Iterator[ChunkRun]:
    """Yield the retained bytes of a segment as runs of chunks by folder, the inline tail last.

    Parameters
    ----------
    entries
        Chunks, or what the header itself lists: an index page then stands for all its chunks.
    start, length
        Segment offsets of the first retained byte and of the end.
    """
    end = start
    for where, group in groupby(entries, _where):
        first, count = -1, 0
        for entry in group:
            first = max(entry.start, start) if count == 0 else first
            count += entry.count if isinstance(entry, Page) else 1
            end = entry.end
        yield ChunkRun(first, end, count, where)
    if end < length:
        yield ChunkRun(end, length, 0, INLINE)


@value_class
class Cell:
    """An equal part of a segment's offsets, described by the chunk with its first byte."""

    size: int
    """Bytes of that chunk; 0 for the inline tail and for truncated bytes."""
    kind: str
    """The label of the chunk's age, `GONE` or `TAIL`."""
    start: int = 0
    """Segment offset of the chunk's first byte, which distinguishes neighbours of equal size."""


@dataclass(slots=True)
class Class:
    """Chunks of about the same size, or age; or files of a segment's folder without a reference."""

    label: str
    count: int = 0
    bytes: int = 0


@value_class
class MapOutline:
    """All that a picture of a segment shows."""

    path: str
    state: str
    version: int
    start: int
    length: int
    cells: Sequence[Cell]
    runs: Sequence[ChunkRun]
    sizes: Sequence[Class]
    ages: Sequence[Class]
    garbage: Class

    @property
    def chunks(self) -> int:
        """Return the number of chunks."""
        return sum(run.count for run in self.runs)

    @property
    def tail_bytes(self) -> int:
        """Return bytes inline in the header."""
        return sum(run.end - run.start for run in self.runs if run.count == 0)

    @property
    def title(self) -> str:
        """Return the segment in a line, without its path."""
        facts = f"{self.state}, version {self.version}, start {self.start:,}, length {self.length:,}"
        bytes_ = f"{self.length - self.start:,} bytes in {count_text(self.chunks, 'chunk')}"
        return f"{facts}: {bytes_}{f', {self.tail_bytes:,} inline' if self.tail_bytes else ''}"

    def legend(self, runs_max: int = LISTED_RUNS_MAX) -> Iterator[tuple[str, str]]:
        """Yield the parts of the picture: the kind of each, and what it is.

        Parameters
        ----------
        runs_max
            Maximum number of runs of chunks in other folders.
        """
        if self.start:
            yield GONE, f"{size_text(self.start)} truncated, up to offset {self.start:,}"
        for what, classes in (("age", self.ages), ("size", self.sizes)):
            for one in classes:
                if one.count:
                    yield one.label, f"{count_text(one.count, 'chunk')}, {size_text(one.bytes)}, {what} {one.label}"
        elsewhere = [run for run in self.runs if run.count and run.where != OWN]
        for run in elsewhere[:runs_max]:
            where = f"{count_text(run.count, 'chunk')} in {visible(run.where)}"
            yield RUN, f"{run.start:,} to {run.end:,}: {where}"
        if len(elsewhere) > runs_max:
            yield RUN, f"… {len(elsewhere) - runs_max:,} more runs of chunks in other folders …"
        if self.tail_bytes:
            yield TAIL, f"{size_text(self.tail_bytes)} inline in the header"
        if self.garbage.count:
            files = f"{count_text(self.garbage.count, 'file')}, {size_text(self.garbage.bytes)}"
            yield GARBAGE, f"{files}, that nobody refers to: garbage, or uploads under way"


def outline(
    view: Segment, chunks: Iterable[Chunk], *, now_s: float, width: int = WIDTH, garbage: Class | None = None
) -> MapOutline:
    """Return the content of a picture of a segment.

    Memory does not grow with the number of chunks.

    Parameters
    ----------
    chunks
        The chunks of the segment, in order, without the inline tail.
    now_s
        The time to which ages are counted, in seconds since 1970.
    width
        Number of cells of equal offsets.
    """
    start, length = view.start, view.length
    sizes, ages = ([Class(label) for _, label in classes] for classes in (SIZES, AGES))

    def columns(first: int, end: int) -> range:
        """Return the cells whose first byte is between two offsets."""
        return range(*(-(-offset * width // length) for offset in (first, end))) if length else range(0)

    cells = [Cell(0, TAIL)] * (width if length else 0)
    for column in columns(0, start):
        cells[column] = Cell(0, GONE)

    def noted() -> Iterator[Chunk]:
        for chunk in chunks:
            first = max(chunk.start, start)
            age_s = now_s - chunk.at_ms / 1000
            age = next(one for one, (limit_s, _) in zip(ages, AGES, strict=True) if limit_s is None or age_s < limit_s)
            for found in (sizes[size_class(chunk.end - first)], age):
                found.count += 1
                found.bytes += chunk.end - first
            for column in columns(first, chunk.end):
                cells[column] = Cell(chunk.end - first, age.label, chunk.start)
            yield chunk

    found = list(runs(noted(), start, length))
    if found and found[-1].count == 0 and cells:
        cells[-1] = Cell(0, TAIL)  # an inline tail is shown, however short it is
    facts = (view.path, view.state, view.version, start, length)
    return MapOutline(*facts, cells, found, sizes, ages, garbage or Class(GARBAGE))


# -- SVG -----------------------------------------------------------------------------------------------------

PICTURE_PX, MARGIN = 1000, 20
CELLS = 480
BAR_BOTTOM, BAR_HEIGHT, CHUNK_HEIGHT_MIN = 170, 90, 6
LEGEND_TOP, ROW_HEIGHT, FONT_PX, TITLE_PX = 206, 22, 14, 18
AGE_COLOURS = ("#2da44e", "#57ab5a", "#39a7c4", "#3b6fd4", "#8250df")
"""The youngest first."""
COLOURS = dict(zip((label for _, label in AGES), AGE_COLOURS, strict=True))
COLOURS |= {GONE: "#d0d7de", TAIL: "#d4a72c", GARBAGE: "#cf222e"}
"""By the kind of a part."""
HEAD = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {0} {1}" width="{0}" height="{1}" font-family="sans-serif" '
    'fill="#1f2328">\n<rect width="{0}" height="{1}" fill="#ffffff"/>'
)


def draw(found: MapOutline, file: Path) -> None:
    """Write the picture into a file, as SVG."""
    shapes = [_line(30, visible(found.path), MARGIN, TITLE_PX), _line(54, found.title), *_bar(found)]
    y = LEGEND_TOP
    for kind, text in found.legend():
        shapes += [_box(MARGIN, y - 11, 12, 12, COLOURS[kind])] if kind in COLOURS else []
        shapes.append(_line(y, text, MARGIN + 20))
        y += ROW_HEIGHT
    file.write_text("\n".join([HEAD.format(PICTURE_PX, y), *shapes, "</svg>", ""]), encoding="utf-8")


def _box(x: float, y: float, width: float, height: float, colour: str) -> str:
    """Return a filled rectangle."""
    return f'<rect x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{height:.2f}" fill="{colour}"/>'


def _line(y: float, text: str, x: float = MARGIN, px: int = FONT_PX) -> str:
    """Return a line of text."""
    return f'<text x="{x:.2f}" y="{y:.2f}" font-size="{px}">{escape(text)}</text>'


def _bar(found: MapOutline) -> Iterator[str]:
    """Yield a rectangle for each chunk, whose height is its size."""
    each = (PICTURE_PX - 2 * MARGIN) / max(1, len(found.cells))
    x, largest = float(MARGIN), max((cell.size for cell in found.cells), default=0)
    for cell, group in groupby(found.cells):
        width = len(list(group)) * each
        height = max(CHUNK_HEIGHT_MIN, BAR_HEIGHT * cell.size / largest) if cell.size else BAR_HEIGHT
        gap = 1 if cell.size and width > each else 0
        yield _box(x, BAR_BOTTOM - height, width - gap, height, COLOURS[cell.kind])
        x += width
