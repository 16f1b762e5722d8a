"""What a stream remembers: its retention, its cuts, its subscribers, and the last trim.

It lies in a hidden segment of the stream's folder, as one text that is replaced as a whole, on condition that
nobody did first. Segments are named without the folder, so that a stream may be moved.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rollingfs import names
from rollingfs.client import Client
from rollingfs.cuts import StreamCut
from rollingfs.errors import BadOffsetError, CommitTimeoutError, ConflictError, CorruptHeaderError
from rollingfs.lookup import View
from rollingfs.policy import RollingPolicy
from rollingfs.retention import KeptCut, RetentionPolicy
from rollingfs.runtime import backoff_s
from rollingfs.transitions import Guard

LEDGER_FORMAT = "rollingfs-stream"
LEDGER_VERSION = 1
LOOKS_MAX = 16
"""How often a ledger that keeps being replaced is read."""
POLICY = RollingPolicy()
"""Of the hidden segment, whatever that of the others is."""


@dataclass(frozen=True, slots=True)
class Goal:
    """Where one segment is to be trimmed to."""

    offset: int
    segment: str | None
    """Its incarnation: another that gets its name is left alone. None for a plain file."""

    def is_behind(self, last: Goal) -> bool:
        """Whether it goes back behind a goal of the same segment."""
        return self.segment == last.segment and self.offset < last.offset


@dataclass(frozen=True, slots=True)
class Trim:
    """A trim, recorded before it is done."""

    goals: Mapping[str, Goal] = field(default_factory=dict)
    done: bool = True


@dataclass(frozen=True, slots=True)
class Published:
    """A cut that a subscriber has read up to."""

    cut: StreamCut
    at: float
    """When it said so, seconds since 1970."""


@dataclass(frozen=True, slots=True)
class Ledger:
    """Everything that a stream remembers."""

    retention: RetentionPolicy | None = None
    cuts: tuple[KeptCut, ...] = ()
    """Oldest first."""
    subscribers: Mapping[str, Published] = field(default_factory=dict)
    trim: Trim = Trim()

    def trimmed(self, goals: Mapping[str, Goal], extant: Iterable[str], name: str) -> Ledger:
        """With a trim begun; what the last one has not finished is part of it.

        Parameters
        ----------
        goals
            Of the new trim.
        extant
            The names of the segments that there are.
        name
            Of the stream, for errors.

        Raises
        ------
        BadOffsetError
            It would go backwards.
        """
        for segment, goal in goals.items():
            last = self.trim.goals.get(segment)
            if last is not None and goal.is_behind(last):
                raise BadOffsetError(
                    f"{name}: segment {segment!r} is trimmed to {last.offset} already; a cut at {goal.offset} goes "
                    "backwards; nothing was trimmed"
                )
        there = set(extant)
        last_goals = {segment: goal for segment, goal in self.trim.goals.items() if segment in there}
        merged = {**last_goals, **goals}
        return replace(self, trim=Trim(merged, done=self.trim.done and not goals))


def format_ledger(ledger: Ledger) -> bytes:
    """A ledger as JSON; cuts as rows over one list of segments, each an incarnation of a name."""
    columns = sorted({column for kept in ledger.cuts for column in kept.segments.items()})
    fields = {
        LEDGER_FORMAT: LEDGER_VERSION,
        "retention": ledger.retention.as_fields() if ledger.retention else None,
        "trim": {
            "done": ledger.trim.done,
            "goals": {name: [goal.offset, goal.segment] for name, goal in ledger.trim.goals.items()},
        },
        "subscribers": {name: [found.at, str(found.cut)] for name, found in ledger.subscribers.items()},
        "segments": columns,
        "cuts": [_row(kept, columns) for kept in ledger.cuts],
    }
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()


def _row(kept: KeptCut, columns: Sequence[tuple[str, str]]) -> list[float]:
    """Time, size, and an offset for each column; -1 where the cut has none."""
    offsets = [kept.cut[name] if kept.segments.get(name) == segment else -1 for name, segment in columns]
    return [kept.cut.at, kept.cut.size, *offsets]


def _kept(row: Sequence[Any], columns: Sequence[tuple[str, str]]) -> KeptCut:
    at, size, *offsets = row
    found = [(name, segment, offset) for (name, segment), offset in zip(columns, offsets, strict=True) if offset >= 0]
    cut = StreamCut({name: offset for name, _, offset in found}, at, size)
    return KeptCut(cut, {name: segment for name, segment, _ in found})


def parse_ledger(data: bytes, name: str) -> Ledger:
    """The inverse of `format_ledger`.

    Raises
    ------
    CorruptHeaderError
        It is malformed, or written by a newer release.
    """
    try:
        found: dict[str, Any] = json.loads(data)
        if found[LEDGER_FORMAT] != LEDGER_VERSION:
            raise ValueError(f"format {found[LEDGER_FORMAT]!r} is too new: upgrade rollingfs")
        return Ledger(
            retention=None if found["retention"] is None else RetentionPolicy.from_fields(found["retention"]),
            cuts=tuple(_kept(row, found["segments"]) for row in found["cuts"]),
            subscribers={who: Published(StreamCut.parse(text), at) for who, (at, text) in found["subscribers"].items()},
            trim=Trim({path: Goal(*goal) for path, goal in found["trim"]["goals"].items()}, found["trim"]["done"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptHeaderError(f"{name}: what the stream remembers cannot be read: {error!r}") from error


class Ledgers:
    """Reads and replaces the ledgers of streams."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def load(self, folder: str) -> Ledger:
        """What a stream remembers; nothing, if nobody has told it anything."""
        return (await self._load(names.ledger_path(folder)))[0]

    async def _load(self, path: str) -> tuple[Ledger, str | None]:
        """A ledger, and the incarnation of the segment that it lies in."""
        for _ in range(LOOKS_MAX):
            loaded = await self.client.headers.load(path)
            if not loaded.live or loaded.header is None:
                return Ledger(), None
            header = loaded.header
            try:
                data = await self.client.fetcher.read(View(path, header, loaded.token), header.start, header.length)
            except FileNotFoundError:
                continue  # replaced while it was read
            return (parse_ledger(data, path) if data else Ledger()), header.segment
        raise ConflictError(f"{path}: it was replaced {LOOKS_MAX} times while it was read; try again")

    async def update(self, folder: str, change: Callable[[Ledger], Ledger]) -> Ledger:
        """Replace a ledger by what `change` makes of it; called again for each that is found.

        Raises
        ------
        CommitTimeoutError
            Others were faster for too long.
        AppendOutcomeUnknown
            Whether it took place cannot be said: all changes may be made again.
        """
        path = names.ledger_path(folder)
        deadline_s = self.client.committer.deadline_s()
        attempt = 0
        while True:
            ledger, segment = await self._load(path)
            changed = change(ledger)
            if changed == ledger:
                return ledger
            if await self._replace(path, segment, format_ledger(changed)):
                return changed
            attempt += 1
            if time.monotonic() >= deadline_s:
                raise CommitTimeoutError(f"{path}: others were faster {attempt} times; nothing was written")
            await self.client.runtime.sleep(backoff_s(attempt))

    async def _replace(self, path: str, segment: str | None, data: bytes) -> bool:
        """Whether the ledger was still the one of this incarnation, and is the new one now."""
        segments = self.client.segments
        try:
            if segment is None:
                segment = (await segments.create(path, POLICY)).segment
            await segments.overwrite(path, data, guard=Guard(segment))
        except (FileExistsError, FileNotFoundError):
            return False
        return True
