"""One Spark job that does some work to each of many paths, in a session of Spark itself or of Spark Connect.

Spark shows its progress, and cancels it after an interrupt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

TASKS_MIN = 64
"""Tasks of a job with at least as many paths."""
PATHS_PER_TASK = 64
"""Paths of a task, where more tasks than `TASKS_MIN` are needed."""

Work = Callable[[str], dict[str, Any]]
"""Gives the values of a row by column; a missing one is null. Spark sends it to the workers."""


def run(spark: Any, name: str, paths: Sequence[str], work: Work, schema: str) -> list[dict[str, Any]]:
    """Do the work to all paths, and wait for it.

    Parameters
    ----------
    name
        As Spark's UI shows it.
    schema
        The columns of a row, as Spark writes them: ``path string, bytes bigint``.
    """
    if is_classic(spark):  # `mapInArrow` would ask for pandas here
        spark.sparkContext.setJobDescription(name)
        try:
            return list(spark.sparkContext.parallelize(paths, tasks(len(paths))).map(work).collect())
        finally:
            spark.sparkContext.setJobDescription(None)
    spread = spark.createDataFrame([(path,) for path in paths], "path string").repartition(tasks(len(paths)))
    return [row.asDict() for row in spread.mapInArrow(partial(_batches, work, schema), schema).collect()]


def is_classic(spark: Any) -> bool:
    """Whether the driver runs in this process; else it is a session of Spark Connect, which has no `sparkContext`."""
    return hasattr(spark, "_jvm")


def tasks(paths: int) -> int:
    """The number of tasks for a number of paths."""
    return max(1, min(paths, TASKS_MIN), -(-paths // PATHS_PER_TASK))


def _batches(work: Work, schema: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of one task, each as soon as its work is done."""
    import pyarrow as pa

    kinds = {"string": pa.string(), "boolean": pa.bool_(), "bigint": pa.int64(), "double": pa.float64()}
    columns = pa.schema([(name, kinds[kind]) for name, kind in map(str.split, schema.split(","))])
    for batch in batches:
        for path in batch.column(0).to_pylist():
            yield pa.RecordBatch.from_pylist([work(path)], columns)
