"""The ledger of a stream, as a value and as a text. Pure: no I/O.

The text is JSON; rules P13.1 to P13.11 of the protocol specify the format.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import chain
from typing import Any

from rollingfs.errors import BadOffsetError, CorruptLedgerError
from rollingfs.format import names
from rollingfs.format.header import OFFSET_MAX
from rollingfs.format.policies import Fields
from rollingfs.format.tokens import read_json
from rollingfs.policy import OffloadPolicy
from rollingfs.runtime.interpreter import collected_later
from rollingfs.runtime.values import value_class
from rollingfs.stream.cut import StreamCut
from rollingfs.stream.retention import CUTS_KEPT_MAX, CUTS_KEPT_MIN, OFFSETS_KEPT_MAX, RetentionPolicy

LEDGER_FORMAT = "rollingfs-stream"
LEDGER_VERSION = 1
LEDGER_BYTES_MAX = 64 * 1024 * 1024
"""The longest text of a ledger."""
REASON_CHARACTERS_MAX = 200
GONE = -1
"""Stands for an offset: the cut does not name this segment."""
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.=-]*")
"""Names that no rule refuses: all that is reserved has a ``$``."""


Column = tuple[str, str | None]
"""A segment's name, and its incarnation if the cut names it."""
Published = tuple[StreamCut, float]
"""A cut that a subscriber has read up to, and when the subscriber published it, in seconds since 1970."""


@value_class
class Goal:
    """The offset to which a trim truncates a segment."""

    offset: int
    segment: str
    """The segment's incarnation: a trim does not touch any other."""

    def means(self, incarnations: Collection[str]) -> bool:
        """Return whether it is about the segment that is known by these."""
        return self.segment in incarnations

    def is_behind(self, last: Goal) -> bool:
        """Return whether it is before an earlier goal of the same segment."""
        return self.segment == last.segment and self.offset < last.offset


@value_class
class Ledger:
    """Everything that a stream remembers."""

    retention: RetentionPolicy | None = None
    cuts: tuple[StreamCut, ...] = ()
    """Oldest first."""
    subscribers: Mapping[str, Published] = field(default_factory=dict)
    goals: Mapping[str, Goal] = field(default_factory=dict)
    """Of the last trim, which is recorded before it is carried out."""
    is_trimmed: bool = True
    """Whether the last trim was carried out."""
    offload: OffloadPolicy | None = None
    """The offload policy of the folder."""
    rolling: Fields = field(default_factory=dict)
    """Its fields of the rolling policy, which are not in the text, but an attribute (`format_rolling`)."""

    def under(self, above: Ledger) -> Ledger:
        """Return the ledger with the policies that count: each field of its own, else of the folders above."""
        return replace(
            self,
            retention=above.retention if self.retention is None else self.retention.over(above.retention),
            offload=above.offload if self.offload is None else self.offload.over(above.offload),
            rolling={**above.rolling, **self.rolling},
        )

    @property
    def columns(self) -> set[Column]:
        """Return the segments that its cuts and its goals name."""
        goals = {(name, goal.segment) for name, goal in self.goals.items()}
        return goals.union(*_columns(self.cuts))

    def trimmed(self, goals: Mapping[str, Goal], gone: Collection[Column], name: str) -> Ledger:
        """Return the ledger with a new trim begun, which includes the unfinished goals of the last trim.

        Parameters
        ----------
        goals
            The goals of the new trim.
        gone
            Segments that are no longer there: their goals are forgotten.
        name
            The stream's name, for errors.

        Raises
        ------
        BadOffsetError
            A goal is before the goal of an earlier trim.
        """
        for segment, goal in goals.items():
            last = self.goals.get(segment)
            if last is not None and goal.is_behind(last):
                raise BadOffsetError(
                    f"{name}: segment {segment!r} is trimmed to {last.offset} already, and the cut lies before, "
                    f"at {goal.offset}; nothing was trimmed: take a new cut"
                )
        left = {name: goal for name, goal in self.goals.items() if (name, goal.segment) not in gone}
        return replace(self, goals={**left, **goals}, is_trimmed=self.is_trimmed and not goals)


@collected_later()
def format_ledger(ledger: Ledger) -> bytes:
    """Return a ledger as JSON.

    A cut is stored as its difference from the cut before it. Otherwise each would repeat every unchanged segment.
    """
    columns = list(dict.fromkeys(chain.from_iterable(_columns(ledger.cuts))))
    fields = {
        LEDGER_FORMAT: LEDGER_VERSION,
        "retention": ledger.retention.as_fields() if ledger.retention else None,
        "offload": ledger.offload.as_fields() if ledger.offload else None,
        "trim": {
            "done": ledger.is_trimmed,
            "goals": {name: [goal.offset, goal.segment] for name, goal in ledger.goals.items()},
        },
        "subscribers": {name: [at, str(cut)] for name, (cut, at) in ledger.subscribers.items()},
        "segments": columns,
        "cuts": list(_rows(ledger.cuts, columns)),
    }
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()


def _rows(cuts: Iterable[StreamCut], columns: Sequence[Column]) -> Iterator[list[float]]:
    """Yield a row for each cut: time, size, and changed offsets by column."""
    index = {column: position for position, column in enumerate(columns)}
    before: dict[int, int] = {}
    last: StreamCut | None = None
    positions: list[int] = []
    for cut in cuts:
        if not cut.has_columns_of(last):
            positions = [index[column] for column in cut.columns()]
        now = dict(zip(positions, cut.values(), strict=True))
        changed = {position: offset for position, offset in now.items() if before.get(position) != offset}
        changed |= {position: GONE for position in before if position not in now}
        yield [cut.at, cut.size, *chain.from_iterable(changed.items())]
        before, last = now, cut


