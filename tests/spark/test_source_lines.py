"""JSON and CSV lines, compressed or not, without a session: Arrow's way and the exact way give the same rows."""

from __future__ import annotations

import bz2
import gzip
import json
import logging
import lzma
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.servers import require_module
from tests.support.spark import Task
from tests.support.spark import given as options_given

require_module("pyarrow")
require_module("pyspark")

import pyarrow as pa
import pyarrow.json as pj
from pyspark.sql.types import StructType

from rollingfs.spark.source import (
    compression,
    csv_writer,
    csvlines,
    json_schema,
    json_writer,
    jsonlines,
    lines,
    metadata,
    slow_lines,
    times,
)
from rollingfs.spark.source.batch_reader import RollingReader
from rollingfs.spark.source.batch_writer import RollingWriter
from rollingfs.spark.source.compression import CompressedError
from rollingfs.spark.source.csv_tokens import CsvFormat, fields
from rollingfs.spark.source.csv_writer import UnwritableValueError
from rollingfs.spark.source.inference import infer_schema
from rollingfs.spark.source.json_scalars import UnsupportedTypeError
from rollingfs.spark.source.json_sieve import Sieve
from rollingfs.spark.source.json_values import LineParser
from rollingfs.spark.source.modes import DROPMALFORMED, FAILFAST, PERMISSIVE, MalformedRecordError
from rollingfs.spark.source.options import parse_options
from rollingfs.spark.source.segment_commit import SegmentCommit

STAMP, LOCAL = pa.timestamp("us", "UTC"), pa.timestamp("us")


def lines_in(data: bytes) -> lines.Lines:
    return lines.normalized(data, len(data))


def json_table(data: bytes, schema: pa.Schema, **options: Any) -> list[dict[str, Any]]:
    found = []
    for batch in jsonlines.Reader(schema, **options).read(lines_in(data)):
        assert batch.schema.equals(schema)
        batch.validate(full=True)
        found += batch.to_pylist()
    return found


def csv_table(data: bytes, schema: pa.Schema, form: CsvFormat | None = None, **options: Any) -> list[dict[str, Any]]:
    is_first = options.pop("is_first", False)
    batch = csvlines.CsvReader(schema, form or CsvFormat(), **options).read(lines_in(data), is_first=is_first)
    batch.validate(full=True)
    rows: list[dict[str, Any]] = batch.to_pylist()
    return rows


# -- JSON --------------------------------------------------------------------------------------------------------

SCHEMA = pa.schema(
    {
        "n": pa.int32(),
        "s": pa.string(),
        "d": pa.float64(),
        "p": pa.decimal128(5, 2),
        "dt": pa.date32(),
        "t": STAMP,
        "tn": LOCAL,
        "o": pa.struct([("x", pa.int32()), ("d", pa.date32())]),
        "a": pa.list_(STAMP),
        "_corrupt_record": pa.string(),
    }
)
MAPS = pa.schema(
    [
        *SCHEMA,
        pa.field("m", pa.map_(pa.string(), pa.int32())),
        pa.field("e.é", pa.map_(pa.string(), pa.string())),
        pa.field(
            "in", pa.struct([("mt", pa.map_(pa.string(), STAMP)), ("mp", pa.map_(pa.string(), pa.decimal128(5, 2)))])
        ),
    ]
)
VALUES = {
    "n": [1, "x", 1.5, 2**40, None, True],
    "s": ["a", 1.5, True, {"k": [1]}, None],
    "d": [1.5, 2, "NaN", float("nan"), "x"],
    "p": [1.25, 1.255, 12345, "3.1", "x"],
    "dt": ["2024-02-29", "2023-02-29", "2024-1-2", 5],
    "t": ["2024-01-01T00:00:00Z", "2024-07-01 10:00:00", "2024", 5, "x", "1969-12-31T23:59:59.9999999Z"],
    "tn": ["2024-01-01T00:00:00.5", "2024-01-01T00:00:00Z"],
    "o": [{"x": 1, "d": "2024-01-01"}, {"x": "q"}, {"d": "no"}, 3, None],
    "a": [["2024-01-01T00:00:00Z", None], [], ["x"], ["2024"], 1],
    "m": [{"k": 1, "l": None}, {}, {"k": "x"}, {"k": 1.5}, [{"_map_key": "k", "_map_value": 1}], None, 5],
    "e.é": [{"k": "v, w", "": ""}, {":": ":,", ",é": "a b"}, {"{": "}"}, {'"': "\\"}, {"k": 5}, {"k": [1]}, "x"],
    "in": [
        {"mt": {"k": "2024-01-01T00:00:00Z", "l": "2024"}, "mp": {"k": 1.25}},
        {"mt": {"k": "x"}},
        {"mt": {"k": 5}, "mp": {"k": 1.255}},
        {"mp": {"k": 1e9}, "m": {"k": 1}},
    ],
    "zz": [{"m": {"k": 1}}, {"m": 1}, [1, "m"], '"m":{}', {"a": [1]}],
}
JSON_LINES = st.lists(
    st.one_of(
        st.fixed_dictionaries({}, optional={name: st.sampled_from(some) for name, some in VALUES.items()}).map(
            json.dumps
        ),
        st.sampled_from(["", " ", "null", "[]", '[{"n":1},{"n":"x"}]', "no", '{"n":1} 2', '{"n":1', "{'n':1}", "5"]),
    ),
    max_size=30,
)


