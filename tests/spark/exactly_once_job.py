"""The streaming job that the test of exactly once kills: one segment into another, until it is killed or all is done.

``exactly_once_job.py FOLDER once|forever``. In FOLDER: ``job.json`` has URLs and options; a file ``pause`` makes the
commit of the sink wait, after the tasks have ended, and say so by a file ``paused``. A file ``between`` makes it wait
after the commit to the first of several segments.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.functions import substring

from rollingfs.spark.source import RollingDataSource
from rollingfs.spark.source.sink import commits
from rollingfs.spark.source.sink.commits import SegmentCommit
from tests.support.schedules import beside
from tests.support.spark import LOOPBACK

FOLDER = Path(sys.argv[1])
KILLED_WITHIN_S = 120
UNCONNECTED = "Python worker failed to connect back"
"""Spark gives its workers ten seconds to start, which no option changes; on a busy machine the query begins again."""


class PausingDataSource(RollingDataSource):
    """The data source; its driver can be stopped between the tasks of a batch and the commit."""

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802 - Spark's name
        writer = super().streamWriter(schema, overwrite)
        commit = writer.commit

        def pausing(messages: Any, batch: int) -> None:
            pause("pause")
            with between_segments():
                commit(messages, batch)

        writer.commit = pausing
        return writer


def pause(sign: str) -> None:
    """Wait to be killed, if a file says so."""
    if (FOLDER / sign).exists():
        (FOLDER / "paused").touch()
        time.sleep(KILLED_WITHIN_S)


@contextlib.contextmanager
def between_segments() -> Iterator[None]:
    """Commit to one segment after the other, and pause behind the first if the file says so."""
    done: list[SegmentCommit] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commits, "COMMITS_MAX", 1)
        beside(patch, SegmentCommit, "commit", lambda *_: done and pause("between"), lambda one, *_: done.append(one))
        yield


def main() -> None:
    job = json.loads((FOLDER / "job.json").read_text())
    spark = SparkSession.builder.master("local[2]").config(map={**LOOPBACK, "spark.log.level": "ERROR"}).getOrCreate()
    spark.dataSource.register(PausingDataSource)
    rows = spark.readStream.format("rolling").options(**job["options"], **job["source_options"]).load(job["source"])
    sink = job["target_options"]
    if "segmentBy" in sink:
        rows = rows.withColumn("digit", substring("value", *job["digit"]))
    writer = rows.writeStream.format("rolling").options(**job["options"], **sink)
    writer = writer.option("checkpointLocation", str(FOLDER / "checkpoint"))
    trigger = {"availableNow": True} if sys.argv[2] == "once" else {"processingTime": "50 milliseconds"}
    while True:
        try:
            writer.trigger(**trigger).start(job["target"]).awaitTermination()
            return
        except StreamingQueryException as error:
            if UNCONNECTED not in str(error):
                raise


if __name__ == "__main__":
    main()
