"""Columns of text, or of raw JSON, in the types that are wanted: whole columns at once where Arrow agrees with Spark.

Arrow reads fewer forms of a date or a number than Spark does. What it does not read, or reads otherwise, is marked, and
the caller reads these rows one by one.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from rollingfs.spark.source import decimal_columns, json_maps, map_columns, times

_STAMP = r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-](0\d|1[0-7]):[0-5]\d)?$"
_LOCAL_STAMP = r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d{1,9})?$"
_SURE_DATE = r"^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|1\d|2[0-8])$"
_SURE_STAMP = r"^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|1\d|2[0-8])[T ]([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.|Z|[+-]|$)"
"""Days and times of which Arrow takes each, if it also matches `_STAMP`."""
_NANO_YEARS = r"^(197[1-9]|19[89]\d|20\d\d|21\d\d|22[0-5]\d)-"
"""Times of these years fit 64 bits as nanoseconds."""
MICROS_LETTERS = len("2024-01-02T03:04:05.678901")
"""A longer text has a zone, or more digits than microseconds have."""
_ZONED = r"(Z|[+-]\d\d:\d\d)$"
_NANOS = r"(\.\d{6})\d+"
_BASE64 = r"^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}(==|[A-Za-z0-9+/]=))?$"


class InnerValueError(Exception):
    """A value must be read by itself, and it is not known in which row it is: it is inside a list, for example."""


Marked = tuple[pa.Array, pa.Array | None]
"""A column, and which rows must be read by themselves; None if there are none."""


@dataclass(frozen=True, slots=True)
class RawForm:
    """In which types Arrow's JSON reader is asked for columns that it can read in several."""

    decimals: int = 0
    """Which of `decimal_columns.raw_types`; the last if there are fewer."""
    keys: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The keys of the maps that are read as objects with these fields, by the names of the maps; others are lists."""


def raw_type(kind: pa.DataType, form: RawForm, name: str = "") -> pa.DataType | None:
    """The type in which Arrow's JSON reader reads a column of a name, so that it loses nothing; None if it cannot."""
    if pt.is_struct(kind):
        fields = [(one.name, raw_type(one.type, form, one.name)) for one in kind]
        return None if any(inner is None for _, inner in fields) else pa.struct(fields)
    if pt.is_list(kind):
        item = raw_type(kind.value_type, form)
        return None if item is None else pa.list_(item)
    if pt.is_map(kind):
        item = raw_type(kind.item_type, form)
        if item is None or name in form.keys:
            return None if item is None else pa.struct([(key, item) for key in form.keys[name]])
        return pa.list_(pa.struct([(json_maps.KEY, pa.string()), (json_maps.VALUE, item)]))
    if pt.is_decimal(kind):
        types = decimal_columns.raw_types(kind)
        return types[min(form.decimals, len(types) - 1)]
    if pt.is_date32(kind) or pt.is_timestamp(kind) or pt.is_binary(kind):
        return pa.string()
    plain = pt.is_boolean(kind) or pt.is_integer(kind) or pt.is_floating(kind) or pt.is_string(kind)
    return kind if plain else None


def converted(column: pa.Array, kind: pa.DataType, zone: tzinfo, full: Collection[str] = (), name: str = "") -> Marked:
    """A column of a raw type in the type that is wanted; marked rows are null.

    Parameters
    ----------
    full
        The names of the maps that have all their keys where they are not null.
    name
        That of the column.

    Raises
    ------
    InnerValueError
        A value must be read by itself, and its row is not known.
    """
    if pt.is_struct(kind):
        parts = [converted(column.field(nth), one.type, zone, full, one.name) for nth, one in enumerate(kind)]
        mask = column.is_null() if column.null_count else None
        marks = [mark for _, mark in parts if mark is not None]
        joined = pa.StructArray.from_arrays([part for part, _ in parts], fields=list(kind), mask=mask)
        return joined, either(marks)
    if pt.is_map(kind) and pt.is_struct(column.type):
        return _of_keys(column, kind, zone, is_full=name in full)
    if pt.is_list(kind) or pt.is_map(kind):
        return _inside(column, kind, zone, full)
    if pt.is_decimal(kind):
        return decimals(column, kind)
    if pt.is_date32(kind):
        return dates(column)
    if pt.is_timestamp(kind):
        return timestamps(column, kind, zone)
    return _bytes(column) if pt.is_binary(kind) else (column, None)


