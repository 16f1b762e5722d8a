"""Lags of logs, exported by OpenTelemetry."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from rollingfs.ship.route import Lag
from rollingfs.ship.shipper import Shipper
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
