"""S5, S5b, S5c: records of every type by the data source in Python: JSON and CSV, read and written.

The same bytes are read with plain types (a date is a string) and with the types that they mean; maps beside objects
with fields; sound lines beside lines of which 1 % is malformed. Rows are written as JSON by the data source, and as
text that Spark's own `to_json` made. The floors are a reader that gives the same batch again and again, and a writer
that drops the rows.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
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
OBJECTS = "id long, tags struct<a:long,b:long>, page string"
MAP_SUMS = ("count(*)", "sum(id)", "sum(tags.a)", "sum(tags.b)", "sum(octet_length(page))")
BAD_LINES = ('{"id": "x"}', '{"id": 5')
"""Each hundredth line is one of these in turn."""
BATCHES = 4
"""The same batch stands for the lines of a file so many times."""
SUMS = ("count(*)", "sum(id)", "count(day)", "count(at)", "sum(octet_length(page))")


@dataclass(frozen=True, slots=True)
class _Source:
    """A folder of segments, by ``format("rolling")``."""

    kind: str
    schema: str
    ending: str = ""
    """That of the folder; the format if it is empty."""

    def __call__(self, spark: Any, given: Mapping[str, Any]) -> Any:
        from rollingfs.spark.source import RollingDataSource

        spark.dataSource.register(RollingDataSource)
        reader = spark.read.format("rolling").option("format", self.kind).schema(self.schema)
        return reader.load(f"file://{given['folder']}/segments-{self.ending or self.kind}")


def _same(spark: Any, given: Mapping[str, Any]) -> Any:
    """The same batch, as often as the segments hold as many rows."""
    from benchmarks.spark.floor import SameBatch

    spark.dataSource.register(SameBatch)
    reader = spark.read.format("samebatch").options(partitions=data.FILES, batches=BATCHES)
    return reader.load(f"{given['folder']}/batch")


@dataclass(frozen=True, slots=True)
class _Write:
    """Writes rows to one segment, as JSON or as text that is JSON, and counts them."""

    kind: str

    def __call__(self, job: Job) -> None:
        from rollingfs.spark.source import RollingDataSource

        spark, target = job.given["spark"], f"{job.given['folder']}/{job.name}"
        spark.dataSource.register(RollingDataSource)
        rows = _rows(job, self.kind)
        with measured(job):
            rows.write.format("rolling").option("format", self.kind).mode("append").save(f"file://{target}")
        found = spark.read.format("rolling").load(f"file://{target}")
        [row] = found.selectExpr("count(*)", "sum(octet_length(value))").collect()
        count = job.pick(ROWS, ROWS_QUICK)
        assert row[0] == count, f"{row[0]} rows instead of {count}"
        job.sample.byte_count = row[1] + count
        shutil.rmtree(f"{target}$chunks", ignore_errors=True)
        os.remove(f"{target}$header")


@dataclass(frozen=True, slots=True)
class _Drop:
    """Hands the same rows to a writer that drops them."""

    kind: str

    def __call__(self, job: Job) -> None:
        from benchmarks.spark.floor import Dropped

        spark = job.given["spark"]
        spark.dataSource.register(Dropped)
        rows = _rows(job, self.kind)
        with measured(job):
            rows.write.format("dropped").mode("append").save()


def _rows(job: Job, kind: str) -> Any:
    rows = (
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
    return rows if kind == "json" else rows.selectExpr("to_json(struct(*)) value")


TYPED: dict[str, Any] = {
    "source, JSON, plain types": Query("json", _Source("json", PLAIN_TYPES), SUMS),
    "source, JSON": Query("json", _Source("json", TYPES), SUMS),
    "source, JSON, _corrupt_record": Query("json", _Source("json", CORRUPT), SUMS),
    "spark.read.json": Query("json", Files(PLAIN, "plain-json", "json", TYPES), SUMS),
    "same batch": Query("same", _same, SUMS),
}
ODD: dict[str, Any] = {
    "source, JSON": TYPED["source, JSON"],
    "source, JSON, 1 % bad": Query("bad", _Source("json", CORRUPT, "bad"), SUMS),
    "spark.read.json, 1 % bad": Query("bad", Files(PLAIN, "plain-bad", "json", CORRUPT), SUMS),
    "source, JSON, objects": Query("maps", _Source("json", OBJECTS, "maps"), MAP_SUMS),
    "source, JSON, maps": Query("maps", _Source("json", MAPS, "maps"), MAP_SUMS),
    "spark.read.json, maps": Query("maps", Files(PLAIN, "plain-maps", "json", MAPS), MAP_SUMS),
}
WRITTEN: dict[str, Any] = {
    "source, CSV": Query("csv", _Source("csv", TYPES), SUMS),
    "spark.read.csv": Query("csv", Files(PLAIN, "plain-csv", "csv", TYPES), SUMS),
    "write JSON": _Write("json"),
    "to_json, write text": _Write("text"),
    "rows dropped": _Drop("json"),
    "to_json, text dropped": _Drop("text"),
}
Expected = Mapping[str, tuple[Sequence[float], int]]


def prepare_typed(job: Job) -> Expected:
    count = job.pick(JSON_LINES, LINES_QUICK)
    rows = [_row(nth) for nth in range(count)]
    same = rows[: count // BATCHES]
    write_same(f"{job.given['folder']}/batch", same)
    size = _write(job, "json", map(json.dumps, rows))
    return {"json": (_sums(rows), size), "same": (tuple(BATCHES * one for one in _sums(same)), size)}


def prepare_odd(job: Job) -> Expected:
    rows = [_row(nth) for nth in range(job.pick(JSON_LINES, LINES_QUICK))]
    whole = [json.dumps(row) for row in rows]
    bad = [BAD_LINES[nth // 100 % 2] if nth % 100 == 0 else line for nth, line in enumerate(whole)]
    sound = [row for nth, row in enumerate(rows) if nth % 100]
    count = job.pick(MAP_LINES, LINES_QUICK)
    maps = [{"id": nth, "tags": {"a": nth, "b": 2 * nth}, "page": _row(nth)["page"]} for nth in range(count)]
    numbers, pages = sum(range(count)), sum(len(row["page"]) for row in maps)
    map_sums = tuple(data.FILES * one for one in (count, numbers, numbers, 2 * numbers, pages))
    return {
        "json": (_sums(rows), _write(job, "json", whole)),
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
            _bound("JSON, all types / plain types", "source, JSON", "source, JSON, plain types"),
            _bound("JSON, _corrupt_record", "source, JSON, _corrupt_record", "source, JSON, plain types"),
            _bound("JSON, source / spark.read.json", "source, JSON", "spark.read.json"),
        ),
        prepare_typed,
    ),
    _case(
        "S5b",
        "Spark: 94 MB of JSON with malformed lines, 84 MB with maps",
        ODD,
        (
            _bound("JSON, 1 % bad / all types", "source, JSON, 1 % bad", "source, JSON"),
            _bound("JSON, maps / objects", "source, JSON, maps", "source, JSON, objects"),
        ),
        prepare_odd,
    ),
    _case(
        "S5c",
        "Spark: 88 MB of CSV read; 300,000 rows written as JSON",
        WRITTEN,
        (
            _bound("CSV, source / spark.read.csv", "source, CSV", "spark.read.csv"),
            _bound("JSON, write / to_json and text", "write JSON", "to_json, write text"),
        ),
        prepare_written,
    ),
)