def either(marks: list[pa.Array]) -> pa.Array | None:
    """The rows that one of some marks names."""
    if not marks:
        return None
    first, *more = marks
    for mark in more:
        first = pc.or_(first, mark)
    return first


def _inside(column: pa.Array, kind: pa.DataType, zone: tzinfo, full: Collection[str]) -> Marked:
    """The values of lists; a map is a list of keys and values."""
    mask = column.is_null() if column.null_count else None
    if pt.is_map(kind):
        entries = column.values
        inner, inner_marks = converted(entries.field(1), kind.item_type, zone)
        found = pa.MapArray.from_arrays(column.offsets, entries.field(0), inner, type=kind, mask=mask)
    else:
        inner, inner_marks = converted(column.values, kind.value_type, zone, full)
        found = pa.ListArray.from_arrays(column.offsets, inner, type=kind, mask=mask)
    if inner_marks is None:
        return found, None
    rows = pc.list_parent_indices(column)
    if len(rows) != len(inner_marks):
        raise InnerValueError
    numbers = pa.array(range(len(column)), rows.type)
    return found, pc.is_in(numbers, value_set=rows.filter(inner_marks))


def _of_keys(column: pa.Array, kind: pa.DataType, zone: tzinfo, *, is_full: bool) -> Marked:
    """Maps of objects whose fields are their keys; a field that is null is missing, if they are not full."""
    keys = [one.name for one in column.type]
    raw = [column.field(nth) for nth in range(len(keys))]
    parts = [converted(one, kind.item_type, zone) for one in raw]
    has_gaps = column.null_count if is_full else any(one.null_count for one in raw)
    present = [(column if is_full else one).is_valid() for one in raw] if has_gaps else None
    found = map_columns.of_columns(keys, [part for part, _ in parts], present, column.is_null(), kind)
    return found, either([mark for _, mark in parts if mark is not None])


def dates(column: pa.Array) -> Marked:
    """Text as dates."""
    try:
        return column.cast(pa.date32()), None  # it takes YYYY-MM-DD and nothing else
    except pa.ArrowInvalid:
        return _mostly(column, pa.date32(), _SURE_DATE, lambda sure: sure.cast(pa.date32()), times.date_days)


def timestamps(column: pa.Array, kind: pa.DataType, zone: tzinfo) -> Marked:
    """Text, or whole seconds, as timestamps; a text without a zone is a time of `zone`."""
    if pt.is_integer(column.type):
        return _seconds(column, kind)
    column, marks = matching(column, _STAMP if kind.tz is not None else _LOCAL_STAMP)
    try:
        return _stamps(column, kind, zone), marks
    except pa.ArrowInvalid:  # there is no such time of a day, or not in this zone
        parse = times.local_timestamp_us if kind.tz is None else partial(times.timestamp_us, zone=zone)
        found, more = _mostly(column, kind, _SURE_STAMP, lambda sure: _stamps(sure, kind, zone), parse)
        return found, either([one for one in (marks, more) if one is not None])


def matching(column: pa.Array, pattern: str) -> Marked:
    """The texts that match a pattern; all others are null, and marked."""
    sound = pc.match_substring_regex(column, pattern)
    marks = _not(sound)
    return (column if marks is None else pc.if_else(sound, column, None)), marks


def one_by_one(column: pa.Array, kind: pa.DataType, parse: Any) -> Marked:
    """Values that a function of one text makes; where it makes none, the row is marked."""
    texts = column.to_pylist()
    found = pa.array([None if one is None else parse(one) for one in texts], kind)
    return found, _not(pc.or_(found.is_valid(), column.is_null()))


