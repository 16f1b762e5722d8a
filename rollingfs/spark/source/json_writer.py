"""Rows as JSON lines: the columns become text as a whole, then the rows are joined."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from rollingfs.spark.source.json_scalars import UnsupportedTypeError
from rollingfs.spark.source.lines import FEED

_SPECIAL = re.compile(rb'["\\\x00-\x1f]')
_ESCAPES = {code: json.dumps(chr(code))[1:-1] for code in range(32)}
_MILLIS_US = 1000


def check_schema(schema: pa.Schema) -> None:
    """Refuse columns of which JSON has no values.

    Raises
    ------
    UnsupportedTypeError
        There is such a column.
    """
    for field in schema:
        if not _is_supported(field.type):
            raise UnsupportedTypeError(f"column {field.name!r} is of type {field.type}, of which JSON has no values")


def encode(batches: Iterator[pa.RecordBatch]) -> Iterator[bytes]:
    """Rows as JSON lines, as Spark writes them: without fields that are null; times in UTC, with all their digits."""
    for batch in batches:
        if batch.num_rows:
            rows = _objects(batch.columns, batch.schema.names, batch.num_rows)
            joined = pc.binary_join(pa.LargeListArray.from_arrays([0, len(rows)], rows), "\n")
            yield joined[0].as_buffer().to_pybytes() + FEED


def text_of(column: pa.Array) -> pa.Array:
    """The values of a column as plain text, without quotes: numbers, truths, times, bytes; null stays null."""
    kind = column.type
    if pt.is_floating(kind):
        text = column.cast(pa.string())
        return pc.if_else(pc.match_substring_regex(text, "[.en]"), text, pc.binary_join_element_wise(text, ".0", ""))
    if pt.is_timestamp(kind):
        return _times(column)
    if pt.is_binary(kind):
        encoded = [None if one is None else base64.b64encode(one).decode() for one in column.to_pylist()]
        return pa.array(encoded, pa.string())
    return column.cast(pa.string())


def _is_supported(kind: pa.DataType) -> bool:
    if pt.is_struct(kind):
        return all(_is_supported(field.type) for field in kind)
    if pt.is_map(kind):
        is_plain = not (pt.is_nested(kind.key_type) or pt.is_binary(kind.key_type))
        return is_plain and _is_supported(kind.key_type) and _is_supported(kind.item_type)
    if pt.is_list(kind):
        return _is_supported(kind.value_type)
    tests = (pt.is_boolean, pt.is_integer, pt.is_floating, pt.is_decimal, pt.is_string, pt.is_date32, pt.is_timestamp)
    return any(test(kind) for test in (*tests, pt.is_binary, pt.is_null))


def _values(column: pa.Array) -> pa.Array:
    """JSON of each value; null stays null."""
    kind = column.type
    if pt.is_struct(kind):
        whole = _objects([column.field(nth) for nth in range(len(kind))], [one.name for one in kind], len(column))
        return pc.if_else(column.is_valid(), whole, None) if column.null_count else whole
    if pt.is_map(kind):
        return _maps(column)
    if pt.is_list(kind):
        return _wrapped(column, "[", pc.fill_null(_values(column.flatten()), "null"), "]")
    if pt.is_string(kind):
        return _quoted(_escaped(column))
    text = text_of(column)
    if pt.is_floating(kind):
        return _floats(text)
    return _quoted(text) if pt.is_date32(kind) or pt.is_timestamp(kind) or pt.is_binary(kind) else text


def _objects(columns: Sequence[pa.Array], names: Sequence[str], count: int) -> pa.Array:
    """An object of each row: fields that are null are left out."""
    if not names:
        return pa.array(["{}"] * count, pa.string())
    parts: list[pa.Array | str] = ["{"]
    is_first_there = not columns[0].null_count
    for nth, (column, name) in enumerate(zip(columns, names, strict=True)):
        key = _key(name)
        before = key if nth == 0 and is_first_there else "," + key
        values = _values(column)
        if values.null_count:
            parts.append(pc.fill_null(pc.binary_join_element_wise(before, values, ""), ""))
        else:
            parts += [before, values]
    if all(isinstance(part, str) for part in parts):
        raise AssertionError("a field gives an array")
    parts.append("}")
    whole = pc.binary_join_element_wise(*_merged(parts), "")
    # where the first field may be null, each row begins with a comma too many
    return whole if is_first_there else pc.replace_substring_regex(whole, r"^\{,", "{")


def _merged(parts: Sequence[pa.Array | str]) -> list[pa.Array | str]:
    """Neighbouring constants as one."""
    found: list[pa.Array | str] = []
    for part in parts:
        if found and isinstance(part, str) and isinstance(found[-1], str):
            found[-1] += part
        else:
            found.append(part)
    return found


def _maps(column: pa.Array) -> pa.Array:
    lists = column.cast(pa.list_(pa.struct([column.type.key_field, column.type.item_field])))
    entries = lists.flatten()
    keys, items = entries.field(0), pc.fill_null(_values(entries.field(1)), "null")
    names = _quoted(_escaped(keys) if pt.is_string(keys.type) else text_of(keys))
    return _wrapped(lists, "{", pc.binary_join_element_wise(names, items, ":"), "}")


def _wrapped(column: pa.Array, before: str, texts: pa.Array, after: str) -> pa.Array:
    """The texts of all values of each list of a column, joined by commas; of a list that is null there are none."""
    sizes = pc.fill_null(pc.list_value_length(column), 0)
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(sizes).cast(pa.int32())])
    joined = pc.binary_join(pa.ListArray.from_arrays(offsets, texts), ",")
    whole = pc.binary_join_element_wise(before, joined, after, "")
    return pc.if_else(column.is_valid(), whole, None) if column.null_count else whole


def _key(name: str) -> str:
    return json.dumps(name, ensure_ascii=False) + ":"


def _quoted(text: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise('"', text, '"', "")


def _escaped(column: pa.Array) -> pa.Array:
    """Text with the letters escaped that must not stand in a string of JSON."""
    _, _, letters = column.buffers()
    if letters is None or not len(column):
        return column
    view = memoryview(letters)
    special = {found[0] for found in _SPECIAL.finditer(view)} if _SPECIAL.search(view) else set()
    if b"\\" in special:
        column = pc.replace_substring(column, "\\", "\\\\")
    if b'"' in special:
        column = pc.replace_substring(column, '"', '\\"')
    for one in sorted(special - {b"\\", b'"'}):
        column = pc.replace_substring(column, one.decode(), _ESCAPES[one[0]])
    return column


def _floats(text: pa.Array) -> pa.Array:
    odd = pc.match_substring_regex(text, "[naf]")
    if not pc.any(odd).as_py():
        return text
    named = pc.replace_substring(pc.replace_substring(text, "nan", '"NaN"'), "-inf", '"-Infinity"')
    return pc.if_else(pc.equal(named, "inf"), '"Infinity"', named)


def _times(column: pa.Array) -> pa.Array:
    """ISO 8601 with as many digits as are needed, at least three; times of a zone in UTC."""
    zoned = column.type.tz is not None
    us = column.cast(pa.timestamp("us"))
    number = us.cast(pa.int64())
    whole = pc.equal(pc.subtract(number, pc.multiply(pc.divide(number, _MILLIS_US), _MILLIS_US)), 0)
    long = us.cast(pa.string())
    if pc.all(whole, min_count=0).as_py():
        long = us.cast(pa.timestamp("ms")).cast(pa.string())
    elif pc.any(whole).as_py():
        long = pc.if_else(whole, us.cast(pa.timestamp("ms"), safe=False).cast(pa.string()), long)
    text = pc.replace_substring(long, " ", "T")
    return pc.binary_join_element_wise(text, "Z", "") if zoned else text
