"""Writers of batches and of streams: tasks write rows, the driver commits them in one header replacement a segment.

A batch of a stream is appended exactly once, by `commits`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from rollingfs.format.header import Header
from rollingfs.spark.source import rows
from rollingfs.spark.source.formats import lines
from rollingfs.spark.source.loops import ATTRIBUTE_PREFIX, QUERY_ID
from rollingfs.spark.source.options import WRITE, Options
from rollingfs.spark.source.plain_errors import plainly
from rollingfs.spark.source.sink import batch_commits, task_writer
from rollingfs.spark.source.sink.batch_commits import Marker
from rollingfs.spark.source.sink.segment_commit import SegmentCommit, Version
from rollingfs.spark.source.sink.task_writer import Receipt, TaskData, TaskWriter, by_segment, received

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter as StreamArrowWriter
    from pyspark.sql.types import StructType
elif hasattr(datasource, "DataSourceStreamArrowWriter"):
    StreamArrowWriter = datasource.DataSourceStreamArrowWriter
else:

    class StreamArrowWriter(datasource.DataSourceStreamWriter, DataSourceArrowWriter):
        """A writer of streams that takes record batches: PySpark 4.0 gives them to every `DataSourceArrowWriter`."""


logger = logging.getLogger("pyspark_rollingfs")
"""It is not below ``rollingfs``, which does not print: users look for these lines in Spark's log."""


class JobCommit:
    """Writes the rows of a job in its tasks, and commits them on the driver.

    Parameters
    ----------
    schema
        The Spark schema of the rows.
    """

    def __init__(self, options: Options, schema: Any, *, overwrite: bool) -> None:
        options.check_use(WRITE)
        self.options = options
        # nullable in all formats, so that a later null fits the schema
        self.schema = rows.arrow_schema(schema.toNullable())
        self.overwrite = overwrite
        self.url = options.target.path
        self.planned: Version | None = None
        if self.column is not None:
            if overwrite:
                raise ValueError(
                    f"{self.url}: option segmentBy appends; an overwrite, or complete mode, would leave the segments "
                    "as they are that get no rows. Nothing was written"
                )
            self.schema = task_writer.without(self.schema, self.column)
        options.form.check_write(self.schema)
        if options.form.has_lines:
            lines.check_uncompressed("" if self.column else self.url, options.compression)

    @property
    def column(self) -> str | None:
        """Return the column that names the segment of a row."""
        return self.options.segment_by

    def segment(self, name: str | None, pieces: Sequence[TaskData] = ()) -> SegmentCommit:
        """Return the commit to the target, or to the segment of a name in it."""
        return SegmentCommit(self.options, name, self.schema, pieces, overwrite=self.overwrite)

    # -- before all tasks ------------------------------------------------------------------------------------

    def check_target(self, *, may_be_sealed: bool = False) -> Header | None:
        """Refuse a target to which a commit would fail, before any task begins; adopt the columns of a Parquet file.

        Returns
        -------
        Header or None
            The header of the target, if it has one.

        Raises
        ------
        OSError
            The target is a folder that is not empty, sealed, held by an owner, or damaged, or it is Parquet with other
            columns. Or it is a segment, if rows go to segments in a folder.
        """
        one = self.segment(None)
        view = one.view()
        if self.column is not None:
            if view is not None:
                what = f"It is not a folder, and option segmentBy={self.column} needs one; nothing was written"
                raise NotADirectoryError(20, what, one.path)
            return None
        one.check(may_be_sealed=may_be_sealed)
        self.schema = one.aligned()
        self.planned = one.version
        return None if view is None else view.header

    # -- in a task -------------------------------------------------------------------------------------------

    def write(self, batches: Iterator[pa.RecordBatch]) -> Receipt:
        """Write the rows of a partition, without a commit."""
        return TaskWriter(self.options, self.schema).write(batches)

    # -- on the driver ---------------------------------------------------------------------------------------

    def parts(self, found: Sequence[WriterCommitMessage | None]) -> list[SegmentCommit]:
        """Return the segments that get rows, with the data of tasks for each.

        The target itself is there also without rows.
        """
        pieces = dict(by_segment(received(found)))
        if self.column is None:
            pieces.setdefault(None, [])
        return [self.segment(name, of_name) for name, of_name in pieces.items()]

    def commit(self, found: Sequence[WriterCommitMessage | None], marker: Marker | None = None) -> None:
        """Append all that the tasks wrote in the order of the partitions, or overwrite the target with it.

        Parameters
        ----------
        marker
            Commit only where a segment does not have it.

        Raises
        ------
        OSError
            The errors of `append` and `overwrite` of the filesystem.
        """
        batch_commits.commit(self.parts(found), marker, checks_all=self.column is not None)

    def last_marker(self, number: int) -> Marker | None:
        """Return the marker of a batch whose tasks reported no query.

        It is the marker of the single query that has written the target.
        """
        view = self.segment(None).view()
        keys = [key for key in (view.attrs if view else ()) if key.startswith(ATTRIBUTE_PREFIX)]
        return Marker(keys[0], number) if len(keys) == 1 else None

    def abort(self, found: Sequence[WriterCommitMessage | None], marker: Marker | None = None) -> None:
        """Log whether the data was committed.

        It deletes no file: collection deletes staged data that no header names.

        It never raises, because the user must see the error for which Spark aborts.
        """
        try:
            parts = [part for part in self.parts(found) if part.pieces]
            batch_commits.log_outcomes(parts, marker, self.planned)
        except Exception:  # the log has it; Spark shows the error of the job
            what = "%s: the job failed; its data was perhaps committed: the target cannot be read"
            logger.warning(what, self.url, exc_info=True)


class RollingWriter(DataSourceArrowWriter):
    """Writes to a segment: readers see no row before the commit, and all rows after it."""

    def __init__(self, options: Options, schema: StructType, overwrite: bool) -> None:
        self._job = JobCommit(options, schema, overwrite=overwrite)
        self._marker = None if options.transaction is None else Marker.of(*options.transaction)

    def check_target(self) -> None:
        """Refuse a target to which the commit would fail, before any task begins; see `JobCommit.check_target`."""
        header = self._job.check_target(may_be_sealed=self._marker is not None)
        if header is not None and self._marker is not None:
            self._marker.check(header.attrs, header.sealed and not self._job.overwrite, self._job.url)

    @plainly
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Receipt:
        """Write the rows of a task; collection deletes what a failed or repeated task has staged."""
        return self._job.write(iterator)

    @plainly
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Append, or overwrite, in a single header replacement."""
        self._job.commit(messages, self._marker)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Do nothing: Spark also aborts after a commit that took place."""
        self._job.abort(messages, self._marker)


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
