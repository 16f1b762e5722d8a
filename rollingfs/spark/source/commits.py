"""One commit of what many tasks staged: the receipts of all parts, in order, in one header replacement."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from rollingfs import names
from rollingfs.chunks import Staged
from rollingfs.errors import BadOffsetError
from rollingfs.filesystem import RollingFileSystem
from rollingfs.header import Header
from rollingfs.lookup import View
from rollingfs.spark.source import ipc, jsonlines, parquet, places, rows, text
from rollingfs.spark.source.footer import MalformedFooterError, Part
from rollingfs.spark.source.opened import Opened
from rollingfs.spark.source.options import ARROW, BINARY, JSON, PARQUET, TEXT, Options
from rollingfs.transitions import Guard

logger = logging.getLogger("pyspark_rollingfs")
"""Not below ``rollingfs``, which prints nothing by itself: Spark's users look for such lines in its logs."""

QUERY_ID = "sql.streaming.queryId"
"""Where Spark tells tasks the query."""
GROWTHS_MAX = 64
"""How often a Parquet file that others let grow meanwhile gets another footer."""


class Receipt(WriterCommitMessage):
    """What a task has staged."""

    def __init__(self, partition: int, staged: Staged, footer: bytes | None, query: str | None) -> None:
        self.partition = partition
        self.staged = staged
        self.footer = footer
        self.query = query


class Parts:
    """Stages parts in tasks, and commits them on the driver.

    Parameters
    ----------
    schema
        Spark's, of the rows.
    """

    def __init__(self, options: Options, schema: Any, *, overwrite: bool) -> None:
        self.options = options
        self.schema = rows.arrow_schema(schema)
        self.overwrite = overwrite
        self.url = options.target.path
        if options.format == TEXT:
            text.check_schema(self.schema, "writing text")
        if options.format == BINARY and (len(self.schema) != 1 or not pa.types.is_binary(self.schema.field(0).type)):
            raise ValueError(f"writing binary needs one column of binary, not ({', '.join(map(str, self.schema))})")

    # -- in a task -------------------------------------------------------------------------------------------

    def stage(self, batches: Iterator[pa.RecordBatch]) -> Receipt:
        """Upload the rows of one partition, and commit nothing."""
        context: Any = TaskContext.get()
        fs = places.filesystem(self.options)
        data = self._encoded(rows.conform(batch, self.schema) for batch in batches)
        staged = fs.stage(self.url, data)
        footer = data.footer if isinstance(data, parquet.Encoder) else None
        return Receipt(context.partitionId(), staged, footer, context.getLocalProperty(QUERY_ID))

    def _encoded(self, batches: Iterator[pa.RecordBatch]) -> Iterable[bytes]:
        if self.options.format == PARQUET:
            return parquet.Encoder(batches)
        encode = {TEXT: text.encode, JSON: jsonlines.encode, ARROW: ipc.encode, BINARY: _raw}
        return encode[self.options.format](batches)

    # -- on the driver ---------------------------------------------------------------------------------------

    def commit(
        self,
        messages: Sequence[WriterCommitMessage | None],
        attrs: Mapping[str, str] | None = None,
        expected_attrs: Mapping[str, str | None] | None = None,
    ) -> None:
        """Append all parts, in the order of the partitions, or put them in the place of what is there.

        Raises
        ------
        OSError
            As `append` and `overwrite` of the filesystem.
        """
        fs = places.filesystem(self.options)
        receipts = sorted(received(messages), key=lambda receipt: receipt.partition)
        if self.options.format == PARQUET:
            self._grow(fs, [one for one in receipts if one.footer is not None], attrs or {}, expected_attrs or {})
        else:
            data = [receipt.staged for receipt in receipts]
            self._write(fs, data, attrs or {}, Guard(expected_attrs=expected_attrs or {}))

    def _write(self, fs: RollingFileSystem, data: Sequence[Any], attrs: Mapping[str, str], guard: Guard) -> None:
        if self.overwrite:
            fs.overwrite(self.url, data, attrs, guard.expected_attrs)
            return
        path = names.check_segment_name(fs._strip_protocol(self.url))
        # made if missing, in the same commit
        commit = fs._client.segments.extend(path, data, attrs=attrs, guard=guard, create=True)
        fs._bridge.run(commit, commits=path)

    def _grow(
        self,
        fs: RollingFileSystem,
        receipts: Sequence[Receipt],
        attrs: Mapping[str, str],
        expected_attrs: Mapping[str, str | None],
    ) -> None:
        """Append Parquet files and the footer that makes one file of all; again, if others were faster."""
        for _ in range(GROWTHS_MAX):
            view = None if self.overwrite else self.view()
            old = [Part(_footer(fs, view), 0)] if view is not None and view.size else []
            shift = view.size if view is not None else 0
            parts = list(old)
            for receipt in receipts:
                parts.append(Part(receipt.footer or b"", shift))
                shift += receipt.staged.size
            data: list[Any] = [receipt.staged for receipt in receipts]
            if not parts:
                data.append(parquet.empty(self.schema))
            elif len(parts) > max(1, len(old)):
                data.append(parquet.tail(parts))
            expected = None if self.overwrite else (view.length if view is not None else 0)
            try:
                self._write(fs, data, attrs, Guard(expected_offset=expected, expected_attrs=expected_attrs))
            except BadOffsetError:
                continue  # others appended meanwhile
            return
        raise BadOffsetError(f"{self.url}: others appended to it {GROWTHS_MAX} times; nothing was written, try again")

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Leave what was staged to collection: a commit that seemed to fail may have made it part of the segment."""
        staged = [receipt.staged for receipt in received(messages)]
        view = self.view()
        if view is not None and view.header is not None and self._names_any(view.header, view.path, staged):
            logger.warning("%s: the job reports a failure, but its data IS committed; do not repeat it", self.url)
        elif staged:
            size = sum(one.size for one in staged)
            logger.warning("%s: nothing was committed; %d staged bytes are left to collect()", self.url, size)

    def _names_any(self, header: Header, path: str, staged: Sequence[Staged]) -> bool:
        fs = places.filesystem(self.options)
        named = {chunk.file for chunk in fs._bridge.run(fs._client.pages.unfold(path, header.entries))}
        return any(names.relate(path, chunk.path) in named for one in staged for chunk in one.chunks)

    def view(self) -> View | None:
        """What is at the target now."""
        fs = places.filesystem(self.options)
        return places.view_now(fs, fs._strip_protocol(self.url))


def received(messages: Sequence[WriterCommitMessage | None]) -> list[Receipt]:
    """The receipts; a failed task sends None."""
    return [message for message in messages if isinstance(message, Receipt)]


def _footer(fs: RollingFileSystem, view: View) -> bytes:
    try:
        return parquet.footer_of(Opened(fs, view).read, view.start, view.length)
    except MalformedFooterError as error:
        raise MalformedFooterError(f"{view.path}: Parquet cannot be appended to it: {error}") from error


def _raw(batches: Iterator[pa.RecordBatch]) -> Iterator[bytes]:
    for batch in batches:
        yield b"".join(value for value in batch.column(0).to_pylist() if value)
