"""Batch writes: tasks stage the rows of their partitions, the driver commits all of them in one header replacement."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from rollingfs.commit.chunk_files import Staged
from rollingfs.errors import BadOffsetError
from rollingfs.format import names, transitions
from rollingfs.format.header import Header, Phase
from rollingfs.format.transitions import Guard
from rollingfs.fs.filesystem import RollingFileSystem
from rollingfs.read.snapshot import Snapshot
from rollingfs.spark.source import compression, csv_writer, ipc, json_writer, parquet, places, rows, segments, text
from rollingfs.spark.source.footer import MalformedFooterError, Part
from rollingfs.spark.source.options import ARROW, BINARY, CSV, JSON, LINES, PARQUET, TEXT, Options
from rollingfs.spark.source.segments import SegmentReader

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

logger = logging.getLogger("pyspark_rollingfs")
"""It is not below ``rollingfs``, which prints nothing by itself: users look for these lines in Spark's log."""

QUERY_ID = "sql.streaming.queryId"
"""The local property in which Spark tells tasks the id of the query."""
GROWTHS_MAX = 64
"""Maximum tries to append to a Parquet file while other writers append; each try makes a new footer."""
GROWTH_PAUSE_S = 0.02
"""Maximum pause before the second try; it doubles with each try. It is random, so that writers do not meet again."""
GROWTH_PAUSE_S_MAX = 1.0


class Receipt(WriterCommitMessage):
    """What a task sends to the driver: the data that it has staged."""

    def __init__(self, partition: int, staged: Staged, footer: bytes | None, query: str | None) -> None:
        self.partition = partition
        self.staged = staged
        self.footer = footer
        self.query = query