MODES = st.sampled_from([PERMISSIVE, DROPMALFORMED])
ZONES = st.sampled_from([UTC, ZoneInfo("Europe/Berlin")])


@given(JSON_LINES, st.sampled_from([SCHEMA, MAPS]), MODES, ZONES)
def test_a_block_of_json_gives_the_rows_that_its_lines_give_one_by_one(many, schema, mode, zone):
    data = "\n".join(many).encode()
    one_by_one = [row for line in many for row in json_table(line.encode(), schema, zone=zone, mode=mode)]
    exact = []
    at = schema.get_field_index("_corrupt_record")
    parser = LineParser(schema.remove(at), zone)
    for line in many:
        rows, is_bad = parser.parse(line.encode())
        if not is_bad or mode == PERMISSIVE:
            for row in rows or [[None] * (len(schema) - 1)] * is_bad:
                row.insert(at, line if is_bad else None)
                exact.append(row)
    table = pa.table([pa.array([row[nth] for row in exact], one.type) for nth, one in enumerate(schema)], schema=schema)
    assert str(json_table(data, schema, zone=zone, mode=mode)) == str(one_by_one) == str(table.to_pylist())


@pytest.mark.parametrize(
    "data",
    [
        b'{"n":1}{"n":2}\n{"n":3\n}\n',
        b'{"n":1} {"n":2}\t{"n":9}\n{"n":3,\n"s":"x"\n}\n{"n":4}\n',
        b'{"n":1\n} {"n":2}\n',
        b'{"n":1}{"n":2}\n\0}\n',
        b'{"n":1}{"n":2}\n{"n":3}\0}\n{"n":4}\n',
    ],
)
def test_as_many_values_as_lines_are_no_rows_where_a_value_goes_over_the_end_of_its_line(data):
    one_by_one = [row for line in data.split(b"\n") for row in json_table(line, SCHEMA)]
    assert str(json_table(data, SCHEMA)) == str(one_by_one)


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32(), pa.decimal128(5, 2), pa.date32(), STAMP, pa.int8()])
@pytest.mark.parametrize("value", ["true", "false"])
def test_a_truth_is_malformed_in_a_column_of_another_type(kind, value):
    schema = pa.schema([("v", kind), ("_corrupt_record", pa.string())])
    line = f'{{"v":{value}}}'
    assert json_table(line.encode(), schema) == [{"v": None, "_corrupt_record": line}]


@pytest.mark.parametrize("kind", [pa.decimal128(38, 0), pa.decimal128(38, 10), pa.decimal128(30, 2)])
def test_the_largest_decimal_of_a_column_fits_it(kind):
    digits = "9" * (kind.precision - kind.scale) + ("." + "9" * kind.scale if kind.scale else "")
    line = f'{{"v":{digits}}}'.encode()
    schema = pa.schema([("v", kind)])
    assert LineParser(schema, UTC).parse(line) == ([[Decimal(digits)]], False)
    assert json_table(line, schema) == [{"v": Decimal(digits)}]


