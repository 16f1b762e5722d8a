"""Rows as CSV lines: the columns become text as a whole, then the rows are joined."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from rollingfs.spark.source.csv_tokens import CsvFormat
from rollingfs.spark.source.json_scalars import UnsupportedTypeError
from rollingfs.spark.source.json_writer import text_of
from rollingfs.spark.source.lines import FEED


class UnwritableValueError(ValueError):
    """A value cannot stand in a line of CSV."""


def check_schema(schema: pa.Schema) -> None:
    """Refuse columns of which CSV has no values.

    Raises
    ------
    UnsupportedTypeError
        There is such a column, or there is no column at all.
    """
    tests = (pt.is_boolean, pt.is_integer, pt.is_floating, pt.is_decimal, pt.is_string, pt.is_date32, pt.is_timestamp)
    for field in schema:
        if not any(test(field.type) for test in tests):
            raise UnsupportedTypeError(f"column {field.name!r} is of type {field.type}, of which CSV has no values")
    if not len(schema):
        raise UnsupportedTypeError("a line of CSV needs a column, but the rows have none")


def header(schema: pa.Schema, form: CsvFormat) -> bytes:
    """The line with the names of the columns."""
    names = [_strings(pa.array([name]), form, name)[0].as_py() for name in schema.names]
    return form.sep.join(names).encode() + FEED


def encode(batches: Iterator[pa.RecordBatch], form: CsvFormat) -> Iterator[bytes]:
    """Rows as CSV lines, as Spark writes them, except that blanks around a text are kept, and times have all digits.

    Raises
    ------
    UnwritableValueError
        A text has a line break, or the separator where there are no quotes.
    """
    for batch in batches:
        if batch.num_rows:
            texts = [
                _column(column, field.name, form) for column, field in zip(batch.columns, batch.schema, strict=True)
            ]
            rows = pc.binary_join_element_wise(*texts, form.sep) if len(texts) > 1 else _visible(texts[0], form)
            joined = pc.binary_join(pa.LargeListArray.from_arrays([0, len(rows)], rows), "\n")
            yield joined[0].as_buffer().to_pybytes() + FEED


def _column(column: pa.Array, name: str, form: CsvFormat) -> pa.Array:
    if pt.is_string(column.type):
        text = _strings(column, form, name)
    else:
        text = text_of(column)
        if pt.is_floating(column.type):
            text = pc.replace_substring(pc.replace_substring(text, "inf", "Infinity"), "nan", "NaN")
        if not pt.is_boolean(column.type):
            text = _strings(text, form, name)  # a separator may be a letter of numbers
    return pc.fill_null(text, form.null_value)


def _strings(column: pa.Array, form: CsvFormat, name: str) -> pa.Array:
    """Texts in quotes where they need them, so that a reader finds them as they are."""
    if pc.any(pc.match_substring_regex(column, r"[\r\n]")).as_py():
        raise UnwritableValueError(
            f"column {name!r} has a text with a line break, and a line of CSV cannot hold it; nothing was written. "
            "Use format json, or replace the line breaks"
        )
    special = re.escape(form.sep) + (re.escape(form.quote) if form.quote else "")
    # blanks around a text: a line of nothing else would be no row
    needs = pc.match_substring_regex(column, rf"[{special}]|^[\x00-\x20]|[\x00-\x20]$|^$")
    if not pc.any(needs).as_py():
        return column
    if not form.quote:
        if pc.any(pc.match_substring(column, form.sep)).as_py():
            raise UnwritableValueError(
                f"column {name!r} has a text with the separator {form.sep!r}, and option quote is empty; nothing was "
                "written. Give quotes, or another separator"
            )
        return column
    inner = column
    if form.escape != form.quote:
        inner = pc.replace_substring(inner, form.escape, form.escape * 2)
    inner = pc.replace_substring(inner, form.quote, form.escape + form.quote)
    return pc.if_else(needs, pc.binary_join_element_wise(form.quote, inner, form.quote, ""), column)


def _visible(texts: pa.Array, form: CsvFormat) -> pa.Array:
    """Lines of one column: an empty line would be no row, so nothing stands in quotes."""
    return pc.if_else(pc.equal(texts, ""), form.quote * 2, texts) if form.quote else texts
