"""Columns in the names of folders, as Hive lays them out (``day=2026-11-21/``): names, types, values. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.types as pt

from rollingfs.spark.source.partitions import Range

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


def by_values(ranges: Sequence[Range], bases: Sequence[str]) -> Iterator[tuple[Values, tuple[Range, ...]]]:
    """Neighbouring ranges with the same columns, together."""
    # by lists: equal dicts may have their columns in another order
    for columns, group in groupby(ranges, lambda one: list(values_of(one.extent.path, bases).items())):
        yield dict(columns), tuple(group)