def test_lines_that_arrow_refuses_are_found_at_once_and_only_they_are_read_one_by_one(monkeypatch):
    slow: list[bytes] = []
    parse = LineParser.parse
    monkeypatch.setattr(LineParser, "parse", lambda self, line: slow.append(line) or parse(self, line))
    reads: list[int] = []
    read_json = pj.read_json
    monkeypatch.setattr(pj, "read_json", lambda *args: reads.append(1) or read_json(*args))
    many = [b'{"n": %d, "s": "\\u00e9", "zz": {"a": [], "n": 1}}' % nth for nth in range(2000)]
    bad = [b'{"n": "x"}', b'{"n": 1', b"null", b'{"d": 1e', b'{"o": {"x": 1.5}}', b'{"n": 99999999999}']
    many[::100] = [bad[nth % len(bad)] for nth in range(20)]
    reader = jsonlines.Reader(SCHEMA)
    for count in (2, 3):  # the first block is refused once; the next is looked at before
        [batch] = reader.read(lines_in(b"\n".join(many)))
        assert batch.column("n").to_pylist() == [None if nth % 100 == 0 else nth for nth in range(2000)]
        assert len(reads) == count
        assert slow == many[::100]
        slow.clear()


def test_a_pattern_that_fits_few_lines_leaves_the_lines_to_arrow(monkeypatch):
    slow: list[bytes] = []
    parse = LineParser.parse
    monkeypatch.setattr(LineParser, "parse", lambda self, line: slow.append(line) or parse(self, line))
    many = [b'{"n": %d, "zz": {"a": {"b": {"c": 1}}}}' % nth for nth in range(2000)]
    many[500] = many[1500] = b'{"n": "x"}'
    rows = json_table(b"\n".join(many), SCHEMA)
    assert [row["n"] for row in rows] == [None if nth in (500, 1500) else nth for nth in range(2000)]
    assert slow == [many[500]] * 2


@pytest.mark.parametrize("kind", [pa.int64(), pa.string(), pa.date32(), STAMP, pa.float64()])
def test_maps_are_read_by_arrow(monkeypatch, kind):
    slow: list[bytes] = []
    parse = LineParser.parse
    monkeypatch.setattr(LineParser, "parse", lambda self, line: slow.append(line) or parse(self, line))
    value = {pa.int64(): "5", pa.float64(): "1.5"}.get(kind, '"2024-01-01"')
    many = [b'{"m" : { "k, :": %s ,"": null}, "s": "\\"m\\": {}"}' % value.encode(), b'{"m":{}}', b'{"m": null}', b"{}"]
    schema = pa.schema({"m": pa.map_(pa.string(), kind), "s": pa.string()})
    found = json_table(b"\n".join(many * 100), schema)
    # texts of a day alone are no times for Arrow
    assert slow == ([many[0]] * 100 if kind == STAMP else [])
    slow.clear()
    assert found == [row for line in many for row in json_table(line + b"\n{", schema)[:1]] * 100
    assert [len(row["m"] or ()) for row in found[:4]] == [2, 0, 0, 0]
    assert found[2]["m"] is None
    escaped = b'{"m":{"\\u006b":%s}}' % value.encode()
    assert json_table(b"\n".join([*many, escaped]), schema)[-1]["m"][0][0] == "k"
    assert escaped in slow


NAMES = st.lists(st.text(st.sampled_from('ab"é.\\{]'), max_size=3), min_size=1, max_size=5, unique=True)


