"""Record batches: in the columns, types and order that Spark wants, and gathered for Arrow's writers.

The columns `_offset`, `_segment` and `_commit_time` show where a row is, and when its bytes were committed.
"""

from __future__ import annotations

import inspect
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from rollingfs.format.header import Chunk
from rollingfs.parquet.files import inner, rebuilt
from rollingfs.runtime.values import value_class
from rollingfs.segment.at import At
from rollingfs.segment.segment import Segment

_VARIANT = re.compile(r'"(type|elementType|valueType)":"variant"')


def arrow_schema(schema: Any) -> pa.Schema:
    """Return the Arrow schema that batches must have exactly, for Spark to take them as rows of a Spark schema.

    Raises
    ------
    ValueError
        A column has variants; the message names it.
    """
    from pyspark.sql.pandas import types

    for field in schema:
        if _VARIANT.search(field.json()):
            raise ValueError(
                f"column {field.name} is {field.dataType.simpleString()}: variants are neither read nor written; read "
                "text and use parse_json(value), or write to_json(column)"
            )
    convert: Any = types.to_arrow_schema
    # before PySpark 4.2 it takes no time zone, and means UTC
    zone = {"timezone": "UTC"} if "timezone" in inspect.signature(convert).parameters else {}
    found: pa.Schema = convert(schema, **zone)
    return found


def spark_schema(schema: pa.Schema) -> Any:
    """Return the Spark schema of an Arrow schema, nullable however deep."""
    from pyspark.sql.pandas.types import from_arrow_schema

    # later data may have nulls, also if the first says that it has none
    return from_arrow_schema(schema, prefer_timestamp_ntz=True).toNullable()


def conform(batch: pa.RecordBatch, schema: pa.Schema, *, ignores_case: bool = False) -> pa.RecordBatch:
    """Return the columns of a schema, by name; a column that the batch lacks is null.

    Parameters
    ----------
    ignores_case
        Whether names also match that differ in case, as Spark matches columns of Parquet.

    Raises
    ------
    pyarrow.ArrowInvalid
        A value does not fit the type of its column, or several columns match; the message names the column.
    """
    if batch.schema.equals(schema):
        return checked(batch.replace_schema_metadata(schema.metadata))
    if not len(schema):
        return without_columns(batch.num_rows)
    columns = [_column(batch, field, ignores_case=ignores_case) for field in schema]
    return checked(pa.record_batch(columns, schema=schema))


def without_columns(count: int) -> pa.RecordBatch:
    """Return rows that have no columns."""
    return pa.RecordBatch.from_struct_array(pa.array([{}] * count, pa.struct([])))


def spelled(name: str, names: Iterable[str], *, ignores_case: bool) -> str | None:
    """Return the name of a list that a column's name matches, or None.

    Raises
    ------
    pyarrow.ArrowInvalid
        It matches several.
    """
    wanted = name.lower()
    found = [one for one in names if one == name or (ignores_case and one.lower() == wanted)]
    if len(found) > 1:
        hint = "; spark.sql.caseSensitive=true tells names apart by case" if len(set(found)) > 1 else ""
        raise pa.ArrowInvalid(f"column {name!r} is ambiguous: the data has the columns {', '.join(found)}{hint}")
    return found[0] if found else None


