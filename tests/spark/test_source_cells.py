"""Each cell of format, mode and kind of values: the rows are those of Spark's own reader of a plain file.

`test_source_records` draws records by chance; here every cell is there, and the table says what is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.servers import require_module

require_module("pyarrow")
require_module("pyspark")

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from tests.spark.test_source_records import rows

pytestmark = pytest.mark.slow

MODES = ("PERMISSIVE", "DROPMALFORMED", "FAILFAST")
REFUSED = "refused"
CORRUPT = "corrupt"

JSON = {
    "dates": (
        "d date, t timestamp, n timestamp_ntz",
        [
            '{"d":"2024-02-29","t":"2024-07-01T10:00:00.123456Z","n":"2024-01-01T00:00:00.5"}',
            '{"d":"0001-01-01","t":"1969-12-31 23:59:59+02:00","n":"9999-12-31 23:59:59.999999"}',
        ],
    ),
    "decimals": (
        "p decimal(5,2), q decimal(38,10)",
        ['{"p":1.25,"q":12345678901234567890.1234567891}', '{"p":-999.99,"q":-1E-10}', '{"p":"3.10","q":0}'],
    ),
    "nested": (
        "o struct<x:int,d:date,p:decimal(5,2)>, a array<timestamp>, m map<string,struct<x:int>>",
        [
            '{"o":{"x":1,"d":"2024-02-29","p":1.5},"a":["2024-01-01T00:00:00Z"],"m":{"k":{"x":1}}}',
            '{"o":{},"a":[],"m":{}}',
        ],
    ),
    "nulls": (
        "i int, s string, d date, p decimal(5,2), o struct<x:int>, a array<int>, m map<string,int>",
        ["{}", '{"i":null,"s":null,"d":null,"p":null,"o":null,"a":null,"m":null}', '{"o":{"x":null},"a":[null,1]}',
         '{"m":{"k":null},"s":"null","i":7}'],
    ),
    CORRUPT: (
        "n int, d date, p decimal(5,2), _corrupt_record string",
        ['{"n":1,"d":"2024-01-01","p":1.5}', '{"n":"x","p":2}', '{"n":2,"d":"2024-02-30"}', '{"n":3', "no json",
         '{"p":12345.6,"n":4}'],
    ),
}  # fmt: skip
CSV = {
    "dates": (
        "d date, t timestamp, n timestamp_ntz",
        [
            "2024-02-29,2024-07-01T10:00:00.123456Z,2024-01-01T00:00:00.5",
            "0001-01-01,1969-12-31 23:59:59+02:00,9999-12-31 23:59:59.999999",
        ],
    ),
    "decimals": (
        "p decimal(5,2), q decimal(38,10)",
        ["1.25,12345678901234567890.1234567891", "-999.99,-1E-10", "3.10,0"],
    ),
    "nested": ("o struct<x:int>, a array<int>, m map<string,int>", ["1,2,3"]),
    "nulls": ("i int, s string, d date, p decimal(5,2)", [",,,", "7,,,", ',"",,1.5', ",null,,"]),
    CORRUPT: (
        "n int, d date, p decimal(5,2), _corrupt_record string",
        ["1,2024-01-01,1.5", "x,2024-01-01,2", "2,2024-02-30,1", "3", "4,2024-01-01,12345.6", "5,2024-01-01,1,more"],
    ),
}
FRAMES = {
    "dates": """values (date'2024-02-29', timestamp'2024-07-01 10:00:00.123456', timestamp_ntz'2024-01-01 00:00:00.5'),
        (date'0001-01-01', timestamp'1969-12-31 23:59:59', timestamp_ntz'2200-12-31 23:59:59') as rows(d, t, n)""",
    "decimals": """values (cast('1.25' as decimal(5,2)), cast('12345678901234567890.1234567891' as decimal(38,10))),
        (cast('-999.99' as decimal(5,2)), cast('-1E-10' as decimal(38,10))) as rows(p, q)""",
    "nested": """values (named_struct('x', 1, 'd', date'2024-02-29', 'p', cast('1.5' as decimal(5,2))),
        array(timestamp'2024-01-01 00:00:00', null), map('k', named_struct('x', 1))) as rows(o, a, m)""",
    "nulls": """values
        (1, 'a', date'2024-02-29', cast('1.5' as decimal(5,2)), named_struct('x', 1), array(1), map('k', 1)),
        (null, null, null, null, null, null, null),
        (null, '', null, null, named_struct('x', null), array(null, 2), map('k', null)) as rows(i, s, d, p, o, a, m)""",
}


@pytest.fixture(autouse=True)
def utc(source: Any) -> Iterator[Any]:
    """A session that knows the data source, and whose zone is that of the data source."""
    zone = source.conf.get("spark.sql.session.timeZone")
    source.conf.set("spark.sql.session.timeZone", "UTC")
    yield source
    source.conf.set("spark.sql.session.timeZone", zone)


def outcome(frame: Callable[[], Any]) -> list[str] | str:
    try:
        return rows(frame())
    except (PySparkException, Py4JError):
        return REFUSED


@pytest.mark.parametrize("values", JSON)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("kind", "cells"), [("json", JSON), ("csv", CSV)], ids=["json", "csv"])
def test_records_of_each_mode_and_kind_are_the_rows_of_a_plain_file(utc, disk, tmp_path, kind, cells, mode, values):
    schema, lines = cells[values]
    data = "".join(f"{line}\n" for line in lines).encode()
    (tmp_path / "plain").write_bytes(data)
    where = disk.segment("s", data, piece=33, head=b"truncated\n")
    own = outcome(lambda: utc.read.schema(schema).option("mode", mode).format(kind).load(f"file://{tmp_path}/plain"))
    reader = utc.read.format("rolling").options(format=kind, mode=mode, partitionBytes=50).schema(schema)
    assert outcome(lambda: reader.load(where)) == own
    is_refused = (mode == "FAILFAST" and values == CORRUPT) or (kind == "csv" and values == "nested")
    assert (own == REFUSED) == is_refused
    if not is_refused:
        assert len(own) == (1 if (mode, values) == ("DROPMALFORMED", CORRUPT) else len(lines))


@pytest.mark.parametrize("values", FRAMES)
def test_parquet_of_each_kind_is_the_rows_of_a_plain_file(utc, disk, tmp_path, values):
    frame = utc.sql(f"select * from {FRAMES[values]}")
    frame.coalesce(1).write.parquet(f"file://{tmp_path}/plain")
    [part] = Path(f"{tmp_path}/plain").glob("part-*")
    where = disk.segment("s", part.read_bytes(), piece=500)
    expected = rows(utc.read.parquet(f"file://{part}"))
    reader = utc.read.format("rolling").option("format", "parquet")
    assert rows(reader.schema(frame.schema).load(where)) == expected == rows(frame)


@pytest.mark.parametrize("kind", ["arrow", "parquet"])
@pytest.mark.parametrize("values", FRAMES)
def test_columns_that_are_written_are_read_back_of_each_kind(utc, tmp_path, kind, values):
    frame = utc.sql(f"select * from {FRAMES[values]}")
    where = f"file://{tmp_path}/s"
    frame.coalesce(1).write.format("rolling").option("format", kind).mode("append").save(where)
    found = utc.read.format("rolling").option("format", kind).load(where)
    assert found.dtypes == frame.dtypes
    assert rows(found) == rows(frame)
    if kind == "parquet":
        assert rows(utc.read.parquet(f"rolling+{where}")) == rows(frame)


@pytest.mark.parametrize("kind", ["arrow", "parquet"])
def test_corrupt_columns_are_refused_with_the_name_of_the_segment(utc, disk, kind):
    frame = utc.range(1000)
    frame.coalesce(1).write.format("rolling").option("format", kind).mode("append").save(f"file://{disk.path}/whole")
    data = disk.content("whole")
    for name, damaged in (("cut", data[: len(data) // 2]), ("rubbish", b"#" * len(data))):
        where = disk.segment(f"{kind}-{name}", damaged, piece=10_000)
        disk.run(disk.client.segments.seal(f"{disk.path}/{kind}-{name}"))
        with pytest.raises(Exception, match=rf"{kind}-{name}"):
            utc.read.format("rolling").option("format", kind).schema("id long").load(where).collect()


def test_text_that_is_no_utf8_is_that_of_a_plain_file(utc, disk, tmp_path):
    data = b"\xff\xfe odd\n\xc3\xa9\n\n\x00\n\xe2\x82 cut"
    (tmp_path / "plain").write_bytes(data)
    where = disk.segment("s", data, piece=3)
    own = rows(utc.read.text(f"file://{tmp_path}/plain"))
    assert rows(utc.read.format("rolling").option("partitionBytes", 4).load(where)) == own
    assert len(own) == 5


@pytest.mark.parametrize("kind", ["text", "arrow", "parquet", "binary"])
def test_a_mode_for_a_format_without_malformed_records_is_refused(utc, disk, kind):
    where = disk.segment("s", b"a\n")
    with pytest.raises(Exception, match=f"option mode is for format csv, json, not for {kind}"):
        utc.read.format("rolling").options(format=kind, mode="FAILFAST").load(where).collect()
