"""S5: records of every type by the data source in Python: JSON and CSV, read and written.

The same bytes are read with plain types (a date is a string) and with the types that they mean. Rows are written as
JSON by the data source, and as text that Spark's own `to_json` made.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.case import Goal, Job, ratio
from benchmarks.spark import data
from benchmarks.spark.query import PLAIN, Files, Query, spark_case
from benchmarks.spark.session import measured

JSON_LINES = 100_000
CSV_LINES = 200_000
LINES_QUICK = 2_000
"""Lines of each of the files: so many that a segment has more than one chunk."""
ROWS = 300_000
ROWS_QUICK = 5_000
ROUNDS = 3
WARMUPS = 1
"""Fewer than in the other cases of Spark: here are twice as many contestants."""
PLAIN_TYPES = "id long, day string, at string, price double, page string"
TYPES = "id long, day date, at timestamp, price decimal(12,2), page string"
CORRUPT = f"{TYPES}, _corrupt_record string"
SUMS = ("count(*)", "sum(id)", "count(day)", "count(at)", "sum(octet_length(page))")


@dataclass(frozen=True, slots=True)
class _Source:
    """A folder of segments, by ``format("rolling")``."""

    kind: str
    schema: str

    def __call__(self, spark: Any, given: Mapping[str, Any]) -> Any:
        from rollingfs.spark.source import RollingDataSource

        spark.dataSource.register(RollingDataSource)
        reader = spark.read.format("rolling").option("format", self.kind).schema(self.schema)
        return reader.load(f"file://{given['folder']}/segments-{self.kind}")


@dataclass(frozen=True, slots=True)
class _Write:
    """Writes rows to one segment, as JSON or as text that is JSON, and counts them."""

    kind: str

    def __call__(self, job: Job) -> None:
        from rollingfs.spark.source import RollingDataSource

        spark, target = job.given["spark"], f"{job.given['folder']}/{job.name}"
        spark.dataSource.register(RollingDataSource)
        count = job.pick(ROWS, ROWS_QUICK)
        rows = spark.range(0, count, 1, data.FILES).selectExpr(
            "id",
            "date_add(date '2024-01-01', cast(id % 365 as int)) day",
            "timestamp_seconds(1700000000 + id) at",
            "cast(id / 100 as decimal(12,2)) price",
            "concat('/page/', id) page",
            "array(id, id + 1) l",
        )
        rows = rows if self.kind == "json" else rows.selectExpr("to_json(struct(*)) value")
        with measured(job):
            rows.write.format("rolling").option("format", self.kind).mode("append").save(f"file://{target}")
        found = spark.read.format("rolling").load(f"file://{target}")
        [row] = found.selectExpr("count(*)", "sum(octet_length(value))").collect()
        assert row[0] == count, f"{row[0]} rows instead of {count}"
        job.sample.byte_count = row[1] + count
        shutil.rmtree(f"{target}$chunks", ignore_errors=True)
        os.remove(f"{target}$header")


CONTESTANTS: dict[str, Any] = {
    "source, JSON, plain types": Query("json", _Source("json", PLAIN_TYPES), SUMS),
    "source, JSON": Query("json", _Source("json", TYPES), SUMS),
    "source, JSON, _corrupt_record": Query("json", _Source("json", CORRUPT), SUMS),
    "spark.read.json": Query("json", Files(PLAIN, "plain-json", "json", TYPES), SUMS),
    "source, CSV": Query("csv", _Source("csv", TYPES), SUMS),
    "spark.read.csv": Query("csv", Files(PLAIN, "plain-csv", "csv", TYPES), SUMS),
    "write JSON": _Write("json"),
    "to_json, write text": _Write("text"),
}


def prepare_records(job: Job) -> Mapping[str, tuple[Sequence[float], int]]:
    def write(kind: str, count: int, encode: Callable[[dict[str, Any]], str]) -> tuple[Sequence[float], int]:
        rows = [_row(nth) for nth in range(count)]
        size = data.write_both(job, job.given["folder"], kind, "".join(map(encode, rows)).encode())
        pages = sum(len(str(row["page"])) for row in rows)
        return tuple(data.FILES * one for one in (count, sum(range(count)), count, count, pages)), size

    return {
        "json": write("json", job.pick(JSON_LINES, LINES_QUICK), lambda row: json.dumps(row) + "\n"),
        "csv": write("csv", job.pick(CSV_LINES, LINES_QUICK), lambda row: ",".join(map(str, row.values())) + "\n"),
    }


def _row(nth: int) -> dict[str, Any]:
    return {
        "id": nth,
        "day": f"2024-{nth % 12 + 1:02}-{nth % 28 + 1:02}",
        "at": f"2024-01-02T10:{nth % 60:02}:00.{nth % 1000:03}Z",
        "price": nth / 100,
        "page": f"/page/{nth % 1000}",
    }


def _bound(title: str, one: str, other: str, most: float) -> Goal:
    """A bound for the CPU time of `one` as a multiple of that of `other`."""
    return Goal(f"{title}, CPU", ratio("cpu_s", one, other), at_most=most)


CASES = (
    spark_case(
        "S5",
        "Spark: 94 MB of JSON and 88 MB of CSV with dates, times and decimals, read; 300,000 rows written",
        CONTESTANTS,
        (
            _bound("JSON, all types / plain types", "source, JSON", "source, JSON, plain types", 1.3),
            _bound("JSON, _corrupt_record", "source, JSON, _corrupt_record", "source, JSON, plain types", 1.3),
            _bound("JSON, source / spark.read.json", "source, JSON", "spark.read.json", 1.3),
            _bound("CSV, source / spark.read.csv", "source, CSV", "spark.read.csv", 1.3),
            _bound("JSON, write / to_json and text", "write JSON", "to_json, write text", 1.3),
        ),
        prepare_records,
        rounds_min=ROUNDS,
        warmups=WARMUPS,
    ),
)
