"""The map of a segment as a picture: a bar of rectangles and its legend, as SVG."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from itertools import groupby
from typing import TYPE_CHECKING

from rollingfs.errors import visible
from rollingfs.show.segment_map import AGES, GARBAGE, GONE, TAIL, MapOutline

if TYPE_CHECKING:
    from pathlib import Path

WIDTH, MARGIN = 1000, 20
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
    file.write_text("\n".join([HEAD.format(WIDTH, y), *shapes, "</svg>", ""]), encoding="utf-8")


def _box(x: float, y: float, width: float, height: float, colour: str) -> str:
    """Return a filled rectangle."""
    return f'<rect x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{height:.2f}" fill="{colour}"/>'


def _line(y: float, text: str, x: float = MARGIN, px: int = FONT_PX) -> str:
    """Return a line of text."""
    return f'<text x="{x:.2f}" y="{y:.2f}" font-size="{px}">{escape(text)}</text>'


def _bar(found: MapOutline) -> Iterator[str]:
    """Yield a rectangle for each chunk, whose height is its size."""
    each = (WIDTH - 2 * MARGIN) / max(1, len(found.cells))
    x, largest = float(MARGIN), max((cell.size for cell in found.cells), default=0)
    for cell, group in groupby(found.cells):
        width = len(list(group)) * each
        height = max(CHUNK_HEIGHT_MIN, BAR_HEIGHT * cell.size / largest) if cell.size else BAR_HEIGHT
        gap = 1 if cell.size and width > each else 0
        yield _box(x, BAR_BOTTOM - height, width - gap, height, COLOURS[cell.kind])
        x += width
