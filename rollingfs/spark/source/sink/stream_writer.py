"""Streaming writes: each batch is appended exactly once, by `commits`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from rollingfs.spark.source.loops import QUERY_ID
from rollingfs.spark.source.options import Options
from rollingfs.spark.source.plain_errors import plainly
from rollingfs.spark.source.sink.batch_writer import JobCommit
from rollingfs.spark.source.sink.commits import Marker
from rollingfs.spark.source.sink.task_writer import Receipt, received
from rollingfs.spark.source.versions import StreamArrowWriter

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

BATCH_ID = "streaming.sql.batchId"
"""The local property in which Spark reports tasks the number of the batch."""


class RollingStreamWriter(StreamArrowWriter):
    """Appends the batches of a query to a segment; in complete mode each batch overwrites it."""

    def __init__(self, options: Options, schema: StructType, overwrite: bool) -> None:
        if options.transaction is not None:
            raise ValueError("options txnAppId and txnVersion are for batch writes; a stream counts its batches itself")
        self._job = JobCommit(options, schema, overwrite=overwrite)
        self._attrs: Mapping[str, str] = {}
        """The attributes of the target when the batch was planned."""
        self._is_sealed = False

    def check_target(self) -> None:
        """Refuse a target to which the commit would fail, before any task begins.

        Raises
        ------
        OSError
            See `JobCommit.check_target`. `write` refuses a target that is sealed or full of attributes, because it
            knows the batch, which may be in the target already.
        """
        header = self._job.check_target(may_be_sealed=True)
        if header is not None:
            self._attrs, self._is_sealed = dict(header.attrs), header.sealed and not self._job.overwrite

    @plainly
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Receipt:
        """Write the rows of a task.

        Raises
        ------
        SegmentSealedError, ValueError
            The target lacks the batch, and is sealed or full of attributes. No byte was staged.
        """
        context: Any = TaskContext.get()
        query, batch = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
        if query is not None and batch is not None:
            Marker.of(query, int(batch)).check(self._attrs, self._is_sealed, self._job.url)
        return self._job.write(iterator)

    @plainly
    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Commit the batch, unless the target has it.

        Raises
        ------
        OSError
            The batch was not committed, or its outcome is unknown. The query fails, and is safe to start again.
        """
        queries = {receipt.query for receipt in received(messages)}
        if not queries:
            if self._job.overwrite:
                self._job.commit(messages, self._job.last_marker(batchId))
            return  # a batch without tasks has no rows
        if len(queries) != 1 or None in queries:
            raise RuntimeError(f"the tasks of batch {batchId} must name one query, but name {queries}")
        self._job.commit(messages, Marker.of(str(queries.pop()), batchId))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Do nothing, as `RollingWriter.abort`."""
        queries = {receipt.query for receipt in received(messages)}
        query = next(iter(queries), None)
        self._job.abort(messages, None if query is None else Marker.of(query, batchId))
