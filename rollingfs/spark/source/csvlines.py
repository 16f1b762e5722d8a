"""CSV lines as Arrow batches: blocks by Arrow's reader; lines that it may read otherwise than Spark, one by one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, tzinfo
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv
import pyarrow.types as pt

from rollingfs.spark.source import csv_values, decimal_columns, modes, odd_lines, text_columns
from rollingfs.spark.source.csv_tokens import CsvFormat, fields
from rollingfs.spark.source.csv_values import RowParser
from rollingfs.spark.source.lines import FEED, Lines
from rollingfs.spark.source.modes import CORRUPT_COLUMN, DROPMALFORMED, FAILFAST, PERMISSIVE
from rollingfs.spark.source.slow_lines import SlowLines
from rollingfs.spark.source.text import to_lines

REPEATS_MAX = 1000
"""RE2 repeats a group no more often, so lines with quotes and more fields are read one by one."""
MARK = b"\xef\xbb\xbf"
"""The byte order mark that may stand at the start of a file."""

_WIDE = pa.decimal256(76, 38)
"""It holds what `_FORMS` takes as a decimal."""
_BLANKS = bytes(range(33))
_BLANK_CLASS = r"\x00-\x09\x0b-\x20"
_FORMS = {
    "integer": r"^[+-]?\d{1,18}$",
    "float": r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,2})?$",
    "decimal": r"^-?\d{1,30}(\.\d{1,30})?$",
    "boolean": r"^(?i:true|false)$",
}
"""What Arrow's casts read as Spark does."""


