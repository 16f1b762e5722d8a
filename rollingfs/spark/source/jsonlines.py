"""JSON lines as Arrow batches: read by Arrow's reader where it agrees with Spark's, else value by value."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from json.encoder import encode_basestring
from typing import Any

import pyarrow as pa
import pyarrow.json as pj

from rollingfs.spark.source.lines import FEED, Lines

CORRUPT_COLUMN = "_corrupt_record"
"""If the schema has a string column of this name, it takes the lines that are no JSON."""
HALVES_LINES_MIN = 64
"""A block that Arrow's reader refuses is halved; a part of fewer lines is read value by value."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Reader:
    """Reads blocks of JSON lines with one schema.

    Parameters
    ----------
    schema
        That of the rows; fields that it lacks are skipped.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._corrupt = schema.get_field_index(CORRUPT_COLUMN)
        self._is_fast = self._corrupt < 0 and len(schema) > 0 and all(_is_fast(field.type) for field in schema)
        self._options = pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")

    def read(self, block: Lines) -> list[pa.RecordBatch]:
        """The rows of a block of whole lines, in order."""
        if not self._is_fast:
            return [self._slowly(block)]
        batch = self._fast(block)
        if batch is not None:
            return [batch]
        data, start, end = block
        if data.count(FEED, start, end) < HALVES_LINES_MIN:
            return [self._slowly(block)]
        half = (start + end) // 2
        middle = data.find(FEED, half, end) + 1 or data.rfind(FEED, start, half) + 1
        if middle in (0, end):
            return [self._slowly(block)]
        return [*self.read(Lines(data, start, middle)), *self.read(Lines(data, middle, end))]

    def _fast(self, block: Lines) -> pa.RecordBatch | None:
        """The rows as Arrow reads them, or None if it would not read every line as one row."""
        data, start, end = block
        options = pj.ReadOptions(use_threads=False, block_size=max(end - start, 1))
        try:
            table = pj.read_json(pa.BufferReader(pa.py_buffer(data).slice(start, end - start)), options, self._options)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return None
        if table.num_rows != data.count(FEED, start, end) + (not block.ends):
            return None  # there are blank lines, several values in a line, or a value over several lines
        batches = table.select(self.schema.names).combine_chunks().to_batches()
        return pa.record_batch(batches[0].columns, schema=self.schema) if batches else None

    def _slowly(self, block: Lines) -> pa.RecordBatch:
        rows = [row for line in bytes(block).split(FEED) if line.strip() for row in self._rows(line)]
        columns = [
            pa.array([row[index] for row in rows], field.type, from_pandas=False)
            for index, field in enumerate(self.schema)
        ]
        if not columns:
            return pa.RecordBatch.from_struct_array(pa.array([{}] * len(rows), pa.struct([])))
        return pa.record_batch(columns, schema=self.schema)

    def _rows(self, line: bytes) -> Iterator[list[Any]]:
        """The rows of a line: one, or for a list of objects several."""
        try:
            value = _loads(line)
        except ValueError:
            value = None
        values = value if isinstance(value, list) else [value]
        for one in values:
            row: list[Any] = [None] * len(self.schema)
            if isinstance(one, dict):
                row = [convert(one.get(field.name), field.type) for field in self.schema]
            elif self._corrupt >= 0:
                row[self._corrupt] = line.decode(errors="replace")
            yield row


def _is_fast(kind: pa.DataType) -> bool:
    """Whether Arrow's reader reads values of a type as Spark's does, or refuses them."""
    if pa.types.is_struct(kind):
        return all(_is_fast(field.type) for field in kind)
    if pa.types.is_list(kind):
        return _is_fast(kind.value_type)
    tests: list[Callable[[Any], bool]] = [
        pa.types.is_boolean,
        pa.types.is_integer,
        pa.types.is_floating,
        pa.types.is_string,
        pa.types.is_timestamp,
    ]
    return any(test(kind) for test in tests)


class _Number(float):
    """A number that keeps its digits, for columns of strings or decimals."""

    text: str

    def __new__(cls, text: str) -> _Number:
        self = super().__new__(cls, text)
        self.text = text
        return self


_DECODER = json.JSONDecoder(parse_float=_Number)


def _loads(line: bytes) -> Any:
    """The first value of a line; the rest is ignored, as in Spark."""
    return _DECODER.raw_decode(line.decode().strip())[0]


def convert(value: Any, kind: pa.DataType) -> Any:
    """A JSON value as a value of an Arrow type; None if it does not fit, as in Spark's permissive mode."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {f.name: convert(value.get(f.name), f.type) for f in kind} if isinstance(value, dict) else None
    if pa.types.is_map(kind):
        if not isinstance(value, dict):
            return None
        items = _all(value.values(), kind.item_type)
        return None if items is None else list(zip(value, items, strict=True))
    if pa.types.is_list(kind):
        return _all(value, kind.value_type) if isinstance(value, list) else None
    if pa.types.is_string(kind):
        return _text(value)
    try:
        return _scalar(value, kind)
    except (ValueError, InvalidOperation, OverflowError):
        return None


