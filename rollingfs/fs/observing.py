"""`observe`: OpenTelemetry exports what a filesystem counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fsspec import AbstractFileSystem

from rollingfs.fs.core import core
from rollingfs.show.telemetry import Attributes, export

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter


def observe(fs: AbstractFileSystem, meter: Meter | None = None, attributes: Attributes | None = None) -> None:
    """Let OpenTelemetry export what a filesystem counts. A second call for the same filesystem and meter adds nothing.

    The filesystem counts as before; the exporter's thread adds up when it exports.

    Parameters
    ----------
    fs
        The filesystem.
    meter
        What makes the instruments; by default a meter of OpenTelemetry's global provider.
    attributes
        Attributes of all its values; by default `target`, the protocol of the store. Filesystems with the same
        attributes are added up.

    Raises
    ------
    ImportError
        OpenTelemetry is not installed: ``pip install 'rollingfs[otel]'``.
    """
    below = core(fs)
    export(below.client.meters, meter, {"target": below.target} if attributes is None else attributes)