class CsvReader:
    """Reads blocks of CSV lines with one schema.

    Parameters
    ----------
    schema
        That of the rows, in the order of the fields.
    form
        How fields are told apart.
    zone
        That of times which name none.
    mode, corrupt_column
        What becomes of malformed records: see `modes`.

    Raises
    ------
    UnsupportedTypeError
        A column has a type of which CSV has no values.
    """

    def __init__(
        self,
        schema: pa.Schema,
        form: CsvFormat,
        zone: tzinfo = UTC,
        mode: str = PERMISSIVE,
        corrupt_column: str = CORRUPT_COLUMN,
    ) -> None:
        self.schema = schema
        self._form = form
        self._zone = zone
        self._mode = mode
        self._corrupt = schema.get_field_index(corrupt_column)
        self._data = pa.schema([field for nth, field in enumerate(schema) if nth != self._corrupt])
        self._parser = RowParser(self._data, form, zone)
        self._names = [f"f{nth}" for nth in range(len(self._data))]
        self._sound = _sound_line(form, len(self._data))
        self._slow_lines = SlowLines("CSV")

    def read(self, block: Lines, *, is_first: bool) -> pa.RecordBatch:
        """The rows of a block of whole lines, in order.

        Parameters
        ----------
        is_first
            The block begins where the segment began, so its first line may be a header.

        Raises
        ------
        MalformedRecordError
            A record is malformed, and the mode is FAILFAST.
        """
        data = bytes(block) + (b"" if block.ends else FEED)
        if is_first:
            data = data.removeprefix(MARK)
        data = _readable(odd_lines.without_blank(data, _BLANK_CLASS))
        if is_first and self._form.header:
            data = data[data.find(FEED) + 1 :]
        if not data:
            return self._batch([])
        texts = to_lines(Lines(data, 0, len(data)))
        sound = self._sound_lines(texts, data)
        if sound is None:
            odd: set[int] = set()
        else:
            odd = set(pc.indices_nonzero(pc.invert(sound)).to_pylist())
            data = _joined(texts.filter(sound))
        count = len(texts) - len(odd)
        if not count:
            return self._slowly(texts, range(len(texts)))
        fast, marked = self._fast(data, count)
        if not odd and not marked:
            return fast
        places = [nth for nth in range(len(texts)) if nth not in odd]
        odd |= {places[nth] for nth in marked}
        return self._merged(fast, places, texts, sorted(odd))

    # -- many lines at once ----------------------------------------------------------------------------------

    def _sound_lines(self, texts: pa.Array, data: bytes) -> pa.Array | None:
        """Which lines Arrow cuts as Spark does, into as many fields as there are columns; None: all of them."""
        if not self._names:
            return pa.array([False] * len(texts))
        if self._form.quote and self._form.quote.encode() in data:
            if self._sound is None:
                sound = pa.array([False] * len(texts))
            else:
                sound = pc.match_substring_regex(texts, self._sound)
        else:
            sound = pc.equal(pc.count_substring(texts, self._form.sep), len(self._names) - 1)
        return None if pc.all(sound).as_py() else sound

    def _fast(self, data: bytes, count: int) -> tuple[pa.RecordBatch, list[int]]:
        """The rows as Arrow reads them, and the numbers of those that must be read one by one."""
        doubles = self._form.quote == self._form.escape
        parsing = pcsv.ParseOptions(
            delimiter=self._form.sep, quote_char=self._form.quote or False, double_quote=doubles, escape_char=False
        )
        converting = pcsv.ConvertOptions(
            column_types=dict.fromkeys(self._names, pa.string()),
            null_values=["", self._form.null_value],
            strings_can_be_null=True,
            quoted_strings_can_be_null=True,
        )
        reading = pcsv.ReadOptions(use_threads=False, block_size=len(data) + len(MARK) + 1, column_names=self._names)
        if data.startswith(MARK):  # Arrow passes over the first mark; that of a line in the midst is a letter
            data = MARK + data
        table = pcsv.read_csv(pa.BufferReader(data), reading, parsing, converting)
        if table.num_rows != count:
            raise AssertionError(f"Arrow reads {table.num_rows} rows of {count} lines of CSV")
        columns: list[pa.Array] = []
        marks = []
        for name, field in zip(self._names, self._data, strict=True):
            texts = table.column(name).combine_chunks()
            texts = pa.concat_arrays(texts.chunks) if isinstance(texts, pa.ChunkedArray) else texts
            column, mark = _converted(texts, field, self._zone)
            columns.append(column)
            if mark is not None:
                marks.append(mark)
        if self._corrupt >= 0:
            columns.insert(self._corrupt, pa.nulls(count, self.schema.field(self._corrupt).type))
        mark = text_columns.either(marks)
        marked = [] if mark is None else pc.indices_nonzero(mark).to_pylist()
        return pa.record_batch(columns, schema=self.schema), marked

    # -- one by one ------------------------------------------------------------------------------------------

    def _merged(self, fast: pa.RecordBatch, places: list[int], texts: pa.Array, odd: list[int]) -> pa.RecordBatch:
        """The rows of all lines in order: those of `places` are in `fast`, except the odd ones."""
        slow = [self._row(texts[nth].as_py()) for nth in odd]
        self._count(len(odd))
        instead = self._batch([row for row in slow if row is not None])
        at = fast.num_rows
        order: dict[int, int] = {line: nth for nth, line in enumerate(places)}
        for line, row in zip(odd, slow, strict=True):
            order.pop(line, None)
            if row is not None:
                order[line] = at
                at += 1
        rows = [order[line] for line in sorted(order)]
        both = pa.Table.from_batches([fast, instead]).take(pa.array(rows, pa.int64())).combine_chunks()
        return both.to_batches()[0] if both.num_rows else instead.slice(0, 0)

    def _slowly(self, texts: pa.Array, lines: range) -> pa.RecordBatch:
        self._count(len(lines))
        rows = [self._row(texts[nth].as_py()) for nth in lines]
        return self._batch([row for row in rows if row is not None])

    def _row(self, line: str) -> list[Any] | None:
        row, is_bad = self._parser.parse(line)
        if is_bad and self._mode == FAILFAST:
            raise modes.malformed(line.encode())
        if is_bad and self._mode == DROPMALFORMED:
            return None
        if self._corrupt >= 0:
            row.insert(self._corrupt, line if is_bad else None)
        return row

    def _batch(self, rows: list[list[Any]]) -> pa.RecordBatch:
        columns: list[Any] = [pa.array([row[nth] for row in rows], one.type) for nth, one in enumerate(self.schema)]
        if not columns:
            return pa.RecordBatch.from_struct_array(pa.array([{}] * len(rows), pa.struct([])))
        return pa.record_batch(columns, schema=self.schema)

    def _count(self, lines: int) -> None:
        reason = "they are malformed, or they have escapes or values in other forms than their columns"
        self._slow_lines.add(lines, reason)


def column_names(first: bytes, form: CsvFormat) -> list[str]:
    """The names of the columns, given the first line that is not blank: its fields, or ``_c0``, ``_c1`` and so on.

    As in Spark, a name that is empty is replaced, and names that are there twice get their number.
    """
    found = fields(_readable(first.removeprefix(MARK)).decode(), form)
    if not form.header:
        return [f"_c{nth}" for nth in range(len(found))]
    given = [None if one == form.null_value else one for one in found]
    known = [one.lower() for one in given if one]
    names = []
    for nth, one in enumerate(given):
        if not one:
            names.append(f"_c{nth}")
        else:
            names.append(f"{one}{nth}" if known.count(one.lower()) > 1 else one)
    return names


