"""S5, S5b, S5c: records by Spark's own parsers, in the ways in which they reach segments.

The same bytes are read as plain files, over the Hadoop-compatible path, as text of the data source that Spark parses,
and, with plain types, by the strict lane of the data source: all columns and one, lines with maps, lines of which 1 %
is malformed, CSV. Rows are written as files, and as text that `to_json` made. The floors are a reader that gives one
batch again and again, and a writer that drops the rows.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from benchmarks.case import Case, Goal, Job, ratio
from benchmarks.spark import data
from benchmarks.spark.query import PLAIN, Files, Query, spark_case
from benchmarks.spark.session import measured

JSON_LINES = 100_000
CSV_LINES = 200_000
MAP_LINES = 150_000
LINES_QUICK = 2_000
"""Lines of each of the files: so many that a segment has more than one chunk."""
ROWS = 300_000
ROWS_QUICK = 5_000
ROUNDS = 3
WARMUPS = 1
"""Fewer than in the other cases of Spark: here are more contestants."""
PLAIN_TYPES = "id long, day string, at string, price double, page string"
TYPES = "id long, day date, at timestamp, price decimal(12,2), page string"
CORRUPT = f"{TYPES}, _corrupt_record string"
MAPS = "id long, tags map<string,long>, page string"
MAP_SUMS = ("count(*)", "sum(id)", "sum(tags.a)", "sum(tags.b)", "sum(octet_length(page))")
BAD_LINES = ('{"id": "x"}', '{"id": 5')
"""Each hundredth line is one of these in turn."""
AS_TEXT = {"partitionBytes": "32MiB"}
"""An option of the data source: with it, the path is not taken."""
BATCHES = 4
"""The same batch stands for the lines of a file so many times."""
SUMS = ("count(*)", "sum(id)", "count(day)", "count(at)", "sum(octet_length(page))")


@dataclass(frozen=True, slots=True)
class _Records:
    """A folder of segments, by `read_json` or `read_csv`; with an option of the data source as text."""

    kind: str
    schema: str
    ending: str
    options: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, spark: Any, given: Mapping[str, Any]) -> Any:
        from rollingfs.spark import read_csv, read_json
        from rollingfs.spark.source import RollingDataSource

        spark.dataSource.register(RollingDataSource)
        read = {"json": read_json, "csv": read_csv}[self.kind]
        return read(spark, f"{given['folder']}/segments-{self.ending}", self.schema, **self.options)


@dataclass(frozen=True, slots=True)
class _OfText:
    """A folder of segments, as text that `spark.read.json` takes."""

    schema: str
    ending: str

    def __call__(self, spark: Any, given: Mapping[str, Any]) -> Any:
        from rollingfs.spark.source import RollingDataSource

        spark.dataSource.register(RollingDataSource)
        text = spark.read.format("rolling").load(f"file://{given['folder']}/segments-{self.ending}")
        return spark.read.schema(self.schema).json(text)


@dataclass(frozen=True, slots=True)
class _Strict:
    """A folder of segments of JSON, by the strict lane of the data source."""

    schema: str

    def __call__(self, spark: Any, given: Mapping[str, Any]) -> Any:
        from rollingfs.spark.source import RollingDataSource

        spark.dataSource.register(RollingDataSource)
        reader = spark.read.format("rolling").option("format", "json").schema(self.schema)
        return reader.load(f"file://{given['folder']}/segments-json")


def _ways(title: str, name: str, schema: str, sums: Sequence[str]) -> dict[str, Query]:
    """The same JSON in all ways."""
    return {
        f"{title}, spark.read": Query(name, Files(PLAIN, f"plain-{name}", "json", schema), sums),
        f"{title}, path": Query(name, _Records("json", schema, name), sums),
        f"{title}, text": Query(name, _Records("json", schema, name, AS_TEXT), sums),
        f"{title}, spark.read.json(text)": Query(name, _OfText(schema, name), sums),
    }


def _same(spark: Any, given: Mapping[str, Any]) -> Any:
    """The same batch, as often as the segments hold as many rows."""
    from benchmarks.spark.floor import SameBatch

    spark.dataSource.register(SameBatch)
    reader = spark.read.format("samebatch").options(partitions=data.FILES, batches=BATCHES)
    return reader.load(f"{given['folder']}/batch")


def _write_segment(job: Job) -> None:
    """Write rows to one segment, as text that is JSON, and count them."""
    from rollingfs.spark import to_json
    from rollingfs.spark.source import RollingDataSource

    spark, target = job.given["spark"], f"{job.given['folder']}/{job.name}"
    spark.dataSource.register(RollingDataSource)
    rows = to_json(_rows(job))
    with measured(job):
        rows.write.format("rolling").mode("append").save(f"file://{target}")
    _count(job, spark.read.format("rolling").load(f"file://{target}"))
    shutil.rmtree(f"{target}$chunks", ignore_errors=True)
    os.remove(f"{target}$header")


def _write_files(job: Job) -> None:
    """Write rows as plain files of JSON, and count them."""
    spark, target = job.given["spark"], f"{job.given['folder']}/{job.name}"
    rows = _rows(job)
    with measured(job):
        rows.write.json(f"file://{target}")
    _count(job, spark.read.text(f"file://{target}"))
    shutil.rmtree(target)


def _count(job: Job, found: Any) -> None:
    [row] = found.selectExpr("count(*)", "sum(octet_length(value))").collect()
    count = job.pick(ROWS, ROWS_QUICK)
    assert row[0] == count, f"{row[0]} rows instead of {count}"
    job.sample.byte_count = row[1] + count


@dataclass(frozen=True, slots=True)
class _Drop:
    """Hands the same rows to a writer that drops them."""

    as_text: bool

    def __call__(self, job: Job) -> None:
        from benchmarks.spark.floor import Dropped
        from rollingfs.spark import to_json

        spark = job.given["spark"]
        spark.dataSource.register(Dropped)
        rows = _rows(job)
        rows = to_json(rows) if self.as_text else rows
        with measured(job):
            rows.write.format("dropped").mode("append").save()


def _rows(job: Job) -> Any:
    return (
        job.given["spark"]
        .range(0, job.pick(ROWS, ROWS_QUICK), 1, data.FILES)
        .selectExpr(
            "id",
            "date_add(date '2024-01-01', cast(id % 365 as int)) day",
            "timestamp_seconds(1700000000 + id) at",
            "cast(id / 100 as decimal(12,2)) price",
            "concat('/page/', id) page",
            "array(id, id + 1) l",
        )
    )


TYPED: dict[str, Any] = {
    **_ways("JSON", "json", TYPES, SUMS),
    "JSON, plain types, strict": Query("json", _Strict(PLAIN_TYPES), SUMS),
    "JSON, plain types, spark.read": Query("json", Files(PLAIN, "plain-json", "json", PLAIN_TYPES), SUMS),
    "1 column, spark.read": Query("id", Files(PLAIN, "plain-json", "json", TYPES), SUMS[:2]),
    "1 column, path": Query("id", _Records("json", TYPES, "json"), SUMS[:2]),
    "same batch": Query("same", _same, SUMS),
}
ODD: dict[str, Any] = {**_ways("1 % bad", "bad", CORRUPT, SUMS), **_ways("maps", "maps", MAPS, MAP_SUMS)}
WRITTEN: dict[str, Any] = {
    "CSV, spark.read": Query("csv", Files(PLAIN, "plain-csv", "csv", TYPES), SUMS),
    "CSV, path": Query("csv", _Records("csv", TYPES, "csv"), SUMS),
    "CSV, text": Query("csv", _Records("csv", TYPES, "csv", AS_TEXT), SUMS),
    "write.json": _write_files,
    "to_json, write text": _write_segment,
    "rows dropped": _Drop(as_text=False),
    "to_json, text dropped": _Drop(as_text=True),
}
Expected = Mapping[str, tuple[Sequence[float], int]]


def prepare_typed(job: Job) -> Expected:
    count = job.pick(JSON_LINES, LINES_QUICK)
    rows = [_row(nth) for nth in range(count)]
    same = rows[: count // BATCHES]
    write_same(f"{job.given['folder']}/batch", same)
    size = _write(job, "json", map(json.dumps, rows))
    sums = _sums(rows)
    return {"json": (sums, size), "id": (sums[:2], size), "same": (tuple(BATCHES * one for one in _sums(same)), size)}


def prepare_odd(job: Job) -> Expected:
    rows = [_row(nth) for nth in range(job.pick(JSON_LINES, LINES_QUICK))]
    bad = [BAD_LINES[nth // 100 % 2] if nth % 100 == 0 else json.dumps(row) for nth, row in enumerate(rows)]
    sound = [row for nth, row in enumerate(rows) if nth % 100]
    count = job.pick(MAP_LINES, LINES_QUICK)
    maps = [{"id": nth, "tags": {"a": nth, "b": 2 * nth}, "page": _row(nth)["page"]} for nth in range(count)]
    numbers, pages = sum(range(count)), sum(len(row["page"]) for row in maps)
    map_sums = tuple(data.FILES * one for one in (count, numbers, numbers, 2 * numbers, pages))
    return {
        "bad": ((data.FILES * len(rows), *_sums(sound)[1:]), _write(job, "bad", bad)),
        "maps": (map_sums, _write(job, "maps", map(json.dumps, maps))),
    }


def prepare_written(job: Job) -> Expected:
    rows = [_row(nth) for nth in range(job.pick(CSV_LINES, LINES_QUICK))]
    return {"csv": (_sums(rows), _write(job, "csv", (",".join(map(str, row.values())) for row in rows)))}


def _write(job: Job, kind: str, text: Iterable[str]) -> int:
    return data.write_both(job, job.given["folder"], kind, "".join(f"{line}\n" for line in text).encode())


def write_same(path: str, rows: Sequence[dict[str, Any]]) -> None:
    """Write the batch of some rows, in the types that they mean."""
    import pyarrow as pa

    from benchmarks.spark.floor import write_batch

    days = pa.array([row["day"] for row in rows]).cast(pa.date32())
    at = pa.array([row["at"] for row in rows]).cast(pa.timestamp("us", "UTC"))
    price = pa.array([Decimal(row["id"]).scaleb(-2) for row in rows], pa.decimal128(12, 2))
    columns = [pa.array([row["id"] for row in rows]), days, at, price, pa.array([row["page"] for row in rows])]
    write_batch(path, pa.record_batch(columns, names=["id", "day", "at", "price", "page"]))


def _sums(rows: Sequence[dict[str, Any]]) -> tuple[float, ...]:
    """The values of `SUMS` over all files."""
    pages = sum(len(row["page"]) for row in rows)
    return tuple(data.FILES * one for one in (len(rows), sum(row["id"] for row in rows), len(rows), len(rows), pages))


def _row(nth: int) -> dict[str, Any]:
    return {
        "id": nth,
        "day": f"2024-{nth % 12 + 1:02}-{nth % 28 + 1:02}",
        "at": f"2024-01-02T10:{nth % 60:02}:00.{nth % 1000:03}Z",
        "price": nth / 100,
        "page": f"/page/{nth % 1000}",
    }


def _bound(title: str, one: str, other: str, most: float = 1.3) -> Goal:
    """A bound for the CPU time of `one` as a multiple of that of `other`."""
    return Goal(f"{title}, CPU", ratio("cpu_s", one, other), at_most=most)


def _case(
    id: str, title: str, contestants: Mapping[str, Any], goals: Sequence[Goal], prepare: Callable[[Job], Expected]
) -> Case:
    return spark_case(id, title, contestants, goals, prepare, rounds_min=ROUNDS, warmups=WARMUPS)


CASES = (
    _case(
        "S5",
        "Spark: 94 MB of JSON with dates, times and decimals",
        TYPED,
        (
            _bound("JSON, path / spark.read", "JSON, path", "JSON, spark.read", 1.1),
            _bound("JSON, 1 column, path / spark.read", "1 column, path", "1 column, spark.read", 1.1),
            _bound("JSON, text / spark.read", "JSON, text", "JSON, spark.read", 2.6),
            _bound(
                "JSON, plain types, strict / spark.read", "JSON, plain types, strict", "JSON, plain types, spark.read"
            ),
        ),
        prepare_typed,
    ),
    _case(
        "S5b",
        "Spark: 94 MB of JSON with malformed lines, 84 MB with maps",
        ODD,
        (
            _bound("JSON, 1 % bad, text / spark.read", "1 % bad, text", "1 % bad, spark.read", 1.7),
            _bound("JSON, maps, path / spark.read", "maps, path", "maps, spark.read", 1.1),
            _bound("JSON, maps, text / spark.read", "maps, text", "maps, spark.read", 1.7),
        ),
        prepare_odd,
    ),
    _case(
        "S5c",
        "Spark: 88 MB of CSV read; 300,000 rows written as JSON",
        WRITTEN,
        (
            _bound("CSV, path / spark.read", "CSV, path", "CSV, spark.read", 1.1),
            _bound("CSV, text / spark.read", "CSV, text", "CSV, spark.read", 1.4),
            _bound("JSON, to_json and text / write.json", "to_json, write text", "write.json", 1.9),
        ),
        prepare_written,
    ),
)
