"""Scalars of JSON in the types of the columns, exactly as Spark's reader converts them. Pure."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from datetime import tzinfo
from decimal import ROUND_HALF_UP, Context, Decimal, DecimalException
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from rollingfs.spark.source import times
from rollingfs.spark.source.json_tokens import FALSE, INTEGER, NUMBER, STRING, TRUE, BadJsonError

Scalar = Callable[[str, str], Any]
"""Makes a value of the kind of a token and its text; raises `BadJsonError` if it does not fit."""

NUMBER_LETTERS_MAX = 1000
"""Jackson refuses longer numbers."""
_ENDLESS = {"NaN", "+INF", "+Infinity", "Infinity", "-INF", "-Infinity"}
_BASE64 = re.compile(r"(?:[\x00-\x20]*[A-Za-z0-9+/]{4})*(?:[\x00-\x20]*[A-Za-z0-9+/]{2}(?:==|[A-Za-z0-9+/]=))?")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,9})?")
_DIGITS = Context(prec=200)
_INT32 = re.compile(r"[+-]?[0-9]{1,10}")


class UnsupportedTypeError(ValueError):
    """A column has a type that the format cannot hold."""


def scalar_of(kind: pa.DataType, zone: tzinfo) -> Scalar | None:
    """The function that makes values of a type; None if JSON has none of it."""
    if pt.is_boolean(kind):
        return _boolean
    if pt.is_integer(kind):
        return partial(_integer, 1 << kind.bit_width - 1)
    if pt.is_floating(kind):
        return partial(_float, pt.is_float32(kind))
    if pt.is_decimal(kind):
        return partial(_decimal, kind.precision, kind.scale)
    if pt.is_date32(kind):
        return _date
    if pt.is_timestamp(kind):
        return _local_timestamp if kind.tz is None else partial(_timestamp, zone)
    return _bytes if pt.is_binary(kind) else None


def _boolean(kind: str, text: str) -> bool:
    if kind not in (TRUE, FALSE):
        raise BadJsonError
    return kind == TRUE


def _integer(bound: int, kind: str, text: str) -> int:
    if kind != INTEGER or len(text) > NUMBER_LETTERS_MAX:
        raise BadJsonError
    found = int(text)
    if not -bound <= found < bound:
        raise BadJsonError
    return found


def _float(is_single: bool, kind: str, text: str) -> float:
    if len(text) > NUMBER_LETTERS_MAX or (kind == STRING and text not in _ENDLESS):
        raise BadJsonError
    if kind not in (INTEGER, NUMBER, STRING):
        raise BadJsonError
    if text in _ENDLESS:
        return float(text)
    if is_single:  # rounded once, not first to a double
        single: float = pa.scalar(str(text)).cast(pa.float32()).as_py()
        return single if kind == NUMBER else single + 0.0
    return float(text) if kind == NUMBER else float(text) + 0.0  # the integer -0 has no sign


def _decimal(precision: int, scale: int, kind: str, text: str) -> Decimal:
    if kind not in (INTEGER, NUMBER, STRING):
        raise BadJsonError
    found = rounded(text.replace(",", "") if kind == STRING else text, precision, scale)
    if found is None:
        raise BadJsonError
    return found


def rounded(text: str, precision: int, scale: int) -> Decimal | None:
    """A decimal of some digits, rounded half up; None if the text is none, or has too many digits before the point."""
    if not _DECIMAL.fullmatch(text) or len(text) > NUMBER_LETTERS_MAX:
        return None
    found = Decimal(text)
    unit = Decimal((0, (1,), -scale))
    if not found or found.adjusted() < -scale - 1:
        return Decimal((0, (0,), -scale))
    if found.adjusted() >= precision - scale:
        return None
    try:
        found = found.quantize(unit, ROUND_HALF_UP, Context(prec=len(text) + 2 * precision + 2))
    except DecimalException:
        return None
    return found if found.scaleb(scale, _DIGITS).copy_abs() < 10**precision else None  # abs() rounds to 28 digits


def _date(kind: str, text: str) -> int:
    found = times.with_legacy(times.date_days, text) if kind == STRING and text else None
    if found is None and kind == STRING and _INT32.fullmatch(text) and -(1 << 31) <= int(text) < 1 << 31:
        found = int(text)
    if found is None:
        raise BadJsonError
    return found


def _timestamp(zone: tzinfo, kind: str, text: str) -> int:
    if kind == INTEGER:
        seconds = _integer(1 << 63, kind, text)
        return (seconds * 1_000_000 + (1 << 63)) % (1 << 64) - (1 << 63)  # it wraps around, as in Java
    found = times.with_legacy(partial(times.timestamp_us, zone=zone), text) if kind == STRING and text else None
    if found is None:
        raise BadJsonError
    return found


def _local_timestamp(kind: str, text: str) -> int:
    found = times.local_timestamp_us(text) if kind == STRING and text else None
    if found is None:
        raise BadJsonError
    return found


def _bytes(kind: str, text: str) -> bytes:
    if kind != STRING or not _BASE64.fullmatch(text):
        raise BadJsonError
    return base64.b64decode(re.sub(r"[\x00-\x20]", "", text))
