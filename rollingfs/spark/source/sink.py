"""The streaming sink: each batch is appended exactly once.

The batch's number is committed as an attribute of the target, in the same header replacement as its rows, on
condition that the attribute is still what it was when the number was looked up. So a batch that is run again, by
a restarted driver or by a slow twin of it, finds that its rows are there.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from rollingfs.errors import AppendOutcomeUnknown, AttributeMismatchError
from rollingfs.spark.source.commits import Parts, Receipt, received
from rollingfs.spark.source.options import Options

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

logger = logging.getLogger("pyspark_rollingfs")

ATTRIBUTE_PREFIX = "spark/"
TRIES_MAX = 16


class RollingStreamWriter(DataSourceStreamArrowWriter):
    """Appends the batches of a query to one segment; in complete mode each takes the place of all before it."""

    def __init__(self, options: Options, schema: StructType, overwrite: bool) -> None:
        self._parts = Parts(options, schema, overwrite=overwrite)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Receipt:
        """Stage the rows of one task."""
        return self._parts.stage(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Commit the batch, unless it is there.

        Raises
        ------
        OSError
            It could not be committed, or that cannot be said; the query fails, and is safe to start again.
        """
        queries = {receipt.query for receipt in received(messages)}
        if not queries:
            return  # a batch without tasks has no rows
        if len(queries) != 1 or None in queries:
            raise RuntimeError(f"the tasks of batch {batchId} must name one query, but name {queries}")
        key = f"{ATTRIBUTE_PREFIX}{queries.pop()}"
        for _ in range(TRIES_MAX):
            last = self._last(key)
            if last is not None and int(last) >= batchId:
                logger.info("%s: batch %d is committed already (%s)", self._parts.url, batchId, key)
                return
            try:
                self._parts.commit(messages, {key: str(batchId)}, {key: last})
            except (AttributeMismatchError, AppendOutcomeUnknown) as error:
                failure = error  # somebody else was faster, or it may be there: look again
                continue
            return
        raise failure

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Delete nothing, for the same reason as in a batch write."""
        self._parts.abort(messages)

    def _last(self, key: str) -> str | None:
        """The number of the last batch that the query committed."""
        view = self._parts.view()
        return dict(view.header.attrs).get(key) if view is not None and view.header is not None else None
