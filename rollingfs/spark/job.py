"""A Spark job that works on many paths, in a session of Spark or of Spark Connect.

Spark shows its progress, and cancels it after an interrupt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

TASKS_MIN = 64
"""Tasks of a job with at least as many paths."""
PATHS_PER_TASK = 64
"""Paths of a task, where more tasks than `TASKS_MIN` are needed."""

Work = Callable[[str], dict[str, Any]]
"""Gives the values of a row by column; a missing value is null. Spark sends it to the workers."""


def run(spark: Any, name: str, paths: Sequence[str], work: Work, schema: str) -> list[dict[str, Any]]:
    """Do the work to all paths, and wait for it.

    Parameters
    ----------
    name
        As Spark's UI shows it.
    schema
        The columns of a row, as Spark writes them: ``path string, bytes bigint``.
    """
    from pyspark.sql import functions

    spread = spark.createDataFrame([(path,) for path in paths], "path string").repartition(tasks(len(paths)))
    rows = spread.select(functions.udf(work, schema, useArrow=False)("path"))  # with Arrow, it would ask for pandas
    describe = spark.sparkContext.setJobDescription if is_classic(spark) else lambda text: None
    describe(name)
    try:
        return [row[0].asDict() for row in rows.collect()]
    finally:
        describe(None)


def is_classic(spark: Any) -> bool:
    """Return whether the driver runs in this process.

    A session of Spark Connect has no `sparkContext`.
    """
    return hasattr(spark, "_jvm")


def tasks(paths: int) -> int:
    """Return the number of tasks for a number of paths."""
    return max(1, min(paths, TASKS_MIN), -(-paths // PATHS_PER_TASK))
