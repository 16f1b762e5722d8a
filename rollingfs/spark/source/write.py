"""Batch writes: staged by tasks, committed once by the driver."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from rollingfs.spark.source.commits import Parts, Receipt
from rollingfs.spark.source.options import Options

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


class RollingWriter(DataSourceArrowWriter):
    """Writes one segment: nothing of it can be seen before the commit, all of it after."""

    def __init__(self, options: Options, schema: StructType, overwrite: bool) -> None:
        self._parts = Parts(options, schema, overwrite=overwrite)

    def check_target(self) -> None:
        """Refuse, before any task, a target that the commit would refuse.

        Raises
        ------
        OSError
            See `Parts.check_target`.
        """
        self._parts.check_target()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Receipt:
        """Stage the rows of one task; what a failed or doubled one has staged, collection finds."""
        return self._parts.stage(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Append, or overwrite, in one header replacement."""
        self._parts.commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Delete nothing: Spark also aborts after a commit that failed when its header was there already."""
        self._parts.abort(messages)
