"""Growth of a Parquet file in a segment: by row groups and a new footer. Pure."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt

from rollingfs.format.parquet_footer import (
    MAGIC,
    SCHEMA_KEYS,
    TAIL_BYTES,
    Column,
    JoinedFile,
    body_size,
    columns,
    ended,
    group_rows,
    join,
    understood,
    widen,
)
from rollingfs.format.thrift import MalformedFooterError
from rollingfs.parquet.encoding import OutputBuffer, empty


class RowsFile(Protocol):
    """Rows as a Parquet file, or what was staged of it."""

    @property
    def data(self) -> Any:
        """Return the data of an append."""

    @property
    def footer(self) -> bytes | None:
        """Return the footer of the file."""

    @property
    def size(self) -> int:
        """Return bytes."""


def footer_in(file: bytes) -> bytes:
    """Return the footer at the end of some bytes.

    They are a file, or the end of a file.
    """
    first, stop = body_size(file[-TAIL_BYTES:], len(file) + len(MAGIC))
    return file[first - len(MAGIC) : stop - len(MAGIC)]


def schema_of(footer: bytes) -> pa.Schema:
    """Return the Arrow schema of a file."""
    return pq.read_schema(io.BytesIO(MAGIC + ended(footer)))


# -- other columns than those of the file ------------------------------------------------------------------------


def aligned(footer: bytes, schema: pa.Schema) -> pa.Schema:
    """Return the schema in which rows can be appended to a file: old columns, then new columns.

    Parameters
    ----------
    footer
        The footer of the file.
    schema
        The schema of the rows, all columns nullable.

    Raises
    ------
    MalformedFooterError
        A column has another type, or is missing; the message names it.
    """
    there, mine = columns(footer), {column.name: column for column in columns(footer_in(empty(schema)))}
    known = schema_of(footer)
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
    """Return a field with the order of fields and the nullability of a column of the file that is like it."""
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
        The footer of the new rows, whose first columns are the columns of the file.
    schema
        The schema of the new rows.
    at
        The offset at which the nulls will be in the file.

    Returns
    -------
    bytes, bytes
        The nulls, and the footer of the file with them; no bytes and the old footer, if no column is added.
    """
    coming = columns(new)[len(columns(old)) :]
    if not coming:
        return b"", old
    fields = pa.schema([schema.field(column.name) for column in coming])
    sink = OutputBuffer()
    with pq.ParquetWriter(sink, fields) as writer:
        for count in group_rows(old):
            nulls = pa.table([pa.nulls(count, field.type) for field in fields], schema=fields)
            writer.write_table(nulls, row_group_size=count)
    filler = sink.drain()
    return filler, widen(old, JoinedFile(footer_in(filler), at), new)


# -- growth ------------------------------------------------------------------------------------------------------------


def growth(pieces: Sequence[RowsFile], old: bytes | None, size: int, schema: pa.Schema) -> list[Any]:
    """Return the data that appends the rows of all pieces to a file of `size` bytes, whose footer is `old`."""
    parts: list[JoinedFile] = []
    at = size
    for piece in pieces:
        parts.append(JoinedFile(piece.footer or b"", at))
        at += piece.size
    data: list[Any] = [piece.data for piece in pieces]
    if old is None:
        if not parts:
            return [empty(schema)]
        return [*data, ended(join(parts))] if len(parts) > 1 else data
    if not parts:
        return []
    nulls, old = widened(old, parts[0].footer, schema, at)
    return [*data, nulls, ended(join([JoinedFile(old, 0), *parts]))]


@contextmanager
def of_file(path: str) -> Iterator[None]:
    """Refuse rows that do not fit the footer of a segment, or whose footer cannot be understood. No I/O goes within."""
    try:
        with understood():
            yield
    except MalformedFooterError as error:
        raise refused(path, str(error)) from error


def refused(path: str, why: str) -> MalformedFooterError:
    return MalformedFooterError(f"{path}: these rows cannot be appended to it as Parquet: {why}; nothing was written")