@given(NAMES, NAMES)
@example(["\\\\\\"], ["\\"])
def test_the_pattern_of_a_schema_fits_its_names_and_no_others_value(names, others):
    """A value of a name of the schema has its type; one of another name may be anything."""
    sieve = Sieve(pa.schema({name: pa.int32() for name in names}))
    lines = [json.dumps({name: "text"}, ensure_ascii=False) for name in others]
    doubtful = sieve.doubtful(pa.array(lines))
    assert doubtful == [nth for nth, one in enumerate(others) if one in names or '"' in one or "\\" in one]
    whole = json.dumps(dict.fromkeys(names, 1), ensure_ascii=False)
    assert sieve.doubtful(pa.array([whole])) == ([0] if any('"' in one or "\\" in one for one in names) else [])


def test_one_bad_line_leaves_all_others_to_arrow(monkeypatch):
    slow: list[bytes] = []
    parse = LineParser.parse
    monkeypatch.setattr(LineParser, "parse", lambda self, line: slow.append(line) or parse(self, line))
    many = [b'{"n": %d, "dt": "2024-01-01", "p": 1.5}' % nth for nth in range(5000)]
    many[700], many[3000] = b'{"n": 1, "dt": "2024-1-1"}', b'{"n": "x"}'
    rows = json_table(b"\n".join(many), SCHEMA)
    assert [row["n"] for row in rows] == [None if nth == 3000 else 1 if nth == 700 else nth for nth in range(5000)]
    assert slow == [many[3000]]


@pytest.mark.parametrize(
    ("kind", "first", "more"),
    [(pa.string(), '"a"', "1.50"), (STAMP, '"2024-01-01"', "5"), (pa.decimal128(5, 2), "1.25", "1.255")],
)
def test_a_column_whose_values_have_another_form_is_still_read_by_arrow(monkeypatch, kind, first, more):
    schema = pa.schema({"x": kind})
    expected = json_table(b"\n".join(b'{"x":%s}' % one.encode() for one in (first, more)), schema)
    slow: list[bytes] = []
    parse = LineParser.parse
    monkeypatch.setattr(LineParser, "parse", lambda self, line: slow.append(line) or parse(self, line))
    assert json_table(b'{"x":%s}\n' % more.encode() * 1000, schema) == expected[1:] * 1000
    assert slow == []


def test_a_line_that_is_null_never_reaches_arrow_which_crashes_at_it():
    schema = pa.schema({"o": pa.struct([("x", pa.int32())]), "_corrupt_record": pa.string()})
    for data in (b"null", b"null\n" * 3, b'{"o":{"x":1}}\n\xef\xbb\xbfnull', b" null\n{}"):
        texts = [row["_corrupt_record"] for row in json_table(data, schema)]
        assert all(text is None or "null" in text for text in texts)
        assert any(texts)


def test_a_task_that_reads_many_lines_one_by_one_says_so(caplog, monkeypatch):
    monkeypatch.setattr(slow_lines, "SLOW_LINES_WARNED", 10)
    with caplog.at_level(logging.WARNING):
        json_table(b'{"m":[{"a":1}]}\n' * 20, pa.schema({"m": pa.list_(pa.map_(pa.string(), pa.int64()))}))
    assert "20 lines of JSON had to be read one by one" in caplog.text
    assert "a map of nested values, in a list" in caplog.text


def test_a_map_beside_very_many_columns_is_read_one_by_one_and_the_log_says_why(caplog, monkeypatch):
    monkeypatch.setattr(slow_lines, "SLOW_LINES_WARNED", 10)
    wide = {f"a column with a rather long name, number {nth}": pa.int32() for nth in range(300)}
    for schema in (pa.schema({"m": pa.map_(pa.string(), pa.int32()), **wide}), pa.schema({"m" * 300: pa.int32()})):
        assert not Sieve(schema).is_possible
        assert Sieve(schema).doubtful(pa.array(["{}"])) is None
    with caplog.at_level(logging.WARNING):
        schema = pa.schema({"m": pa.map_(pa.string(), pa.int32()), **wide})
        found = json_table(b'{"m":{"a":1,"b":2}}\n{"m":{"b":2,"a":1}}\n' * 10, schema)
    assert [row["m"] for row in found] == [[("a", 1), ("b", 2)], [("b", 2), ("a", 1)]] * 10
    assert "a map (m) beside very many columns" in caplog.text


