"""JSON and CSV by the data source are the rows of Spark's own readers, for every type, mode and kind of damage."""

from __future__ import annotations

import shutil
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.servers import require_module

require_module("pyarrow")
require_module("pyspark")

pytestmark = pytest.mark.slow

EXAMPLES = 40
"""Each is two jobs of Spark."""


@pytest.fixture(autouse=True)
def registered(source: Any) -> None:
    """All tests here use the data source."""


def readable(frame: Any) -> Any:
    """The frame with times as numbers: Python has no year above 9999."""
    from pyspark.sql import functions

    def column(name: str, kind: str) -> Any:
        if kind == "timestamp":
            return functions.unix_micros(name).alias(name)
        if kind == "timestamp_ntz":
            return functions.unix_micros(functions.col(name).cast("timestamp")).alias(name)
        return functions.unix_date(name).alias(name) if kind == "date" else functions.col(name)

    return frame.select(*[column(*one) for one in frame.dtypes])


def ordered(value: Any) -> Any:
    """A value in which maps have an order."""
    if isinstance(value, dict):
        return sorted((key, ordered(item)) for key, item in value.items())
    return [ordered(item) for item in value] if isinstance(value, list) else value


def rows(frame: Any) -> list[str]:
    # the text of a row tells -0.0 from 0.0, and takes NaN for itself
    return [repr(ordered(row.asDict(recursive=True))) for row in readable(frame).collect()]


def check_equal(spark: Any, folder: Path, data: bytes, kind: str, schema: str, **options: Any) -> None:
    path = folder / "lines"
    path.write_bytes(data)
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    try:
        expected = rows(spark.read.schema(schema).options(**options).format(kind).load(f"file://{path}"))
        reader = spark.read.format("rolling").options(format=kind, partitionBytes="700", **options)
        found = rows(reader.schema(schema).load(f"file://{path}"))
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    assert found == expected


# -- JSON --------------------------------------------------------------------------------------------------------

JSON_SCHEMAS = [
    "n int, s string, d double, f float, b boolean, _corrupt_record string",
    "n tinyint, p decimal(5,2), q decimal(38,10), r decimal(2,2), dt date",
    "s string, t timestamp, tn timestamp_ntz, bin binary, _corrupt_record string",
    "o struct<x:int,y:struct<z:decimal(10,1),d:date>>, a array<timestamp>, l array<struct<x:int,s:string>>, bad string",
    "m map<string,int>, k map<string,struct<x:int>>, n bigint, _corrupt_record string",
    "m map<string,int>, ms map<string,string>, mo struct<md:map<string,date>>, n bigint, _corrupt_record string",
]
JSON_FIELDS = [
    *('"n": 1', '"n":-5', '"n":"x"', '"n":1.5', '"n":3000000000', '"n":null', '"n":1,"n":2', '"n":-0', '"n":Inf'),
    *('"s":"abc"', '"s":"é \\" x"', '"s":5', '"s":1.50', '"s":true', '"s":{"a":[1 ,2e3]}', '"s":"\\ud83d\\ude00"'),
    *('"s":"a\tb"', '"s":"\\u00e9"', '"s":"\\q"', '"d":1.5', '"d":3', '"d":-0', '"d":"NaN"', '"d":NaN', '"d":1e999'),
    *('"f":0.1', '"f":16777217', '"f":1e39', '"b":true', '"b":1', '"p":1.25', '"p":100', '"p":"3.1"', '"p":1.255'),
    *('"p":12345', '"p":"a"', '"p":"1,5"', '"q":1.5', '"q":12345678901234567890.123456789012', '"r":0.255', '"r":1.5'),
    *('"dt":"2024-02-29"', '"dt":"2023-02-29"', '"dt":"2024-1-2"', '"dt":"12"', '"dt":"-0044-03-15"', '"dt":5'),
    *('"t":"2024-01-01T00:00:00Z"', '"t":"2024-07-01 10:00:00"', '"t":"2024-01-01T00:00:00.123+02:00"', '"t":5'),
    *('"t":"2024-03-31T02:30:00"', '"t":"2024-10-27T02:30:00"', '"t":"x"', '"t":"2024-01-01 10:00:00 Europe/Paris"'),
    *('"t":"2024-01-01T00:00:00.123456789Z"', '"t":"1969-12-31T23:59:59.9999999Z"', '"t":"2024-01-01 5:6:7 PST"'),
    *('"t":"+12024-01-01"', '"tn":"2024-01-01T00:00:00.5"', '"tn":"2024-01-01T00:00:00Z"', '"tn":"2024"'),
    *('"bin":"YWJj"', '"bin":"!"', '"bin":1', '"o":{"x":1,"y":{"z":2.5,"d":"2020-01-01"}}', '"o":null', '"o":3'),
    *('"o":{"x":"q"}', '"o":{"y":{"z":1.25,"d":"no"}}', '"o":{"x":tru}', '"a":["2024-01-01T00:00:00Z",null]', '"a":[]'),
    *('"a":["2024-01-01"]', '"a":["x"]', '"l":[{"x":1,"s":"q"},{},null]', '"l":[{"x":"b"}]', '"l":[1]'),
    *('"ms":{"k":"v, w:","":""}', '"ms":{"k":5}', '"ms":{"k":[1]}', '"ms" : {}', '"ms":{"a":"}","a":"\\""}', '"ms":[]'),
    *('"mo":{"md":{"k":"2024-01-01"}}', '"mo":{"md":{"k":"2024-1-2","l":"x"}}', '"mo":{"md":{}, "m":{"k":1}}'),
    *('"m":{"k":1,"l":null}', '"m":{"k":"x","l":1}', '"k":{"a":{"x":1},"b":{"x":"q"}}', '"zz":[1,{"a":"]}"}]'),
]
JSON_LINES = [
    "",
    "   ",
    "null",
    " null",
    "[]",
    '[{"n":1},{"n":"x"}]',
    "no json",
    '{"n":1} {"n":2}',
    '{"n":1',
    "5",
    "{'n':7}",
]
MUTATIONS = ['"', "'", "{", "}", "[", "]", ",", ":", "\\", " ", "0", "-", "e", "tru", "null", "\xff"]