def arranged(batch: pa.RecordBatch, more: Mapping[str, pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    """Return the columns of a schema, from the batch and from others."""
    names = schema.names
    return pa.record_batch([more[one] if one in more else batch.column(one) for one in names], schema=schema)


def checked(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch, if no NOT NULL column has nulls.

    Spark does not check that, and would read any value in their place.

    Raises
    ------
    pyarrow.ArrowInvalid
        A column has a null; the message names the column.
    """
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if _has_forbidden(column, field):
            raise pa.ArrowInvalid(f"column {field.name!r} has nulls, but by its schema it is NOT NULL")
    return batch


def _column(batch: pa.RecordBatch, field: pa.Field, *, ignores_case: bool) -> pa.Array:
    found = spelled(field.name, batch.schema.names, ignores_case=ignores_case)
    if found is None:
        return pa.nulls(batch.num_rows, field.type)
    column = batch.column(found)
    if ignores_case and (kind := _respelled(column.type, field.type)) != column.type:
        column = pa.array(_As(column, kind))
    is_safe = not pt.is_timestamp(field.type)  # times lose their nanoseconds, as in Spark
    try:
        if not any(_forbids(one) for one in _inner(field.type)):
            return column.cast(field.type, safe=is_safe)
        # a cast refuses a null struct with a NOT NULL field, which is none of that struct's: `checked` looks for nulls
        return pa.array(_As(column.cast(_nullable(field.type), safe=is_safe), field.type))
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise pa.ArrowInvalid(f"column {field.name!r} of type {column.type} is no {field.type}: {error}") from error


@value_class
class _As:
    """An array under a type that differs only in what may be null."""

    array: pa.Array
    kind: pa.DataType

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        return self.kind.__arrow_c_schema__(), self.array.__arrow_c_array__()[1]


def _respelled(kind: pa.DataType, wanted: pa.DataType) -> pa.DataType:
    """Return a type with its fields named as in another type, however deep, where they differ in case."""
    mine, theirs = inner(kind), inner(wanted)
    if pt.is_struct(kind) and pt.is_struct(wanted):
        own = {spelled(field.name, [one.name for one in mine], ignores_case=True): field for field in theirs}
        mine = [field.with_name(own.get(field.name, field).name) for field in mine]
        theirs = [own.get(field.name, field) for field in kind]
    elif pt.is_struct(kind) or len(mine) != len(theirs):
        return kind
    return rebuilt(
        kind, [field.with_type(_respelled(field.type, other.type)) for field, other in zip(mine, theirs, strict=True)]
    )


def _nullable(kind: pa.DataType) -> pa.DataType:
    """Return the type whose fields may all be null, however deep; the keys of a map cannot."""
    fields = [field.with_type(_nullable(field.type)).with_nullable(True) for field in _inner(kind)]
    return rebuilt(kind, [kind.key_field, *fields] if pt.is_map(kind) else fields)


def _has_forbidden(column: pa.Array, field: pa.Field) -> bool:
    """Return whether there is a null in a column that is not nullable, or in such a field inside it."""
    if not field.nullable and column.null_count:
        return True
    inner = _inner(field.type)
    if not any(_forbids(one) for one in inner):
        return False
    there = column.drop_null()
    if pt.is_map(field.type):
        there = there.cast(pa.list_(pa.struct([field.type.key_field, field.type.item_field]))).flatten().field(1)
    parts = there.flatten() if pt.is_struct(field.type) else [there if pt.is_map(field.type) else there.flatten()]
    return any(_has_forbidden(part, one) for part, one in zip(parts, inner, strict=True))


def _forbids(field: pa.Field) -> bool:
    return not field.nullable or any(_forbids(one) for one in _inner(field.type))


def _inner(kind: pa.DataType) -> list[pa.Field]:
    """Return the fields inside a type that may have nulls; the keys of a map cannot."""
    return inner(kind)[1:] if pt.is_map(kind) else inner(kind)


OFFSET, SEGMENT, COMMIT_TIME = "_offset", "_segment", "_commit_time"
_TYPES = {OFFSET: pa.int64(), SEGMENT: pa.string(), COMMIT_TIME: pa.timestamp("us", "UTC")}


def data_schema(schema: pa.Schema) -> pa.Schema:
    """Return the columns that come from the bytes.

    Raises
    ------
    ValueError
        A column has the name of our column, and another type.
    """
    for field in schema:
        kind = _TYPES.get(field.name.lower(), field.type)
        if field.type != kind:
            raise ValueError(f"column {field.name} is {field.type}, but with includeMetadata it is {kind}")
    return pa.schema([field for field in schema if field.name.lower() not in _TYPES], schema.metadata)


def added_to(schema: Any) -> Any:
    """Return an inferred Spark schema, with our columns.

    Raises
    ------
    ValueError
        The data has a column of such a name.
    """
    if taken := sorted(name for name in schema.names if name.lower() in _TYPES):
        raise ValueError(f"the data has a column {taken[0]}, which includeMetadata adds: read without includeMetadata")
    return type(schema)([*schema, *spark_schema(pa.schema(_TYPES))])


CommitTimes = tuple[Sequence[int], Sequence[int]]
"""Ends of chunks, by segment offset, ascending; their commit times in milliseconds, and the time of all later bytes.

A chunk has the time of its newest byte, the tail the time of the last commit.
"""


async def commit_times(client: At, view: Segment, start: int, end: int) -> CommitTimes:
    """Return the commit times of the bytes ``[start, end)``, as far as the segment's map has them."""
    header = view.header
    if header is None:
        return [], [round(view.modified.timestamp() * 1000)]
    ends: list[int] = []
    at_ms: list[int] = []
    for entry in header.entries:
        if entry.end > start and entry.start < end:
            chunks = [entry] if isinstance(entry, Chunk) else await client.pages.chunks(view.path, entry)
            ends += [chunk.end for chunk in chunks]
            at_ms += [chunk.at_ms for chunk in chunks]
    return ends, [*at_ms, header.modified_ms]


def with_columns(
    batch: pa.RecordBatch, offsets: Sequence[int], path: str, times: CommitTimes, schema: pa.Schema
) -> pa.RecordBatch:
    """Return rows with our columns, as far as a schema has them.

    Parameters
    ----------
    offsets
        The offset of each row.
    """
    ends, at_ms = times
    made: dict[str, Callable[[], pa.Array]] = {
        OFFSET: lambda: pa.array(offsets, pa.int64()),
        SEGMENT: lambda: pa.repeat(pa.scalar(path), batch.num_rows),
        COMMIT_TIME: lambda: pa.array([1000 * at_ms[bisect_right(ends, one)] for one in offsets], pa.int64()).cast(
            _TYPES[COMMIT_TIME]
        ),
    }
    ours = {name: made[name.lower()]() for name in schema.names if name.lower() in made}
    return arranged(batch, ours, schema)
