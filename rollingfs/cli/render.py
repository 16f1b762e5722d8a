"""What commands show to people in a terminal: tables, progress bars, the picture of a segment."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TransferSpeedColumn,
)
from rich.table import Table
from rich.text import Text

from rollingfs.cli.output import visible
from rollingfs.cli.text import count_text, date_text, size_text
from rollingfs.fs.segment_map import GONE, ROWS_MAX, TAIL, Class, Outline

STEPS = "▁▂▃▄▅▆▇█"
"""The larger a chunk, the higher."""
GARBAGE = "▒"
AGE_STYLES = ("bright_green", "green", "cyan", "blue", "magenta")
"""The youngest first; as many as `mapview.AGES`."""
GONE_STYLE, TAIL_STYLE, GARBAGE_STYLE = "bright_black", "yellow", "red"
BAR_COLUMNS = 24


def listing(infos: Iterable[dict[str, Any]], names: Sequence[str]) -> Table:
    """``ls -l``: a row for each info, with its shown name."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in ("state", "chunks", "start", "size", "modified", "name"):
        table.add_column(title, justify="right" if title in ("chunks", "start", "size") else "left", no_wrap=True)
    for info, name in zip(infos, names, strict=True):
        if info["type"] == "directory":
            table.add_row("folder", "", "", "", "", Text(visible(name)))
            continue
        if "error" in info:
            table.add_row("unreadable", "", "", "", "", Text(visible(name)))
            continue
        state = "sealed" if info["sealed"] else "open" if info["version"] else "plain"
        numbers = [f"{info[key]:,}" for key in ("chunks", "start_offset", "size")]
        table.add_row(state, *numbers, date_text(info["mtime"]), Text(visible(name)))
    return table


def fields(rows: Iterable[tuple[str, str]]) -> Table:
    """Names and values, one below the other."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for name, value in rows:
        table.add_row(name, Text(visible(value)))
    return table


def progress_bar(*, of_bytes: bool, counted: bool) -> Progress:
    """A bar on standard error, which goes away when it is done."""
    columns: list[ProgressColumn] = [SpinnerColumn(), TextColumn("{task.description}", markup=False)]
    if counted:
        columns.append(BarColumn(BAR_COLUMNS))
        columns += [DownloadColumn(binary_units=True), TransferSpeedColumn()] if of_bytes else [MofNCompleteColumn()]
    columns.append(TimeElapsedColumn())
    # nothing is redirected: what is said to standard output goes there, be it a file
    return Progress(
        *columns, console=Console(stderr=True), transient=True, redirect_stdout=False, redirect_stderr=False
    )


# -- the picture of a segment --------------------------------------------------------------------------------


def map_lines(found: Outline) -> list[Text]:
    """The picture of a segment, line by line."""
    name = visible(found.path.rpartition("/")[2])
    lines = [Text(f"{name}: {found.title}"), Text("[").append_text(_bar(found)).append("]")]
    if found.garbage.files:
        cells = min(len(found.cells) or 1, max(1, len(found.cells) * found.garbage.bytes // max(1, found.length)))
        lines.append(Text(" ").append(GARBAGE * cells, GARBAGE_STYLE))
    lines += _legend(found)
    return lines


def _bar(found: Outline) -> Text:
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


def _legend(found: Outline) -> list[Text]:
    lines = []
    if found.start:
        lines.append(_entry(GONE, GONE_STYLE, f"{size_text(found.start)} truncated, up to offset {found.start:,}"))
    for style, one in zip(AGE_STYLES, found.ages, strict=True):
        if one.count:
            lines.append(_entry(STEPS[-1], style, f"{_class_text(one)} age {one.label}"))
    for step, one in zip(STEPS[:: len(STEPS) // 4] + STEPS[-1], found.sizes, strict=True):
        if one.count:
            lines.append(_entry(step, "", f"{_class_text(one)} size {one.label}"))
    elsewhere = [run for run in found.runs if run.where.startswith("../") or "/" in run.where]
    for run in elsewhere[:ROWS_MAX]:
        where = visible(run.where)
        lines.append(_entry("→", "", f"{run.start:,} to {run.end:,}: {count_text(run.count, 'chunk')} in {where}"))
    if len(elsewhere) > ROWS_MAX:
        lines.append(Text(f"  … {len(elsewhere) - ROWS_MAX:,} more runs of chunks in other folders …"))
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
