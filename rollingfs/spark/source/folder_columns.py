"""Columns in the names of folders, as Hive lays them out (``day=2026-11-21/``): names, types, values. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import groupby
from urllib.parse import unquote

from rollingfs.spark.source.partitions import Range

Values = Mapping[str, str | None]
"""The columns of a path, by name, as text; None is null."""

NULL = "__HIVE_DEFAULT_PARTITION__"
"""The value that stands for null, or for an empty text."""
PRECISION_MAX = 38
"""Most digits of a decimal."""
DECIMAL = re.compile(r"decimal\(([0-9]+),0\)")
_WHOLE = re.compile(r"[+-]?[0-9]+")
_FRACTION = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[dDfF]?|[+-]?(?:NaN|Infinity)")
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_INT_BITS, _LONG_BITS = 31, 63
_INT, _LONG, _DOUBLE, _DATE_TYPE, _TIME_TYPE, _STRING = "int", "bigint", "double", "date", "timestamp", "string"


def values_of(path: str, bases: Sequence[str]) -> Values:
    """The columns of a path: the folders ``name=value`` right above its name, up to a base.

    Parameters
    ----------
    bases
        The paths that a query names. Folders above them are no columns.

    Raises
    ------
    ValueError
        A folder names no column or no value, or two of them name one column.
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


def columns_of(paths: Iterable[str], bases: Sequence[str]) -> dict[str, str]:
    """The columns of some paths: the Spark type of each name, inferred as Spark does.

    Raises
    ------
    ValueError
        Paths have columns of other names.
    """
    by_path = {path: values_of(path, bases) for path in paths}
    first = next(iter(by_path.items()), None)
    if first is None:
        return {}
    for path, values in by_path.items():
        if list(values) != list(first[1]):
            raise ValueError(
                f"the folders of {first[0]} name the columns ({', '.join(first[1])}), and those of {path} "
                f"({', '.join(values)}): read them apart, or with option partitionColumns=false"
            )
    return {name: type_of([values[name] for values in by_path.values()]) for name in first[1]}


def type_of(texts: Iterable[str | None]) -> str:
    """The Spark type that holds all of some values; nulls fit every type."""
    kinds = {_kind(text) for text in set(texts) if text is not None}
    if not kinds:
        return _STRING
    digits = max((int(kind[8:-3]) for kind in kinds if kind.startswith("decimal")), default=0)
    if len(kinds) == 1:
        return kinds.pop()
    if kinds == {_DATE_TYPE, _TIME_TYPE}:
        return _TIME_TYPE
    if kinds == {_INT, _LONG}:
        return _LONG
    if kinds == {_INT, _DOUBLE}:
        return _DOUBLE
    if digits and all(kind in (_INT, _LONG) or kind.startswith("decimal") for kind in kinds):
        return f"decimal({digits},0)"
    return _STRING


def _kind(text: str) -> str:
    if _WHOLE.fullmatch(text):
        size = int(text)
        for kind, bits in ((_INT, _INT_BITS), (_LONG, _LONG_BITS)):
            if -(1 << bits) <= size < 1 << bits:
                return kind
        digits = len(str(abs(size)))
        return f"decimal({digits},0)" if digits <= PRECISION_MAX else _DOUBLE
    if _FRACTION.fullmatch(text):
        return _DOUBLE
    with suppress(ValueError):
        if _TIME.fullmatch(text):
            datetime.fromisoformat(text)
            return _TIME_TYPE
        if _DATE.fullmatch(text):
            date.fromisoformat(text)
            return _DATE_TYPE
    return _STRING


def value_of(text: str | None, kind: str) -> object:
    """A value of a column; a time without a zone is in UTC.

    Parameters
    ----------
    kind
        The Spark type of the column, in its short form.

    Raises
    ------
    ValueError
        The text is none of the type.
    """
    if text is None or kind == _STRING:
        return text
    if kind in ("tinyint", "smallint", _INT, _LONG):
        if not _WHOLE.fullmatch(text):
            raise ValueError(f"{text!r} is no {kind}")
        return int(text)
    if kind in ("float", _DOUBLE):
        return float(text.rstrip("dDfF"))
    if kind.startswith("decimal"):
        return Decimal(text) if _FRACTION.fullmatch(text) else _refuse(text, kind)
    if kind == _DATE_TYPE:
        return date.fromisoformat(text)
    if kind == _TIME_TYPE:
        time = datetime.fromisoformat(text)
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC)
    if kind == "boolean" and text.lower() in ("true", "false"):
        return text.lower() == "true"
    return _refuse(text, kind)


def _refuse(text: str, kind: str) -> object:
    raise ValueError(f"{text!r} is no {kind}")


def by_values(ranges: Sequence[Range], bases: Sequence[str]) -> Iterator[tuple[Values, tuple[Range, ...]]]:
    """Neighbouring ranges with the same columns, together."""
    for _, group in groupby(
        ((values_of(one.extent.path, bases), one) for one in ranges), key=lambda pair: list(pair[0].items())
    ):
        pairs = list(group)
        yield pairs[0][0], tuple(one for _, one in pairs)
