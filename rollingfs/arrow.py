"""Arrow streams that grow: each append adds record batches, so that a segment stays a single Arrow IPC stream.

In: Arrow tables, DataFrames. Out: a commit. Must not be here: readers, for which a segment is any other Arrow stream.
The end mark of the format is left out, because readers stop there. They take the end of the file for it.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from rollingfs.format import names
from rollingfs.format.arrow_stream import END_MARK, PREFIX_BYTES, MalformedStreamError, dictionary_ids
from rollingfs.fs.core import core
from rollingfs.fs.filesystem import RollingFileSystem
from rollingfs.parquet.files import GROUP_ROWS_MAX, as_table
from rollingfs.parquet.grow import Settled, changed, commit, guard_of, judged, look, repeated
from rollingfs.parquet_footer.thrift import MalformedFooterError
from rollingfs.segment.files.join_looks import check_open_ended, schema_to_grow
from rollingfs.segment.segment import Segment

__all__ = ["MalformedStreamError", "append"]

KNOWN_MAX = 256
"""Maximum streams whose schemas a process remembers."""


_known: OrderedDict[tuple[str, int], tuple[bytes, int]] = OrderedDict()
"""Arrow streams as this process last saw them, by incarnation and start, whose bytes do not change.

The message of the schema, and an offset at which a message begins, without an end mark before it.
"""


def append(fs: RollingFileSystem, path: str, table: Any, *, compression: str | None = None) -> int:
    """Append rows to an Arrow IPC stream, or make it, in a single commit.

    Any number of processes may append to a stream, which has a single schema, from the append which made it. An
    append brings the dictionaries of its columns, which replace those before, as the format allows.

    Parameters
    ----------
    path
        A segment that is missing or empty, or holds an Arrow stream without its end mark.
    table
        A `pyarrow.Table`, or a value that `pyarrow.table` takes: a DataFrame of pandas or polars, a mapping of columns.
        Columns are matched by their names.
    compression
        ``"zstd"`` or ``"lz4"``, for the new record batches.

    Returns
    -------
    int
        The segment offset at which the new bytes begin.

    Raises
    ------
    rollingfs.arrow.MalformedStreamError
        The segment is no such stream, or a column of it is missing in the table, has another type, or cannot be
        written, or the table has further columns; the message names it, and no byte was written.
    BadOffsetError
        Other writers made or truncated the stream during each of many tries; no byte was written.
    OSError
        The errors of `append` of the filesystem.
    """
    path = names.check_new_name(core(fs).strip(path))
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with judged(path) as verdict:
        try:
            rows = as_table(table).combine_chunks()
        except (MalformedFooterError, pa.ArrowException) as error:
            raise _refused(path, error) from error
        return repeated(path, verdict, lambda: _append_once(fs, path, rows, options, verdict))


def _append_once(
    fs: RollingFileSystem, path: str, rows: pa.Table, options: pa.ipc.IpcWriteOptions, verdict: Settled
) -> int:
    view = look(fs, path)
    with changed(path, view):
        guard, there = guard_of(view), None
        try:
            if view is not None and view.size:
                there = _schema_of(fs, view)
            schema, data = _encoded(rows, there, options)
        except (MalformedStreamError, pa.ArrowException) as error:
            raise _refused(path, error) from error
        if view is not None and there is not None:
            if not data:
                return view.length
            if guard.segment is not None:  # others may append at the same time: their bytes are whole messages
                guard = replace(guard, expected_offset=None)
        written = commit(fs, path, view, [data], verdict, guard=guard)
    header = written.header
    _remember((header.segment, header.start), schema, written.offset + len(data))
    return int(written.offset)


def _schema_of(fs: RollingFileSystem, view: Segment) -> bytes:
    """Return the message of the schema of a stream that rows can be appended to."""
    fetcher, key = core(fs).client.fetcher, (view.header.segment, view.start) if view.header is not None else None
    schema, end = _known.get(key, (b"", 0)) if key is not None else (b"", 0)
    if not schema or end > view.length:
        schema = core(fs).run(schema_to_grow(fetcher, view))
    elif end < view.length:
        core(fs).run(check_open_ended(fetcher, view, end))
    if key is not None:
        _remember(key, schema, view.length)
    return schema


def _remember(key: tuple[str, int], schema: bytes, end: int) -> None:
    _known[key] = schema, end
    _known.move_to_end(key)
    while len(_known) > KNOWN_MAX:
        _known.popitem(last=False)


# -- rows as messages ------------------------------------------------------------------------------------------------


def _encoded(rows: pa.Table, there: bytes | None, options: pa.ipc.IpcWriteOptions) -> tuple[bytes, bytes]:
    """Return the message of the schema, and the bytes that append the rows; the schema is among them if none is there.

    Parameters
    ----------
    there
        The message of the schema of the stream.
    """
    known = _first_schema(rows.schema) if there is None else pa.ipc.read_schema(pa.py_buffer(there))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, known, options=options) as writer:
        writer.write_table(_fitted(rows, known), GROUP_ROWS_MAX)
    stream = memoryview(sink.getvalue())
    size = PREFIX_BYTES + int.from_bytes(stream[4:PREFIX_BYTES], "little")
    mine = bytes(stream[:size])
    if there is not None and dictionary_ids(mine) != dictionary_ids(there):
        raise MalformedStreamError("another library made it, with dictionaries whose ids pyarrow does not write")
    rest = bytes(stream[: -len(END_MARK)] if there is None else stream[size : -len(END_MARK)])
    return there or mine, rest


def _first_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema of a new stream: later rows may have nulls, and more categories."""
    return pa.schema([field.with_type(_wide(field.type)).with_nullable(True) for field in schema], schema.metadata)


