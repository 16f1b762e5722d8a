"""Fields of CSV in the types of the columns, exactly as Spark's reader converts them. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import tzinfo
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from rollingfs.spark.source import times
from rollingfs.spark.source.csv_tokens import CsvFormat, fields
from rollingfs.spark.source.json_scalars import UnsupportedTypeError, rounded

Parse = Callable[[str], Any]
"""Makes a value of a field; None if the field does not fit."""

_ENDLESS = {"NaN": "nan", "Inf": "inf", "-Inf": "-inf", "Infinity": "inf", "+Infinity": "inf", "-Infinity": "-inf"}
_BLANKS = "".join(map(chr, range(33)))
_FLOAT = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?=[dDfF]?$)")
_HEX = re.compile(r"[+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+(?=[dDfF]?$)")
_INTEGER = re.compile(r"[+-]?[0-9]+")
_INTEGER_LETTERS_MAX = 1000


class RowParser:
    """Reads one line at a time, exactly.

    Parameters
    ----------
    schema
        The columns, in the order of the fields.
    form
        How fields are told apart.
    zone
        That of times that name none.

    Raises
    ------
    UnsupportedTypeError
        A column has a type of which CSV has no values.
    """

    def __init__(self, schema: pa.Schema, form: CsvFormat, zone: tzinfo) -> None:
        self._form = form
        self._parsers = [parser(field.type, zone, field.name) for field in schema]

    def parse(self, line: str) -> tuple[list[Any], bool]:
        """The values of a line, and whether it is malformed: too few fields, too many, or one that does not fit."""
        found = fields(line, self._form)
        is_bad = len(found) != len(self._parsers)
        found += [None] * (len(self._parsers) - len(found))
        row = []
        for field, parse in zip(found, self._parsers, strict=False):
            is_null = field is None or field == self._form.null_value
            value = None if is_null or field is None else parse(field)
            is_bad = is_bad or (value is None and not is_null)
            row.append(value)
        return row, is_bad


def parser(kind: pa.DataType, zone: tzinfo, column: str) -> Parse:
    """The function that makes a value of a type.

    Raises
    ------
    UnsupportedTypeError
        CSV has no values of this type.
    """
    if pt.is_string(kind):
        return str
    if pt.is_boolean(kind):
        return _boolean
    if pt.is_integer(kind):
        return partial(_integer, 1 << kind.bit_width - 1)
    if pt.is_floating(kind):
        return partial(_float, pt.is_float32(kind))
    if pt.is_decimal(kind):
        return lambda text: rounded(text.replace(",", ""), kind.precision, kind.scale)
    if pt.is_date32(kind):
        return partial(times.with_legacy, times.date_days)
    if pt.is_timestamp(kind):
        if kind.tz is None:
            return times.local_timestamp_us
        return partial(times.with_legacy, partial(times.timestamp_us, zone=zone))
    if pt.is_binary(kind):
        return str.encode
    raise UnsupportedTypeError(f"column {column!r} is of type {kind}, of which CSV has no values")


def _boolean(text: str) -> bool | None:
    return {"true": True, "false": False}.get(text.lower())


def _integer(bound: int, text: str) -> int | None:
    if not _INTEGER.fullmatch(text) or len(text) > _INTEGER_LETTERS_MAX:
        return None
    found = int(text)
    return found if -bound <= found < bound else None


def _float(is_single: bool, text: str) -> float | None:
    if text in _ENDLESS:
        return float(_ENDLESS[text])
    text = text.strip(_BLANKS)
    if text in _ENDLESS and "Infinity" not in text and text != "NaN":
        return None  # Java knows NaN and Infinity; the short names count only as the whole field
    if text in _ENDLESS:
        return float(_ENDLESS[text])
    if found := _FLOAT.match(text):
        # rounded once, not first to a double
        single: float = pa.scalar(found[0].lstrip("+")).cast(pa.float32()).as_py() if is_single else float(found[0])
        return single
    return float.fromhex(found[0]) if (found := _HEX.match(text)) else None
