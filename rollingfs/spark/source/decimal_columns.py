"""Decimals as Arrow's JSON reader gives them, rounded to the digits of their column. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

DIGITS_MAX = 38
_WIDE_DIGITS_MAX = 76
WIDE = pa.decimal256(DIGITS_MAX, DIGITS_MAX)
"""The last resort: 38 digits, of which all may be behind the point."""


def raw_types(kind: pa.DataType) -> Sequence[pa.DataType]:
    """The types in which a decimal is read, the fastest first; each holds more digits behind the point than the last.

    Arrow moves the point of a number without a look at what no longer fits. So precision and scale of a type must
    together be no more digits than its bits hold; the number may then use them all.
    """
    spare = DIGITS_MAX - kind.precision - kind.scale
    scales = [kind.scale + more for more in (0, spare // 2) if more or spare >= 0]
    return [*(pa.decimal128(DIGITS_MAX - scale, scale) for scale in dict.fromkeys(scales) if spare >= 0), WIDE]


def full(column: pa.Array) -> pa.Array:
    """The same numbers in a type that has all digits of its bits."""
    make, most = (pa.decimal256, _WIDE_DIGITS_MAX) if pt.is_decimal256(column.type) else (pa.decimal128, DIGITS_MAX)
    kind = make(most, column.type.scale)
    return pa.Array.from_buffers(kind, len(column), column.buffers(), column.null_count, column.offset)


def rounded(column: pa.Array, scale: int) -> pa.Array:
    """Decimals rounded half up."""
    return pc.round(column, scale, "half_towards_infinity") if column.type.scale > scale else column


def bound(kind: pa.DataType, raw: pa.DataType) -> pa.Scalar | None:
    """The first number that is too large for a type, in another; None if that cannot hold it."""
    digits = kind.precision - kind.scale
    return pa.scalar(Decimal(10) ** digits).cast(raw) if digits + raw.scale < raw.precision else None