@st.composite
def json_lines(draw: Any) -> bytes:
    """Lines of which some are sound, some have odd values, and some are damaged somewhere."""
    lines = []
    for _ in range(draw(st.integers(1, 40))):
        fields = draw(st.lists(st.sampled_from(JSON_FIELDS), min_size=1, max_size=4))
        # one field of a name
        line = "{" + ", ".join({one.partition(":")[0]: one for one in fields}.values()) + "}"
        what = draw(st.integers(0, 9))
        if what == 0:
            line = draw(st.sampled_from(JSON_LINES))
        elif what == 1:
            at = draw(st.integers(0, len(line)))
            line = line[:at] + draw(st.sampled_from(MUTATIONS)) + line[at + draw(st.integers(0, 2)) :]
        lines.append(line)
    return "\n".join(lines).encode("latin-1" if draw(st.booleans()) else "utf-8", errors="replace")


MODES = st.sampled_from(["PERMISSIVE", "PERMISSIVE", "DROPMALFORMED"])
ZONES = st.sampled_from(["UTC", "Europe/Berlin", "+05:30"])
SLOWLY = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@SLOWLY
@given(json_lines(), st.sampled_from(JSON_SCHEMAS), MODES, ZONES)
def test_json_of_every_type_mode_and_damage_gives_the_rows_of_spark(spark, tmp_path, data, schema, mode, zone):
    options = {"columnNameOfCorruptRecord": "bad"} if "bad " in schema else {}
    check_equal(spark, tmp_path, data, "json", schema, mode=mode, timeZone=zone, **options)


# -- CSV ---------------------------------------------------------------------------------------------------------

TEXTS = ["abc", "é", "a b", "", '"', 'x"y', "\\", "NA", "a,b", "a|b", "'q'", " a", "#a", "a\tb"]
NUMBERS = ["1", "-5", "+7", "007", "3000000000", "x", "1.0", " 1", "0x1F", "1.25", "1.255", "1,5", "1e2", ".5", "5."]
FLOATS = ["NaN", "Inf", "-Inf", "nan", "inf", "Infinity", " 1 ", "1d", "0x1p3", "1e400", "-0", "4.9e-324", "0.1"]
TRUTHS = ["true", "FALSE", "yes", "1"]
DAYS = ["2024-02-29", "2023-02-29", "2024-1-2", "2024", "2024-01-02 x", "GMT2024-01-02", "0001-01-01", "12"]
TIMES = ["2024-01-01T00:00:00Z", "2024-07-01 10:00:00", "2024-03-31T02:30:00", "2024-01-01T00:00:00.1234567+02:00", "x"]
CSV_SCHEMAS = {
    "a string, b string": [TEXTS, TEXTS],
    "i int, l bigint, s string, _corrupt_record string": [NUMBERS, NUMBERS, TEXTS],
    "d double, f float, b boolean": [[*NUMBERS, *FLOATS], [*NUMBERS, *FLOATS], TRUTHS],
    "p decimal(5,2), _corrupt_record string, q decimal(38,10), r decimal(2,2)": [NUMBERS, NUMBERS, NUMBERS],
    "dt date, t timestamp, tn timestamp_ntz": [DAYS, [*TIMES, *DAYS], [*TIMES, *DAYS]],
    "b binary": [TEXTS],
}
CSV_OPTIONS: list[dict[str, Any]] = [
    {},
    {"escape": '"'},
    {"sep": "|", "quote": "'", "nullValue": "NA"},
    {"header": True, "quote": "", "sep": "\\t"},
    {"header": True},
]