@pytest.mark.parametrize(
    "odd", ['{"m":{"a":1,}}', '{"m":{"a":1 "b":2}}', '{"m":{,"a":1}}', '{"m":{}} {"m":{}}', '{"m":{"a":01}}']
)
def test_a_damaged_map_is_malformed_as_one_by_one(odd):
    schema = pa.schema({"m": pa.map_(pa.string(), pa.int32()), "_corrupt_record": pa.string()})
    one, many = (json_table(f"{odd}\n".encode() * count, schema) for count in (1, 30))
    parser = LineParser(schema.remove(1), UTC)
    rows, is_bad = parser.parse(odd.encode())
    assert [row["_corrupt_record"] for row in one] == [odd if is_bad else None]
    assert [row["m"] for row in one] == [row[0] for row in rows or [[None]]]
    assert many == one * 30


def test_failfast_names_the_record_and_the_way_on():
    with pytest.raises(MalformedRecordError, match=r"mode is FAILFAST: '\{\"n\":\"x\"\}'.*mode=PERMISSIVE"):
        json_table(b'{"n":1}\n{"n":"x"}\n', SCHEMA, mode=FAILFAST)
    with pytest.raises(MalformedRecordError, match="'1,2'"):
        csv_table(b"1\n1,2\n", pa.schema({"n": pa.int32()}), mode=FAILFAST)


def test_a_type_that_json_or_csv_lacks_is_refused_by_the_name_of_its_column():
    for kind in (pa.duration("us"), pa.time64("ns")):
        schema = pa.schema({"x": kind})
        for refuse in (jsonlines.Reader, json_writer.check_schema, csv_writer.check_schema):
            with pytest.raises(UnsupportedTypeError, match="column 'x' is of type"):
                refuse(schema)
    with pytest.raises(UnsupportedTypeError, match="column 'x'"):
        csvlines.CsvReader(pa.schema({"x": pa.list_(pa.int32())}), CsvFormat())


def test_integers_beyond_64_bits_are_inferred_as_decimals_and_mixed_ones_as_the_wider():
    found = json_schema.infer([b'{"a":12345678901234567890,"b":1,"c":1}', b'{"b":123456789012345678901234,"c":1.5}'])
    assert found == pa.schema({"a": pa.decimal128(20, 0), "b": pa.decimal128(24, 0), "c": pa.float64()})


CELLS = {
    "s": st.text(st.characters(codec="utf-8"), max_size=4),
    "n": st.integers(-(2**31), 2**31 - 1),
    "d": st.floats(allow_nan=False),
    "b": st.booleans(),
    "dt": st.dates(),
    "t": st.datetimes(timezones=st.just(UTC)),
    "p": st.decimals(-999, 999, places=2),
}
KINDS = {"s": pa.string(), "n": pa.int32(), "d": pa.float64(), "b": pa.bool_(), "dt": pa.date32(), "t": STAMP}
FLAT = pa.schema({**KINDS, "p": pa.decimal128(5, 2)})
ROWS = st.lists(st.fixed_dictionaries({name: st.none() | cell for name, cell in CELLS.items()}), min_size=1, max_size=8)


@given(ROWS, ROWS)
def test_what_is_written_as_json_is_read_back_the_same(rows, inner):
    struct = pa.struct(list(FLAT))
    columns = [pa.array([row[name] for row in rows], FLAT.field(name).type) for name in FLAT.names]
    columns.append(pa.array([None if nth % 3 == 2 else inner[:nth] for nth in range(len(rows))], pa.list_(struct)))
    columns.append(pa.array([None if nth % 2 else inner[0] for nth in range(len(rows))], struct))
    schema = pa.schema([*FLAT, ("l", pa.list_(struct)), ("o", struct)])
    batch = pa.record_batch(columns, schema=schema)
    for part in (batch, batch.slice(1)):
        data = b"".join(json_writer.encode(iter([part])))
        assert all(isinstance(json.loads(line), dict) for line in data.splitlines())
        assert json_table(data, schema) == part.to_pylist() or not part.num_rows


# -- CSV ---------------------------------------------------------------------------------------------------------


