"""Writers of batches and of streams: tasks write rows, the driver commits them in one header replacement a segment.

A batch of a stream is appended exactly once, by `commits`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from rollingfs.format.header import Header
from rollingfs.parquet.files import RowsFile
from rollingfs.spark.source import rows
from rollingfs.spark.source.formats import lines
from rollingfs.spark.source.options import WRITE, Options, logger
from rollingfs.spark.source.places import ATTRIBUTE_PREFIX, QUERY_ID
from rollingfs.spark.source.plain_errors import plainly
from rollingfs.spark.source.sink import commits, task_writer
from rollingfs.spark.source.sink.commits import Marker, SegmentCommit, Version
from rollingfs.spark.source.sink.task_writer import Receipt, by_segment, received

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter as StreamArrowWriter
    from pyspark.sql.types import StructType
elif hasattr(datasource, "DataSourceStreamArrowWriter"):
    StreamArrowWriter = datasource.DataSourceStreamArrowWriter
else:

    class StreamArrowWriter(datasource.DataSourceStreamWriter, DataSourceArrowWriter):
        """A writer of streams that takes record batches: PySpark 4.0 gives them to every `DataSourceArrowWriter`."""


class RollingWriter(DataSourceArrowWriter):
    """Writes to a segment: readers see no row before the commit, and all rows after it.

    Tasks write the rows of a job, and the driver commits them.
    """

    def __init__(self, options: Options, schema: StructType, overwrite: bool) -> None:
        options.check_use(WRITE)
        self.options = options
        # nullable in all formats, so that a later null fits the schema
        self.schema = rows.arrow_schema(schema.toNullable())
        self.overwrite = overwrite
        self.url = options.target
        self._marker = None if options.transaction is None else commits.marker_of(*options.transaction)
        self._planned: Version | None = None
        column = options.segment_by
        if column is not None:
            if overwrite:
                raise ValueError(
                    f"{self.url}: option segmentBy appends; an overwrite, or complete mode, would leave the segments "
                    "as they are that get no rows. Nothing was written"
                )
            self.schema = task_writer.without(self.schema, column)
        options.form.check_write(self.schema)
        if options.form.has_lines:
            lines.check_uncompressed("" if column else self.url, options.compression)

    def segment(self, name: str | None, pieces: Sequence[RowsFile] = ()) -> SegmentCommit:
        """Return the commit to the target, or to the segment of a name in it."""
        return SegmentCommit(self.options, name, self.schema, pieces, overwrite=self.overwrite)

    # -- before all tasks ------------------------------------------------------------------------------------

    def check_target(self) -> None:
        """Refuse a target to which the commit would fail, before any task begins; see `adopted`."""
        header = self.adopted(may_be_sealed=self._marker is not None)
        if header is not None and self._marker is not None:
            is_sealed = header.sealed and not self.overwrite
            commits.check_marker(self._marker, header.attrs, self.url, is_sealed=is_sealed)

    def adopted(self, *, may_be_sealed: bool) -> Header | None:
        """Adopt the columns of a Parquet file; refuse a target to which a commit would fail.

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
        if self.options.segment_by is not None:
            if view is not None:
                what = f"It is not a folder, and option segmentBy={self.options.segment_by} needs one"
                raise NotADirectoryError(20, f"{what}; nothing was written", one.path)
            return None
        one.check(may_be_sealed=may_be_sealed)
        self.schema = one.aligned()
        self._planned = one.version
        return None if view is None else view.header

    # -- in a task -------------------------------------------------------------------------------------------

    @plainly
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Receipt:
        """Write the rows of a task; collection deletes what a failed or repeated task has staged."""
        return task_writer.write(self.options, self.schema, iterator)

    # -- on the driver ---------------------------------------------------------------------------------------

    def parts(self, found: Sequence[WriterCommitMessage | None]) -> list[SegmentCommit]:
        """Return the segments that get rows, with the data of tasks for each.

        The target itself is there also without rows.
        """
        pieces = dict(by_segment(received(found)))
        if self.options.segment_by is None:
            pieces.setdefault(None, [])
        return [self.segment(name, of_name) for name, of_name in pieces.items()]

    @plainly
    def commit(self, messages: Sequence[WriterCommitMessage | None], marker: Marker | None = None) -> None:
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
        is_routed = self.options.segment_by is not None
        commits.commit(self.parts(messages), marker or self._marker, checks_all=is_routed)

    def abort(self, messages: Sequence[WriterCommitMessage | None], marker: Marker | None = None) -> None:
        """Log whether the data was committed: Spark also aborts after a commit that took place.

        It deletes no file: collection deletes staged data that no header names.

        It never raises, because the user must see the error for which Spark aborts.
        """
        try:
            parts = [part for part in self.parts(messages) if part.pieces]
            commits.log_outcomes(parts, marker or self._marker, self._planned)
        except Exception:  # noqa: BLE001 - the log has it; Spark shows the error of the job
            what = "%s: the job failed; its data was perhaps committed: the target cannot be read"
            logger.warning(what, self.url, exc_info=True)


BATCH_ID = "streaming.sql.batchId"
"""The local property in which Spark reports tasks the number of the batch."""


class RollingStreamWriter(StreamArrowWriter):
    """Appends the batches of a query to a segment; in complete mode each batch overwrites it."""

    def __init__(self, options: Options, schema: StructType, overwrite: bool) -> None:
        if options.transaction is not None:
            raise ValueError("options txnAppId and txnVersion are for batch writes; a stream counts its batches itself")
        self._job = RollingWriter(options, schema, overwrite)
        self._attrs: Mapping[str, str] = {}
        """The attributes of the target when the batch was planned."""
        self._is_sealed = False

    def check_target(self) -> None:
        """Refuse a target to which the commit would fail, before any task begins.

        Raises
        ------
        OSError
            See `RollingWriter.adopted`. `write` refuses a target that is sealed or full of attributes, because it
            knows the batch, which may be in the target already.
        """
        header = self._job.adopted(may_be_sealed=True)
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
            marker = commits.marker_of(query, int(batch))
            commits.check_marker(marker, self._attrs, self._job.url, is_sealed=self._is_sealed)
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
                self._job.commit(messages, self._last_marker(batchId))
            return  # a batch without tasks has no rows
        if len(queries) != 1 or None in queries:
            raise RuntimeError(f"the tasks of batch {batchId} must name one query, but name {queries}")
        self._job.commit(messages, commits.marker_of(str(queries.pop()), batchId))

    def _last_marker(self, number: int) -> Marker | None:
        """Return the marker of a batch whose tasks reported no query.

        It is the marker of the single query that has written the target.
        """
        view = self._job.segment(None).view()
        keys = [key for key in (view.attrs if view else ()) if key.startswith(ATTRIBUTE_PREFIX)]
        return (keys[0], number) if len(keys) == 1 else None

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Do nothing, as `RollingWriter.abort`."""
        queries = {receipt.query for receipt in received(messages)}
        query = next(iter(queries), None)
        self._job.abort(messages, None if query is None else commits.marker_of(query, batchId))
