"""The columns of segments, where the user names none."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from rollingfs.errors import CorruptHeaderError
from rollingfs.fs.filesystem import RollingFileSystem
from rollingfs.read.snapshot import Snapshot
from rollingfs.spark.source import (
    compression,
    csvlines,
    folder_columns,
    ipc,
    json_schema,
    lines,
    metadata,
    parquet,
    places,
    rows,
    text,
)
from rollingfs.spark.source.batch_reader import BINARY_SCHEMA, CORRUPT
from rollingfs.spark.source.options import BINARY, CSV, JSON, PARQUET, TEXT, Options
from rollingfs.spark.source.segments import SegmentReader, extent_of

_SPARK_TYPES: dict[str, Callable[[Any], Any]] = {
    "int": lambda types: types.IntegerType(),
    "bigint": lambda types: types.LongType(),
    "double": lambda types: types.DoubleType(),
    "date": lambda types: types.DateType(),
    "timestamp": lambda types: types.TimestampType(),
    "string": lambda types: types.StringType(),
}
SAMPLE_BYTES_MIN = 64 * 1024
"""Minimum size that a sample takes of each segment, until it is full."""


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
        if options.format == CSV:
            _check_apart(schema, columns)
        schema = with_folder_columns(schema, columns)
    return metadata.added_to(schema) if options.reading.has_metadata else schema


def _found(options: Options) -> places.Found:
    """The segments that tell the columns, found by one look; none if the format has the same columns everywhere."""
    is_known = options.format in (TEXT, BINARY)
    if is_known and not options.reading.has_folder_columns:
        return places.Found({}, {})
    try:
        return places.find(places.filesystem(options), options)
    except (FileNotFoundError, CorruptHeaderError):
        if is_known:
            return places.Found({}, {})  # the read that follows names it
        raise


def with_folder_columns(schema: Any, columns: dict[str, str]) -> Any:
    """A Spark schema with the columns of folders: at its end, or in the place of a column of the same name."""
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


def _check_apart(schema: str, columns: dict[str, str]) -> None:
    """Refuse CSV that has a column of a folder's name: columns of CSV are told by their places."""
    twice = sorted(name for name in columns if f"`{name.replace('`', '``')}` " in schema)
    if twice:
        raise ValueError(
            f"column {twice[0]} is in the CSV and in the names of folders: read with option partitionColumns=false"
        )


def _inferred(options: Options, found: Sequence[Snapshot]) -> Any:
    """The columns of the format, or those that the segments `found` tell."""
    if options.format == TEXT:
        return f"{text.COLUMN} string"
    if options.format == BINARY:
        return BINARY_SCHEMA
    fs = places.filesystem(options)
    if options.format == JSON:
        known = options.records
        return rows.spark_schema(json_schema.infer(_sample(fs, found, options), known.mode, known.corrupt_column))
    if options.format == CSV:
        return ", ".join(f"`{name.replace('`', '``')}` string" for name in _csv_names(fs, found, options))
    for view in found:
        opened = SegmentReader(fs, view)
        try:
            schema = parquet.schema(opened.file()) if options.format == PARQUET else _arrow_schema(opened)
        except CORRUPT:
            if not options.skips_corrupt:
                raise
            continue  # the read that follows names it
        except pa.ArrowInvalid as error:
            raise ValueError(f"{view.path}: its bytes are no {options.format}: {error}") from error
        if schema is not None:
            return rows.spark_schema(schema)
    raise ValueError(f"there is no {options.format} to infer the columns from: give .schema(...)")


def _csv_names(fs: RollingFileSystem, views: Sequence[Snapshot], options: Options) -> list[str]:
    """The names of the columns: those of the first segment that has a line."""
    for view in views:
        for line in _sample(fs, [view], options):
            if line.strip():
                if options.records.csv.header and view.start:
                    raise ValueError(
                        f"{view.path}: its header is truncated away, with {view.start} bytes: give .schema(...)"
                    )
                return csvlines.column_names(line, options.records.csv)
    raise ValueError("there is no line of CSV to infer the columns from: give .schema(...)")


def _arrow_schema(opened: SegmentReader) -> pa.Schema | None:
    return ipc.schema(opened.read, extent_of(opened.view))


def _sample(fs: RollingFileSystem, views: Sequence[Snapshot], options: Options) -> Iterator[bytes]:
    """Lines of the first bytes of each segment, until the sample is full."""
    size = options.sample_bytes
    each = max(SAMPLE_BYTES_MIN, size // max(len(views), 1))
    for view in views:
        extent, opened = extent_of(view), SegmentReader(fs, view)
        upto = min(extent.start + min(each, size), extent.end)
        try:
            codec = options.codec(view.path)
            if codec is not None:
                blocks = compression.blocks(opened.read, extent, codec, lines.LOCAL_BLOCK_BYTES)
            else:
                blocks = lines.blocks(opened.read, extent.start, extent.start, upto, extent.end)
            for nth, block in enumerate(blocks):
                if not nth and codec is None and options.records.compression == compression.AUTO:
                    compression.check_plain(view.path, block.data[block.start : block.end])
                yield from bytes(block).split(lines.FEED)
                if codec is not None:
                    break  # the first block is a sample
        except CORRUPT:
            if not options.skips_corrupt:
                raise
            continue  # the read that follows names it
        size -= upto - extent.start
        if size <= 0:
            return
