"""Differences between the versions of PySpark, from 4.0 on."""

from __future__ import annotations

import importlib.util
import inspect
from typing import TYPE_CHECKING, Any

import pyspark
from pyspark.sql import datasource

__all__ = ["StreamArrowWriter", "check_stream_reads", "to_arrow_schema"]

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter as StreamArrowWriter
elif hasattr(datasource, "DataSourceStreamArrowWriter"):
    StreamArrowWriter = datasource.DataSourceStreamArrowWriter
else:

    class StreamArrowWriter(datasource.DataSourceStreamWriter, datasource.DataSourceArrowWriter):
        """A writer of streams that takes record batches: PySpark 4.0 gives them to every `DataSourceArrowWriter`."""


def to_arrow_schema(schema: Any) -> Any:
    """Return the Arrow schema of a Spark schema, with times in UTC."""
    from pyspark.sql.pandas import types

    convert: Any = types.to_arrow_schema
    # before 4.2 it takes no time zone, and means UTC
    return convert(schema, timezone="UTC") if "timezone" in inspect.signature(convert).parameters else convert(schema)


def check_stream_reads() -> None:
    """Refuse to read a stream with a PySpark that lacks the progress of queries.

    Raises
    ------
    NotImplementedError
        It is older than 4.2.
    """
    if importlib.util.find_spec("pyspark.sql.streaming.datasource") is None:
        raise NotImplementedError(
            f"format('rolling') reads streams with PySpark 4.2 or later, and this is {pyspark.__version__}, which does "
            "not tell a data source how far the query has read: install pyspark>=4.2. Batches are read, and streams "
            "are written, with this version too"
        )
