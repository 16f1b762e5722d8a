"""A Python data source for Spark: ``spark.read.format("rolling")``, no Java needed.

Maintenance uses some of its modules where there is no PySpark, so the class itself is imported when it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rollingfs.spark.source.datasource import RollingDataSource

__all__ = ["RollingDataSource"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from rollingfs.spark.source import datasource

    return getattr(datasource, name)
