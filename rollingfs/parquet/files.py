"""Rows as the bytes of a Parquet file, and the growth of a file by row groups and a new footer. Pure."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt

from rollingfs.parquet_footer.footer import (
    MAGIC,
    SCHEMA_KEYS,
    TAIL_BYTES,
    Column,
    JoinedFile,
    body_size,
    check_geometries,
    columns,
    ended,
    group_rows,
    join,
    table_of,
    understood,
    widen,
)
from rollingfs.parquet_footer.thrift import MalformedFooterError
from rollingfs.runtime.values import value_class

T = TypeVar("T")

GROUP_BYTES = 64 * 1024 * 1024
"""Size in memory of the rows of a row group."""
GROUP_ROWS_MAX = 1024 * 1024
"""Rows of a row group, as pyarrow has them by default."""


def as_table(given: Any) -> pa.Table:
    """Return a table of types that Arrow can write, and a rewrite can read again.

    Arrow casts no categories of string views, as which polars hands them over. Nor does it read dictionaries inside of
    lists and structs piece by piece: there the values are written.

    Raises
    ------
    MalformedFooterError
        A column cannot be written; the message names it.
    """
    return _by_column(_as_table, given, (pa.ArrowException, TypeError))


def _as_table(given: Any) -> pa.Table:
    if type(given).__module__.startswith("polars."):
        given = given.to_arrow(compat_level=sys.modules["polars"].CompatLevel.oldest())
    table = pa.table(given)
    fields = [field.with_type(_plain(field.type)) for field in table.schema]
    return table.cast(pa.schema(fields, table.schema.metadata))


def inner(kind: pa.DataType) -> list[pa.Field]:
    """Return the fields inside a type: of a struct, a map or a list."""
    if pt.is_map(kind):
        return [kind.key_field, kind.item_field]
    if pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind):
        return [kind.value_field]
    return list(kind) if pt.is_struct(kind) else []


def rebuilt(kind: pa.DataType, fields: Sequence[pa.Field]) -> pa.DataType:
    """Return a type with other fields inside, as `inner` gives them."""
    if pt.is_struct(kind):
        return pa.struct(fields)
    if pt.is_map(kind):
        return pa.map_(*fields, kind.keys_sorted)
    if pt.is_fixed_size_list(kind):
        return pa.list_(*fields, kind.list_size)
    if pt.is_list(kind) or pt.is_large_list(kind):
        return (pa.list_ if pt.is_list(kind) else pa.large_list)(*fields)
    return kind


def _plain(kind: pa.DataType, *, inside: bool = False) -> pa.DataType:
    """Return a type without dictionaries inside."""
    if inside and pt.is_dictionary(kind):
        return _plain(kind.value_type, inside=True)
    return rebuilt(kind, [field.with_type(_plain(field.type, inside=True)) for field in inner(kind)])


def encoded(rows: pa.Table, options: dict[str, Any]) -> RowsFile:
    """Return the Parquet file of some rows.

    Raises
    ------
    MalformedFooterError
        A column cannot be written; the message names it.
    """

    def encode(rows: pa.Table) -> RowsFile:
        encoder = ParquetEncoder(iter(rows.to_batches()), **options)
        return RowsFile(b"".join(encoder), encoder.footer)

    return _by_column(encode, rows, (pa.ArrowException,))


def _by_column(convert: Callable[[Any], T], given: Any, errors: tuple[type[Exception], ...]) -> T:
    """Return the result of a conversion; an error names its column."""
    try:
        return convert(given)
    except errors as error:
        names = given if isinstance(given, Mapping) else getattr(given, "column_names", getattr(given, "columns", ()))
        for name in names:
            one = {name: given[name]} if isinstance(given, Mapping) else _only(given, name)
            try:
                convert(one)
            except errors as reason:
                raise MalformedFooterError(f"column {name!r} cannot be written: {reason}") from error
        raise MalformedFooterError(f"they cannot be written: {error}") from error


def _only(given: Any, name: Any) -> Any:
    return given.select([name]) if isinstance(given, pa.Table) else given[[name]]


def gathered(batches: Iterator[pa.RecordBatch], size: int) -> Iterator[list[pa.RecordBatch]]:
    """Yield groups of batches of at least `size` bytes in memory, except the last; batches without rows are dropped."""
    waiting: list[pa.RecordBatch] = []
    waiting_bytes = 0
    for batch in batches:
        if batch.num_rows:
            waiting.append(batch)
            waiting_bytes += batch.nbytes
        if waiting_bytes >= size:
            yield waiting
            waiting, waiting_bytes = [], 0
    if waiting:
        yield waiting


class OutputBuffer(io.RawIOBase):
    """A file to write to, which is drained as it fills: Arrow's writers push, uploads pull."""

    def __init__(self) -> None:
        super().__init__()
        self._parts: list[bytes] = []
        self._size = 0

    def writable(self) -> bool:
        """Return True: it is written to."""
        return True

    def write(self, data: Any) -> int:
        """Keep some bytes until they are drained."""
        self._parts.append(bytes(data))
        self._size += len(data)
        return len(data)

    def tell(self) -> int:
        """Return the number of bytes that were written, drained or not."""
        return self._size

    def drain(self) -> bytes:
        """Return the bytes that were written since the last call."""
        parts, self._parts = self._parts, []
        return b"".join(parts)


