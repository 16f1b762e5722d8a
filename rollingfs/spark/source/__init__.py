"""The data source ``format("rolling")``, in Python: batch and streaming, reads and writes.

In: the options and rows of Spark. Out: Arrow record batches; a single commit for a job or for a batch of a stream.
Must not be here: Java, and settings of a session.

Neither PySpark nor Arrow is imported by `options`, `places`, `segments`, `offsets` and `lines`, because
maintenance uses some of them without both. So the class is imported when it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import lazy_loader

if TYPE_CHECKING:
    from rollingfs.spark.source.datasource import RollingDataSource as RollingDataSource

__getattr__, __dir__, __all__ = lazy_loader.attach(__name__, submod_attrs={"datasource": ["RollingDataSource"]})
