"""The map of a segment as a picture: a few shapes, as SVG."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby
from typing import TYPE_CHECKING

from rollingfs.errors import visible
from rollingfs.format.names import CHUNKS_SUFFIX
from rollingfs.runtime.values import value_class
from rollingfs.show.readable import count_text, size_text
from rollingfs.show.segment_map import Class, Outline

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


@value_class
class Box:
    """A filled rectangle."""

    x: float
    y: float
    width: float
    height: float
    colour: str


@value_class
class TextLine:
    """A line of text. It begins at `x`, or ends there if `ends`."""

    x: float
    y: float
    text: str
    px: int = FONT_PX
    ends: bool = False


Shape = Box | TextLine


def draw(found: Outline, file: Path) -> None:
    """Write the picture into a file, as SVG."""
    shapes = list(_shapes(found))
    height = round(max(shape.y for shape in shapes)) + MARGIN
    file.write_text(_svg(shapes, height), encoding="utf-8")


# -- shapes --------------------------------------------------------------------------------------------------


def _shapes(found: Outline) -> Iterator[Shape]:
    yield TextLine(MARGIN, 30, visible(found.path), TITLE_PX)
    yield TextLine(MARGIN, 54, found.title)
    yield from _runs(found)
    yield from _bar(found)
    yield TextLine(MARGIN, BAR_BOTTOM + 18, "0")
    if found.start:
        yield TextLine(_x(found, found.start), BAR_BOTTOM + 18, f"start {found.start:,}")
    yield TextLine(WIDTH - MARGIN, BAR_BOTTOM + 18, f"length {found.length:,}", ends=True)
    if found.garbage.files:
        width = max(2.0, min(1.0, found.garbage.bytes / max(1, found.length)) * (WIDTH - 2 * MARGIN))
        yield Box(MARGIN, BAR_BOTTOM + 28, width, 10, GARBAGE_COLOUR)
    yield from _legend(found)


def _x(found: Outline, offset: int) -> float:
    return MARGIN + (WIDTH - 2 * MARGIN) * offset / max(1, found.length)


def _runs(found: Outline) -> Iterator[Shape]:
    """A strip that shows the folders of the chunks, if there is more than one."""
    runs = [run for run in found.runs if run.count]
    if len(runs) < 2:
        return
    for index, run in enumerate(runs):
        x = _x(found, run.start)
        width = _x(found, run.end) - x
        name = visible(run.where.rpartition("/")[2].removesuffix(CHUNKS_SUFFIX))
        yield Box(x, RUNS_TOP, width, RUNS_HEIGHT, RUN_COLOURS[index % 2])
        if len(name) * CHARACTER_WIDTH < width:
            yield TextLine(x, RUNS_TOP - 4, name, FONT_PX - 2)


def _bar(found: Outline) -> Iterator[Box]:
    largest = max((cell.size for cell in found.cells), default=0)
    each = (WIDTH - 2 * MARGIN) / max(1, len(found.cells))
    at = 0
    for cell, group in groupby(found.cells):
        count = len(list(group))
        x, width = MARGIN + at * each, count * each
        at += count
        if cell.is_gone:
            yield Box(x, BAR_TOP, width, BAR_HEIGHT, GONE_COLOUR)
        elif cell.size == 0:
            yield Box(x, BAR_TOP, width, BAR_HEIGHT, TAIL_COLOUR)
        else:
            height = max(CHUNK_HEIGHT_MIN, BAR_HEIGHT * cell.size / largest)
            gap = CHUNK_GAP if count > 1 else 0
            yield Box(x, BAR_BOTTOM - height, width - gap, height, AGE_COLOURS[cell.age])


def _legend(found: Outline) -> Iterator[Shape]:
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
    yield TextLine(MARGIN, LEGEND_TOP, "by age")
    for index, (colour, text) in enumerate(shown):
        y = LEGEND_TOP + ROW_HEIGHT * (index + 1)
        yield Box(MARGIN, y - 11, 12, 12, colour)
        yield TextLine(MARGIN + 20, y, text)
    yield from _sizes(found.sizes)


def _sizes(sizes: Sequence[Class]) -> Iterator[Shape]:
    """A bar for each class of sizes; its length shows the bytes of its chunks."""
    left = WIDTH // 2
    shown = [one for one in sizes if one.count]
    most = max((one.bytes for one in shown), default=0)
    yield TextLine(left, LEGEND_TOP, "by size")
    for index, one in enumerate(shown):
        y = LEGEND_TOP + ROW_HEIGHT * (index + 1)
        yield TextLine(left, y, _class_text(one))
        yield Box(left + 260, y - 11, max(2.0, 200 * one.bytes / most), 12, SIZE_COLOUR)


def _class_text(one: Class) -> str:
    return f"{one.label}: {count_text(one.count, 'chunk')}, {size_text(one.bytes)}"


# -- files ----------------------------------------------------------------------------------------------------


def _svg(shapes: Sequence[Shape], height: int) -> str:
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'font-family="sans-serif" fill="{INK}">',
        f'<rect width="{WIDTH}" height="{height}" fill="{PAPER}"/>',
    ]
    for shape in shapes:
        if isinstance(shape, Box):
            lines.append(
                f'<rect x="{shape.x:.2f}" y="{shape.y:.2f}" width="{shape.width:.2f}" height="{shape.height:.2f}" '
                f'fill="{shape.colour}"/>'
            )
        else:
            anchor = ' text-anchor="end"' if shape.ends else ""
            text = escape(shape.text)
            lines.append(f'<text x="{shape.x:.2f}" y="{shape.y:.2f}" font-size="{shape.px}"{anchor}>{text}</text>')
    return "\n".join([*lines, "</svg>", ""])