class ParquetEncoder:
    """An iterable of the pieces of a Parquet file of some rows; the footer is known after the last piece.

    Parameters
    ----------
    **options
        Options of `pyarrow.parquet.write_table`.
    """

    def __init__(self, batches: Iterator[pa.RecordBatch], **options: Any) -> None:
        self.footer: bytes | None = None
        """None until the file is complete; without rows there is no file."""
        self._batches = batches
        self._group_rows = options.pop("row_group_size", None)
        self._options = options

    def __iter__(self) -> Iterator[bytes]:
        sink = OutputBuffer()
        writer: pq.ParquetWriter | None = None
        stream = pa.PythonFile(sink, mode="w")
        for batches in gathered(self._batches, GROUP_BYTES):
            group = pa.Table.from_batches(batches)
            size = self._group_rows or GROUP_ROWS_MAX
            for first in range(0, group.num_rows, size):
                if writer is not None:
                    stream.write(MAGIC)  # so that the file can begin here once its head is cut off
                writer = writer or pq.ParquetWriter(stream, group.schema, **self._options)
                writer.write_table(group.slice(first, size), size)
            yield sink.drain()
        if writer is not None:
            writer.close()
            last = sink.drain()
            self.footer = footer_in(last)
            yield last


def empty(schema: pa.Schema, row_group_size: int | None = None, **options: Any) -> bytes:
    """Return a file without rows, with the options of `ParquetEncoder`."""
    sink = OutputBuffer()
    pq.ParquetWriter(sink, schema, **options).close()
    return sink.drain()


@value_class
class RowsFile:
    """Rows as a Parquet file, or what was staged of it."""

    data: Any
    """Bytes, or the receipt of staged bytes."""
    footer: bytes | None = None
    """The footer of the file."""

    @property
    def size(self) -> int:
        """Return bytes."""
        return len(self.data) if isinstance(self.data, bytes) else int(self.data.size)


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
    coming = footer_in(empty(schema))
    check_geometries(table_of(footer), table_of(coming))
    there, mine = columns(footer), {column.name: column for column in columns(coming)}
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
    kind, below = field.type, column.children
    if not pt.is_struct(kind):
        below = tuple(child for group in below for child in group.children)  # of the repeated group of a list or a map
    fields = [kind.field(child.name) for child in below] if pt.is_struct(kind) else inner(kind)
    kind = rebuilt(kind, [_as_there(one, child) for one, child in zip(fields, below, strict=bool(fields))])
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
