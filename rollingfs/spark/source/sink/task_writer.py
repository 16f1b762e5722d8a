"""The rows of a task, by segment: few bytes are in its message to the driver, more bytes are staged."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate, chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from rollingfs import Staged
from rollingfs.format import names
from rollingfs.fs.core import core
from rollingfs.fs.filesystem import RollingFileSystem
from rollingfs.parquet.files import ParquetEncoder, RowsFile
from rollingfs.segment.verbs.append import stage
from rollingfs.spark.source import places, rows
from rollingfs.spark.source.formats import lines
from rollingfs.spark.source.options import Options
from rollingfs.spark.source.places import BEING_COPIED, QUERY_ID, is_skipped_file

NAME_BYTES_MAX = 255 - len(names.CHUNKS_SUFFIX)
"""Maximum bytes of a name: disks take 255, and the files of a segment have a longer name than the segment."""
_NAMING = (pt.is_string, pt.is_large_string, pt.is_integer, pt.is_date)


def without(schema: pa.Schema, column: str) -> pa.Schema:
    """Return the columns that are written where `column` names the segment of a row.

    Raises
    ------
    ValueError
        There is no such column, or no other, or its type cannot name segments.
    """
    index, why = schema.get_field_index(column), None
    if index < 0:
        why = f": no column, or several, of {', '.join(schema.names)}"
    elif not any(is_one(kind := schema.field(index).type) for is_one in _NAMING):
        why = f", a column of {kind}: strings, integers and dates name segments"
    elif len(schema) == 1:
        why = ", the only column: it names segments and is not written into them"
    if why is not None:
        raise ValueError(f"option segmentBy is {column!r}{why}; nothing was written")
    return schema.remove(index)


def split(batch: pa.RecordBatch, column: str) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield the rows of a batch by segment, in their order, without the column that names the segment.

    Raises
    ------
    ValueError
        A value can name no segment.
    """
    if not batch.num_rows:
        return
    index = batch.schema.get_field_index(column)
    values = batch.column(index).cast(pa.string()).dictionary_encode()
    if values.null_count:
        raise ValueError(
            f"{values.null_count} rows are null in column {column!r}, which names their segment; nothing was written"
        )
    rest = batch.remove_column(index)
    found = values.dictionary.to_pylist()
    for name in found:
        if (why := _objection(name)) is not None:
            what = f"value {name!r} of column {column!r} can name no segment"
            raise ValueError(f"{what}: {why}; nothing was written")
    if len(found) == 1:
        yield found[0], rest
        return
    order = pc.sort_indices(values.indices)  # it keeps the order of equal values
    ordered, codes = rest.take(order), values.indices.take(order)
    counts = {row["values"]: row["counts"] for row in pc.value_counts(codes).to_pylist()}
    start = 0
    for code, name in enumerate(found):
        yield name, ordered.slice(start, counts[code])
        start += counts[code]


def _objection(name: str) -> str | None:
    if not name:
        return "it is empty"
    if "/" in name:
        return "it has a slash, and each row goes to a segment directly in the folder"
    if is_skipped_file(name):
        return f"reads of the folder skip names that begin with '_' or '.', or end with '{BEING_COPIED}'"
    if len(name.encode()) > NAME_BYTES_MAX:
        return f"it has {len(name.encode())} bytes, and a name has at most {NAME_BYTES_MAX}"
    if names.is_hidden_segment(name):
        return "what rollingfs keeps in a folder has this name"
    return names.fault_of(name)


HELD_BYTES_MAX = 32 * 1024 * 1024
"""Rows in memory that a task holds, by segment, before it stages all of them."""


def task_bytes_max(partition: int, task_bytes: int, batch_bytes: int) -> int:
    """Return the maximum bytes that the message of a task may carry.

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


Piece = tuple[str | None, RowsFile]
"""The name of a segment in the target's folder, None for the target itself, and data of a task for it."""


class Receipt(WriterCommitMessage):
    """The message of a task."""

    def __init__(self, partition: int, pieces: Sequence[Piece], query: str | None) -> None:
        self.partition = partition
        self.pieces = tuple(pieces)
        self.query = query