def _columns(cuts: Iterable[StreamCut]) -> Iterator[list[Column]]:
    """Yield what the cuts name; of cuts that name the same, once."""
    last: StreamCut | None = None
    for cut in cuts:
        if not cut.has_columns_of(last):
            yield cut.columns()
        last = cut


def _cuts(rows: Iterable[Sequence[Any]], columns: Sequence[Sequence[Any]]) -> Iterator[StreamCut]:
    """Yield the inverse of `_rows`."""
    segments, known = [name for name, _ in columns], [incarnation for _, incarnation in columns]
    now: dict[int, int] = {}
    for at, size, *changed in rows:
        now.update(_pairs(changed))
        if GONE in now.values():
            now = {position: offset for position, offset in now.items() if offset != GONE}
        named = [segments[position] for position in now]
        incarnations = dict(zip(named, map(known.__getitem__, now), strict=True))
        if None in known:
            incarnations = {name: incarnation for name, incarnation in incarnations.items() if incarnation is not None}
        yield StreamCut(dict(zip(named, now.values(), strict=True)), at, size, incarnations)


def _pairs(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    return zip(numbers[::2], numbers[1::2], strict=True)


@collected_later()
def parse_ledger(data: bytes, name: str) -> Ledger:
    """Return the inverse of `format_ledger`.

    Raises
    ------
    CorruptLedgerError
        The ledger is malformed, or a newer release wrote it.
    """
    try:
        if len(data) > LEDGER_BYTES_MAX:
            raise ValueError(f"it has more than {LEDGER_BYTES_MAX} bytes")
        found: dict[str, Any] = read_json(data)
        if found[LEDGER_FORMAT] != LEDGER_VERSION:
            raise ValueError(f"format {found[LEDGER_FORMAT]!r} is too new: upgrade rollingfs")
        ledger = _ledger(found)
        if b"\\u" in data:
            format_ledger(ledger)  # half a character can be read, but never written again
        return ledger
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, ArithmeticError) as error:
        raise CorruptLedgerError(f"{name}: the ledger of the stream cannot be read: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    """Return what is wrong with the ledger, in words for people, not in the words of Python's errors."""
    if isinstance(error, UnicodeError):
        return "it has half of a character"
    if isinstance(error, ValueError):
        return str(error)[:REASON_CHARACTERS_MAX]
    if isinstance(error, KeyError):
        return f"its field {error.args[0]!r} is missing"
    return "a field has another form than in a ledger"


def _ledger(found: Mapping[str, Any]) -> Ledger:
    for column, incarnation in found["segments"]:
        check_member_name(column)
        if incarnation is not None:
            _check_incarnation(incarnation)
    _check_offsets(found["cuts"], len(found["segments"]))
    if not isinstance(found["trim"]["done"], bool):  # what counts as true could not be finished
        raise ValueError(f"whether the trim is done is {found['trim']['done']!r}")
    return Ledger(
        retention=None if found["retention"] is None else RetentionPolicy.from_fields(found["retention"]),
        cuts=tuple(_cuts(found["cuts"], found["segments"])),
        subscribers={who: _published(who, *published) for who, published in found["subscribers"].items()},
        goals={name: _goal(name, *goal) for name, goal in found["trim"]["goals"].items()},
        is_trimmed=found["trim"]["done"],
        offload=None if found["offload"] is None else OffloadPolicy.of(found["offload"]),
    )


def check_member_name(name: str) -> str:
    """Return the name of a segment within the folder of a stream, if it is legal.

    Raises
    ------
    ValueError
        The name leads out of the folder, or is reserved; the message has the reason.
    """
    if _PLAIN.fullmatch(name):
        return name
    if "/" in name or name in (".", "..") or names.is_hidden_segment(name):
        raise ValueError(f"{name!r} is not the name of a segment within a folder")
    return names.check_segment_name(name)


def _check_offsets(rows: Sequence[Sequence[Any]], width: int) -> None:
    """Refuse cuts that have more offsets, once each row has all of its own, than retention keeps (`prune`)."""
    named: set[int] = set()
    count = 0
    for _, _, *changed in rows:
        if GONE in changed[1::2]:
            for position, offset in _pairs(changed):
                (named.discard if offset == GONE else named.add)(position)
        else:
            named.update(changed[::2])
        count += len(named)
    if len(rows) > CUTS_KEPT_MAX + 1 or count > OFFSETS_KEPT_MAX + CUTS_KEPT_MIN * width:
        raise ValueError(f"it has {len(rows)} cuts with {count} offsets, more than a stream keeps")


def _goal(name: str, offset: object, segment: Any) -> Goal:
    check_member_name(name)
    _check_incarnation(segment)
    if not isinstance(offset, int) or not 0 <= offset <= OFFSET_MAX:
        raise ValueError(f"the goal of {name!r} is not an offset")
    return Goal(offset, segment)


def _published(who: str, at: object, text: str) -> Published:
    who.encode()  # so that the ledger can be written again
    cut = StreamCut.parse(text)
    for incarnation in cut.incarnations.values():
        _check_incarnation(incarnation)
    for name in cut:
        check_member_name(name)
    if not isinstance(at, int | float) or not math.isfinite(at):
        raise ValueError(f"the publication of {who!r} has no time")
    return cut, at


def _check_incarnation(incarnation: Any) -> None:
    if not isinstance(incarnation, str):
        raise ValueError("an incarnation is not text")
    incarnation.encode()
