"""One Spark job that does some work to each of many paths, in a session of Spark itself or of Spark Connect."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

PATHS_PER_TASK_MAX = 64
TASKS_PER_CORE_MIN = 4
CORES_MAX = 10_000
"""Maximum number of cores that `_cores` can count."""
LOOK_S = 0.5
"""Time between two looks at the progress of the job."""

Shown = Callable[[int, int], None]
"""Takes the number of tasks that are done, and of all tasks that are known."""


@dataclass(frozen=True, slots=True)
class Job:
    """What to do."""

    name: str
    """As Spark's UI shows it."""
    paths: Sequence[str]
    work: Callable[[str], dict[str, Any]]
    """Gives the values of a row by column; a missing one is null. Spark sends it to the workers."""
    schema: str
    """The columns of a row, as Spark writes them: ``path string, bytes bigint``."""


def run(spark: Any, job: Job, shown: Shown) -> list[dict[str, Any]]:
    """Do the work to all paths, and wait for it; an interrupt cancels the job."""
    tag = f"rollingfs-{uuid.uuid4().hex}"
    rows_of, progress = (_classic_rows, _classic_progress) if is_classic(spark) else (_connect_rows, _connect_progress)

    def collect() -> list[dict[str, Any]]:
        spark.addTag(tag)  # it belongs to this thread
        return rows_of(spark, job, tag)

    with ThreadPoolExecutor(1, "rollingfs-spark-job") as pool, progress(spark, tag, shown) as look:
        rows = pool.submit(collect)
        try:
            while not rows.done():
                wait([rows], timeout=LOOK_S)
                look()
        except BaseException:
            while not rows.done():  # again and again: the job may not have begun
                spark.interruptTag(tag)
                wait([rows], timeout=LOOK_S)
            raise
    return rows.result()


def is_classic(spark: Any) -> bool:
    """Whether the driver runs in this process; else it is a session of Spark Connect, which has no `sparkContext`."""
    return hasattr(spark, "_jvm")


def tasks(paths: int, cores: int) -> int:
    """The number of tasks for a number of paths."""
    return max(1, min(paths, max(cores * TASKS_PER_CORE_MIN, -(-paths // PATHS_PER_TASK_MAX))))


# -- Spark: `mapInArrow` would ask for pandas ----------------------------------------------------------------------


def _classic_rows(spark: Any, job: Job, group: str) -> list[dict[str, Any]]:
    context = spark.sparkContext
    context.setJobGroup(group, job.name)
    slices = tasks(len(job.paths), context.defaultParallelism)
    rows: list[dict[str, Any]] = context.parallelize(job.paths, slices).map(job.work).collect()
    return rows


@contextlib.contextmanager
def _classic_progress(spark: Any, group: str, shown: Shown) -> Iterator[Callable[[], None]]:
    tracker = spark.sparkContext.statusTracker()

    def look() -> None:
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
        stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
        there = [stage for stage in stages if stage is not None]
        shown(sum(stage.numCompletedTasks for stage in there), sum(stage.numTasks for stage in there))

    yield look


# -- Spark Connect -----------------------------------------------------------------------------------------------


def _connect_rows(spark: Any, job: Job, _: str) -> list[dict[str, Any]]:
    paths = spark.createDataFrame([(path,) for path in job.paths], "path string")
    spread = paths.repartition(tasks(len(job.paths), _cores(spark)))
    rows = spread.mapInArrow(partial(_batches, job.work, job.schema), job.schema)
    return [row.asDict() for row in rows.collect()]


def _cores(spark: Any) -> int:
    """The number of tasks that Spark runs at a time, as it splits a range by default."""
    from pyspark.sql import functions

    parts = spark.range(CORES_MAX).select(functions.spark_partition_id().alias("nth"))
    return int(parts.agg(functions.max("nth")).first()[0]) + 1


def _batches(
    work: Callable[[str], dict[str, Any]], schema: str, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The rows of one task, each as soon as its work is done."""
    import pyarrow as pa

    kinds = {"string": pa.string(), "boolean": pa.bool_(), "bigint": pa.int64(), "double": pa.float64()}
    columns = pa.schema([(name, kinds[kind]) for name, kind in map(str.split, schema.split(","))])
    for batch in batches:
        for path in batch.column(0).to_pylist():
            yield pa.RecordBatch.from_pylist([work(path)], columns)


@contextlib.contextmanager
def _connect_progress(spark: Any, tag: str, shown: Shown) -> Iterator[Callable[[], None]]:
    counts = (0, 0)

    def note(stages: Any, **_: Any) -> None:
        nonlocal counts
        known = list(stages or ())
        counts = sum(stage.num_completed_tasks for stage in known), sum(stage.num_tasks for stage in known)

    spark.registerProgressHandler(note)
    try:
        yield lambda: shown(*counts)
    finally:
        spark.removeProgressHandler(note)
