"""S1 to S4: Spark, beside plain files in the same session."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.work import Goal, Job, Work, ratio
from benchmarks.works import spark_data as data
from benchmarks.works.spark_session import measured, open_session

ROUNDS_MIN = 5
WARMUPS = 2
"""Each contestant runs so often before the clock starts: Java gets faster with use."""
PATH, PLAIN = "rolling+file://", "file://"
TEXT_SUMS = ("count(*)", "sum(octet_length(value))")
TASKS = FILES_WRITTEN = 8
LINES = 384_000
LINES_QUICK = 8_000
LINE_CHARACTERS = 1_023
SMALL_COUNT = 5_000
SMALL_COUNT_QUICK = 200
SMALL_LINES = 40
SMALL_INLINE_BYTES = 3_000
"""More than so many lines, and less than twice so many."""


@dataclass(frozen=True, slots=True)
class Query:
    """Reads everything, and sums it up."""

    kind: str
    """What the preparation has sums and a size for."""
    load: Callable[[Any, Mapping[str, Any]], Any]
    """Makes a table, given the session and what is there."""
    sums: Sequence[str]

    def __call__(self, job: Job) -> None:
        with measured(job):
            found = self.load(job.given["spark"], job.given).selectExpr(*self.sums).first()
        expected, job.sample.byte_count = job.given["expected"][self.kind]
        assert tuple(found) == tuple(expected), f"{self.kind}: {tuple(found)} instead of {tuple(expected)}"


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


@dataclass(frozen=True, slots=True)
class _Host:
    """A session with what `prepare` has made, in which each contestant has run already."""

    contestants: Mapping[str, Any]
    prepare: Callable[[Job], Mapping[str, Any]]
    """What the contestants must find, by kind."""

    @contextlib.contextmanager
    def __call__(self, job: Job) -> Iterator[Mapping[str, Any]]:
        with open_session() as (spark, folder):
            job.given = given = {"spark": spark, "folder": folder}
            given["expected"] = self.prepare(job)
            os.sync()  # what is written back later is not the contestants'
            for _ in range(0 if job.quick else WARMUPS):
                for contestant in self.contestants.values():
                    contestant(Job(job.rig, job.quick, 0, given))
            yield given


# -- S1: what lies there, read by the path -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Files:
    """A folder of files, as Spark reads it."""

    scheme: str
    name: str
    kind: str
    schema: str | None = None

    def __call__(self, spark: Any, given: Mapping[str, Any]) -> Any:
        reader = spark.read.format(self.kind)
        reader = reader.schema(self.schema) if self.schema else reader
        return reader.load(f"{self.scheme}{given['folder']}/{self.name}")


def _both(title: str, name: str, kind: str, sums: Sequence[str], schema: str | None = None) -> dict[str, Query]:
    """The same query of segments, and of plain files."""
    ending = name.partition(" ")[0]
    return {
        f"rolling+file, {title}": Query(name, _Files(PATH, f"segments-{ending}", kind, schema), sums),
        f"file, {title}": Query(name, _Files(PLAIN, f"plain-{ending}", kind, schema), sums),
    }


def _column_sums(count: int) -> tuple[str, ...]:
    return tuple(f"sum(c{number})" for number in range(count))


READS = {
    **_both("text", "txt", "text", TEXT_SUMS),
    **_both("JSON", "json", "json", data.SUMS, data.JSON_SCHEMA),
    **_both("Parquet", "parquet all", "parquet", _column_sums(data.COLUMNS)),
    **_both("Parquet, 1 column", "parquet one", "parquet", _column_sums(1)),
}


def _times(sums: Sequence[float], copies: int = 1) -> tuple[float, ...]:
    """Of all files, given those of one block."""
    return tuple(copies * data.FILES * data.BLOCKS * one for one in sums)


def prepare_reads(job: Job) -> Mapping[str, tuple[Sequence[float], int]]:
    folder = job.given["folder"]
    lines, text_bytes = data.write_lines(job, folder, "txt")
    rows, json_bytes = data.write_lines(job, folder, "json")
    columns, table_bytes = data.write_parquet(job, folder)
    return {
        "txt": (_times(lines.text_sums), text_bytes),
        "json": (_times(rows.sums), json_bytes),
        "parquet all": (columns, table_bytes),
        "parquet one": (columns[:1], table_bytes // data.COLUMNS),
    }


# -- S2: files, written by the path --------------------------------------------------------------------------


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
    "rolling+file, Parquet": Write(PATH, "parquet", wide_rows, _column_sums(data.COLUMNS)),
    "file, Parquet": Write(PLAIN, "parquet", wide_rows, _column_sums(data.COLUMNS)),
}


def prepare_writes(job: Job) -> Mapping[str, Sequence[float]]:
    found = {write.kind: write.rows(job.given["spark"], job).selectExpr(*write.sums) for write in WRITES.values()}
    return {kind: tuple(sums.first()) for kind, sums in found.items()}


# -- S3: the data source in Python ---------------------------------------------------------------------------


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
    """The same batch as often as the segments hold it, in as many tasks as ours."""

    ending: str

    def __call__(self, spark: Any, given: Mapping[str, Any]) -> Any:
        from benchmarks.works.spark_floor import SameBatch

        spark.dataSource.register(SameBatch)
        each = math.ceil(data.BLOCKS / 2)  # a task of ours has 32 MiB at most, and each segment 48 MiB
        options = {"partitions": data.FILES * data.BLOCKS // each, "batches": each}
        return spark.read.format("samebatch").options(**options).load(f"{given['folder']}/batch-{self.ending}")


SOURCES = {
    "source, JSON": Query("json", _Source("json", "json", data.JSON_SCHEMA), data.SUMS),
    "spark.read.json": Query("json", _Files(PLAIN, "plain-json", "json", data.JSON_SCHEMA), data.SUMS),
    "source, Arrow": Query("arrow", _Source("arrow", "arrow"), data.SUMS),
    "same batch, Arrow": Query("arrow", _Same("arrow"), data.SUMS),
    "source, text": Query("txt", _Source("text", "txt"), TEXT_SUMS),
    "same batch, text": Query("txt", _Same("txt"), TEXT_SUMS),
    "spark.read.text": Query("txt", _Files(PLAIN, "plain-txt", "text"), TEXT_SUMS),
}


def prepare_sources(job: Job) -> Mapping[str, tuple[Sequence[float], int]]:
    import pyarrow as pa

    from benchmarks.works.spark_floor import write_batch

    folder = job.given["folder"]
    block, size = data.write_lines(job, folder, "json")
    data.write_lines(job, folder, "txt")
    batch = data.arrow_batch(block)
    arrow_bytes = data.write_streams(job, folder, batch)
    write_batch(f"{folder}/batch-arrow", batch)
    write_batch(f"{folder}/batch-txt", pa.record_batch({"value": block.data.decode().splitlines()}))
    return {
        "json": (_times(block.sums), size),
        "arrow": (_times(block.sums, data.ARROW_COPIES), arrow_bytes),
        "txt": (_times(block.text_sums), size),
    }


# -- S4: thousands of small ones -----------------------------------------------------------------------------

SMALL = {
    "rolling+file": Query("small", _Files(PATH, "segments-small", "text"), TEXT_SUMS),
    "file": Query("small", _Files(PLAIN, "plain-small", "text"), TEXT_SUMS),
}


def prepare_small(job: Job) -> Mapping[str, tuple[Sequence[float], int]]:
    """Half of the segments have a chunk and a line in the header, the others are in the header altogether."""
    import fsspec

    from rollingfs.backend.local.backend import LocalBackend

    # not flushed: a disk that flushes 5,000 files would be busy long after
    fs = fsspec.filesystem(
        "rolling", backend=LocalBackend(sync=False), inline_bytes=SMALL_INLINE_BYTES, skip_instance_cache=True
    )
    folder = job.given["folder"]
    plain, segments = f"{folder}/plain-small", f"{folder}/segments-small"
    os.makedirs(plain)
    lines, texts = "".join(f"line {number:045d}\n" for number in range(SMALL_LINES)), []
    for number in range(job.pick(SMALL_COUNT, SMALL_COUNT_QUICK)):
        name, last = f"{number:05d}.txt", f"{number}\n"
        many = lines * (1 + number % 2)
        fs.create(f"{segments}/{name}")
        fs.append(f"{segments}/{name}", many.encode())
        fs.append(f"{segments}/{name}", last.encode())
        with open(f"{plain}/{name}", "w") as file:
            file.write(many + last)
        texts.append(many + last)
    assert len(fs.segment(f"{segments}/00001.txt").chunks) == 1
    rows, size = sum(text.count("\n") for text in texts), sum(map(len, texts))
    return {"small": ((rows, size - rows), size)}


def _slowdown(title: str, one: str, other: str, **bound: float) -> Goal:
    """How many times as fast as the other the one is."""
    return Goal(title, ratio("wall_s", other, one), **bound)


SHOWN = ("wall_s", "bytes_per_s", "cpu_s")
WORKS = (
    Work(
        "S1",
        "Spark: 384 MiB read by the path; 8 segments of 6 chunks and a tail",
        READS,
        tuple(
            _slowdown(f"{kind}, file / rolling+file", f"rolling+file, {kind}", f"file, {kind}", at_least=0.95)
            for kind in ("text", "JSON", "Parquet", "Parquet, 1 column")
        ),
        host=_Host(READS, prepare_reads),
        rounds_min=ROUNDS_MIN,
        needs_rig=False,
        shown=SHOWN,
    ),
    Work(
        "S2",
        "Spark: 384 MB written by the path; 8 files",
        WRITES,
        tuple(
            _slowdown(f"{kind}, file / rolling+file", f"rolling+file, {kind}", f"file, {kind}", at_least=0.85)
            for kind in ("text", "Parquet")
        ),
        host=_Host(WRITES, prepare_writes),
        rounds_min=ROUNDS_MIN,
        needs_rig=False,
        shown=SHOWN,
    ),
    Work(
        "S3",
        'Spark: 384 MiB read by format("rolling"); 8 segments of 6 chunks and a tail',
        SOURCES,
        (
            _slowdown("JSON, spark.read.json / source", "source, JSON", "spark.read.json", at_least=1),
            _slowdown("Arrow, same batch / source", "source, Arrow", "same batch, Arrow", at_least=0.9),
            _slowdown("text, same batch / source", "source, text", "same batch, text", at_least=0.9),
        ),
        host=_Host(SOURCES, prepare_sources),
        rounds_min=ROUNDS_MIN,
        needs_rig=False,
        shown=SHOWN,
    ),
    Work(
        "S4",
        "Spark: 5,000 small segments, listed and read by the path",
        SMALL,
        (Goal("rolling+file / file", ratio("wall_s", "rolling+file", "file"), at_most=1.5),),
        host=_Host(SMALL, prepare_small),
        rounds_min=ROUNDS_MIN,
        needs_rig=False,
        shown=("wall_s", "cpu_s"),
    ),
)