def _mostly(
    column: pa.Array, kind: pa.DataType, sure: str, convert: Callable[[pa.Array], pa.Array], parse: Any
) -> Marked:
    """Values of which Arrow converts those that match a pattern, and a function of one text makes the others."""
    is_sure = pc.match_substring_regex(column, sure)
    others = pc.fill_null(pc.invert(is_sure), False)
    try:
        found = convert(pc.if_else(others, None, column))
    except pa.ArrowInvalid:
        return one_by_one(column, kind, parse)
    values, _ = one_by_one(column.filter(others), kind, parse)
    found = pc.replace_with_mask(found, others, values)
    return found, _not(pc.or_(found.is_valid(), column.is_null()))


def decimals(column: pa.Array, kind: pa.DataType) -> Marked:
    """Decimals of another type, rounded half up; those with too many digits before the point are marked."""
    column = decimal_columns.full(column)
    try:
        return decimal_columns.rounded(column, kind.scale).cast(kind), None
    except pa.ArrowInvalid as error:
        bound = decimal_columns.bound(kind, column.type)
        if bound is None:
            raise InnerValueError from error
        marks = []
        for _ in range(2):  # rounding may make a digit more
            mark = _not(pc.less(pc.abs(column), bound))
            if mark is not None:
                marks.append(mark)
                column = pc.if_else(mark, None, column)
            column = decimal_columns.rounded(column, kind.scale)
        if not marks:
            raise InnerValueError from error
        return column.cast(kind), either(marks)


def _stamps(column: pa.Array, kind: pa.DataType, zone: tzinfo) -> pa.Array:
    """Texts that match `_STAMP` as timestamps. What Arrow would refuse is found before, because its refusal is slow."""
    longest = pc.max(pc.binary_length(column)).as_py() or 0
    if longest > MICROS_LETTERS and pc.any(pc.match_substring_regex(column, _NANOS)).as_py():
        if (found := _of_nanos(column, kind, zone)) is not None:
            return found
        column = pc.replace_substring_regex(column, _NANOS, r"\1")
    return _of_micros(column, kind, zone)


def _of_micros(column: pa.Array, kind: pa.DataType, zone: tzinfo) -> pa.Array:
    if kind.tz is None or pc.all(pc.ends_with(column, "Z")).as_py():
        return column.cast(kind)
    zoned = pc.match_substring_regex(column, _ZONED)
    if not pc.any(zoned).as_py():
        return _localized(column, kind, zone)
    if pc.all(zoned).as_py():
        return column.cast(kind)
    parts = [pc.if_else(test, column, None) for test in (zoned, pc.invert(zoned))]
    return pc.coalesce(parts[0].cast(kind), _localized(parts[1], kind, zone))


def _of_nanos(column: pa.Array, kind: pa.DataType, zone: tzinfo) -> pa.Array | None:
    """Texts with up to nine digits behind the point; None if they are not all from 1971 to 2259."""
    if not pc.all(pc.match_substring_regex(column, _NANO_YEARS)).as_py():
        return None
    found = _of_micros(column, pa.timestamp("ns", kind.tz), zone)
    return found.cast(kind, safe=False)  # Spark cuts digits off


def _localized(column: pa.Array, kind: pa.DataType, zone: tzinfo) -> pa.Array:
    local = column.cast(pa.timestamp(kind.unit))
    if zone is UTC:
        return local.cast(kind)
    return pc.assume_timezone(local, str(zone), ambiguous="earliest").cast(kind)


def _seconds(column: pa.Array, kind: pa.DataType) -> Marked:
    fits = pc.and_(pc.less(column, 1 << 40), pc.greater(column, -(1 << 40)))
    marks = _not(fits)
    if marks is not None:
        column = pc.if_else(fits, column, None)
    return pc.multiply(column, 1_000_000).cast(kind), marks


def _bytes(column: pa.Array) -> Marked:
    column, marks = matching(column, _BASE64)
    return pa.array([None if one is None else b64decode(one) for one in column.to_pylist()], pa.binary()), marks


def _not(sound: pa.Array) -> pa.Array | None:
    """The rows that are false; None if there is none. A null is neither."""
    if pc.all(sound, min_count=0).as_py():
        return None
    return pc.fill_null(pc.invert(sound), False)
