"""Record batches as Spark wants them: its columns, its types, its order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa


def arrow_schema(schema: Any) -> pa.Schema:
    """The Arrow schema that Spark expects batches of a Spark schema to have, to the letter."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")


def spark_schema(schema: pa.Schema) -> Any:
    """The Spark schema for what an Arrow schema says."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The columns of a schema, by name; nulls for one that is not there.

    Raises
    ------
    pyarrow.ArrowInvalid
        A value does not fit the type that the schema has.
    """
    if batch.schema.equals(schema):
        return batch
    if not len(schema):
        return pa.RecordBatch.from_struct_array(pa.array([{}] * batch.num_rows, pa.struct([])))
    return pa.record_batch([_column(batch, field) for field in schema], schema=schema)


def gathered(batches: Iterator[pa.RecordBatch], size: int) -> Iterator[list[pa.RecordBatch]]:
    """Batches that have rows, together until they have `size` bytes in memory."""
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


def _column(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    index = batch.schema.get_field_index(field.name)
    if index < 0:
        return pa.nulls(batch.num_rows, field.type)
    column = batch.column(index)
    # Spark's times are microseconds: it drops nanoseconds too
    return column.cast(field.type, safe=not pa.types.is_timestamp(field.type))