class JobCommit:
    """Stages the rows of one job in its tasks, and commits them on the driver.

    Parameters
    ----------
    schema
        The Spark schema of the rows.
    """

    def __init__(self, options: Options, schema: Any, *, overwrite: bool) -> None:
        self.options = options
        # nullable in all formats, so that a later null fits the schema
        self.schema = rows.arrow_schema(schema.toNullable())
        self.overwrite = overwrite
        self.url = options.target.path
        if options.format == TEXT:
            text.check_schema(self.schema, "writing text")
        if options.format == JSON:
            json_writer.check_schema(self.schema)
        if options.format == CSV:
            csv_writer.check_schema(self.schema)
        if options.format in LINES:
            compression.check_target(self.url)
        if options.format == BINARY and (len(self.schema) != 1 or not pa.types.is_binary(self.schema.field(0).type)):
            raise ValueError(f"writing binary needs one column of binary, not ({', '.join(map(str, self.schema))})")

    # -- before all tasks ------------------------------------------------------------------------------------

    def check_target(self, *, may_be_sealed: bool = False) -> Header | None:
        """Refuse a target to which a commit would fail, before anything is staged; adopt the columns of a Parquet file.

        Returns
        -------
        Header or None
            The header of the target, if it has one.

        Raises
        ------
        OSError
            The target is a folder with something in it, sealed, held by an owner, or damaged, or it is Parquet with
            other columns.
        """
        fs = places.filesystem(self.options)
        path = names.check_segment_name(fs._strip_protocol(self.url))
        view = self.view()
        if view is None:
            fs._bridge.run(fs._client.contents.check_no_folder(path))
            return None
        header = view.header
        if header is not None and header.phase is not Phase.MERGING:  # the commit waits for the end of a merge
            transitions.check(header, transitions.Guard(), path)
            if not self.overwrite and not may_be_sealed:
                transitions.check_open(header, path)
        if self.options.format == PARQUET and not self.overwrite and view.size:
            try:
                self.schema = parquet.aligned(_footer(fs, view), self.schema)
            except MalformedFooterError as error:
                raise _refused(path, error) from error
        return header

    # -- in a task -------------------------------------------------------------------------------------------

    def stage(self, batches: Iterator[pa.RecordBatch]) -> Receipt:
        """Upload the rows of one partition, without a commit."""
        context: Any = TaskContext.get()
        fs = places.filesystem(self.options)
        data = self._encoded(rows.conform(batch, self.schema) for batch in batches)
        staged = fs.stage(self.url, data)
        footer = data.footer if isinstance(data, parquet.Encoder) else None
        return Receipt(context.partitionId(), staged, footer, context.getLocalProperty(QUERY_ID))

    def _encoded(self, batches: Iterator[pa.RecordBatch]) -> Iterable[bytes]:
        if self.options.format == PARQUET:
            return parquet.Encoder(batches)
        if self.options.format == CSV:
            return csv_writer.encode(batches, self.options.records.csv)
        encode = {TEXT: text.encode, JSON: json_writer.encode, ARROW: ipc.encode, BINARY: _raw}
        return encode[self.options.format](batches)

    # -- on the driver ---------------------------------------------------------------------------------------

    def commit(
        self,
        messages: Sequence[WriterCommitMessage | None],
        attrs: Mapping[str, str] | None = None,
        expected_attrs: Mapping[str, str | None] | None = None,
    ) -> None:
        """Append all staged data in the order of the partitions, or overwrite the target with it.

        Raises
        ------
        OSError
            The errors of `append` and `overwrite` of the filesystem.
        """
        fs = places.filesystem(self.options)
        receipts = sorted(received(messages), key=lambda receipt: receipt.partition)
        if self.options.format == PARQUET:
            self._grow(fs, [one for one in receipts if one.footer is not None], attrs or {}, expected_attrs or {})
        elif self.options.format == CSV and self.options.records.csv.header:
            self._write_with_header(fs, [receipt.staged for receipt in receipts], attrs or {}, expected_attrs or {})
        else:
            data = [receipt.staged for receipt in receipts]
            self._write(fs, data, attrs or {}, Guard(expected_attrs=expected_attrs or {}))

    def _write(self, fs: RollingFileSystem, data: Sequence[Any], attrs: Mapping[str, str], guard: Guard) -> None:
        if self.overwrite:
            fs.overwrite(self.url, data, attrs, guard.expected_attrs)
            return
        path = names.check_segment_name(fs._strip_protocol(self.url))
        # the same commit makes the segment if it is missing
        commit = fs._client.segments.extend(path, data, attrs=attrs, guard=guard, create=True)
        fs._bridge.run(commit, commits=path)

    def _write_with_header(
        self,
        fs: RollingFileSystem,
        staged: Sequence[Staged],
        attrs: Mapping[str, str],
        expected_attrs: Mapping[str, str | None],
    ) -> None:
        """Append or overwrite with CSV lines; the names of the columns are the first line of the segment."""
        data = [csv_writer.header(self.schema, self.options.records.csv), *staged]
        view = None if self.overwrite else self.view()
        if view is None or not view.length:
            expected = None if self.overwrite else 0
            try:
                self._write(fs, data, attrs, Guard(expected_offset=expected, expected_attrs=expected_attrs))
                return
            except BadOffsetError:
                if self.overwrite:
                    raise
        # there are lines, perhaps those of another writer, who wrote the header
        self._write(fs, staged, attrs, Guard(expected_attrs=expected_attrs))

    def _grow(
        self,
        fs: RollingFileSystem,
        receipts: Sequence[Receipt],
        attrs: Mapping[str, str],
        expected_attrs: Mapping[str, str | None],
    ) -> None:
        """Append Parquet files and a footer that makes one file of all; try again if another writer was faster."""
        for nth in range(GROWTHS_MAX):
            view = None if self.overwrite else self.view()
            old = _footer(fs, view) if view is not None and view.size else None
            try:
                data = self._grown(receipts, old, view.size if view is not None else 0)
            except MalformedFooterError as error:
                raise _refused(self.url, error) from error
            expected = None if self.overwrite else (view.length if view is not None else 0)
            try:
                self._write(fs, data, attrs, Guard(expected_offset=expected, expected_attrs=expected_attrs))
            except BadOffsetError:
                # another writer appended after we looked
                time.sleep(random.uniform(0, min(GROWTH_PAUSE_S * 2**nth, GROWTH_PAUSE_S_MAX)))
                continue
            return
        raise BadOffsetError(
            f"{self.url}: other writers appended before each of {GROWTHS_MAX} tries; nothing was written. Try again"
        )

    def _grown(self, receipts: Sequence[Receipt], old: bytes | None, size: int) -> list[Any]:
        """The data that appends the rows of all receipts to a file of `size` bytes; `old` is its footer."""
        parts: list[Part] = []
        at = size
        for receipt in receipts:
            parts.append(Part(receipt.footer or b"", at))
            at += receipt.staged.size
        data: list[Any] = [receipt.staged for receipt in receipts]
        if old is None:
            if not parts:
                return [parquet.empty(self.schema)]
            return [*data, parquet.tail(parts)] if len(parts) > 1 else data
        if not parts:
            return []
        nulls, old = parquet.widened(old, parts[0].footer, self.schema, at)
        return [*data, nulls, parquet.tail([Part(old, 0), *parts])]

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Log whether the data was committed, and delete nothing: collection deletes staged data that no header names.

        It never raises, because the user must see the error for which Spark aborts.
        """
        staged = [receipt.staged for receipt in received(messages)]
        try:
            self._log_outcome(staged)
        except Exception:  # the log has it; Spark shows the error of the job
            logger.warning(
                "%s: the job failed; its data was perhaps committed: the target cannot be read", self.url, exc_info=True
            )

    def _log_outcome(self, staged: Sequence[Staged]) -> None:
        view = self.view()
        if view is not None and view.header is not None and self._names_any(view.header, view.path, staged):
            logger.warning("%s: the job reports a failure, but its data IS committed; do not repeat the job", self.url)
        elif staged:
            size = sum(one.size for one in staged)
            logger.warning(
                "%s: the job failed, and nothing was committed; %d staged bytes are left to collect()", self.url, size
            )

    def _names_any(self, header: Header, path: str, staged: Sequence[Staged]) -> bool:
        fs = places.filesystem(self.options)
        named = {chunk.file for chunk in fs._bridge.run(fs._client.pages.unfold(path, header.entries))}
        return any(names.relate(path, chunk.path) in named for one in staged for chunk in one.chunks)

    def view(self) -> Snapshot | None:
        """The target as it is now, or None."""
        fs = places.filesystem(self.options)
        return segments.view_now(fs, fs._strip_protocol(self.url))


class RollingWriter(DataSourceArrowWriter):
    """Writes to one segment: readers see no row before the commit, and all rows after it."""

    def __init__(self, options: Options, schema: StructType, overwrite: bool) -> None:
        self._job = JobCommit(options, schema, overwrite=overwrite)

    def check_target(self) -> None:
        """Refuse a target to which the commit would fail, before any task begins; see `JobCommit.check_target`."""
        self._job.check_target()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Receipt:
        """Stage the rows of one task; collection deletes what a failed or repeated task has staged."""
        return self._job.stage(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Append, or overwrite, in one header replacement."""
        self._job.commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Delete nothing: Spark also aborts after a commit that took place before it failed."""
        self._job.abort(messages)


def received(messages: Sequence[WriterCommitMessage | None]) -> list[Receipt]:
    """The receipts of the tasks that succeeded; a failed task sends None."""
    return [message for message in messages if isinstance(message, Receipt)]


def _footer(fs: RollingFileSystem, view: Snapshot) -> bytes:
    try:
        return parquet.footer_of(SegmentReader(fs, view).read, view.start, view.length)
    except MalformedFooterError as error:
        raise _refused(view.path, error) from error


def _refused(path: str, error: MalformedFooterError) -> MalformedFooterError:
    return MalformedFooterError(f"{path}: these rows cannot be appended to it as Parquet: {error}; nothing was written")


def _raw(batches: Iterator[pa.RecordBatch]) -> Iterator[bytes]:
    for batch in batches:
        yield b"".join(value for value in batch.column(0).to_pylist() if value)
