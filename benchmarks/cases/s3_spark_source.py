"""S3: Spark reads by the data source in Python.

Two floors lie beneath it. The same batch again and again is what Spark takes of any Python data source: nothing is
read, and text is in lines already. Plain files are the least that reads: no checksum, and Arrow's own way from a
file to batches.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.case import Job
from benchmarks.spark import data
from benchmarks.spark.query import PLAIN, TEXT_SUMS, Files, Query, slowdown, spark_case, times

TASKS_PER_FILE = 2
"""A task for segments has at most 32 MiB, and a segment has 48 MiB."""


@dataclass(frozen=True, slots=True)
class _Source:
    """A folder of segments, by ``format("rolling")``."""

    kind: str
    ending: str
    schema: str | None = None

    def __call__(self, spark: Any, given: Mapping[str, Any]) -> Any:
        from rollingfs.spark.source import RollingDataSource

        spark.dataSource.register(RollingDataSource)
        reader = spark.read.format("rolling").option("format", self.kind)
        reader = reader.schema(self.schema) if self.schema else reader
        return reader.load(f"file://{given['folder']}/segments-{self.ending}")


@dataclass(frozen=True, slots=True)
class _Same:
    """The same batch, as often as the segments hold it, in as many tasks as for them."""

    ending: str

    def __call__(self, spark: Any, given: Mapping[str, Any]) -> Any:
        from benchmarks.spark.floor import SameBatch

        spark.dataSource.register(SameBatch)
        each = math.ceil(data.BLOCKS / TASKS_PER_FILE)
        options = {"partitions": data.FILES * data.BLOCKS // each, "batches": each}
        return spark.read.format("samebatch").options(**options).load(f"{given['folder']}/batch-{self.ending}")


@dataclass(frozen=True, slots=True)
class _Bare:
    """Plain files with the same bytes, in as many tasks as for segments, read with nothing that could be spared."""

    ending: str

    def __call__(self, spark: Any, given: Mapping[str, Any]) -> Any:
        from benchmarks.spark.floor import PlainFiles

        spark.dataSource.register(PlainFiles)
        options = {"kind": self.ending, "cuts": TASKS_PER_FILE}
        return spark.read.format("plainfiles").options(**options).load(f"{given['folder']}/plain-{self.ending}")


SOURCES = {
    "source, JSON": Query("json", _Source("json", "json", data.JSON_SCHEMA), data.SUMS),
    "spark.read.json": Query("json", Files(PLAIN, "plain-json", "json", data.JSON_SCHEMA), data.SUMS),
    "source, Arrow": Query("arrow", _Source("arrow", "arrow"), data.SUMS),
    "same batch, Arrow": Query("arrow", _Same("arrow"), data.SUMS),
    "plain files, Arrow": Query("arrow", _Bare("arrow"), data.SUMS),
    "source, text": Query("txt", _Source("text", "txt"), TEXT_SUMS),
    "same batch, text": Query("txt", _Same("txt"), TEXT_SUMS),
    "plain files, text": Query("txt", _Bare("txt"), TEXT_SUMS),
    "spark.read.text": Query("txt", Files(PLAIN, "plain-txt", "text"), TEXT_SUMS),
}


def prepare_sources(job: Job) -> Mapping[str, tuple[Sequence[float], int]]:
    import pyarrow as pa

    from benchmarks.spark.floor import write_batch

    folder = job.given["folder"]
    block, size = data.write_lines(job, folder, "json")
    data.write_lines(job, folder, "txt")
    batch = data.arrow_batch(block)
    arrow_bytes = data.write_streams(job, folder, batch)
    write_batch(f"{folder}/batch-arrow", batch)
    write_batch(f"{folder}/batch-txt", pa.record_batch({"value": block.data.decode().splitlines()}))
    return {
        "json": (times(block.sums), size),
        "arrow": (times(block.sums, data.ARROW_COPIES), arrow_bytes),
        "txt": (times(block.text_sums), size),
    }


CASES = (
    spark_case(
        "S3",
        'Spark: 384 MiB read by format("rolling"); 8 segments of 6 chunks and a tail',
        SOURCES,
        (
            slowdown("JSON, spark.read.json / source", "source, JSON", "spark.read.json", at_least=1),
            slowdown("Arrow, same batch / source", "source, Arrow", "same batch, Arrow", at_least=0.95),
            slowdown("Arrow, plain files / source", "source, Arrow", "plain files, Arrow", at_least=0.95),
            slowdown("text, same batch / source", "source, text", "same batch, text", at_least=0.95),
            slowdown("text, plain files / source", "source, text", "plain files, text", at_least=0.95),
        ),
        prepare_sources,
    ),
)
