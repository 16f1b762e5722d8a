"""The columns of segments, where the user names none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from rollingfs.errors import CorruptHeaderError
from rollingfs.read.snapshot import Snapshot
from rollingfs.spark.source import folder_columns, metadata, places, rows
from rollingfs.spark.source.formats.contract import CORRUPT
from rollingfs.spark.source.options import Options
from rollingfs.spark.source.segments import SegmentReader

_SPARK_TYPES: dict[str, Callable[[Any], Any]] = {
    "int": lambda types: types.IntegerType(),
    "bigint": lambda types: types.LongType(),
    "double": lambda types: types.DoubleType(),
    "date": lambda types: types.DateType(),
    "timestamp": lambda types: types.TimestampType(),
    "string": lambda types: types.StringType(),
}


def infer_schema(options: Options) -> Any:
    """The columns of the segments.

    Raises
    ------
    ValueError
        No segment tells its columns.
    """
    found = _found(options)
    schema = _inferred(options, [view for view in found.views.values() if view.size])
    if options.reading.has_folder_columns:
        columns = folder_columns.columns_of([*found.views, *found.corrupt], places.bases(options))
        schema = with_folder_columns(schema, columns)
    return metadata.added_to(schema) if options.reading.has_metadata else schema


def _found(options: Options) -> places.Found:
    """The segments that tell the columns, found by one look; none if the format has the same columns everywhere."""
    is_known = options.form.columns is not None
    if is_known and not options.reading.has_folder_columns:
        return places.Found({}, {})
    try:
        return places.find(places.filesystem(options), options)
    except (FileNotFoundError, CorruptHeaderError):
        if is_known:
            return places.Found({}, {})  # the read that follows names it
        raise


def with_folder_columns(schema: Any, columns: dict[str, str]) -> Any:
    """A Spark schema with the columns of folders: at its end, or instead of a column of the same name."""
    from pyspark.sql import types

    if not columns:
        return schema
    if isinstance(schema, str):  # of text or binary
        return ", ".join([schema, *(f"`{name.replace('`', '``')}` {kind}" for name, kind in columns.items())])
    own = {}
    for name, kind in columns.items():
        found = folder_columns.DECIMAL.fullmatch(kind)
        own[name] = types.DecimalType(int(found[1]), 0) if found else _SPARK_TYPES[kind](types)
    fields = [types.StructField(one.name, own.pop(one.name, one.dataType)) for one in schema]
    return types.StructType(fields + [types.StructField(name, kind) for name, kind in own.items()])


def _inferred(options: Options, found: Sequence[Snapshot]) -> Any:
    """The columns of the format, or those that the first of the segments `found` tells."""
    form = options.form
    if form.columns is not None:
        return form.columns
    fs = places.filesystem(options)
    for view in found:
        try:
            schema = form.infer(SegmentReader(fs, view))
        except CORRUPT:
            if not options.skips_corrupt:
                raise
            continue  # the read that follows names it
        except pa.ArrowInvalid as error:
            raise ValueError(f"{view.path}: its bytes are no {options.format}: {error}") from error
        if schema is not None:
            return rows.spark_schema(schema)
    raise ValueError(f"there is no {options.format} to infer the columns from: give .schema(...)")
