"""The data source ``format("rolling")``, in Python: batch and streaming, reads and writes.

In: the options and rows of Spark. Out: Arrow record batches; a single commit for a job or for a batch of a stream.
Must not be here: Java, and settings of a session.

Neither PySpark nor Arrow is imported by `options`, `places`, `segments`, `offsets` and `lines`, because
maintenance uses some of them without both. So the class is imported when it is used.
"""

from __future__ import annotations

from typing import Any

__all__ = ["RollingDataSource"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from rollingfs.spark.source.datasource import RollingDataSource

    return RollingDataSource
