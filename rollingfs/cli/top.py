"""``top``: a live table of the segments below a root, with what offload and collection still have to do."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
import time
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Literal, get_args

from rich.cells import cell_len, set_cell_size
from rich.console import Group
from rich.live import Live
from rich.text import Text

from rollingfs.cli import output
from rollingfs.cli.command import FolderOf, Size, Time
from rollingfs.cli.output import WrongUsage
from rollingfs.cli.session import Session, StorePath
from rollingfs.cli.stores import split
from rollingfs.errors import visible
from rollingfs.ship import Lag, Shipper
from rollingfs.show.readable import (
    GAP_COLUMNS,
    count_text,
    joins_mark,
    moves_mark,
    prices_of,
    size_text,
    sizes_mark,
    sizes_text,
    upkeep_texts,
)
from rollingfs.stream.states import Outlook, SegmentState


@contextlib.contextmanager
def keyboard() -> Iterator[int | None]:
    """Give a descriptor with each key at once, unseen.

    It is None if standard input is not our terminal.
    """
    try:
        import termios
        import tty
    except ImportError:  # Windows
        yield None
        return
    if not sys.stdin.isatty() or os.tcgetpgrp(sys.stdin.fileno()) != os.getpgrp():  # a job in the background
        yield None
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)  # Ctrl-C still is a signal
        yield descriptor
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


EVERY_DEFAULT = "2s"
EVERY_S_MIN = 0.1
FRAME_LINES = 7
"""Lines of the screen for the summary and the picture, the titles, what is left out, and the cursor."""
COLUMNS = (
    *("segment", "state", "start", "length", "hot", "cold", "cold end", "lag", "lag age", "sizes", "joins", "moves"),
    *("drops", "last commit"),
)
LEFT = frozenset({"segment", "state", "sizes", "last commit"})
LEFT_OUT = (
    *("cold end", "lag age", "drops", "start", "moves", "joins", "hot", "cold", "lag", "last commit", "sizes", "state"),
)
"""Columns that a narrow terminal leaves out, in this order."""
NAME_COLUMNS_MIN = 8
QUIT_KEYS = b"qQ"


Sort = Literal["name", "state", "size", "hot", "cold", "lag", "age", "drops", "commit"]
"""The column by which `top` sorts: names and states from a to z, numbers and dates from the greatest."""
_ATTRIBUTES = ("path", "state", "size", "hot_bytes", "cold_bytes", "lag_bytes", "lag_s", "drops", "committed")
_BY = dict(zip(get_args(Sort), _ATTRIBUTES, strict=True))


def top(
    session: Session,
    root: FolderOf,
    every: Time = EVERY_DEFAULT,
    once: bool = False,
    sort: Sort = "name",
    after_bytes: Size = None,
    after_age: Time = None,
    ship: list[str] | None = None,
    ship_into: str | None = None,
) -> None:
    """Watch the segments below a folder: sizes, tiers, pending joins, offloads and deletions, the last commit.

    It goes on until q or Ctrl-C; without a terminal as standard output, it looks once. Lag is the bytes that an offload
    with the same --after-bytes and --after-age would move now. With --json: an array of objects, named as in fs.states.

    Parameters
    ----------
    every : TIME
        Interval between looks, on a terminal.
    once
        Look once, print all rows and end.
    sort
        The column to sort by.
    after_bytes : SIZE
        Lag is the bytes before this number of newest bytes.
    after_age : TIME
        Lag is older bytes.
    ship : FILE
        Show the lag of local files, or of a pattern in quotes, that `rollingfs ship FILE FOLDER/` appends below FOLDER.
    ship_into : NAME
        The segment below FOLDER that `rollingfs ship --into` appends all of them to.
    """
    if every < EVERY_S_MIN:
        raise WrongUsage(f"--every {every:g}: give at least {EVERY_S_MIN:g} s")
    place, into = session.place(root), ship_into is not None
    shipper = (
        Shipper(place.fs, ship, f"{place.path}/{ship_into or ''}", into=into, say=lambda _: None) if ship else None
    )
    look = _Look(place, split(root)[0], sort, after_bytes, after_age, shipper)
    if session.json or once or not sys.stdout.isatty():
        states = look.states()
        if session.json:
            segments = [dataclasses.asdict(one) | {"size": one.size} for one in states]
            for lag in look.lags:
                told = {"file": lag.path, "segment": lag.segment, "lag_bytes": lag.bytes, "lag_s": lag.seconds}
                segments.append({**told, "error": lag.error})
            output.write_json(segments)
        else:
            width = output.screen().width if sys.stdout.isatty() else None
            output.say(*look.picture(states), *table(states, look.root, now_s=time.time(), width=width), *look.logs())
        if any(one.error for one in states):
            session.code = output.DAMAGED
    else:
        _watch(look, every)


class _Look:
    """Looks at the same folder, in a row."""

    def __init__(
        self, place: StorePath, protocol: str, sort: Sort, after_bytes: Size, after_age: Time, shipper: Shipper | None
    ) -> None:
        self._place, self._shipper = place, shipper
        self.lags: list[Lag] = []
        """Of local logs, as of the last look."""
        self.root: str = place.name
        self.prices = prices_of(protocol, place.path)
        self._sort = sort
        self._after_bytes, self._after_age = after_bytes, after_age
        self._counted = self._count()
        self.requests = 0
        """Calls of the store that the last look took."""

    def states(self) -> list[SegmentState]:
        fs, path = self._place.fs, self._place.path
        found: list[SegmentState] = fs.states(path, after_bytes=self._after_bytes, after_age=self._after_age)
        self.lags = self._shipper.seen() if self._shipper is not None else []
        counted = self._count()
        self.requests, self._counted = counted - self._counted, counted
        found.sort(key=lambda one: one.path)
        return sorted(found, key=attrgetter(_BY[self._sort]), reverse=self._sort not in ("name", "state"))

    def _count(self) -> int:
        return sum(calls.count for calls in self._place.fs.metrics().requests.values())

    def logs(self) -> list[str]:
        """Return the lags of local logs as lines, if any."""
        rows = [("file", "lag", "lag age", "error")]
        for one in self.lags:
            lag = (size_text(one.bytes), age_text(one.seconds)) if one.bytes else ("", "")
            rows.append((one.path, *lag, one.error or ""))
        return ["", *output.columns(rows, (1, 2))] if self.lags else []

    def summary(self, states: Sequence[SegmentState]) -> str:
        """Return the sum over all segments, on a line."""
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

    def picture(self, states: Sequence[SegmentState]) -> list[str]:
        """Return the summary, the sizes of chunks, and the next and past upkeep."""
        whole = Outlook()
        for one in states:
            whole = whole.plus(one.outlook)
        cold, rewritten = (sum(getattr(one, name) for one in states) for name in ("cold_bytes", "rewritten"))
        return [self.summary(states), sizes_text(whole), *upkeep_texts(whole, cold, rewritten, self.prices)]


def table(
    states: Sequence[SegmentState], root: str, *, now_s: float, rows_max: int | None = None, width: int | None = None
) -> list[str]:
    """Return the titles, and a line for each segment below a root.

    Parameters
    ----------
    rows_max
        Of more segments, the first are shown, with the number of the rest.
    width
        Columns of the screen; then columns that do not fit are left out, and only names and errors are cut.
    """
    rows = [dict(zip(COLUMNS, COLUMNS, strict=True)), *(_row(one, root, now_s) for one in states[:rows_max])]
    widths = {title: max(cell_len(row[title]) for row in rows) for title in COLUMNS}
    if width is not None:
        widths = _fitting(widths, width)
    cells = [[_cut(row[title], columns) for title, columns in widths.items()] for row in rows]
    lines = output.columns(cells, [nth for nth, title in enumerate(widths) if title not in LEFT])
    for nth, one in enumerate(states[:rows_max], 1):
        if one.error is not None:
            line = f"{lines[nth]}{' ' * GAP_COLUMNS}{visible(one.error)}"
            lines[nth] = line if width is None else _cut(line, width)
    return lines if rows_max is None or len(states) <= rows_max else [*lines, f"… {len(states) - rows_max:,} more …"]


def _cut(text: str, columns: int) -> str:
    return text if cell_len(text) <= columns else f"{set_cell_size(text, columns - 1)}…"


def _row(one: SegmentState, root: str, now_s: float) -> dict[str, str]:
    """Return the cells of a segment, by title."""
    name = visible(one.path.removeprefix(f"{root.rstrip('/')}/"))
    if one.error is not None:
        return dict.fromkeys(COLUMNS, "") | {"segment": name, "state": one.state}
    sizes = (f"{one.start:,}", f"{one.length:,}", size_text(one.hot_bytes), size_text(one.cold_bytes))
    cold_end = f"{one.cold_end:,}" if one.cold_bytes else ""
    lag = (size_text(one.lag_bytes), age_text(one.lag_s)) if one.lag_bytes else ("", "")
    ago = f"{age_text(now_s - one.committed)} ago"
    marks = (sizes_mark(one.outlook), joins_mark(one.outlook), moves_mark(one.outlook))
    return dict(zip(COLUMNS, (name, one.state, *sizes, cold_end, *lag, *marks, f"{one.drops or ''}", ago), strict=True))


def _fitting(widths: dict[str, int], width: int) -> dict[str, int]:
    """Return the columns that a screen has room for, with their widths: names get what the others leave."""
    kept = dict(widths)
    names = min(widths["segment"], NAME_COLUMNS_MIN)
    for title in LEFT_OUT:
        if names + sum(each + GAP_COLUMNS for each in kept.values()) - kept["segment"] <= width:
            break
        del kept[title]
    others = sum(each + GAP_COLUMNS for title, each in kept.items() if title != "segment")
    kept["segment"] = max(1, min(widths["segment"], width - others - GAP_COLUMNS))
    return kept


def age_text(seconds: float) -> str:
    """Return a time span as people read it, in its two greatest units."""
    left = max(0, round(seconds))
    days, hours, minutes = left // 86400, left // 3600 % 24, left // 60 % 60
    if days:
        return f"{days:,} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {left % 60} s" if minutes else f"{left} s"


def _watch(look: _Look, every_s: float) -> None:
    """Show looks in a row, until q or Ctrl-C. A failed look shows its error, and is repeated."""
    console = output.screen()
    with keyboard() as keys, Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        states: list[SegmentState] = []
        while True:
            try:
                states = look.states()
                said = "\n".join(look.picture(states))
            except OSError as error:
                said = f"{output.in_one_line(error)}; trying again" + ("; as of the last look:" if states else "")
            rows_max = max(1, console.height - FRAME_LINES - (len(look.lags) + 2 if look.lags else 0))
            titles, *rows = table(states, look.root, now_s=time.time(), rows_max=rows_max, width=console.width)
            head = Text("\n".join([*map(visible, said.splitlines()), titles]), "bold")
            body = Text("\n".join([*rows, *look.logs()]), no_wrap=True, overflow="ellipsis")
            live.update(Group(head, body), refresh=True)
            if set(output.wait(every_s, keys)) & set(QUIT_KEYS):  # any other key looks at once
                return