def body(block: Lines, starts: Sequence[int], form: CsvFormat) -> tuple[Lines, Sequence[int]]:
    """The first lines of a segment without the mark and the header, and where these lines start in the segment."""
    data, at, end = block
    if data.startswith(MARK, at):
        at += len(MARK)
    if not form.header:
        return Lines(data, at, end), starts
    while at < end and not data[at : data.find(FEED, at, end) + 1 or end].strip(_BLANKS):
        at = data.find(FEED, at, end) + 1 or end
    at = data.find(FEED, at, end) + 1 or end
    return Lines(data, at, end), starts[data.count(FEED, block.start, at) :]


def _readable(data: bytes) -> bytes:
    """The data with U+FFFD where it is no UTF-8, as Spark decodes lines."""
    if data.isascii():
        return data
    try:
        str(data, "utf-8")
    except UnicodeDecodeError:
        return data.decode(errors="replace").encode()
    return data


def _joined(texts: pa.Array) -> bytes:
    if not len(texts):
        return b""
    joined = pc.binary_join(pa.LargeListArray.from_arrays([0, len(texts)], texts), "\n")
    whole: bytes = joined[0].as_buffer().to_pybytes() + FEED
    return whole


def _sound_line(form: CsvFormat, count: int) -> str | None:
    """The pattern of a line that Arrow and Spark cut alike; None if it would be too long."""
    if count > REPEATS_MAX or not count:
        return None
    quote, sep = re.escape(form.quote), re.escape(form.sep)
    inner = rf"[^{quote}]|{quote}{quote}" if form.quote == form.escape else rf"[^{quote}{re.escape(form.escape)}]"
    # quotes around nothing are an empty text, which Arrow does not tell from null
    many = "*" if form.null_value == "" else "+"
    field = rf"(?:[^{quote}{sep}]*|{quote}(?:{inner}){many}{quote})"
    return rf"^{field}(?:{sep}{field}){{{count - 1}}}$"


def _converted(texts: pa.Array, field: pa.Field, zone: tzinfo) -> text_columns.Marked:
    """A column of text in its type, and the rows that must be read one by one."""
    kind = field.type
    if pt.is_string(kind):
        return texts, None
    if pt.is_binary(kind):
        return texts.cast(pa.binary()), None
    if pt.is_date32(kind):
        return text_columns.dates(texts)
    if pt.is_timestamp(kind):
        return text_columns.timestamps(texts, kind, zone)
    tests = {"integer": pt.is_integer, "float": pt.is_floating, "decimal": pt.is_decimal, "boolean": pt.is_boolean}
    [form] = [name for name, test in tests.items() if test(kind)]
    texts, mark = text_columns.matching(texts, _FORMS[form])
    try:
        return _cast(texts, kind, mark)
    except (pa.ArrowInvalid, text_columns.InnerValueError):
        found, more = text_columns.one_by_one(texts, kind, csv_values.parser(kind, zone, field.name))
        return found, text_columns.either([one for one in (mark, more) if one is not None])


def _cast(texts: pa.Array, kind: pa.DataType, mark: pa.Array | None) -> text_columns.Marked:
    if pt.is_boolean(kind):
        return pc.equal(pc.ascii_lower(texts), "true"), mark
    if pt.is_decimal(kind):
        found, more = text_columns.decimals(_decimals(texts, kind), kind)
        return found, text_columns.either([one for one in (mark, more) if one is not None])
    if pt.is_integer(kind):
        texts = pc.replace_substring_regex(texts, r"^\+", "") if pc.any(pc.starts_with(texts, "+")).as_py() else texts
    return texts.cast(kind), mark


def _decimals(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Texts as decimals with all their digits, in the fastest type that has room for them."""
    for raw in decimal_columns.raw_types(kind)[:-1]:
        before = decimal_columns.DIGITS_MAX - raw.scale + 1
        if not pc.any(pc.match_substring_regex(texts, rf"^-?\d{{{before}}}|\.\d{{{raw.scale + 1}}}")).as_py():
            return texts.cast(pa.decimal128(decimal_columns.DIGITS_MAX, raw.scale))
    return texts.cast(_WIDE)