@given(ROWS, st.sampled_from([CsvFormat(), CsvFormat(escape='"'), CsvFormat(sep="1", quote="'", null_value="")]))
def test_what_is_written_as_csv_is_read_back_the_same_but_empty_text_is_null(rows, form):
    for row in rows:
        row["s"] = None if row["s"] is None else "".join(row["s"].splitlines()).replace("\n", "").replace("\r", "")
    batch = pa.record_batch([pa.array([row[n] for row in rows], FLAT.field(n).type) for n in FLAT.names], schema=FLAT)
    data = csv_writer.header(FLAT, form) + b"".join(csv_writer.encode(iter([batch]), form))
    found = csv_table(data, FLAT, CsvFormat(form.sep, form.quote, form.escape, "", header=True), is_first=True)
    assert found == [{**row, "s": row["s"] or None} for row in batch.to_pylist()]
    one = batch.select(["s"])
    assert csv_table(b"".join(csv_writer.encode(iter([one]), form)), one.schema, form) == [
        {"s": row["s"] or None} for row in one.to_pylist()
    ]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ('a,"b,c",', ["a", "b,c", None]),
        ('"a""b",c', ['"a""b"', "c"]),
        ('"a\\"b",""', ['a"b', ""]),
        ('"a" ,"b" x', ["a", '"b" x']),
        ('"a,b', ["a,b"]),
        ('"a"b"c,d",e', ['"a"b"c', 'd"', "e"]),
        ('a"b, "c"', ['a"b', ' "c"']),
    ],
)
def test_quotes_of_csv_end_where_spark_ends_them(line, found):
    assert fields(line, CsvFormat()) == found


def test_a_mark_at_the_start_of_a_block_that_is_not_the_first_stays_a_letter_of_its_line():
    schema = pa.schema({"n": pa.int64(), "s": pa.string()})
    many = [b"\xef\xbb\xbf1,a", b"2,b"]
    together = csv_table(b"0,z\n" + b"\n".join(many), schema)
    assert csv_table(b"\n".join(many), schema) == together[1:] == [{"n": None, "s": "a"}, {"n": 2, "s": "b"}]


def test_the_rows_of_a_list_behind_a_mark_have_the_offset_of_their_line():
    reader = jsonlines.Reader(pa.schema({"n": pa.int32()}))
    data = b'\xef\xbb\xbf[{"n":1},{"n":2}]\n \n{"n":3}\n'
    starts = metadata.line_starts(data, len(data), 0)
    found = [offset for _, offsets in metadata.located(reader.read, lines_in(data), starts, True) for offset in offsets]
    assert found == [0, 0, starts[2]]


def test_csv_that_is_short_long_or_of_another_type_is_read_as_far_as_it_fits():
    schema = pa.schema({"n": pa.int32(), "_corrupt_record": pa.string(), "s": pa.string()})
    data = b'1,a\n\n2\n3,b,c\nx,"d"\n+4,e\n0x5,f\n'
    assert [tuple(row.values()) for row in csv_table(data, schema)] == [
        (1, None, "a"),
        (2, "2", None),
        (3, "3,b,c", "b"),
        (None, 'x,"d"', "d"),
        (4, None, "e"),
        (None, "0x5,f", "f"),
    ]
    assert [row["n"] for row in csv_table(data, schema, mode=DROPMALFORMED)] == [1, 4]


def test_a_header_is_passed_over_only_where_the_segment_began(fs, tmp_path):
    path = f"{tmp_path}/c"
    fs.overwrite(path, b"n,s\n1,a\n2,b\n")
    options = options_given(path, format="csv", header="true", partitionBytes="5")
    assert infer_schema(parse_options(options)) == "`n` string, `s` string"
    schema = StructType().add("n", "integer").add("s", "string")
    assert read(options, schema) == [1, 2]
    fs.truncate(path, 4)
    assert read(options, schema) == [1, 2]
    with pytest.raises(ValueError, match="its header is truncated away"):
        infer_schema(parse_options(options))


