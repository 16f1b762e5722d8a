"""JSON maps and decimals at Arrow's speed, without a session: they are the rows of the exact reader, line by line."""

from __future__ import annotations

import json
from datetime import UTC
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.servers import require_module

require_module("pyarrow")
require_module("pyspark")

import pyarrow as pa

from rollingfs.spark.source import csv_values, csvlines, json_keys, jsonlines, lines, odd_lines, row_replacement
from rollingfs.spark.source.csv_tokens import CsvFormat
from rollingfs.spark.source.json_keys import KEYS_MAX, MapKeys
from rollingfs.spark.source.json_values import LineParser
from rollingfs.spark.source.numbered_lines import NumberedLines

STAMP = pa.timestamp("us", "UTC")


def exactly(many: list[bytes], schema: pa.Schema) -> list[Any]:
    """The rows of lines that the exact reader gives."""
    parser = LineParser(schema, UTC)
    rows = [row for line in many for row in parser.parse(line)[0] or [[None] * len(schema)]]
    columns = [pa.array([row[nth] for row in rows], one.type) for nth, one in enumerate(schema)]
    return pa.table(columns, schema=schema).to_pylist()


def read(reader: jsonlines.Reader, many: list[bytes]) -> list[Any]:
    data = b"\n".join([*many, b""])
    batches = reader.read(lines.Lines(data, 0, len(data)))
    for batch in batches:
        batch.validate(full=True)
    return [row for batch in batches for row in batch.to_pylist()]


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The lines that were read one by one."""
    found: list[bytes] = []
    parse = LineParser.parse
    monkeypatch.setattr(LineParser, "parse", lambda self, line: found.append(line) or parse(self, line))
    return found


KEYS = st.sampled_from(["a", "ab", "b", "", "é", "n", "m", "null", "\\u0061", "\\udc00", "a\\n", "}", "a b"])
ITEMS = st.sampled_from(
    ["1", "2", '"x"', '"2024-01-01T00:00:00Z"', '"}"', '"\\"a\\":1"', '"\\\\"', "1.25", "true", "null"]
)
BLANK = st.sampled_from(["", "", " ", "\t"])
SCALARS = [pa.int32(), pa.string(), pa.float64(), pa.decimal128(5, 1), STAMP, pa.bool_(), pa.binary()]


@st.composite
def a_map(draw: Any) -> str:
    entries = draw(st.lists(st.tuples(KEYS, ITEMS), max_size=4))
    between = [draw(BLANK) for _ in range(4)]
    text = ",".join(f'{between[0]}"{key}"{between[1]}:{between[2]}{item}{between[3]}' for key, item in entries)
    return f"{{{text}}}"


MAPS = st.one_of(a_map(), st.sampled_from(["null", "{}", "{ }", "5", "[]", '"m"', '{"a":{"b":1}}', '{"a":1,}']))
NAMES = st.sampled_from(['"m"', '"m" ', '"\\u006d"', '"\\u006D"', '"x\\"m"', '"o"'])


@st.composite
def a_line(draw: Any) -> str:
    fields = draw(st.lists(st.tuples(NAMES, MAPS), max_size=2))
    inner = draw(
        st.sampled_from(["", '"z":{"m":{"a":1}}', '"s":"m"', '"s":5', '"s":"\\"m\\":{"', '"i":{"j":{"b":1,"a":2}}'])
    )
    return "{" + ",".join([f"{name}:{value}" for name, value in fields] + [inner] * bool(inner)) + "}"


@given(
    st.lists(st.lists(a_line(), min_size=1, max_size=20), min_size=2, max_size=3), st.sampled_from(SCALARS), st.data()
)
def test_blocks_with_maps_of_any_keys_give_the_rows_of_the_exact_reader(blocks, kind, data):
    schema = pa.schema(
        {"m": pa.map_(pa.string(), kind), "s": pa.string(), "i": pa.struct([("j", pa.map_(pa.string(), kind))])}
    )
    reader = jsonlines.Reader(schema)
    for block in blocks:
        # sound lines around the odd ones, so that these are few, and Arrow reads the others
        values = (*_two(kind), "null") if data.draw(st.booleans()) else _two(kind)
        sound = [f'{{"m":{{"a":{value},"ab":{value}}}}}' for value in values] * 30
        many = [line.encode() for line in [*sound, *block, *sound]]
        assert str(read(reader, many)) == str(exactly(many, schema))
        assert str(read(reader, many[len(sound) : -len(sound)])) == str(exactly(many[len(sound) : -len(sound)], schema))


def _two(kind: pa.DataType) -> tuple[str, str]:
    if kind in (pa.string(), pa.binary()):
        return '"abcd"', '"{}:\\\\"' if kind == pa.string() else '""'
    if kind == pa.bool_():
        return "true", "false"
    return ('"2024-01-01T00:00:00Z"',) * 2 if kind == STAMP else ("1", "22")


@pytest.mark.parametrize(
    "line",
    [
        b'{"m":{"a":1,"b":2}}',
        b'{"m" : { "a" : 1 , "b" : 2 } , "s" : "}{\\"\\u00e9"}',
        b'{"m":{"b":2}}',
        b'{"m":{}}',
        b'{"m":null,"s":"m"}',
        b"{}",
    ],
)
def test_maps_with_few_keys_in_one_order_are_objects_to_arrow(slow, line):
    schema = pa.schema({"m": pa.map_(pa.string(), pa.int32()), "s": pa.string()})
    many = [line, b'{"m":{"a":5,"b":6}}'] * 50
    expected = exactly(many, schema)
    slow.clear()
    reader = jsonlines.Reader(schema)
    assert read(reader, many) == expected
    assert slow == []
    assert not reader._adaptation.has_lists


def test_maps_of_which_some_values_are_null_are_objects_to_arrow_if_no_key_is_missing(slow):
    schema = pa.schema({"m": pa.map_(pa.string(), pa.int32())})
    many = [b'{"m":{"a":null,"b":2}}', b'{"m": {"a": 1, "b": null} }', b'{"m":null}', b"{}"] * 50
    for one in (b'{"m":{"a":1}}', b'{"m":{}}', b'{"m":{"b":2}}', b'{"m":{"a":1,"b":2}}'):
        expected = exactly([*many, one], schema)
        slow.clear()
        reader = jsonlines.Reader(schema)
        assert read(reader, [*many, one]) == expected
        assert slow == [one] * (one.count(b":") < 3)
        assert not reader._adaptation.has_lists


@pytest.mark.parametrize(
    "line",
    [
        b'{"m":{"b":1,"a":2}}',
        b'{"m":{"a":1,"a":2}}',
        b'{"m":{"a":null}}',
        b'{"m":{"\\u0061":1}}',
        b'{"\\u006D":{"b":1,"a":2}}',
        b'{"z":{"m":{"b":1,"a":2}}}',
    ],
)
def test_a_map_that_arrow_would_read_otherwise_is_read_by_itself(slow, line):
    schema = pa.schema({"m": pa.map_(pa.string(), pa.int32())})
    many = [b'{"m":{"a":5,"b":6}}'] * 99 + [line]
    expected = exactly(many, schema)
    slow.clear()
    assert read(jsonlines.Reader(schema), many) == expected
    assert slow == [line]


def test_new_keys_in_a_later_block_are_learned_and_too_many_are_not(slow):
    schema = pa.schema({"m": pa.map_(pa.string(), pa.int32())})
    reader = jsonlines.Reader(schema)
    for first in (0, 5):
        assert read(reader, many := [b'{"m":{"k%d":%d}}' % (first + nth % 10, nth) for nth in range(200)])
        assert not reader._adaptation.has_lists
    assert read(reader, many := [b'{"m":{"k%d":%d}}' % (nth, nth) for nth in range(KEYS_MAX + 1)]) == [
        {"m": [(f"k{nth}", nth)]} for nth in range(len(many))
    ]
    assert reader._adaptation.has_lists
    assert slow == []


@pytest.mark.parametrize("names", ["abcdefghijkl", "lakbjcidhegf"])
def test_the_order_of_keys_is_found_where_each_map_has_few_of_them(slow, names):
    schema = pa.schema({"m": pa.map_(pa.string(), pa.int32())})
    lines = [
        json.dumps({"m": {name: nth for at, name in enumerate(names) if (nth * 7919) >> at & 1}}).encode()
        for nth in range(1000)
    ]
    expected = exactly(lines, schema)
    slow.clear()
    reader = jsonlines.Reader(schema)
    assert read(reader, lines) == expected
    assert len(slow) <= 125
    assert not reader._adaptation.has_lists


def test_keys_too_long_for_a_pattern_are_read_in_another_way():
    schema = pa.schema({"m": pa.map_(pa.string(), pa.int32())})
    for letters in (30, 150, 2000, 30_000):
        many = [b'{"m":{"%s":1,"%s":2}}' % (b"a" * letters, bytes([98 + nth % 20]) * letters) for nth in range(60)]
        assert read(jsonlines.Reader(schema), many) == exactly(many, schema)


def test_maps_in_any_order_are_tried_as_objects_in_few_blocks_only(monkeypatch):
    keys = MapKeys(["m"])
    block = NumberedLines(b'{"m":{"a":1,"b":2}}\n{"m":{"b":1,"a":2}}\n' * 50)
    for is_possible in [True] * (json_keys.FAILURES_MAX - 1) + [False]:
        assert keys.unfit(block) is None
        assert keys.is_possible is is_possible


def test_of_many_bad_lines_beside_maps_only_these_are_read_one_by_one(slow):
    schema = pa.schema({"m": pa.map_(pa.string(), pa.string()), "n": pa.int32()})
    many = [
        b'{"m":{"a":"}{\\""},"n":1}',
        b'{"m":{"a":"x"},"n":2}',
        b'{"m":{"a":"x"},"n":"bad"}',
        b'{"m":{"a":5}}',
    ] * 100
    expected = exactly(many, schema)
    slow.clear()
    reader = jsonlines.Reader(schema)
    for count in (1, 2):
        assert read(reader, many) == expected
        assert slow == many[2:4] * 100 * count
    assert not reader._adaptation.has_lists


def test_rare_maps_with_many_keys_do_not_take_a_cell_for_each_row_and_key(slow):
    schema = pa.schema({"m": pa.map_(pa.string(), pa.int32()), "n": pa.int32()})
    rare = [b'{"m":{"k%d":%d}}' % (nth, nth) for nth in range(KEYS_MAX)] + [b'{"n":5}'] * 300
    dense = [b'{"m":{%s}}' % b",".join(b'"k%d":%d' % (nth, nth) for nth in range(10))] * 9
    expected = [exactly(many, schema) for many in (rare, dense)]
    slow.clear()
    reader = jsonlines.Reader(schema)
    for many, rows, has_lists in zip((rare, dense), expected, (True, False), strict=True):
        assert read(reader, many) == rows
        assert reader._adaptation.has_lists is has_lists
    assert slow == []


def test_a_text_column_with_numbers_does_not_put_the_values_of_a_map_in_quotes():
    schema = pa.schema({"m": pa.map_(pa.string(), pa.binary()), "s": pa.string()})
    many = [b'{"s":5,"m":{"s":"abcd"}}', b'{"s":5,"m":{"s":1234}}'] * 20
    for block in (many, many[:1] * 20, [b'{"s":5}'] * 20 + many):
        reader = jsonlines.Reader(schema)
        for one in (many[:1], [b'{"s":5}'] * 4, block):
            assert read(reader, one) == exactly(one, schema)


def test_numbers_get_quotes_only_behind_the_name_of_their_text_column(slow):
    schema = pa.schema({"s": pa.string(), 'b"s': pa.binary(), "n": pa.int32()})
    sound = [b'{"s":"a","n":1}', b'{"s" : -1.50e3 , "n":2}', b'{"n":3,"s":true}', b'{"s":"\\"s\\":5,"}']
    for odd in ([], [b'{"b\\"s":1234,"s":5}'], [b'{"s":01}', b'{"s":5x,"n":1}', b'{"s":1,"s":2}']):
        many = sound * 50 + odd
        expected = exactly(many, schema)
        slow.clear()
        assert read(jsonlines.Reader(schema), many) == expected
        assert set(slow) == set(odd)


@pytest.mark.parametrize("kind", [pa.date32(), STAMP, pa.string(), pa.map_(pa.string(), pa.date32())])
def test_a_line_that_is_not_utf8_never_reaches_arrow(slow, kind):
    schema = pa.schema({"d": kind})
    value = (
        b'{"a":"2024-01-01"}'
        if pa.types.is_map(kind)
        else b'"2024-01-01 10:00:00"'
        if kind == STAMP
        else b'"2024-01-01"'
    )
    many = [b'{"d":%s}' % value] * 99 + [b'{"d":%s}' % value.replace(b"4", b"4\x80")]
    expected = exactly(many, schema)
    slow.clear()
    assert read(jsonlines.Reader(schema), many) == expected
    assert slow == many[-1:]


# -- decimals ----------------------------------------------------------------------------------------------------

DECIMALS = [
    pa.decimal128(*one) for one in [(5, 2), (10, 2), (12, 2), (20, 10), (30, 2), (38, 0), (38, 18), (38, 30), (38, 38)]
]
NUMBERS = st.builds(
    "{}{}{}{}".format,
    st.sampled_from(["", "-"]),
    st.integers(0, 10**40).map(lambda one: str(one)[: one % 41 + 1].lstrip("0") or "0"),
    st.one_of(st.just(""), st.text("0123456789", min_size=1, max_size=40).map(".{}".format)),
    st.sampled_from(["", "", "", "e5", "E-7", "e+20", "e-38"]),
)


@given(st.lists(NUMBERS, min_size=1, max_size=12), st.sampled_from(DECIMALS))
@example(["700000000"], pa.decimal128(38, 30))
@example(["99.995", "0.5"], pa.decimal128(4, 2))
@example(["1" + "0" * 50, "1.255"], pa.decimal128(5, 2))
def test_decimals_of_any_length_are_those_of_the_exact_reader(numbers, kind):
    schema = pa.schema({"p": kind})
    many = [b'{"p":%s}' % one.encode() for one in numbers]
    reader = jsonlines.Reader(schema)
    for block in (many, [b'{"p":0.001}'] * 3 + many, [*many, b'{"p":0}']):
        assert read(reader, block) == exactly(block, schema)


@given(st.lists(NUMBERS, min_size=1, max_size=12), st.sampled_from(DECIMALS))
@example(["700000000"], pa.decimal128(38, 30))
@example(["99.995", "-0.5"], pa.decimal128(4, 2))
@example(["9" * 30 + "." + "9" * 30, "9" * 28, "1.255"], pa.decimal128(10, 2))
def test_decimals_of_any_length_are_those_of_the_exact_reader_of_csv(numbers, kind):
    exact = csv_values.parser(kind, UTC, "p")
    data = "".join(f"{one}\n" for one in numbers).encode()
    batch = csvlines.CsvReader(pa.schema({"p": kind}), CsvFormat()).read(
        lines.Lines(data, 0, len(data)), is_first=False
    )
    assert batch.column("p").to_pylist() == [exact(one) for one in numbers]


# -- lines and rows ----------------------------------------------------------------------------------------------


@given(
    st.lists(st.sampled_from([b"", b"5", b"{}", b'{"n":1}', b"\xff\xfe", "é".encode()]), min_size=1, max_size=8),
    st.data(),
)
def test_lines_are_found_by_their_numbers(many, data):
    block = NumberedLines(b"".join(line + b"\n" for line in many))
    numbers = data.draw(st.sets(st.integers(0, len(many) - 1)))
    blanked = [b"{}" if nth in numbers else line for nth, line in enumerate(many)]
    assert [line.rstrip(b" ") for line in block.blanked(numbers).split(b"\n")[:-1]] == blanked
    assert [block.line(nth) for nth in range(len(many))] == many
    first, last = sorted(data.draw(st.tuples(*[st.integers(0, len(many))] * 2)))
    assert bytes(block.part(first, last)) == b"".join(line + b"\n" for line in many[first:last])


class Watched(bytes):
    """Bytes that know over how many of them lines were counted."""

    counted = 0

    def count(self, sub: Any, start: Any = 0, end: Any = None, /) -> int:
        end = len(self) if end is None else end
        self.counted += end - start
        return super().count(sub, start, end)


def test_lines_that_may_be_null_are_numbered_in_one_pass():
    many = [b"null", b"{}", b" no", b"\xef\xbb\xbfnull", b"5", b"", b"n"] * 100
    data = Watched(b"\n".join([*many, b""]))
    assert odd_lines.nulls(data) == {nth for nth, line in enumerate(many) if b"n" in line}
    assert data.counted <= len(data)


CELLS = st.fixed_dictionaries(
    {
        "n": st.none() | st.integers(0, 9),
        "s": st.none() | st.text("ab", max_size=2),
        "l": st.none() | st.lists(st.integers(0, 2), max_size=2),
        "p": st.none() | st.decimals(0, 9, places=1),
        "t": st.none() | st.datetimes(timezones=st.just(UTC)),
        "b": st.none() | st.booleans(),
    }
)
ROW_SCHEMA = pa.schema(
    {"n": pa.int8(), "s": pa.string(), "l": pa.list_(pa.int8()), "p": pa.decimal128(3, 1), "t": STAMP, "b": pa.bool_()}
)


@given(st.lists(CELLS, min_size=1, max_size=6), st.data())
def test_rows_are_replaced_by_none_one_or_more(rows, data):
    counts_of = data.draw(st.sampled_from([st.just(0), st.just(1), st.integers(0, 2)]))
    numbers = sorted(data.draw(st.sets(st.integers(0, len(rows) - 1))))
    found = {nth: data.draw(st.lists(CELLS, min_size=0, max_size=2)) for nth in numbers}
    found = {nth: (some + rows)[: data.draw(counts_of)] for nth, some in found.items()}
    instead = [row for nth in numbers for row in found[nth]]
    counts = [len(found[nth]) for nth in numbers]
    batches = [pa.RecordBatch.from_pylist(some, ROW_SCHEMA) for some in (rows, instead)]
    result = row_replacement.replaced(batches[0], numbers, counts, batches[1])
    result.validate(full=True)
    assert result.to_pylist() == [one for nth, row in enumerate(rows) for one in found.get(nth, [row])]
