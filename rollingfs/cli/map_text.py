"""The map of a segment as text for a terminal."""

from __future__ import annotations

from rich.text import Text

from rollingfs.errors import visible
from rollingfs.show.readable import STEPS, count_text, size_text
from rollingfs.show.segment_map import OWN, Class, MapOutline

RUNS_MAX = 24
"""Maximum number of runs of chunks in other folders that are listed."""
GONE, TAIL, GARBAGE = "·", "░", "▒"
AGE_STYLES = ("bright_green", "green", "cyan", "blue", "magenta")
"""The youngest first; as many as `segment_map.AGES`."""
GONE_STYLE, TAIL_STYLE, GARBAGE_STYLE = "bright_black", "yellow", "red"


def map_lines(found: MapOutline, runs_max: int = RUNS_MAX) -> list[Text]:
    """Return the picture of a segment, line by line."""
    name = visible(found.path.rpartition("/")[2])
    lines = [Text(f"{name}: {found.title}"), Text("[").append_text(_bar(found)).append("]")]
    if found.garbage.files:
        cells = min(len(found.cells) or 1, max(1, len(found.cells) * found.garbage.bytes // max(1, found.length)))
        lines.append(Text(" ").append(GARBAGE * cells, GARBAGE_STYLE))
    lines += _legend(found, runs_max)
    return lines


def _bar(found: MapOutline) -> Text:
    largest = max((cell.size for cell in found.cells), default=0)
    bar = Text()
    for cell in found.cells:
        if cell.is_gone:
            bar.append(GONE, GONE_STYLE)
        elif cell.size == 0:
            bar.append(TAIL, TAIL_STYLE)
        else:
            bar.append(STEPS[(len(STEPS) - 1) * cell.size // largest], AGE_STYLES[cell.age])
    return bar


def _legend(found: MapOutline, runs_max: int) -> list[Text]:
    lines = []
    if found.start:
        lines.append(_entry(GONE, GONE_STYLE, f"{size_text(found.start)} truncated, up to offset {found.start:,}"))
    for style, one in zip(AGE_STYLES, found.ages, strict=True):
        if one.count:
            lines.append(_entry(STEPS[-1], style, f"{_class_text(one)} age {one.label}"))
    for step, one in zip(STEPS[:: len(STEPS) // 4] + STEPS[-1], found.sizes, strict=True):
        if one.count:
            lines.append(_entry(step, "", f"{_class_text(one)} size {one.label}"))
    elsewhere = [run for run in found.runs if run.count and run.where != OWN]
    for run in elsewhere[:runs_max]:
        where = visible(run.where)
        lines.append(_entry("→", "", f"{run.start:,} to {run.end:,}: {count_text(run.count, 'chunk')} in {where}"))
    if len(elsewhere) > runs_max:
        lines.append(Text(f"  … {len(elsewhere) - runs_max:,} more runs of chunks in other folders …"))
    if found.tail_bytes:
        lines.append(_entry(TAIL, TAIL_STYLE, f"{size_text(found.tail_bytes)} inline in the header"))
    if found.garbage.files:
        files = count_text(found.garbage.files, "file")
        text = f"{files}, {size_text(found.garbage.bytes)}, that nobody refers to: garbage, or uploads under way"
        lines.append(_entry(GARBAGE, GARBAGE_STYLE, text))
    return lines


def _entry(mark: str, style: str, text: str) -> Text:
    return Text("  ").append(mark, style).append(f" {text}")


def _class_text(one: Class) -> str:
    return f"{count_text(one.count, 'chunk')}, {size_text(one.bytes)},"