def received(messages: Sequence[WriterCommitMessage | None]) -> list[Receipt]:
    """Return the receipts of the tasks that succeeded, in the order of the partitions; a failed task sends None."""
    found = [message for message in messages if isinstance(message, Receipt)]
    return sorted(found, key=lambda receipt: receipt.partition)


def write(options: Options, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Receipt:
    """Write the rows of a partition, without a commit; the receipt has what the driver commits.

    Parameters
    ----------
    schema
        The columns that are written. The rows may also have the column that names their segment.
    """
    context: Any = TaskContext.get()
    limit = task_bytes_max(context.partitionId(), options.task_message_bytes, options.batch_message_bytes)
    pieces = (_one if options.segment_by is None else _routed)(options, schema, batches, limit)
    query = context.getLocalProperty(QUERY_ID)
    if query is not None:  # all rows have come, so the tasks that read them have begun
        fs = places.filesystem(options)
        places.check_target(options, query, {segment_path(fs, options, name) for name, _ in pieces})
    return Receipt(context.partitionId(), pieces, query)


def _encoded(options: Options, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterable[bytes]:
    """Return the bytes of some rows, in pieces."""
    return options.form.encode(rows.conform(batch, schema) for batch in batches)


def _one(options: Options, schema: pa.Schema, batches: Iterator[pa.RecordBatch], limit: int) -> list[Piece]:
    """Return the rows of a segment: uploaded once they exceed a message."""
    encoded = _encoded(options, schema, batches)
    source, held = iter(encoded), b""
    for data in source:
        held += data
        if len(held) > limit:
            staged = places.filesystem(options).stage(options.target, chain([held], source))
            return [(None, _rows_file(staged, encoded))]
    return [(None, _rows_file(held, encoded))] if held else []


def _routed(options: Options, schema: pa.Schema, batches: Iterator[pa.RecordBatch], limit: int) -> list[Piece]:
    """Return the rows by the segment that a column names."""
    pieces: list[Piece] = []
    held: dict[str, list[pa.RecordBatch]] = {}
    held_bytes = 0
    for batch in batches:
        for name, part in split(batch, str(options.segment_by)):
            if options.form.has_lines:
                lines.check_uncompressed(name)
            held.setdefault(name, []).append(part)
            held_bytes += part.nbytes
        if held_bytes >= HELD_BYTES_MAX:
            pieces += _settled(options, schema, held, 0)
            held, held_bytes = {}, 0
    return [*pieces, *_settled(options, schema, held, limit)]


def _settled(options: Options, schema: pa.Schema, held: Mapping[str, list[pa.RecordBatch]], limit: int) -> list[Piece]:
    """Encode rows by segment; stage the largest, several at a time, until the message may carry the rest."""
    encoded = [(name, _encoded(options, schema, batches)) for name, batches in held.items()]
    files = [(name, _rows_file(b"".join(of_one), of_one)) for name, of_one in encoded]
    pieces: list[Piece] = sorted(((name, one) for name, one in files if one.size), key=lambda piece: piece[1].size)
    count = bisect_right(list(accumulate(one.size for _, one in pieces)), limit)
    if count == len(pieces):
        return pieces
    fs = places.filesystem(options)
    at = core(fs).client
    calls = [partial(stage, at, segment_path(fs, options, name), one.data) for name, one in pieces[count:]]
    receipts = core(fs).run(at.runtime.gather(calls, at.backend.capability.requests_max))
    staged = zip(pieces[count:], receipts, strict=True)
    return pieces[:count] + [(name, RowsFile(data, one.footer)) for (name, one), data in staged]


def segment_path(fs: RollingFileSystem, options: Options, name: str | None) -> str:
    """Return the path of the target, or of the segment of a name in the folder that the target is.

    Raises
    ------
    ValueError
        No segment can have this path.
    """
    target = core(fs).strip(options.target)
    return names.check_new_name(target if name is None else f"{target}/{name}")


def _rows_file(data: bytes | Staged, encoded: Iterable[bytes]) -> RowsFile:
    """Return what was written; the footer of a Parquet file is known once all of it was encoded."""
    return RowsFile(data, encoded.footer if isinstance(encoded, ParquetEncoder) else None)
