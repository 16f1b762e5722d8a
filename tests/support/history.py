"""Whether what many callers were told of one segment can have happened one after another (linearizability).

An offset fixes the place of an append, and a length the place of a look, in the only order that is possible. So a
history is linearizable if that order agrees with real time: no call that ended before another began stands after it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

Record = tuple[int, str, int]
"""Offset, writer and number."""
FOREVER = 2**63


@dataclass(frozen=True)
class Call:
    """A call as its caller saw it; times by the machine's monotonic clock."""

    writer: str
    number: int
    kind: str
    """`append`; or `look` and `seal`, whose value is a length."""
    began: int
    ended: int = FOREVER
    """When its caller was told the outcome, or FOREVER: it was killed."""
    told: str = "unknown"
    """`ok`, `failed` or `unknown`."""
    value: int | None = None
    """The offset, or the length, that a caller was told."""
    expected: int | None = None
    """The offset that an append was conditioned on."""
    why: str = ""
    """What went wrong."""

    @property
    def name(self) -> tuple[str, int]:
        return self.writer, self.number


def check_history(calls: Sequence[Call], there: Sequence[Record]) -> None:
    """Check calls against the whole log.

    Parameters
    ----------
    there
        Offset, writer and number of all records, truncated ones included.
    """
    appends = {call.name: call for call in calls if call.kind == "append"}
    places = _places(appends, there)
    for call in appends.values():
        assert call.told != "ok" or call.name in places, f"acknowledged and lost: {call}"
        assert call.told != "failed" or call.name not in places, f"reported failed, but it is there: {call}"
        assert call.told != "ok" or call.value == places[call.name], f"it lies at {places[call.name]}: {call}"
        is_met = call.told != "ok" or call.expected in (None, call.value)
        assert is_met, f"it was conditioned on another offset: {call}"
    looks = [call for call in calls if call.kind in ("look", "seal") and call.told == "ok"]
    seals = [call for call in looks if call.kind == "seal"]
    for seal in seals:
        assert seal.value is not None
        late = [name for name, place in places.items() if place >= seal.value]
        assert not late, f"appended after the seal: {late}"
    # a look at length n comes after the append that ends there, and before the one that begins there
    order = [(place, 1, appends[name]) for name, place in places.items()]
    order += [(look.value, 0, look) for look in looks if look.value is not None]
    check_order(order)


def _places(appends: Mapping[tuple[str, int], Call], there: Sequence[Record]) -> dict[tuple[str, int], int]:
    counts = Counter((writer, number) for _, writer, number in there)
    doubled = [name for name, count in counts.items() if count > 1]
    assert not doubled, f"there more than once: {doubled}"
    unheard = [name for name in counts if name not in appends]
    assert not unheard, f"there, although nobody appended it: {unheard}"
    return {(writer, number): offset for offset, writer, number in there}


def check_order(order: Iterable[tuple[int, int, Call]]) -> None:
    """Check that places agree with real time.

    An append without a known outcome may take place at any time after it began; so it never ended.
    """
    placed = list(order)
    ends = sorted(placed, key=lambda one: _end(one[2]))
    highest, last, nth = (-1, 0), None, 0
    for place, kind, call in sorted(placed, key=lambda one: one[2].began):
        while nth < len(ends) and _end(ends[nth][2]) < call.began:
            if ends[nth][:2] > highest:
                highest, last = ends[nth][:2], ends[nth][2]
            nth += 1
        assert highest <= (place, kind), f"{call} stands before {last}, which had ended when it began"


def _end(call: Call) -> int:
    return call.ended if call.told == "ok" else FOREVER
