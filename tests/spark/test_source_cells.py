"""Each cell of format and kind of values: the rows are those of Spark's own reader of a plain file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytestmark = pytest.mark.slow

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


@pytest.fixture(autouse=True)
def utc(source: Any) -> Iterator[Any]:
    """A session that knows the data source, and whose zone is that of the data source."""
    zone = source.conf.get("spark.sql.session.timeZone")
    source.conf.set("spark.sql.session.timeZone", "UTC")
    yield source
    source.conf.set("spark.sql.session.timeZone", zone)


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
