"""Parquet in a segment: its row groups by byte range, and its growth by row groups and a new footer."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt

from rollingfs.spark.source import rows
from rollingfs.spark.source.formats.footer import (
    MAGIC,
    SCHEMA_KEYS,
    TAIL_BYTES,
    Column,
    MalformedFooterError,
    Part,
    body_size,
    columns,
    group_rows,
    join,
    widen,
)
from rollingfs.spark.source.formats.lines import Read
from rollingfs.spark.source.partitions import Range

ROWS_MAX = 64 * 1024
"""Maximum number of rows of a record batch."""
GROUP_BYTES = 64 * 1024 * 1024
"""Size in memory of the rows of a row group."""


def schema(file: Any) -> pa.Schema:
    """The schema of a file."""
    return pq.read_schema(file)


def batches(file: Any, one: Range, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The rows of the row groups that begin in a range."""
    with file, pq.ParquetFile(file, pre_buffer=True) as found:
        base = one.extent.start
        groups = [
            nth
            for nth in range(found.metadata.num_row_groups)
            if one.start <= base + _begin(found.metadata.row_group(nth)) < one.end
        ]
        if groups:
            wanted = [name for name in columns if name in found.schema_arrow.names]
            yield from found.iter_batches(ROWS_MAX, groups, wanted, use_threads=False)


def _begin(group: Any) -> int:
    """The offset of a row group in its file; a row group without columns has no bytes."""
    if not group.num_columns:
        return 0
    first = group.column(0)
    return int(first.dictionary_page_offset or first.data_page_offset)


class Encoder:
    """An iterable of the pieces of a Parquet file of some rows; the footer is known after the last piece."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self.footer: bytes | None = None
        """None until the file is complete; without rows there is no file."""
        self._batches = batches

    def __iter__(self) -> Iterator[bytes]:
        sink = rows.OutputBuffer()
        writer: pq.ParquetWriter | None = None
        for batches in rows.gathered(self._batches, GROUP_BYTES):
            group = pa.Table.from_batches(batches)
            writer = writer or pq.ParquetWriter(sink, group.schema)
            writer.write_table(group)
            yield sink.drain()
        if writer is not None:
            writer.close()
            last = sink.drain()
            first, end = body_size(last[-TAIL_BYTES:], len(last) + len(MAGIC))
            self.footer = last[first - len(MAGIC) : end - len(MAGIC)]
            yield last


def empty(schema: pa.Schema) -> bytes:
    """A file without rows."""
    sink = rows.OutputBuffer()
    pq.ParquetWriter(sink, schema).close()
    return sink.drain()


def footer_of(read: Read, start: int, end: int, near: int | None = None) -> bytes:
    """The footer of the file in ``[start, end)``: with one read if it begins behind `near`, else with two."""
    at = max(start, end - TAIL_BYTES if near is None else min(near, end - TAIL_BYTES))
    last = read(at, end)
    first, stop = (start + offset for offset in body_size(last[-TAIL_BYTES:], end - start))
    if first < at:
        last, at = read(first, at) + last, first
    return last[first - at : stop - at]


def tail(parts: Sequence[Part]) -> bytes:
    """The bytes that make one file of the parts before them."""
    return _end(join(parts))


def _end(footer: bytes) -> bytes:
    return footer + len(footer).to_bytes(4, "little") + MAGIC


# -- other columns than those of the file ------------------------------------------------------------------------


def aligned(footer: bytes, schema: pa.Schema) -> pa.Schema:
    """The schema in which rows can be appended to a file: the columns of the file in their order, then new ones.

    Parameters
    ----------
    footer
        That of the file.
    schema
        That of the rows, all columns nullable.

    Raises
    ------
    MalformedFooterError
        A column has another type, or is missing; the message names it.
    """
    there, mine = columns(footer), {column.name: column for column in columns(_footer(empty(schema)))}
    known = pq.read_schema(io.BytesIO(MAGIC + _end(footer)))
    for nth, column in enumerate(there):
        if column.name not in mine:
            raise MalformedFooterError(
                f"their columns are not those of the file: {column.name!r} is missing among {', '.join(schema.names)}"
            )
        if not column.is_like(mine[column.name]):
            raise MalformedFooterError(
                f"column {column.name!r} is {schema.field(column.name).type}, but {known.field(nth).type} in the file"
            )
    fields = [_as_there(schema.field(column.name), column) for column in there]
    names = {field.name for field in fields}
    added = [field for field in schema if field.name not in names]
    kept = {key: value for key, value in (known.metadata or {}).items() if key not in SCHEMA_KEYS}
    return pa.schema([*fields, *added], kept)


def _as_there(field: pa.Field, column: Column) -> pa.Field:
    """A field with the order of fields and the nullability of a column of the file that is like it."""
    kind = field.type
    if pt.is_struct(kind):
        kind = pa.struct([_as_there(kind.field(child.name), child) for child in column.children])
    elif pt.is_map(kind):
        key, value = column.children[0].children
        kind = pa.map_(_as_there(kind.key_field, key), _as_there(kind.item_field, value))
    elif pt.is_list(kind):
        kind = pa.list_(_as_there(kind.value_field, column.children[0].children[0]))
    return pa.field(field.name, kind, column.is_nullable)


def widened(old: bytes, new: bytes, schema: pa.Schema, at: int) -> tuple[bytes, bytes]:
    """Give the old rows of a file the columns that new rows add: they are null.

    Parameters
    ----------
    old
        The footer of the file.
    new
        That of the new rows, whose first columns are those of the file.
    schema
        That of the new rows.
    at
        The offset at which the nulls will lie in the file.

    Returns
    -------
    bytes, bytes
        The nulls, and the footer of the file with them; no bytes and the old footer, if no column is added.
    """
    coming = columns(new)[len(columns(old)) :]
    if not coming:
        return b"", old
    fields = pa.schema([schema.field(column.name) for column in coming])
    sink = rows.OutputBuffer()
    with pq.ParquetWriter(sink, fields) as writer:
        for count in group_rows(old):
            nulls = pa.table([pa.nulls(count, field.type) for field in fields], schema=fields)
            writer.write_table(nulls, row_group_size=count)
    filler = sink.drain()
    return filler, widen(old, Part(_footer(filler), at), new)


def _footer(file: bytes) -> bytes:
    return footer_of(lambda start, end: file[start:end], 0, len(file))