def _all(values: Iterable[Any], kind: pa.DataType) -> list[Any] | None:
    """All values of a list; None if one does not fit: Spark keeps parts of objects, but not of lists."""
    found = [(value, convert(value, kind)) for value in values]
    return None if any(one is None and value is not None for value, one in found) else [one for _, one in found]


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, _Number):
        return value.text
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _scalar(value: Any, kind: pa.DataType) -> Any:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if pa.types.is_boolean(kind):
        return value if isinstance(value, bool) else None
    if pa.types.is_integer(kind):
        fits = isinstance(value, int) and is_number and -(1 << kind.bit_width - 1) <= value < 1 << kind.bit_width - 1
        return value if fits else None
    if pa.types.is_floating(kind):
        return float(value) if is_number or value in ("NaN", "Infinity", "-Infinity") else None
    if pa.types.is_decimal(kind):
        return _decimal(value, kind) if is_number or isinstance(value, str) else None
    if pa.types.is_timestamp(kind) and isinstance(value, int) and is_number and kind.tz is not None:
        return _EPOCH + timedelta(seconds=value)
    if not isinstance(value, str):
        return None
    if pa.types.is_date(kind):
        return date.fromisoformat(value[:10])
    if pa.types.is_timestamp(kind):
        found = datetime.fromisoformat(value)
        if kind.tz is None:
            return found.replace(tzinfo=None)
        return found if found.tzinfo else found.replace(tzinfo=UTC)
    if pa.types.is_binary(kind):
        return base64.b64decode(value, validate=True)
    raise ValueError(f"JSON has no values of type {kind}")


def _decimal(value: Any, kind: pa.DataType) -> Decimal | None:
    text = value.text if isinstance(value, _Number) else str(value)
    found = Decimal(text).quantize(Decimal(1).scaleb(-kind.scale), ROUND_HALF_UP)
    return found if len(found.as_tuple().digits) <= kind.precision else None


# -- the schema of a sample ------------------------------------------------------------------------------------


def infer(lines: Iterable[bytes]) -> pa.Schema:
    """The schema of a sample, as Spark infers it: fields sorted by name, text where types differ.

    Raises
    ------
    ValueError
        There is no object in it.
    """
    kind: pa.DataType = pa.null()
    corrupt = False
    for line in lines:
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except ValueError:
            value = None
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, dict):
                kind = _merged(kind, _kind(one))
            else:
                corrupt = True
    if not pa.types.is_struct(kind):
        raise ValueError("there is no JSON object to infer the columns from: give .schema(...)")
    fields = list(_settled(kind))
    if corrupt:
        fields = [pa.field(CORRUPT_COLUMN, pa.string()), *fields]
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
        return pa.int64() if -(1 << 63) <= value < 1 << 63 else pa.float64()
    if isinstance(value, float):
        return pa.float64()
    return pa.null() if value is None else pa.string()


def _merged(one: pa.DataType, two: pa.DataType) -> pa.DataType:
    if one.equals(two) or pa.types.is_null(two):
        return one
    if pa.types.is_null(one):
        return two
    if pa.types.is_struct(one) and pa.types.is_struct(two):
        fields = {field.name: field.type for field in one}
        for field in two:
            fields[field.name] = _merged(fields.get(field.name, pa.null()), field.type)
        return pa.struct(sorted(fields.items()))
    if pa.types.is_list(one) and pa.types.is_list(two):
        return pa.list_(_merged(one.value_type, two.value_type))
    numbers = (pa.int64(), pa.float64())
    return pa.float64() if one in numbers and two in numbers else pa.string()


def _settled(kind: pa.DataType) -> pa.DataType:
    """A type in which text stands for values that were always null."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _settled(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_settled(kind.value_type))
    return pa.string() if pa.types.is_null(kind) else kind


# -- writing ---------------------------------------------------------------------------------------------------


def encode(batches: Iterator[pa.RecordBatch]) -> Iterator[bytes]:
    """Rows as JSON lines, as Spark writes them: without fields that are null; times in UTC, with all their digits."""
    for batch in batches:
        if batch.num_rows:
            whole = _encoder(pa.struct(list(batch.schema)))
            rows = batch.to_struct_array().to_pylist()
            yield ("\n".join(map(whole, rows)) + "\n").encode()


def _encoder(kind: pa.DataType) -> Callable[[Any], str]:
    """The function that makes JSON of a value of an Arrow type; the value is not null."""
    if pa.types.is_struct(kind):
        fields = [(f.name, encode_basestring(f.name) + ":", _encoder(f.type)) for f in kind]
        return lambda v: "{" + ",".join([k + e(v[n]) for n, k, e in fields if v[n] is not None]) + "}"
    if pa.types.is_map(kind):
        item = _encoder(kind.item_type)
        return lambda v: "{" + ",".join([encode_basestring(_key(k)) + ":" + _or_null(item, x) for k, x in v]) + "}"
    if pa.types.is_list(kind):
        inner = _encoder(kind.value_type)
        return lambda v: "[" + ",".join([_or_null(inner, x) for x in v]) + "]"
    if pa.types.is_string(kind):
        return encode_basestring
    if pa.types.is_boolean(kind):
        return lambda v: "true" if v else "false"
    if pa.types.is_floating(kind):
        return _float
    if pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        return str
    return lambda v: encode_basestring(_key(v))


def _or_null(encoder: Callable[[Any], str], value: Any) -> str:
    return "null" if value is None else encoder(value)


def _float(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    return '"NaN"' if math.isnan(value) else ('"Infinity"' if value > 0 else '"-Infinity"')


def _key(value: Any) -> str:
    """A value as text: for keys of maps, dates, bytes."""
    if isinstance(value, datetime):
        local = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
        text = local.isoformat(timespec="auto" if value.microsecond % 1000 else "milliseconds")
        return text + ("Z" if value.tzinfo else "")
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)
