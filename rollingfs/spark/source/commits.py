"""One commit of what many tasks staged: the receipts of all parts, in order, in one header replacement."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from rollingfs.commit.chunk_files import Staged
from rollingfs.errors import BadOffsetError
from rollingfs.format import names, transitions
from rollingfs.format.header import Header, Phase
from rollingfs.format.transitions import Guard
from rollingfs.fs.filesystem import RollingFileSystem
from rollingfs.read.snapshot import Snapshot
from rollingfs.spark.source import ipc, jsonlines, parquet, places, rows, text
from rollingfs.spark.source.footer import MalformedFooterError, Part
from rollingfs.spark.source.opened import Opened
from rollingfs.spark.source.options import ARROW, BINARY, JSON, PARQUET, TEXT, Options

logger = logging.getLogger("pyspark_rollingfs")
"""Not below ``rollingfs``, which prints nothing by itself: Spark's users look for such lines in its logs."""

QUERY_ID = "sql.streaming.queryId"
"""Where Spark tells tasks the query."""
GROWTHS_MAX = 64
"""How often a Parquet file that others let grow meanwhile gets another footer."""
GROWTH_PAUSE_S_MAX = 1.0
"""Before such another try, at random: those who write at the same time let each other pass."""
GROWTH_PAUSE_S = 0.02
"""Before the first; then twice as long each time."""


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
        # of all formats: a null that comes later is no other schema
        self.schema = rows.arrow_schema(schema.toNullable())
        self.overwrite = overwrite
        self.url = options.target.path
        if options.format == TEXT:
            text.check_schema(self.schema, "writing text")
        if options.format == BINARY and (len(self.schema) != 1 or not pa.types.is_binary(self.schema.field(0).type)):
            raise ValueError(f"writing binary needs one column of binary, not ({', '.join(map(str, self.schema))})")

    # -- before all tasks ------------------------------------------------------------------------------------

    def check_target(self, *, may_be_sealed: bool = False) -> Header | None:
        """Refuse what could not be committed, while nothing is staged; take over the columns of a Parquet file there.

        Returns
        -------
        Header or None
            Of the target, if it is a segment.

        Raises
        ------
        OSError
            The target is a folder, sealed, held by somebody, cannot be read, or takes no Parquet of these columns.
        """
        fs = places.filesystem(self.options)
        path = names.check_segment_name(fs._strip_protocol(self.url))
        view = self.view()
        if view is None:
            places.check_no_folder(fs, path)
            return None
        header = view.header
        if header is not None and header.phase is not Phase.MERGING:  # one under way is waited for by the commit
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
                # others appended meanwhile
                time.sleep(random.uniform(0, min(GROWTH_PAUSE_S * 2**nth, GROWTH_PAUSE_S_MAX)))
                continue
            return
        raise BadOffsetError(f"{self.url}: others appended to it {GROWTHS_MAX} times; nothing was written, try again")

    def _grown(self, receipts: Sequence[Receipt], old: bytes | None, size: int) -> list[Any]:
        """What gives a file of `size` bytes, with its footer or none, the rows of all receipts."""
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
        """Leave what was staged to collection: a commit that seemed to fail may have made it part of the segment.

        Never raises: what made Spark abort is what the user is to see.
        """
        staged = [receipt.staged for receipt in received(messages)]
        try:
            self._say_what_became_of(staged)
        except Exception:  # it is in the log: the error of the job is what the user is to see
            logger.warning("%s: the job failed; whether its data was committed cannot be seen", self.url, exc_info=True)

    def _say_what_became_of(self, staged: Sequence[Staged]) -> None:
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

    def view(self) -> Snapshot | None:
        """What is at the target now."""
        fs = places.filesystem(self.options)
        return places.view_now(fs, fs._strip_protocol(self.url))


def received(messages: Sequence[WriterCommitMessage | None]) -> list[Receipt]:
    """The receipts; a failed task sends None."""
    return [message for message in messages if isinstance(message, Receipt)]


def _footer(fs: RollingFileSystem, view: Snapshot) -> bytes:
    try:
        return parquet.footer_of(Opened(fs, view).read, view.start, view.length)
    except MalformedFooterError as error:
        raise _refused(view.path, error) from error


def _refused(path: str, error: MalformedFooterError) -> MalformedFooterError:
    return MalformedFooterError(f"{path}: these rows cannot be appended to it as Parquet: {error}; nothing was written")


def _raw(batches: Iterator[pa.RecordBatch]) -> Iterator[bytes]:
    for batch in batches:
        yield b"".join(value for value in batch.column(0).to_pylist() if value)
