"""S2: Spark writes by the path, segments and plain files."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.case import Job
from benchmarks.spark import data
from benchmarks.spark.query import PATH, PLAIN, TEXT_SUMS, column_sums, slowdown, spark_case
from benchmarks.spark.session import measured

TASKS = FILES_WRITTEN = 8
LINES = 384_000
LINES_QUICK = 8_000
LINE_CHARACTERS = 1_023


@dataclass(frozen=True, slots=True)
class Write:
    """Writes rows as files, and counts them."""

    scheme: str
    kind: str
    rows: Callable[[Any, Job], Any]
    """Makes the table that is written."""
    sums: Sequence[str]

    def __call__(self, job: Job) -> None:
        spark, target = job.given["spark"], f"{job.given['folder']}/{job.name}"
        with measured(job):
            self.rows(spark, job).write.format(self.kind).save(self.scheme + target)
        job.sample.byte_count = sum(entry.stat().st_size for entry in os.scandir(target))
        found = spark.read.format(self.kind).load(PLAIN + target).selectExpr(*self.sums).first()
        expected = job.given["expected"][self.kind]
        assert tuple(found) == tuple(expected), f"{self.kind}: {tuple(found)} instead of {tuple(expected)}"
        assert len([name for name in os.listdir(target) if name.startswith("part-")]) == FILES_WRITTEN
        shutil.rmtree(target)


def long_lines(spark: Any, job: Job) -> Any:
    """Lines that cost little to make."""
    count = job.pick(LINES, LINES_QUICK)
    return spark.range(0, count, 1, TASKS).selectExpr(f"lpad(cast(id as string), {LINE_CHARACTERS}, '-') as value")


def wide_rows(spark: Any, job: Job) -> Any:
    """Longs that nothing makes smaller."""
    columns = [f"xxhash64(id, {number}) & 1099511627775 as c{number}" for number in range(data.COLUMNS)]
    return spark.range(0, job.pick(data.ROWS, data.ROWS_QUICK), 1, TASKS).selectExpr(*columns)


WRITES = {
    "rolling+file, text": Write(PATH, "text", long_lines, TEXT_SUMS),
    "file, text": Write(PLAIN, "text", long_lines, TEXT_SUMS),
    "rolling+file, Parquet": Write(PATH, "parquet", wide_rows, column_sums(data.COLUMNS)),
    "file, Parquet": Write(PLAIN, "parquet", wide_rows, column_sums(data.COLUMNS)),
}


def prepare_writes(job: Job) -> Mapping[str, Sequence[float]]:
    found = {write.kind: write.rows(job.given["spark"], job).selectExpr(*write.sums) for write in WRITES.values()}
    return {kind: tuple(sums.first()) for kind, sums in found.items()}


CASES = (
    spark_case(
        "S2",
        "Spark: 384 MB written by the path; 8 files",
        WRITES,
        tuple(
            slowdown(f"{kind}, file / rolling+file", f"rolling+file, {kind}", f"file, {kind}", at_least=0.85)
            for kind in ("text", "Parquet")
        ),
        prepare_writes,
    ),
)
