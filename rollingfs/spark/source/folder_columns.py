"""Columns in the names of folders, as Hive lays them out (``day=2026-11-21/``): names, types, values. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.types as pt

from rollingfs.errors import CorruptHeaderError
from rollingfs.segment.segment import Segment
from rollingfs.spark.source import places, rows
from rollingfs.spark.source.formats import CORRUPT
from rollingfs.spark.source.options import Options, logger
from rollingfs.spark.source.segments import Range, SegmentReader

Values = Mapping[str, str | None]
"""The columns of a path, by name, as text; None is null."""

NULL = "__HIVE_DEFAULT_PARTITION__"
"""The value that stands for null, or for an empty text."""
PRECISION_MAX = 38
"""Most digits of a decimal."""
_WHOLE = re.compile(r"[+-]?[0-9]+")
_TIME = pa.timestamp("us", "UTC")


def values_of(path: str, bases: Sequence[str]) -> Values:
    """Return the columns of a path: the folders ``name=value`` right above its name, up to a base.

    Parameters
    ----------
    bases
        The paths that a query names. Folders above them are not columns.

    Raises
    ------
    ValueError
        A folder names no column or no value, or two of them name the same column.
    """
    base = max((one for one in bases if path.startswith(f"{one}/")), key=len, default=None)
    if base is None:
        return {}
    found: dict[str, str | None] = {}
    for folder in reversed(path[len(base) + 1 :].split("/")[:-1]):
        name, equals, value = folder.partition("=")
        if not equals:
            break
        if not name or not value:
            raise ValueError(f"{path}: the folder {folder!r} has no {'value' if name else 'name'} of a column")
        if unquote(name) in found:
            raise ValueError(f"{path}: two folders name the column {unquote(name)!r}")
        found[unquote(name)] = None if value == NULL else unquote(value)
    return dict(reversed(found.items()))


def columns_of(paths: Iterable[str], bases: Sequence[str]) -> dict[str, pa.DataType]:
    """Return the columns of some paths: the type of each name, inferred as Spark does.

    Raises
    ------
    ValueError
        Paths have columns of other names.
    """
    by_path = {path: values_of(path, bases) for path in paths}
    first, columns = next(iter(by_path.items()), ("", {}))
    for path, values in by_path.items():
        if list(values) != list(columns):
            raise ValueError(
                f"the folders of {first} name the columns ({', '.join(columns)}), and those of {path} "
                f"({', '.join(values)}): read them apart, or with option partitionColumns=false"
            )
    return {name: type_of([values[name] for values in by_path.values()]) for name in columns}


def type_of(texts: Iterable[str | None]) -> pa.DataType:
    """Return the type that holds all of some values, as Spark infers it; nulls fit every type."""
    kinds = {_kind(text) for text in set(texts) if text is not None}
    decimals = [kind for kind in kinds if pt.is_decimal(kind)]
    if len(kinds) == 1:
        return kinds.pop()
    if kinds == {pa.date32(), _TIME}:
        return _TIME
    if kinds == {pa.int32(), pa.int64()}:
        return pa.int64()
    if kinds == {pa.int32(), pa.float64()}:
        return pa.float64()
    if decimals and all(pt.is_integer(kind) or pt.is_decimal(kind) for kind in kinds):
        return max(decimals, key=lambda kind: kind.precision)
    return pa.string()


def _kind(text: str) -> pa.DataType:
    if _WHOLE.fullmatch(text):
        for kind in (pa.int32(), pa.int64()):
            with suppress(pa.ArrowInvalid, OverflowError):
                return pa.scalar(int(text), kind).type
        digits = len(text.lstrip("+-0"))
        return pa.decimal128(digits, 0) if digits <= PRECISION_MAX else pa.float64()
    for kind in (pa.float64(), pa.date32(), _TIME):
        with suppress(pa.ArrowInvalid):
            return scalar_of(text, kind).type
    return pa.string()


def scalar_of(text: str | None, kind: pa.DataType) -> pa.Scalar:
    """Return a value of a column; a time without a zone is in UTC.

    Raises
    ------
    ValueError
        The text does not fit the type.
    """
    if text is None or pt.is_string(kind):
        return pa.scalar(text, kind)
    if pt.is_integer(kind):
        return pa.scalar(int(text), kind)
    if pt.is_timestamp(kind) and kind.tz is not None:
        with suppress(pa.ArrowInvalid):  # it has a zone
            return pa.scalar(text).cast(kind)
        return pa.scalar(pa.scalar(text).cast(pa.timestamp(kind.unit)).as_py(), kind)
    return pa.scalar(text).cast(kind)


def constant(text: str | None, field: Any, path: str) -> pa.Scalar:
    """Return the value of a column that is the same in all rows of a segment.

    Parameters
    ----------
    field
        The Spark field of the column.

    Raises
    ------
    ValueError
        The text is not a value of the column's type.
    """
    from pyspark.sql.types import StructType

    try:
        return scalar_of(text, rows.arrow_schema(StructType([field])).field(0).type)
    except (ValueError, pa.ArrowNotImplementedError, OverflowError) as error:
        raise ValueError(
            f"{path}: its folder says {field.name}={text}, which is no {field.dataType.simpleString()}: give the "
            "column another type in .schema(...), or read with option partitionColumns=false"
        ) from error


def by_values(ranges: Sequence[Range], bases: Sequence[str]) -> Iterator[tuple[Values, tuple[Range, ...]]]:
    """Yield neighbouring ranges with the same columns, together."""
    # by lists: equal dicts may have their columns in another order
    for columns, group in groupby(ranges, lambda one: list(values_of(one.extent.path, bases).items())):
        yield dict(columns), tuple(group)


NOT_SEEN = "%d other segments, and what lies behind, were not looked at. If they have other columns, give .schema(...)"


def infer_schema(options: Options) -> Any:
    """Return the columns of the segments.

    Raises
    ------
    ValueError
        No segment has its columns.
    """
    found = _found(options)
    schema = _inferred(options, [view for view in found.views.values() if view.size])
    if options.has_folder_columns:
        columns = columns_of([*found.views, *found.corrupt], places.bases(options))
        schema = with_folder_columns(schema, columns)
    return rows.added_to(schema) if options.has_metadata else schema


def _found(options: Options) -> places.FoundSegments:
    """Return the segments that have the columns, by a single look.

    It is empty if the format has the same columns everywhere.
    """
    is_known = options.form.columns is not None
    if is_known and not options.has_folder_columns:
        return places.FoundSegments({}, {})
    try:
        return places.find(places.filesystem(options), options)
    except (FileNotFoundError, CorruptHeaderError):
        if not is_known:
            raise
        return places.FoundSegments({}, {})  # the read that follows names it


def with_folder_columns(schema: Any, columns: dict[str, pa.DataType]) -> Any:
    """Return a Spark schema with the columns of folders.

    They come at its end, or in place of a column of the same name in any case.
    """
    added = {one.name.lower(): one for one in rows.spark_schema(pa.schema(list(columns.items())))}
    fields = [added.get(one.name.lower(), one) for one in schema]
    there = {one.name.lower() for one in schema}
    return type(schema)(fields + [one for name, one in added.items() if name not in there])


def _inferred(options: Options, found: Sequence[Segment]) -> Any:
    """Return the columns of the format, or of the first segment with columns."""
    form = options.form
    if form.columns is not None:
        return rows.spark_schema(form.columns)
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
            if len(found) > 1 or form.grows:
                logger.warning("%s: the columns are those of its beginning; %s", view.path, NOT_SEEN % (len(found) - 1))
            return rows.spark_schema(schema)
    raise ValueError(f"there is no {options.format} to infer the columns from: give .schema(...)")
