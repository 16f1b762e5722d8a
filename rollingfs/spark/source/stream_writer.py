"""Streaming writes: each batch is appended exactly once.

1. The driver reads the attribute of the query on the target: the number of the last batch that it committed.
2. If the number is that of this batch or a later one, the rows are there already, and nothing is done.
3. Else one header replacement commits the rows and the new number, on condition that the attribute has not changed.

So a batch that a restarted driver repeats, or a slow twin of the driver, is committed once.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from rollingfs.errors import AppendOutcomeUnknown, AttributeMismatchError, SegmentSealedError
from rollingfs.format.transitions import check_attrs
from rollingfs.spark.source.batch_writer import QUERY_ID, JobCommit, Receipt, received
from rollingfs.spark.source.options import Options
from rollingfs.spark.source.versions import StreamArrowWriter

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

logger = logging.getLogger("pyspark_rollingfs")

ATTRIBUTE_PREFIX = "spark/"
TRIES_MAX = 16
BATCH_ID = "streaming.sql.batchId"
"""The local property in which Spark tells tasks the number of the batch."""
QUERIES_SHOWN_MAX = 8


class RollingStreamWriter(StreamArrowWriter):
    """Appends the batches of a query to one segment; in complete mode each batch overwrites it."""

    def __init__(self, options: Options, schema: StructType, overwrite: bool) -> None:
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
        if header is not None and not self._job.overwrite:
            self._attrs, self._is_sealed = dict(header.attrs), header.sealed

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Receipt:
        """Stage the rows of one task.

        Raises
        ------
        SegmentSealedError, ValueError
            The target lacks the batch, and is sealed or full of attributes. Nothing was staged.
        """
        context: Any = TaskContext.get()
        query, batch = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
        if query is not None and batch is not None:
            self._check_batch(f"{ATTRIBUTE_PREFIX}{query}", int(batch))
        return self._job.stage(iterator)

    def _check_batch(self, key: str, batch: int) -> None:
        last = self._attrs.get(key)
        if last is not None and int(last) >= batch:
            return
        if self._is_sealed:
            raise SegmentSealedError(
                f"{self._job.url} is sealed; it takes no more batches, and lacks batch {batch}; nothing was written"
            )
        self._check_full(self._attrs, key, batch)

    def _check_full(self, attrs: Mapping[str, str], key: str, batch: int) -> None:
        """Refuse a query if the target has no room for its attribute; the error says how to make room."""
        try:
            check_attrs({**attrs, key: str(batch)})
        except ValueError as error:
            known = [f"{name} (batch {value})" for name, value in attrs.items() if name.startswith(ATTRIBUTE_PREFIX)]
            more = f" and {len(known) - QUERIES_SHOWN_MAX} more" if len(known) > QUERIES_SHOWN_MAX else ""
            shown = (", ".join(known[:QUERIES_SHOWN_MAX]) or "none") + more
            raise ValueError(
                f"{self._job.url} has no room for attribute {key}, by which the sink knows its batches; nothing was "
                "written. Remove the attributes of queries whose checkpoints will never be used again, by "
                f'fs.append(path, b"", attrs={{"{ATTRIBUTE_PREFIX}…": None}}). It has, oldest query first: {shown}'
            ) from error

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Commit the batch, unless the target has it.

        Raises
        ------
        OSError
            The batch was not committed, or its outcome is unknown. The query fails, and is safe to start again.
        """
        queries = {receipt.query for receipt in received(messages)}
        if not queries:
            return  # a batch without tasks has no rows
        if len(queries) != 1 or None in queries:
            raise RuntimeError(f"the tasks of batch {batchId} must name one query, but name {queries}")
        key = f"{ATTRIBUTE_PREFIX}{queries.pop()}"
        failure: OSError | None = None
        for _ in range(TRIES_MAX):
            try:
                attrs = self._look()
            except OSError as error:
                if failure is not None:
                    raise failure from error  # the first error is the cause
                raise
            last = attrs.get(key)
            if last is not None and int(last) >= batchId:
                logger.info("%s: batch %d is committed already (%s)", self._job.url, batchId, key)
                return
            if not self._job.overwrite:
                self._check_full(attrs, key, batchId)
            try:
                self._job.commit(messages, {key: str(batchId)}, {key: last})
            except (AttributeMismatchError, AppendOutcomeUnknown) as error:
                failure = error  # another driver was faster, or the commit took place: look again
                continue
            return
        assert failure is not None
        raise failure

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Delete nothing, as `RollingWriter.abort`."""
        self._job.abort(messages)

    def _look(self) -> Mapping[str, str]:
        """The attributes of the target now; a query's has the number of the last batch that it committed."""
        view = self._job.view()
        return view.header.attrs if view is not None and view.header is not None else {}
