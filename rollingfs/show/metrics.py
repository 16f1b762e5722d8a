"""Counts of a filesystem, as a value that notebooks and shells show, and as instruments of OpenTelemetry.

OpenTelemetry has no histogram that can be asked: the buckets of times are a counter with the attribute ``le``.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from html import escape
from itertools import accumulate
from time import time
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from rollingfs.runtime import meters
from rollingfs.runtime.meters import STEP_BITS, Meters, Tally, bounds_ns
from rollingfs.runtime.values import value_class
from rollingfs.show.readable import count_text, in_columns, size_text

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Meter, Observation

NS = 1_000_000_000
CALLS = {"append": meters.APPEND, "overwrite": meters.OVERWRITE, "read": meters.READ, "commits": meters.COMMIT}
"""Fields of `Metrics` with calls, and what the meters call these."""
NOTES = {"conflicts": meters.CONFLICT, "unknown": meters.UNKNOWN}
"""Fields that have only a count."""
COLUMNS = ("", "count", "refused", "errors", "bytes", "median", "p99", "total")


@value_class
class Timing:
    """Durations of calls, as a histogram of the buckets with calls."""

    count: int = 0
    """The number of calls."""
    total_s: float = 0.0
    """The sum of their times, in seconds."""
    buckets: tuple[tuple[float, int], ...] = ()
    """Calls by time: the upper bound of a bucket in seconds, and how many calls it has; in order, each counted once."""

    def quantile_s(self, share: float) -> float:
        """Return the time that a share of calls did not exceed, in seconds.

        It is up to 25 % too high.

        Parameters
        ----------
        share
            From 0 to 1.

        Raises
        ------
        ValueError
            The share is outside.
        """
        if not 0 <= share <= 1:
            raise ValueError(f"a share is from 0 to 1, not {share}")
        seen, bound_s = 0, 0.0
        for bound_s, count in self.buckets:
            seen += count
            if seen >= share * self.count:
                return bound_s
        return bound_s

    @property
    def median_s(self) -> float:
        """Return the median, in seconds; 0.0 if there were no calls."""
        return self.quantile_s(0.5)

    @property
    def p99_s(self) -> float:
        """Return the time that 99 % of the calls did not exceed, in seconds."""
        return self.quantile_s(0.99)

    @property
    def mean_s(self) -> float:
        """Return the mean, in seconds; it is exact."""
        return self.total_s / self.count if self.count else 0.0


@value_class
class Calls:
    """The calls of a kind since the filesystem was made."""

    count: int = 0
    """All calls, with failed calls."""
    refused: int = 0
    """Calls that a store refused: a file is not there, or the condition of a write is not met."""
    errors: int = 0
    """Calls that failed otherwise, or were broken off. For `read`: calls with a failed range."""
    bytes: int = 0
    """Bytes that those without an error sent or received."""
    timing: Timing = field(default_factory=Timing)

    @staticmethod
    def of(tally: Tally) -> Calls:
        """Return the counts of a tally."""
        buckets = tuple((bounds_ns(at)[1] / NS, count) for at, count in enumerate(tally.buckets) if count)
        count = sum(count for _, count in buckets)
        return Calls(count, tally.refusals, tally.errors, tally.bytes, Timing(count, tally.ns / NS, buckets))

    def as_dict(self) -> dict[str, Any]:
        """Return the numbers, for JSON."""
        times = {name: getattr(self.timing, name) for name in ("total_s", "mean_s", "median_s", "p99_s")}
        return dataclasses.asdict(self) | {"timing": {**times, "buckets": [list(one) for one in self.timing.buckets]}}


@value_class
class Metrics:
    """Work of a filesystem object in this process since it was made: counts, bytes and times.

    A child process counts from its fork on. Two values can be compared: the difference of their counts is the work
    between them.
    """

    since: float
    """When counting began, in seconds since 1970."""
    at: float
    """When this value was taken, in seconds since 1970."""
    append: Calls
    """Appends by callers, files and handles; bytes of data. The time does not have the upload of large data."""
    overwrite: Calls
    """Files that were written whole."""
    read: Calls
    """Reads of segments and plain files, a single read for all ranges of a `cat_ranges`; bytes that callers and buffers
    got."""
    commits: Calls
    """Commits of headers, which several appends may share; from the wait for a turn to the verdict. No bytes."""
    conflicts: int
    """Attempts to commit that another writer has beaten. The commit then tries again."""
    unknown: int
    """Commits whose outcome is unknown."""
    requests: Mapping[str, Calls]
    """Calls of the backend by its verbs (`read`, `replace`, `list`, ...). Most verbs are a single request to the store;
    an upload sends its parts within `upload.write` and `upload.finish`, and a listing makes a request for each page."""

    @staticmethod
    def of(counted: Meters) -> Metrics:
        """Return the counts of a client so far."""
        at, total = time(), counted.total()
        calls = {name: Calls.of(tally) for name, tally in total.items()}
        own: dict[str, Any] = {field: calls.get(name, Calls()) for field, name in CALLS.items()}
        own |= {field: calls.get(name, Calls()).count for field, name in NOTES.items()}
        by_verb = {
            name.removeprefix(meters.REQUEST): one
            for name, one in sorted(calls.items())
            if name.startswith(meters.REQUEST)
        }
        return Metrics(counted.since_s, at, **own, requests=by_verb)

    @property
    def calls(self) -> dict[str, Calls]:
        """Return all calls by name: ``"append"``, ``"overwrite"``, ``"read"``, ``"commits"``, ``"request read"``."""
        own = {name: getattr(self, name) for name in CALLS}
        return own | {f"request {verb}": calls for verb, calls in self.requests.items()}

    def as_dict(self) -> dict[str, Any]:
        """Return all counts as an object for JSON."""
        numbers = {name: getattr(self, name) for name in ("since", "at", *NOTES)}
        calls = {name: getattr(self, name).as_dict() for name in CALLS}
        return numbers | calls | {"requests": {verb: calls.as_dict() for verb, calls in self.requests.items()}}

    # -- as people read it ---------------------------------------------------------------------------------

    @property
    def _facts(self) -> str:
        requests = sum(calls.count for calls in self.requests.values())
        return (
            f"{count_text(requests, 'call')} of the backend in {self.at - self.since:,.0f} s; "
            f"{count_text(self.conflicts, 'conflict')}, {self.unknown:,} unknown"
        )

    def _rows(self) -> list[tuple[str, ...]]:
        rows = []
        for name, calls in self.calls.items():
            if calls.count:
                times = (calls.timing.median_s, calls.timing.p99_s, calls.timing.total_s)
                counts = [f"{count:,}" for count in (calls.count, calls.refused, calls.errors)]
                rows.append((name, *counts, size_text(calls.bytes), *map(_time_text, times)))
        return rows

    def __repr__(self) -> str:
        lines = in_columns([COLUMNS, *self._rows()], right=range(1, len(COLUMNS)))
        return "\n".join([f"Metrics: {self._facts}", *lines])

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{title}</th>" for title in COLUMNS)
        body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in self._rows())
        return f"<div><b>Metrics</b><br/>{self._facts}<table><tr>{head}</tr>{body}</table></div>"


def _time_text(seconds: float) -> str:
    """Return a time as people read it."""
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} µs"
    return f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"


# -- OpenTelemetry: its readers ask when they export -------------------------------------------------------------

SCOPE = "rollingfs"
POWER_MIN, POWER_MAX = 17, 37
"""The bounds of the exported buckets are these powers of two nanoseconds: from 131 µs to 137 s."""
EVENTS, BUCKETS = "rollingfs.events", "rollingfs.duration.bucket"

Attributes = Mapping[str, str]
Values = Iterable[tuple[float, dict[str, str]]]
"""Values of an instrument, each with its attributes."""
Counted = tuple[Meters, Attributes]

_sources: WeakKeyDictionary[Meter, list[Counted]] = WeakKeyDictionary()
_lock = threading.Lock()
_own: list[Meter] = []
"""The meter of the global provider, once it is needed."""


def export(counted: Meters, meter: Meter | None, attributes: Attributes) -> None:
    """Let OpenTelemetry export what a filesystem counts, once for each meter.

    Raises
    ------
    ImportError
        OpenTelemetry is not installed: ``pip install 'rollingfs[otel]'``.
    """
    meter = meter_of(meter)
    with _lock:
        is_new = meter not in _sources
        sources = _sources.setdefault(meter, [])
        if not any(one is counted for one, _ in sources):
            sources.append((counted, dict(attributes)))
    if is_new:
        _make_instruments(meter, sources)


def meter_of(meter: Meter | None) -> Meter:
    """Return a meter, by default a meter of the global provider.

    Raises
    ------
    ImportError
        OpenTelemetry is not installed.
    """
    try:
        from opentelemetry.metrics import get_meter
    except ImportError as error:
        raise ImportError("metrics for OpenTelemetry need it: pip install 'rollingfs[otel]'") from error
    with _lock:
        if meter is None and not _own:
            _own.append(get_meter(SCOPE))
        return meter or _own[0]


def _make_instruments(meter: Meter, sources: list[Counted]) -> None:
    from opentelemetry.metrics import Observation

    def asked(instrument: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
        return lambda options: [Observation(value, found) for value, found in _sums(sources, instrument)]

    for name, (unit, what, _) in _INSTRUMENTS.items():
        meter.create_observable_counter(name, [asked(name)], unit, what)


def _sums(sources: Iterable[Counted], instrument: str) -> list[tuple[float, dict[str, Any]]]:
    """Return the values of all filesystems; sum up those with the same attributes."""
    found: dict[tuple[tuple[str, str], ...], float] = {}
    kind, values = "event" if instrument == EVENTS else "call", _INSTRUMENTS[instrument][2]
    for counted, attributes in list(sources):
        for name, tally in counted.total().items():
            if (name in NOTES.values()) != (kind == "event"):
                continue
            for value, more in values(tally):
                key = tuple(sorted({**attributes, kind: name, **more}.items()))
                found[key] = found.get(key, 0) + value
    return [(value, dict(key)) for key, value in found.items()]


def _calls(tally: Tally) -> Values:
    yield tally.count - tally.refusals - tally.errors, {"outcome": "ok"}
    yield tally.refusals, {"outcome": "refused"}
    yield tally.errors, {"outcome": "error"}


def _buckets(tally: Tally) -> Values:
    sums = list(accumulate(tally.buckets))
    for power in range(POWER_MIN, POWER_MAX + 1):
        yield sums[((power + 1) << STEP_BITS) - 1], {"le": f"{2**power / NS:.9g}"}
    yield sums[-1], {"le": "+Inf"}


_INSTRUMENTS: dict[str, tuple[str, str, Callable[[Tally], Values]]] = {
    "rollingfs.calls": ("{call}", "Calls by kind and outcome: ok, refused (a condition was not met), error", _calls),
    "rollingfs.bytes": ("By", "Bytes that calls sent or received", lambda one: [(one.bytes, {})] if one.bytes else []),
    "rollingfs.duration": ("s", "The sum of the times of calls", lambda one: [(one.ns / NS, {})]),
    BUCKETS: ("{call}", "Calls that took no longer than le seconds", _buckets),
    EVENTS: ("{event}", "Conflicts of commits, unknown outcomes", lambda one: [(one.count, {})]),
}
"""The unit of each instrument, its description, and its values for a kind of call."""
