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

from rollingfs.parquet.files import RowsFile
from rollingfs.spark.source import rows
from rollingfs.spark.source.formats import lines
from rollingfs.spark.source.options import WRITE, Options, logger
from rollingfs.spark.source.places import ATTRIBUTE_PREFIX, QUERY_ID
from rollingfs.spark.source.plain_errors import plainly
from rollingfs.spark.source.sink import commits, task_writer
from rollingfs.spark.source.sink.commits import Marker, SegmentCommit, Version
from rollingfs.spark.source.sink.task_writer import Receipt, received

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter as StreamArrowWriter
    from pyspark.sql.types import StructType
elif hasattr(datasource, "DataSourceStreamArrowWriter"):
    StreamArrowWriter = datasource.DataSourceStreamArrowWriter
else:

    class StreamArrowWriter(datasource.DataSourceStreamWriter, DataSourceArrowWriter):
        """A writer of streams that takes record batches: PySpark 4.0 gives them to every `DataSourceArrowWriter`."""


Messages = Sequence[WriterCommitMessage | None]
BATCH_ID = "streaming.sql.batchId"
"""The local property in which Spark reports tasks the number of the batch."""


class RollingWriter(StreamArrowWriter, DataSourceArrowWriter):
    """Writes to a segment: readers see no row before the commit, and all rows after it.

    Tasks write the rows of a job or of a batch of a stream, and the driver commits them. In complete mode each batch
    overwrites the segment.
    """

    def __init__(self, options: Options, schema: StructType, overwrite: bool, *, is_stream: bool = False) -> None:
        options.check_use(WRITE)
        if is_stream and options.transaction is not None:
            raise ValueError("options txnAppId and txnVersion are for batch writes; a stream counts its batches itself")
        self.options = options
        # nullable in all formats, so that a later null fits the schema
        self.schema = rows.arrow_schema(schema.toNullable())
        self.overwrite = overwrite
        self.url = options.target
        self._is_stream = is_stream
        self._marker = None if options.transaction is None else commits.marker_of(*options.transaction)
        self._planned: Version | None = None
        self._attrs: Mapping[str, str] = {}
        """The attributes of the target when the job or the batch was planned."""
        self._is_sealed = False
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
        """Adopt the columns of a Parquet file; refuse a target to which a commit would fail, before any task begins.

        `write` refuses a target that is sealed or full of attributes for a stream, because it knows the batch, which
        may be in the target already.

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
            return
        one.check(may_be_sealed=self._is_stream or self._marker is not None)
        self.schema = one.aligned()
        self._planned = one.version
        if view is not None and view.header is not None:
            self._attrs, self._is_sealed = dict(view.attrs), view.sealed and not self.overwrite
            self._check_marker(self._marker)

    def _check_marker(self, marker: Marker | None) -> None:
        if marker is not None:
            commits.check_marker(marker, self._attrs, self.url, is_sealed=self._is_sealed)

    # -- in a task -------------------------------------------------------------------------------------------

    @plainly
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Receipt:
        """Write the rows of a task; collection deletes what a failed or repeated task has staged.

        Raises
        ------
        SegmentSealedError, ValueError
            The target lacks the batch, and is sealed or full of attributes. No byte was staged.
        """
        if self._is_stream:
            context: Any = TaskContext.get()
            query, batch = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
            if query is not None and batch is not None:
                self._check_marker(commits.marker_of(query, int(batch)))
        return task_writer.write(self.options, self.schema, iterator)

    # -- on the driver ---------------------------------------------------------------------------------------

    def parts(self, receipts: Sequence[Receipt]) -> list[SegmentCommit]:
        """Return the segments that get rows, with the data of tasks for each, in the order of their names.

        The target itself is there also without rows.
        """
        pieces: dict[str | None, list[RowsFile]] = {} if self.options.segment_by is not None else {None: []}
        for receipt in receipts:
            for name, piece in receipt.pieces:
                pieces.setdefault(name, []).append(piece)
        return [self.segment(name, pieces[name]) for name in sorted(pieces, key=lambda name: name or "")]

    def _marker_of(self, receipts: Sequence[Receipt], number: int | None) -> Marker | None:
        """Return the marker of a write: for a batch whose tasks reported no query, of the only query of the target."""
        if number is None:
            return self._marker
        if not receipts:
            view = self.segment(None).view()
            keys = [key for key in (view.attrs if view else ()) if key.startswith(ATTRIBUTE_PREFIX)]
            return (keys[0], number) if len(keys) == 1 else None
        queries = {receipt.query for receipt in receipts}
        if len(queries) != 1 or None in queries:
            raise RuntimeError(f"the tasks of batch {number} must name one query, but name {queries}")
        return commits.marker_of(str(queries.pop()), number)

    @plainly
    def commit(self, messages: Messages, batchId: int | None = None) -> None:  # noqa: N803 - Spark's name
        """Append all that the tasks wrote in the order of the partitions, or overwrite the target with it.

        A batch of a stream is committed only where a segment does not have it.

        Raises
        ------
        OSError
            The errors of `append` and `overwrite` of the filesystem. A query fails, and is safe to start again.
        """
        receipts = received(messages)
        if receipts or batchId is None or self.overwrite:  # a batch without tasks has no rows
            marker, is_routed = self._marker_of(receipts, batchId), self.options.segment_by is not None
            parts, is_stream = self.parts(receipts), batchId is not None
            commits.commit(parts, marker, checks_all=is_routed, is_stream=is_stream)

    def abort(self, messages: Messages, batchId: int | None = None) -> None:  # noqa: N803 - Spark's name
        """Log whether the data was committed: Spark also aborts after a commit that took place.

        It deletes no file: collection deletes staged data that no header names.

        It never raises, because the user must see the error for which Spark aborts.
        """
        try:
            receipts = received(messages)
            if parts := [part for part in self.parts(receipts) if part.pieces]:
                commits.log_outcomes(parts, self._marker_of(receipts, batchId), self._planned)
        except Exception:  # noqa: BLE001 - the log has it; Spark shows the error of the job
            what = "%s: the job failed; its data was perhaps committed: the target cannot be read"
            logger.warning(what, self.url, exc_info=True)