def read(options: dict[str, Any], schema: StructType) -> list[Any]:
    reader = RollingReader(parse_options(options), schema)
    return [
        value for part in reader.partitions() for batch in reader.read(part) for value in batch.column(0).to_pylist()
    ]


def test_appends_of_csv_write_the_header_once_whoever_is_first(fs, tmp_path, monkeypatch):
    path = f"{tmp_path}/c"
    options = parse_options(options_given(path, format="csv", header="true"))
    schema = StructType().add("n", "integer")

    def staged(number: int) -> tuple[RollingWriter, Any]:
        writer = RollingWriter(options, schema, overwrite=False)
        writer.check_target()
        with Task().running():
            return writer, writer.write(iter([pa.record_batch({"n": pa.array([number], pa.int32())})]))

    first, second = staged(1), staged(2)
    view = second[0]._job.segment(None).view()
    first[0].commit([first[1]])
    looks = [view]
    real = SegmentCommit.view
    monkeypatch.setattr(SegmentCommit, "view", lambda self: looks.pop() if looks else real(self))
    second[0].commit([second[1]])
    assert fs.cat(path) == b"n\n1\n2\n"


def test_a_text_that_a_line_of_csv_cannot_hold_is_refused():
    for form, text in ((CsvFormat(), "a\nb"), (CsvFormat(), "a\rb"), (CsvFormat(quote=""), "a,b")):
        with pytest.raises(UnwritableValueError, match=r"column 's' has a text with .*; nothing was written"):
            list(csv_writer.encode(iter([pa.record_batch({"s": [text]})]), form))


# -- times -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("2024", datetime(2024, 1, 1)),
        ("2024-1-2 3:4:5.6", datetime(2024, 1, 2, 3, 4, 5, 600_000)),
        ("2024-01-02T03", datetime(2024, 1, 2, 3)),
        ("2024-01-02T03:04:05.1234567Z", datetime(2024, 1, 2, 3, 4, 5, 123_456)),
        ("2024-01-02T03:04:05 Europe/Paris", datetime(2024, 1, 2, 2, 4, 5)),
        ("2024-01-02T03:04:05PST", datetime(2024, 1, 2, 11, 4, 5)),
        ("2024-01-02T03:04:05UTC+1", datetime(2024, 1, 2, 2, 4, 5)),
        ("2024-01-02T03:04Z", None),
        ("2024-01-02T24:00:00", None),
        ("2024-02-30", None),
        ("x", None),
    ],
)
def test_times_are_those_of_sparks_casts(text, found):
    us = times.timestamp_us(text, UTC)
    assert us == (None if found is None else int(found.replace(tzinfo=UTC).timestamp() * 1e6))


def test_a_time_that_a_zone_has_twice_or_not_at_all_is_that_of_java():
    berlin = times.zone_of("Europe/Berlin")
    assert berlin is not None
    assert times.timestamp_us("2024-10-27 02:30:00", berlin) == 1_729_989_000_000_000
    assert times.timestamp_us("2024-03-31 02:30:00", berlin) == 1_711_848_600_000_000
    assert times.date_days("-0044-03-15") == (date(356, 3, 15) - date(1970, 1, 1)).days - 146_097


# -- options -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": "json", "mode": "x"}, "option mode is 'x': it must be one of PERMISSIVE, DROPMALFORMED, FAILFAST"),
        ({"format": "json", "sep": ";"}, "option sep is for format csv, not for json"),
        ({"format": "text", "mode": "FAILFAST"}, "option mode is for format csv, json, not for text"),
        ({"format": "json", "timeZone": "Mars"}, "option timeZone is 'Mars': there is no such time zone"),
        ({"format": "csv", "sep": "||"}, "option sep is '||': it must be one letter"),
        ({"format": "csv", "sep": ";", "delimiter": ";"}, "options sep and delimiter are the same"),
        ({"format": "csv", "sep": '"'}, "a field would have no end"),
        ({"format": "csv", "header": "yes"}, "option header is 'yes'"),
        ({"format": "csv", "compression": "zip"}, "option compression is 'zip'"),
    ],
)
def test_an_option_of_records_that_cannot_be_is_refused_by_its_name(options, message):
    with pytest.raises(ValueError, match=message.replace("|", r"\|")):
        parse_options({"path": "/x", **{name.lower(): value for name, value in options.items()}})


