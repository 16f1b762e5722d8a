"""The counts of filesystems as instruments of OpenTelemetry, which its readers ask when they export.

OpenTelemetry has no histogram that can be asked: the buckets of times are a counter with the attribute ``le``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from rollingfs.runtime.meters import CONFLICT, STEP_BITS, UNKNOWN, Meters, Tally

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Meter, Observation

SCOPE = "rollingfs"
POWER_MIN, POWER_MAX = 17, 37
"""The bounds of the exported buckets are these powers of two nanoseconds: from 131 µs to 137 s."""
NOTES = (CONFLICT, UNKNOWN)
CALLS, BYTES, EVENTS = "rollingfs.calls", "rollingfs.bytes", "rollingfs.events"
DURATION, BUCKETS = "rollingfs.duration", "rollingfs.duration.bucket"
NS = 1_000_000_000

Attributes = Mapping[str, str]
Values = Iterator[tuple[str, float, dict[str, str]]]
"""Values, each with its instrument and its attributes."""
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

    for name, unit, what in (
        (CALLS, "{call}", "Calls by kind and outcome: ok, refused (a condition was not met), error"),
        (BYTES, "By", "Bytes that calls sent or received"),
        (DURATION, "s", "The sum of the times of calls"),
        (BUCKETS, "{call}", "Calls that took no longer than le seconds"),
        (EVENTS, "{event}", "Conflicts of commits, unknown outcomes"),
    ):
        meter.create_observable_counter(name, [asked(name)], unit, what)


def _sums(sources: Iterable[Counted], instrument: str) -> list[tuple[float, dict[str, Any]]]:
    """Return the values of all filesystems; sum up those with the same attributes."""
    found: dict[tuple[tuple[str, str], ...], float] = {}
    for counted, attributes in list(sources):
        for name, tally in counted.total().items():
            for of, value, more in _values(name, tally):
                if of == instrument:
                    key = tuple(sorted({**attributes, **more}.items()))
                    found[key] = found.get(key, 0) + value
    return [(value, dict(key)) for key, value in found.items()]


def _values(name: str, tally: Tally) -> Values:
    """Yield the values of one kind of call: the instrument of each, and its attributes."""
    if name in NOTES:
        yield EVENTS, tally.count, {"event": name}
        return
    yield CALLS, tally.count - tally.refusals - tally.errors, {"call": name, "outcome": "ok"}
    yield CALLS, tally.refusals, {"call": name, "outcome": "refused"}
    yield CALLS, tally.errors, {"call": name, "outcome": "error"}
    if tally.bytes:
        yield BYTES, tally.bytes, {"call": name}
    yield DURATION, tally.ns / NS, {"call": name}
    sums = list(accumulate(tally.buckets))
    for power in range(POWER_MIN, POWER_MAX + 1):
        yield BUCKETS, sums[((power + 1) << STEP_BITS) - 1], {"call": name, "le": f"{2**power / NS:.9g}"}
    yield BUCKETS, sums[-1], {"call": name, "le": "+Inf"}
