"""JSON and CSV over the Hadoop-compatible path, as text in a batch and in a stream: rows equal those of plain files."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from rollingfs.spark import read_csv, read_json, stream_csv, stream_json
from tests.support.spark import SMALL, run_query

pytestmark = pytest.mark.slow

CORRUPT = "n long, s string, _corrupt_record string"
AT = "at timestamp, day date, s string"
BOM = b"\xef\xbb\xbf"
REFUSED = "refused"
UTC, PARIS, KATHMANDU = "UTC", "Europe/Paris", "Asia/Kathmandu"
NEEDS_FILES = ("multiLine", "lineSep", "encoding")


class Case(NamedTuple):
    """Bytes of one file, and how they are read."""

    kind: str
    data: bytes
    schema: str | None = CORRUPT
    options: dict[str, str] = {}  # noqa: RUF012 - nobody changes it
    zone: str = UTC


def json(*lines: bytes, **more: Any) -> Case:
    return Case("json", b"\n".join(lines) + b"\n", **more)


def csv(*lines: bytes, **more: Any) -> Case:
    return Case("csv", b"\n".join(lines) + b"\n", **more)


DROP, FAIL = {"mode": "DROPMALFORMED"}, {"mode": "FAILFAST"}
BAD_JSON = (b'{"n":1}', b'{"n":"x","s":"kept"}', b"{", b'{"n":2', b'{"n":3}')
BAD_CSV = (b"1,a", b"x,kept", b"2", b"3,b,c", b"4,d")
TIMES = (
    b"2024-03-31T02:30:00",
    b"2024-10-27 02:30:00",
    b"2024-01-02T03:04:05Z",
    b"2024-01-02",
    b"2024-01-02T03:04:05.1+05:45",
)

CASES = {
    "byte order mark within": json(b'{"n":1}', BOM + b'{"n":2}', BOM + b"{"),
    "CRLF": Case("json", b'{"n":1}\r\n{"n":2}\r\n{"n":3}'),
    "blank lines": json(b"", b"  ", b"\t", b'{"n":1}', b"", b" \t"),
    "empty file": Case("json", b""),
    "nulls": json(b"null", b"{}", b'{"n":null,"s":null}', b" null"),
    "lists of objects": json(b'[{"n":1},{"n":2,"s":"a"}]', b"[]", b' [{"n":3}]', b'{"n":4}'),
    "bad lists": json(b'[{"n":9},1]', b"[1", b"[null]", b'[{"n":1},'),
    "scalars": json(b"1", b'"x"', b"true", b"1.5"),
    "two objects": json(b'{"n":1}{"n":2}', b'{"n":3} garbage'),
    "not UTF-8": json(b'{"n":1,"s":"\xff"}', b'\xff{"n":2}', b'{"n":3}'),
    "not UTF-8, failfast": json(b'{"n":1,"s":"\xff"}', options=FAIL),
    "permissive": json(*BAD_JSON),
    "dropmalformed": json(*BAD_JSON, options=DROP),
    "failfast, bad": json(*BAD_JSON, options=FAIL),
    "another name for the malformed": json(
        *BAD_JSON, schema="bad string, n long", options={"columnNameOfCorruptRecord": "bad"}
    ),
    "times in Paris": json(
        *(b'{"at":"%s","day":"%s"}' % (one, one) for one in TIMES), schema=AT, zone=PARIS
    ),
    "zone of an option": json(*(b'{"at":"%s"}' % one for one in TIMES), schema=AT, options={"timeZone": KATHMANDU}),
    "inferred": json(b'{"b":1,"a":{"x":1.5}}', b'{"b":"x","c":[1]}', b'{"c":null}', schema=None),
    "a variant in a column": json(b'{"v":{"a":[1,"x"]}}', b'{"v":1}', schema="v variant"),
    "several lines an object": Case("json", b'[{"n":1},\n{"n":\n2}]', options={"multiLine": "true"}),
    "another line end": Case("json", b'{"n":1};{"n":2}', options={"lineSep": ";"}),
    "CSV, CRLF": Case("csv", b"1,a\r\n2,b\r\n\r\n3,c"),
    "CSV, header": csv(b"s,n", b"1,a", b"2,b", options={"header": "true"}),
    "CSV, inferred": csv(
        b"n,s,d", b"1,a,1.5", b"2,b,2024-01-02", schema=None, options={"header": "true", "inferSchema": "true"}
    ),
    "CSV, blanks": csv(b"", b"  ", b"\t", b"1,a", b" \t ", b","),
    "CSV, comments": csv(b"#1,a", b"2,b", b" #3,c", options={"comment": "#"}),
    "CSV, other quotes": csv(b"1;'a;b'", b"2;'x~'y'", options={"sep": ";", "quote": "'", "escape": "~"}),
    "CSV, permissive": csv(*BAD_CSV),
    "CSV, dropmalformed": csv(*BAD_CSV, options=DROP),
    "CSV, failfast": csv(*BAD_CSV, options=FAIL),
    "CSV, not UTF-8": csv(b"1,\xff", b"\xff,a"),
    "CSV, times in Paris": csv(*TIMES, schema="at timestamp", zone=PARIS),
    "CSV, several lines a field": Case("csv", b'1,"a\nb"\n2,c\n', options={"multiLine": "true"}),
}  # fmt: skip


STREAMED = {"byte order mark within", "CRLF", "blank lines", "lists of objects", "not UTF-8", "permissive", "inferred"}
STREAMED |= {"dropmalformed", "failfast, bad", "times in Paris"}
STREAMED |= {"CSV, header", "CSV, blanks", "CSV, comments", "CSV, dropmalformed", "CSV, failfast", "CSV, inferred"}
"""A stream parses its lines as a batch does, so each kind of case is tried once."""


def rows_of(frame: Any) -> Any:
    """The columns and rows; the name of the error if there is one."""
    names = frame.schema.simpleString()
    try:
        return names, [repr(row) for row in frame.collect()]
    except (PySparkException, Py4JError) as error:
        print(error)
        return REFUSED


def streamed(frame: Any, folder: Path) -> Any:
    names = frame.schema.simpleString()
    found: list[str] = []
    writer = frame.writeStream.foreachBatch(lambda batch, _: found.extend(repr(row) for row in batch.collect()))
    try:
        run_query(writer, folder / "checkpoint")
    except PySparkException as error:
        print(error)
        return REFUSED
    return names, found


@pytest.fixture
def zoned(source: Any) -> Iterator[Any]:
    """The session, with settings that the test may change.

    Spark keeps the very letters of an object or a number that stands in a column of strings where it reads bytes of a
    file, and not in `from_json`. Here it does so nowhere.
    """
    settings = {"spark.sql.session.timeZone": UTC, "spark.sql.json.enableExactStringParsing": "false"}
    before = {name: source.conf.get(name) for name in settings}
    for name, value in settings.items():
        source.conf.set(name, value)
    yield source
    for name, value in before.items():
        source.conf.set(name, value)


def prepared(session: Any, fs: Any, folder: Path, case: Case) -> tuple[str, Any]:
    """A segment with the bytes of a case, and the rows that Spark reads of a plain file of them."""
    session.conf.set("spark.sql.session.timeZone", case.zone)
    (folder / "plain").write_bytes(case.data)
    segment = str(folder / "segment")
    fs.create(segment, policy=SMALL)
    for start in range(0, len(case.data), 70):
        fs.append(segment, case.data[start : start + 70])
    fs.seal(segment)
    reader = session.read.options(**case.options).format(case.kind)
    return segment, rows_of((reader.schema(case.schema) if case.schema else reader).load(str(folder / "plain")))


@pytest.mark.parametrize("name", CASES)
def test_rows_are_those_of_plain_files(zoned: Any, fs: Any, tmp_path: Path, name: str) -> None:
    case = CASES[name]
    read, stream = (read_json, stream_json) if case.kind == "json" else (read_csv, stream_csv)
    segment, expected = prepared(zoned, fs, tmp_path, case)
    if any(option in case.options for option in NEEDS_FILES):
        assert rows_of(read(zoned, segment, case.schema, **case.options)) == expected  # by the Hadoop-compatible path
        for way in (read, stream):
            with pytest.raises(ValueError, match="is read by lines of UTF-8"):
                way(zoned, segment, case.schema, partitionBytes="50", **case.options)
        return
    assert rows_of(read(zoned, segment, case.schema, partitionBytes="50", **case.options)) == expected
    if name in STREAMED:
        assert streamed(stream(zoned, segment, case.schema, pollInterval="0s", **case.options), tmp_path) == expected


def test_folder_columns_equal_sparks_by_path_and_source(source: Any, fs: Any, tmp_path: Path) -> None:
    """A union goes by the order of columns."""
    (tmp_path / "plain" / "Day=01").mkdir(parents=True)
    data = b'{"n": 1, "day": 9}\n{"n": 2}\n'
    (tmp_path / "plain" / "Day=01" / "file").write_bytes(data)
    fs.overwrite(f"{tmp_path}/f/Day=01/s", data)
    ways: list[dict[str, Any]] = [{}, {"partitionBytes": "50"}]
    for schema, names in (("day string, n int", ["day", "n"]), (None, ["Day", "n"])):
        reader = source.read if schema is None else source.read.schema(schema)
        expected = reader.json(f"file://{tmp_path}/plain").select(*names)
        found = [read_json(source, f"{tmp_path}/f", schema, **options) for options in ways]
        assert [frame.schema.simpleString() for frame in found] == [expected.schema.simpleString()] * 2
        assert found[0].union(found[1]).collect() == expected.collect() * 2
    assert stream_json(source, f"{tmp_path}/f", "day string, n int").columns == ["day", "n"]


@pytest.mark.parametrize("mode", ["PERMISSIVE", "DROPMALFORMED"])
def test_each_line_is_parsed_once(source: Any, fs: Any, tmp_path: Path, mode: str) -> None:
    """Spark moves filters of rows below the parser, and would parse each line again for them."""
    segment = str(tmp_path / "segment")
    fs.create(segment)
    fs.append(segment, b'{"n":1}\n')
    for read, parser in ((read_json, "from_json(StructField(n,"), (read_csv, "from_csv(StructField(n,")):
        frame = read(source, segment, CORRUPT, mode=mode, partitionBytes="50").where("n > 0").select("n", "s")
        plan = frame._jdf.queryExecution().optimizedPlan().toString()
        assert plan.count(parser) == 1, plan