# -- compression -------------------------------------------------------------------------------------------------

TEXT = StructType().add("value", "string")
PLAIN = b"".join(b"line %d\r\n" % nth for nth in range(3000)) + b"no end"
WANTED = [f"line {nth}" for nth in range(3000)] + ["no end"]


def compressed(codec: str, data: bytes) -> bytes:
    """The data as two members, one behind the other."""
    half = len(data) // 2
    parts = (data[:half], data[half:])
    if codec in ("zstd", "lz4"):
        whole = []
        for part in parts:
            sink = pa.BufferOutputStream()
            with pa.CompressedOutputStream(sink, codec) as file:
                file.write(part)
            whole.append(sink.getvalue().to_pybytes())
        return b"".join(whole)
    pack = {"gzip": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}[codec]
    return b"".join(map(pack, parts))


ENDINGS = {"gzip": "gz", "bz2": "bz2", "xz": "xz", "zstd": "zst", "lz4": "lz4"}


@pytest.mark.parametrize("codec", list(compression.READABLE))
def test_a_compressed_segment_is_read_by_its_name_or_refused_by_its_bytes(fs, tmp_path, monkeypatch, codec):
    monkeypatch.setattr(lines, "LOCAL_BLOCK_BYTES", 1000)
    data = compressed(codec, PLAIN)
    named, bare = f"{tmp_path}/a.{ENDINGS[codec]}", f"{tmp_path}/a"
    for path in (named, bare):
        fs.overwrite(path, data)
    assert read(options_given(named, partitionBytes="100"), TEXT) == WANTED
    assert read(options_given(bare, compression=codec), TEXT) == WANTED
    with pytest.raises(CompressedError, match=rf"/a: its bytes are compressed \({codec}\).*compression={codec}"):
        read(options_given(bare), TEXT)
    with pytest.raises(CompressedError, match="its bytes are compressed"):
        infer_schema(parse_options(options_given(bare, format="json")))
    fs.overwrite(named, data[:-3])
    with pytest.raises(CompressedError, match=r"a\.\w+: its bytes are no whole"):
        read(options_given(named), TEXT)
    fs.overwrite(named, b"plain\n")
    with pytest.raises(CompressedError, match=r"but they are not compressed so"):
        read(options_given(named), TEXT)
    assert read(options_given(named, compression="none"), TEXT) == ["plain"]


@pytest.mark.parametrize("name", ["a.snappy", "a.zip", "a.deflate"])
def test_a_compression_that_cannot_be_read_is_refused_before_any_task_begins(fs, tmp_path, name):
    fs.overwrite(f"{tmp_path}/{name}", b"bytes")
    reader = RollingReader(parse_options(options_given(f"{tmp_path}/{name}")), TEXT)
    with pytest.raises(CompressedError, match=f"{name}: its name says that it is compressed"):
        reader.partitions()


def test_a_part_of_a_compressed_segment_is_refused(fs, tmp_path):
    path = f"{tmp_path}/a.gz"
    fs.overwrite(path, compressed("gzip", PLAIN))
    view = fs._bridge.run(fs._client.lookup.view(path, fresh=True))
    extent = RollingReader(parse_options(options_given(path)), TEXT).partitions()[0].value[0].extent
    with pytest.raises(CompressedError, match="only the whole can be read"):
        compression.check_whole(extent, 0, view.length + 1)


def test_lines_are_not_written_to_a_name_that_says_they_are_compressed(tmp_path):
    for kind in ("text", "json", "csv"):
        with pytest.raises(CompressedError, match="nothing was written"):
            RollingWriter(parse_options(options_given(f"{tmp_path}/a.gz", format=kind)), TEXT, overwrite=False)


def test_text_that_looks_a_little_like_bz2_is_text():
    assert compression.by_magic(b"BZhello world") is None
    assert compression.by_magic(bz2.compress(b"")) == compression.BZ2
