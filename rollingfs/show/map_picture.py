"""The map of a segment as a picture: a few shapes, as SVG."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby
from typing import TYPE_CHECKING

from rollingfs.errors import visible
from rollingfs.format.names import CHUNKS_SUFFIX
from rollingfs.show.readable import count_text, size_text
from rollingfs.show.segment_map import Class, MapOutline

if TYPE_CHECKING:
    from pathlib import Path

WIDTH = 1000
MARGIN = 20
CELLS = 480
BAR_TOP, BAR_HEIGHT = 100, 90
RUNS_TOP, RUNS_HEIGHT = BAR_TOP - 14, 8
CHARACTER_WIDTH = 8
"""Minimum width for each character of a label; a run without this room has no label."""
BAR_BOTTOM = BAR_TOP + BAR_HEIGHT
CHUNK_HEIGHT_MIN = 6
CHUNK_GAP = 1
ROW_HEIGHT = 22
LEGEND_TOP = BAR_BOTTOM + 70
AGE_COLOURS = ("#2da44e", "#57ab5a", "#39a7c4", "#3b6fd4", "#8250df")
"""The youngest first; as many as `segment_map.AGES`."""
GONE_COLOUR, TAIL_COLOUR, GARBAGE_COLOUR = "#d0d7de", "#d4a72c", "#cf222e"
INK, PAPER, SIZE_COLOUR = "#1f2328", "#ffffff", "#6e7781"
RUN_COLOURS = ("#0969da", "#a5c8f0")
"""Neighbouring runs of chunks in different folders have different colours."""
FONT_PX, TITLE_PX = 14, 18


Shape = tuple[float, str]
"""The lower end of what is drawn, and its element of SVG."""


def _box(x: float, y: float, width: float, height: float, colour: str) -> Shape:
    """Return a filled rectangle."""
    place = f'x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{height:.2f}"'
    return y, f'<rect {place} fill="{colour}"/>'


def _line(x: float, y: float, text: str, px: int = FONT_PX, *, ends: bool = False) -> Shape:
    """Return a line of text, which begins at `x`, or ends there if `ends`."""
    anchor = ' text-anchor="end"' if ends else ""
    return y, f'<text x="{x:.2f}" y="{y:.2f}" font-size="{px}"{anchor}>{escape(text)}</text>'


def draw(found: MapOutline, file: Path) -> None:
    """Write the picture into a file, as SVG."""
    shapes = list(_shapes(found))
    height = round(max(y for y, _ in shapes)) + MARGIN
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'font-family="sans-serif" fill="{INK}">'
    )
    paper = f'<rect width="{WIDTH}" height="{height}" fill="{PAPER}"/>'
    file.write_text("\n".join([head, paper, *(element for _, element in shapes), "</svg>", ""]), encoding="utf-8")


# -- shapes --------------------------------------------------------------------------------------------------


def _shapes(found: MapOutline) -> Iterator[Shape]:
    yield _line(MARGIN, 30, visible(found.path), TITLE_PX)
    yield _line(MARGIN, 54, found.title)
    yield from _runs(found)
    yield from _bar(found)
    yield _line(MARGIN, BAR_BOTTOM + 18, "0")
    if found.start:
        yield _line(_x(found, found.start), BAR_BOTTOM + 18, f"start {found.start:,}")
    yield _line(WIDTH - MARGIN, BAR_BOTTOM + 18, f"length {found.length:,}", ends=True)
    if found.garbage.files:
        width = max(2.0, min(1.0, found.garbage.bytes / max(1, found.length)) * (WIDTH - 2 * MARGIN))
        yield _box(MARGIN, BAR_BOTTOM + 28, width, 10, GARBAGE_COLOUR)
    yield from _legend(found)


def _x(found: MapOutline, offset: int) -> float:
    return MARGIN + (WIDTH - 2 * MARGIN) * offset / max(1, found.length)


def _runs(found: MapOutline) -> Iterator[Shape]:
    """Yield a strip that shows the folders of the chunks, if there are several."""
    runs = [run for run in found.runs if run.count]
    if len(runs) < 2:
        return
    for index, run in enumerate(runs):
        x = _x(found, run.start)
        width = _x(found, run.end) - x
        name = visible(run.where.rpartition("/")[2].removesuffix(CHUNKS_SUFFIX))
        yield _box(x, RUNS_TOP, width, RUNS_HEIGHT, RUN_COLOURS[index % 2])
        if len(name) * CHARACTER_WIDTH < width:
            yield _line(x, RUNS_TOP - 4, name, FONT_PX - 2)


def _bar(found: MapOutline) -> Iterator[Shape]:
    largest = max((cell.size for cell in found.cells), default=0)
    each = (WIDTH - 2 * MARGIN) / max(1, len(found.cells))
    at = 0
    for cell, group in groupby(found.cells):
        count = len(list(group))
        x, width = MARGIN + at * each, count * each
        at += count
        if cell.is_gone:
            yield _box(x, BAR_TOP, width, BAR_HEIGHT, GONE_COLOUR)
        elif cell.size == 0:
            yield _box(x, BAR_TOP, width, BAR_HEIGHT, TAIL_COLOUR)
        else:
            height = max(CHUNK_HEIGHT_MIN, BAR_HEIGHT * cell.size / largest)
            gap = CHUNK_GAP if count > 1 else 0
            yield _box(x, BAR_BOTTOM - height, width - gap, height, AGE_COLOURS[cell.age])


def _legend(found: MapOutline) -> Iterator[Shape]:
    marks = [(colour, one.count > 0, _class_text(one)) for colour, one in zip(AGE_COLOURS, found.ages, strict=True)]
    marks += [
        (GONE_COLOUR, found.start > 0, f"truncated: {size_text(found.start)}"),
        (TAIL_COLOUR, found.tail_bytes > 0, f"inline tail: {size_text(found.tail_bytes)}"),
        (
            GARBAGE_COLOUR,
            found.garbage.files > 0,
            f"garbage: {count_text(found.garbage.files, 'file')}, {size_text(found.garbage.bytes)}",
        ),
    ]
    shown = [(colour, text) for colour, is_there, text in marks if is_there]
    yield _line(MARGIN, LEGEND_TOP, "by age")
    for index, (colour, text) in enumerate(shown):
        y = LEGEND_TOP + ROW_HEIGHT * (index + 1)
        yield _box(MARGIN, y - 11, 12, 12, colour)
        yield _line(MARGIN + 20, y, text)
    yield from _sizes(found.sizes)


def _sizes(sizes: Sequence[Class]) -> Iterator[Shape]:
    """Yield a bar for each class of sizes; its length shows the bytes of its chunks."""
    left = WIDTH // 2
    shown = [one for one in sizes if one.count]
    most = max((one.bytes for one in shown), default=0)
    yield _line(left, LEGEND_TOP, "by size")
    for index, one in enumerate(shown):
        y = LEGEND_TOP + ROW_HEIGHT * (index + 1)
        yield _line(left, y, _class_text(one))
        yield _box(left + 260, y - 11, max(2.0, 200 * one.bytes / most), 12, SIZE_COLOUR)


def _class_text(one: Class) -> str:
    return f"{one.label}: {count_text(one.count, 'chunk')}, {size_text(one.bytes)}"