def _wide(kind: pa.DataType) -> pa.DataType:
    if pt.is_dictionary(kind) and kind.index_type.bit_width < 32:
        return pa.dictionary(pa.int32(), kind.value_type, kind.ordered)
    return kind


def _is_alike(kind: pa.DataType, other: pa.DataType) -> bool:
    """Return whether another type has dictionaries of the same values, maybe of another size."""
    return bool(pt.is_dictionary(other) and (kind.value_type, kind.ordered) == (other.value_type, other.ordered))


def _fitted(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows in the columns and types of a schema.

    Raises
    ------
    MalformedStreamError
        They do not fit; the message names the column.
    """
    if sorted(rows.schema.names) != sorted(schema.names):
        missing, more = ({*a} - {*b} for a, b in ((schema.names, rows.schema.names), (rows.schema.names, schema.names)))
        why = f"{min(missing)!r} is missing" if missing else f"{min(more or rows.schema.names)!r} is not in the stream"
        raise MalformedStreamError(f"their columns are not those of the stream: {why}")
    columns = [_column(rows.column(field.name), field) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def _column(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    if column.null_count and not field.nullable:
        raise MalformedStreamError(f"column {field.name!r} has nulls, which the stream does not allow")
    if column.type == field.type:
        return column
    if pt.is_null(column.type):
        return pa.chunked_array([pa.nulls(len(column), field.type)])
    if pt.is_dictionary(column.type) and _is_alike(column.type, field.type):
        pieces = [
            pa.DictionaryArray.from_arrays(
                piece.indices.cast(field.type.index_type), piece.dictionary, ordered=field.type.ordered
            )
            for piece in column.chunks
        ]
        return pa.chunked_array(pieces, field.type)
    raise MalformedStreamError(f"column {field.name!r} is {column.type}, but {field.type} in the stream")


def _refused(path: str, why: Exception) -> MalformedStreamError:
    return MalformedStreamError(
        f"{path}: these rows cannot be appended to it as an Arrow stream: {why}; nothing was written"
    )
