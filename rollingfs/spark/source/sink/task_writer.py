"""The rows of a task: few bytes are in its message to the driver, more bytes are staged."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate, chain
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from rollingfs import Staged
from rollingfs.format import names
from rollingfs.fs.core import core
from rollingfs.fs.filesystem import RollingFileSystem
from rollingfs.parquet.encoding import ParquetEncoder
from rollingfs.runtime.values import value_class
from rollingfs.segment.verbs.append import stage
from rollingfs.spark.source import loops, places, rows
from rollingfs.spark.source.formats import compression
from rollingfs.spark.source.loops import QUERY_ID
from rollingfs.spark.source.options import Options
from rollingfs.spark.source.sink import routing

HELD_BYTES_MAX = 32 * 1024 * 1024
"""Rows in memory that a task holds, by segment, before it stages all of them."""

Rows = list[pa.RecordBatch]


def task_bytes_max(partition: int, task_bytes: int, batch_bytes: int) -> int:
    """Maximum bytes that the message of a task may carry.

    A task does not know the number of tasks, but its own number is a minimum. So the first tasks, which
    share half of `batch_bytes`, may send most. From there on it falls with the square of the number, so that any number
    of tasks share the other half. With the defaults, the 200th task may send 6 KiB: the Parquet file of a text of
    1 KiB has more than 4 KiB, because its statistics repeat the text.

    Parameters
    ----------
    partition
        The number of the task, from 0 on.
    task_bytes
        The most that a task may send.
    batch_bytes
        The most that all tasks may send.
    """
    return min(task_bytes, batch_bytes**2 // (4 * max(1, task_bytes) * (partition + 1) ** 2))


@value_class
class TaskData:
    """Data of a task for a segment."""

    name: str | None
    """The segment, by its name in the target's folder; None for the target itself."""
    data: bytes | Staged
    footer: bytes | None = None
    """The footer of a Parquet file."""

    @property
    def size(self) -> int:
        """Return bytes written."""
        return len(self.data) if isinstance(self.data, bytes) else self.data.size


class Receipt(WriterCommitMessage):
    """The message of a task."""

    def __init__(self, partition: int, pieces: Sequence[TaskData], query: str | None) -> None:
        self.partition = partition
        self.pieces = tuple(pieces)
        self.query = query


def received(messages: Sequence[WriterCommitMessage | None]) -> list[Receipt]:
    """Return the receipts of the tasks that succeeded, in the order of the partitions; a failed task sends None."""
    found = [message for message in messages if isinstance(message, Receipt)]
    return sorted(found, key=lambda receipt: receipt.partition)


def by_segment(receipts: Sequence[Receipt]) -> Mapping[str | None, list[TaskData]]:
    """Return the pieces of each segment, in their order; the segments in the order of their names."""
    found: dict[str | None, list[TaskData]] = {}
    for receipt in receipts:
        for piece in receipt.pieces:
            found.setdefault(piece.name, []).append(piece)
    return dict(sorted(found.items(), key=lambda item: item[0] or ""))


class TaskWriter:
    """Writes the rows of a partition, without a commit.

    Parameters
    ----------
    schema
        The columns that are written. The rows may also have the column that names their segment.
    """

    def __init__(self, options: Options, schema: pa.Schema) -> None:
        self.options = options
        self.schema = schema

    def write(self, batches: Iterator[pa.RecordBatch]) -> Receipt:
        """Write some rows; the receipt has what the driver commits."""
        context: Any = TaskContext.get()
        options, by = self.options, self.options.segment_by
        limit = task_bytes_max(context.partitionId(), options.task_message_bytes, options.batch_message_bytes)
        pieces = self._one(batches, limit) if by is None else self._routed(batches, by, limit)
        query = context.getLocalProperty(QUERY_ID)
        if query is not None:  # all rows have come, so the tasks that read them have begun
            fs = places.filesystem(options)
            loops.check_target(options, query, {segment_path(fs, options, piece.name) for piece in pieces})
        return Receipt(context.partitionId(), pieces, query)

    def encoded(self, batches: Iterator[pa.RecordBatch]) -> Iterable[bytes]:
        """Return the bytes of some rows, in pieces."""
        conformed = (rows.conform(batch, self.schema) for batch in batches)
        return self.options.form.encode(conformed)

    # -- one segment -----------------------------------------------------------------------------------------

    def _one(self, batches: Iterator[pa.RecordBatch], limit: int) -> Sequence[TaskData]:
        """Return the rows of a segment: uploaded once they exceed a message."""
        encoded = self.encoded(batches)
        source, held = iter(encoded), b""
        for data in source:
            held += data
            if len(held) > limit:
                staged = places.filesystem(self.options).stage(self.options.target.path, chain([held], source))
                return [_piece(None, staged, encoded)]
        return [_piece(None, held, encoded)] if held else []

    # -- the segment that a column names -----------------------------------------------------------------------

    def _routed(self, batches: Iterator[pa.RecordBatch], column: str, limit: int) -> Sequence[TaskData]:
        pieces: list[TaskData] = []
        held: dict[str, Rows] = {}
        held_bytes = 0
        for batch in batches:
            for name, part in routing.split(batch, column):
                if self.options.form.has_lines:
                    compression.check_write(name)
                held.setdefault(name, []).append(part)
                held_bytes += part.nbytes
            if held_bytes >= HELD_BYTES_MAX:
                pieces += self._settled(held, 0)
                held, held_bytes = {}, 0
        return [*pieces, *self._settled(held, limit)]

    def _settled(self, held: Mapping[str, Rows], limit: int) -> list[TaskData]:
        """Encode rows by segment; stage the largest, until the message may carry the rest."""
        encoded = [(name, self.encoded(iter(batches))) for name, batches in held.items()]
        pieces = sorted((_piece(name, b"".join(of_one), of_one) for name, of_one in encoded), key=lambda one: one.size)
        pieces = [piece for piece in pieces if piece.size]
        count = bisect_right(list(accumulate(piece.size for piece in pieces)), limit)
        return pieces[:count] + self._staged(pieces[count:])

    def _staged(self, pieces: Sequence[TaskData]) -> list[TaskData]:
        """Stage what some segments get, several at a time."""
        if not pieces:
            return []
        fs = places.filesystem(self.options)
        at = core(fs).client
        calls = [partial(stage, at, segment_path(fs, self.options, piece.name), piece.data) for piece in pieces]
        receipts = core(fs).run(at.runtime.gather(calls, at.backend.capability.requests_max))
        return [TaskData(piece.name, staged, piece.footer) for piece, staged in zip(pieces, receipts, strict=True)]


def segment_path(fs: RollingFileSystem, options: Options, name: str | None) -> str:
    """Return the path of the target, or of the segment of a name in the folder that the target is.

    Raises
    ------
    ValueError
        No segment can have this path.
    """
    target = core(fs).strip(options.target.path)
    return names.check_new_name(target if name is None else f"{target}/{name}")


def _piece(name: str | None, data: bytes | Staged, encoded: Iterable[bytes]) -> TaskData:
    """Return what was written; the footer of a Parquet file is known once all of it was encoded."""
    return TaskData(name, data, encoded.footer if isinstance(encoded, ParquetEncoder) else None)
