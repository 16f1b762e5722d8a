"""Lags of logs: exported by OpenTelemetry, and as another process sees them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from rollingfs.ship.sender import Stopped
from rollingfs.ship.shipper import Lag, Shipper
from rollingfs.show.telemetry import meter_of

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Meter, Observation


def observe(shipper: Shipper, meter: Meter | None = None) -> None:
    """Let OpenTelemetry export what logs have that is not committed, in bytes and in seconds.

    Parameters
    ----------
    meter
        Maker of the instruments; by default a meter of OpenTelemetry's global provider.

    Raises
    ------
    ImportError
        OpenTelemetry is not installed: ``pip install 'rollingfs[otel]'``.
    """
    meter = meter_of(meter)
    from opentelemetry.metrics import Observation

    def asked(value: Callable[[Lag], float]) -> Callable[[CallbackOptions], Iterable[Observation]]:
        return lambda options: [
            Observation(value(one), {"file": one.path, "segment": one.segment}) for one in shipper.lags()
        ]

    for name, value, unit, what in (
        ("rollingfs.ship.lag", lambda one: one.bytes, "By", "Bytes of a log that are not committed"),
        ("rollingfs.ship.lag.time", lambda one: one.seconds, "s", "Time that the oldest of them waits"),
        ("rollingfs.ship.failing", lambda one: one.error is not None, "1", "1 for a log that cannot be shipped"),
    ):
        meter.create_observable_gauge(name, [asked(value)], unit, what)


def seen(shipper: Shipper) -> list[Lag]:
    """Return the lags of logs that another process ships, by their positions in the segments; ship no line.

    Parameters
    ----------
    shipper
        With the same files and target as the shipper of the other process. It must not ship.

    Returns
    -------
    list
        Bytes wait since the last write that is shipped, at most.

    Raises
    ------
    OSError
        A segment cannot be read.
    """
    shipper._stop = lambda: True  # a store that fails is not waited for
    shipper._find()
    found = []
    for route in shipper._routes.values():
        try:
            shipper._begin(route)
        except Stopped as error:
            raise OSError(f"{route.sender.path}: {error}") from error
        for source in route.sources.values():
            shipper._look(source)
            lineage = source.lineage
            is_late = lineage.text is not None and lineage.lag_bytes > 0
            since_s = time.monotonic() - time.time() + lineage.position.mtime_ns / 1e9 if is_late else None
            found.append(Lag(lineage.log.path, route.sender.path, lineage.lag_bytes, since_s, source.error))
    return found