@st.composite
def csv_lines(draw: Any) -> tuple[bytes, str, dict[str, Any]]:
    options = draw(st.sampled_from(CSV_OPTIONS))
    schema = draw(st.sampled_from(list(CSV_SCHEMAS)))
    quote, escape = options.get("quote", '"'), options.get("escape", "\\")
    lines = []
    for _ in range(draw(st.integers(1, 40))):
        cells = [draw(st.sampled_from(texts)) for texts in CSV_SCHEMAS[schema]]
        for nth, cell in enumerate(cells):
            how = draw(st.integers(0, 3))
            if how == 1 and quote:
                cell = cell.replace(escape, 2 * escape) if escape != quote else cell
                cells[nth] = quote + cell.replace(quote, escape + quote) + quote
            elif how == 2:
                cells[nth] = quote + cell + quote
        cells = cells[: draw(st.integers(1, len(cells)))] if draw(st.integers(0, 9)) == 0 else cells
        lines.append(options.get("sep", ",").replace("\\t", "\t").join(cells))
    return "\n".join(lines).encode(), schema, options


@SLOWLY
@given(csv_lines(), MODES, ZONES)
def test_csv_of_every_type_mode_and_damage_gives_the_rows_of_spark(spark, tmp_path, made, mode, zone):
    data, schema, options = made
    check_equal(spark, tmp_path, data, "csv", schema, mode=mode, timeZone=zone, **options)


@pytest.mark.parametrize(
    "text", ["a,b\n1,2\n", "a,a,,A\n1,2,3,4\n", '"x y",q"z\n', "\n a ,b\n1,2\n", "\ufeffa,b\n1,2\n"]
)
@pytest.mark.parametrize("header", ["true", "false"])
def test_columns_of_csv_are_named_as_by_spark(spark, tmp_path, text, header):
    path = tmp_path / "lines"
    path.write_text(text)
    expected = spark.read.option("header", header).csv(f"file://{path}")
    found = spark.read.format("rolling").options(format="csv", header=header).load(f"file://{path}")
    assert found.schema == expected.schema
    assert found.collect() == expected.collect()


# -- modes and writing -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "data"), [("json", b'{"n":1}\n{"n":"x"}\n'), ("csv", b"1\nx\n")])
def test_failfast_fails_where_spark_fails_and_names_the_segment_and_the_record(spark, tmp_path, kind, data):
    path = tmp_path / "lines"
    path.write_bytes(data)
    with pytest.raises(Exception, match=r"FAILFAST|MALFORMED"):
        spark.read.schema("n int").option("mode", "FAILFAST").format(kind).load(f"file://{path}").collect()
    reader = spark.read.format("rolling").options(format=kind, mode="FAILFAST").schema("n int")
    with pytest.raises(Exception, match=r"lines: in bytes 0 to \d+, a record is malformed"):
        reader.load(f"file://{path}").collect()


@pytest.mark.parametrize("kind", ["json", "csv"])
def test_rows_that_are_written_are_read_back_by_spark_itself(spark, tmp_path, kind):
    schema = "s string, n int, d double, f float, b boolean, dt date, t timestamp, p decimal(5,2)"
    values = [
        ('q"u,o\\te', 1, 1.0, 0.1, True, date(2024, 1, 2), datetime(2024, 1, 2, 3, 4, 5, 123000, UTC), Decimal("1.50")),
        (" a ", None, 1e20, None, False, None, None, None),
        (None, -7, float("inf"), float("nan"), None, date(1, 1, 2), datetime(2024, 1, 2, tzinfo=UTC), Decimal("-0.01")),
    ]
    frame = spark.createDataFrame(values, schema)
    options = {"format": kind, **({"header": "true"} if kind == "csv" else {})}
    for _ in range(2):
        frame.coalesce(1).write.format("rolling").options(**options).mode("append").save(f"file://{tmp_path}/s")
    shutil.rmtree(tmp_path / "plain", ignore_errors=True)
    found = spark.read.format("rolling").options(**options).schema(schema).load(f"file://{tmp_path}/s")
    path = f"rolling+file://{tmp_path}/s"
    own = spark.read.schema(schema).options(**options).format(kind).load(path)
    assert rows(found) == rows(own) == 2 * rows(frame)
