"""The columns of JSON lines, inferred from a sample as Spark infers them. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from rollingfs.spark.source.modes import CORRUPT_COLUMN, DROPMALFORMED, FAILFAST, PERMISSIVE, malformed

_DECODER = json.JSONDecoder()
_DIGITS_MAX = 38
_LONG = pa.decimal128(20, 0)
"""The decimals that hold every integer of 64 bits."""


def infer(lines: Iterable[bytes], mode: str = PERMISSIVE, corrupt_column: str = CORRUPT_COLUMN) -> pa.Schema:
    """The schema of a sample, as Spark infers it: fields sorted by name, text where types differ.

    Raises
    ------
    ValueError
        There is no object in it.
    MalformedRecordError
        A line is no JSON object, and the mode is FAILFAST.
    """
    kind: pa.DataType = pa.null()
    has_corrupt = False
    for line in lines:
        if not line.strip():
            continue
        try:
            value, _ = _DECODER.raw_decode(line.decode().lstrip(" \t\r"))
        except (ValueError, RecursionError):
            value = None
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, dict):
                kind = _merged(kind, _kind(one))
            elif mode == FAILFAST:
                raise malformed(line)
            else:
                has_corrupt = True
    if not pt.is_struct(kind):
        raise ValueError("there is no JSON object to infer the columns from: give .schema(...)")
    fields = list(_settled(kind))
    if has_corrupt and mode != DROPMALFORMED:
        fields = [pa.field(corrupt_column, pa.string()), *fields]
    return pa.schema(sorted(fields, key=lambda field: field.name))


def _kind(value: Any) -> pa.DataType:
    if isinstance(value, dict):
        return pa.struct([pa.field(key, _kind(item)) for key, item in sorted(value.items())])
    if isinstance(value, list):
        kind: pa.DataType = pa.null()
        for item in value:
            kind = _merged(kind, _kind(item))
        return pa.list_(kind)
    if isinstance(value, bool):
        return pa.bool_()
    if isinstance(value, int):
        return pa.int64() if -(1 << 63) <= value < 1 << 63 else _integer(value)
    if isinstance(value, float):
        return pa.float64()
    return pa.null() if value is None else pa.string()


def _integer(value: int) -> pa.DataType:
    digits = len(Decimal(value).as_tuple().digits)
    return pa.decimal128(digits, 0) if digits <= _DIGITS_MAX else pa.float64()


def _merged(one: pa.DataType, two: pa.DataType) -> pa.DataType:
    if one.equals(two) or pt.is_null(two):
        return one
    if pt.is_null(one):
        return two
    if pt.is_struct(one) and pt.is_struct(two):
        fields = {field.name: field.type for field in one}
        for field in two:
            fields[field.name] = _merged(fields.get(field.name, pa.null()), field.type)
        return pa.struct(sorted(fields.items()))
    if pt.is_list(one) and pt.is_list(two):
        return pa.list_(_merged(one.value_type, two.value_type))
    if not all(pt.is_int64(kind) or pt.is_float64(kind) or pt.is_decimal(kind) for kind in (one, two)):
        return pa.string()
    if pa.float64() in (one, two):
        return pa.float64()
    precisions = [_LONG.precision if pt.is_int64(kind) else kind.precision for kind in (one, two)]
    return pa.decimal128(max(precisions), 0)


def _settled(kind: pa.DataType) -> pa.DataType:
    """A type in which text stands for values that were always null."""
    if pt.is_struct(kind):
        return pa.struct([pa.field(field.name, _settled(field.type)) for field in kind])
    if pt.is_list(kind):
        return pa.list_(_settled(kind.value_type))
    return pa.string() if pt.is_null(kind) else kind
