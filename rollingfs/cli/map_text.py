"""The map of a segment as text for a terminal."""

from __future__ import annotations

from rich.text import Text

from rollingfs.errors import visible
from rollingfs.segment.files.state import SIZES
from rollingfs.show.readable import STEPS
from rollingfs.show.segment_map import AGES, GARBAGE, GONE, LISTED_RUNS_MAX, RUN, TAIL, MapOutline

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
