"""``top``: a live table of the segments below a root, with what offload and collection still have to do."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.live import Live
from rich.table import Table
from rich.text import Text

from rollingfs.cli import errors, output
from rollingfs.cli.command import Commands, PathOf
from rollingfs.cli.errors import WrongUsage
from rollingfs.cli.session import Place, Session
from rollingfs.fs.readable import count_text, size_text, visible
from rollingfs.maintenance import SegmentState
from rollingfs.policy import parse_bytes, parse_seconds

commands = Commands()

EVERY_DEFAULT = "2s"
EVERY_S_MIN = 0.1
FRAME_LINES = 4
"""Lines of the screen for the summary, the titles, what is left out, and the cursor."""
COLUMNS = ("segment", "state", "start", "length", "hot", "cold", "cold end", "lag", "lag age", "drops", "last commit")
LEFT = frozenset({"segment", "state", "last commit"})


class Sort(StrEnum):
    """The column by which `top` sorts: names and states from a to z, numbers and dates from the greatest."""

    NAME = "name"
    STATE = "state"
    SIZE = "size"
    HOT = "hot"
    COLD = "cold"
    LAG = "lag"
    AGE = "age"
    DROPS = "drops"
    COMMIT = "commit"


_BY: dict[Sort, Callable[[SegmentState], Any]] = {
    Sort.NAME: lambda one: one.path,
    Sort.STATE: lambda one: one.state,
    Sort.SIZE: lambda one: -one.size,
    Sort.HOT: lambda one: -one.hot_bytes,
    Sort.COLD: lambda one: -one.cold_bytes,
    Sort.LAG: lambda one: -one.lag_bytes,
    Sort.AGE: lambda one: -one.lag_s,
    Sort.DROPS: lambda one: -one.drops,
    Sort.COMMIT: lambda one: -one.committed,
}


@commands("top")
def top(
    session: Session,
    root: PathOf,
    every: Annotated[str, typer.Option(metavar="TIME", help="How often to look, on a terminal.")] = EVERY_DEFAULT,
    once: Annotated[bool, typer.Option("--once", help="Look once, print all rows and end.")] = False,
    sort: Annotated[Sort, typer.Option(help="The column to sort by.")] = Sort.NAME,
    after_bytes: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Lag is what lies before the newest so many bytes.")
    ] = None,
    after_age: Annotated[str | None, typer.Option(metavar="TIME", help="Lag is what is older.")] = None,
) -> None:
    """Watch the segments below a folder: sizes, tiers, what waits to be offloaded or deleted, the last commit.

    It goes on until Ctrl-C; where standard output is no terminal, it looks once. Lag is what an offload with the same
    --after-bytes and --after-age would move now. With --json: one array, of objects with the names of fs.states.
    """
    every_s = _parsed("--every", every, parse_seconds)
    if every_s < EVERY_S_MIN:
        raise WrongUsage(f"--every {every}: give at least {EVERY_S_MIN:g} s")
    for option, text, parse in (("--after-bytes", after_bytes, parse_bytes), ("--after-age", after_age, parse_seconds)):
        if text is not None:
            _parsed(option, text, parse)
    look = _Look(session.place(root), sort, after_bytes, after_age)
    if session.json or once or not sys.stdout.isatty():
        states = look.states()
        if session.json:
            output.write_json([dataclasses.asdict(one) | {"size": one.size} for one in states])
        else:
            output.show(Text(look.summary(states)), table(states, look.root, now_s=time.time()))
        if any(one.error for one in states):
            session.code = errors.DAMAGED
    else:
        _watch(look, every_s)


def _parsed(option: str, text: str, parse: Callable[[str], float]) -> float:
    try:
        return parse(text)
    except ValueError as error:
        raise WrongUsage(f"{option}: {error}") from error


class _Look:
    """One look after the other at the same folder."""

    def __init__(self, place: Place, sort: Sort, after_bytes: str | None, after_age: str | None) -> None:
        self._place = place
        self.root: str = place.fs._strip(place.path)
        self._sort = sort
        self._after_bytes, self._after_age = after_bytes, after_age
        self._counted = self._count()
        self.requests = 0
        """Calls of the store that the last look took."""

    def states(self) -> list[SegmentState]:
        fs, path = self._place.fs, self._place.path
        found: list[SegmentState] = fs.states(path, after_bytes=self._after_bytes, after_age=self._after_age)
        counted = self._count()
        self.requests, self._counted = counted - self._counted, counted
        return sorted(found, key=lambda one: (_BY[self._sort](one), one.path))

    def _count(self) -> int:
        return sum(calls.count for calls in self._place.fs.metrics().requests.values())

    def summary(self, states: Sequence[SegmentState]) -> str:
        """What all segments have together, on one line."""
        hot, cold, lag = (
            sum(getattr(one, name) for one in states) for name in ("hot_bytes", "cold_bytes", "lag_bytes")
        )
        unreadable = sum(one.error is not None for one in states)
        facts = (
            count_text(len(states), "segment"),
            f"{size_text(hot)} hot",
            f"{size_text(cold)} cold",
            f"{size_text(lag)} to offload",
            *([f"{unreadable:,} unreadable"] if unreadable else []),
            count_text(self.requests, "request"),
        )
        return f"{visible(self.root)}: {', '.join(facts)}"


def table(states: Sequence[SegmentState], root: str, *, now_s: float, rows_max: int | None = None) -> Table:
    """A row for each segment below a root; of more than `rows_max`, the first, and how many are left out."""
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in COLUMNS:
        made.add_column(title, justify="left" if title in LEFT else "right", no_wrap=True)
    for one in states[:rows_max]:
        name = Text(visible(one.path.removeprefix(f"{root.rstrip('/')}/")))
        if one.error is not None:
            made.add_row(name, one.state, *[""] * 8, Text(visible(one.error)))
            continue
        numbers = (f"{one.start:,}", f"{one.length:,}", size_text(one.hot_bytes), size_text(one.cold_bytes))
        lag = (size_text(one.lag_bytes), age_text(one.lag_s)) if one.lag_bytes else ("", "")
        ago = f"{age_text(now_s - one.committed)} ago"
        cold_end = f"{one.cold_end:,}" if one.cold_bytes else ""
        made.add_row(name, one.state, *numbers, cold_end, *lag, f"{one.drops or ''}", ago)
    if rows_max is not None and len(states) > rows_max:
        made.add_row(f"… {len(states) - rows_max:,} more …")
    return made


def age_text(seconds: float) -> str:
    """A time span as people read it, in its two greatest units."""
    left = max(0, round(seconds))
    days, hours, minutes = left // 86400, left // 3600 % 24, left // 60 % 60
    if days:
        return f"{days:,} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {left % 60} s" if minutes else f"{left} s"


def _watch(look: _Look, every_s: float) -> None:
    """Show one look after the other, until Ctrl-C. A look that fails is shown as its error, and tried again."""
    console = output.screen()
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        states: list[SegmentState] = []
        while True:
            try:
                states = look.states()
                said = look.summary(states)
            except OSError as error:
                said = f"{errors.in_one_line(error)}; trying again" + ("; as of the last look:" if states else "")
            shown = table(states, look.root, now_s=time.time(), rows_max=max(1, console.height - FRAME_LINES))
            shown.title, shown.title_justify, shown.title_style = Text(visible(said)), "left", "bold"
            live.update(shown, refresh=True)
            output.wait(every_s)
