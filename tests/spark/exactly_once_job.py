"""The streaming job that the test of exactly once kills: one segment into another, until it is killed or all is done.

``exactly_once_job.py FOLDER once|forever``. In FOLDER: ``job.json`` has URLs and options; a file ``pause`` makes the
commit of the sink wait, after the tasks have ended, and say so by a file ``paused``.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from rollingfs.spark.source import RollingDataSource

FOLDER = Path(sys.argv[1])
KILLED_WITHIN_S = 120


class PausingDataSource(RollingDataSource):
    """The data source; its driver can be stopped between the tasks of a batch and the commit."""

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802 - Spark's name
        folder = FOLDER
        writer = super().streamWriter(schema, overwrite)
        commit = writer.commit

        def pausing(messages: Any, batch: int) -> None:
            if (folder / "pause").exists():
                (folder / "paused").touch()
                time.sleep(KILLED_WITHIN_S)
            commit(messages, batch)

        writer.commit = pausing
        return writer


def main() -> None:
    job = json.loads((FOLDER / "job.json").read_text())
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    spark = builder.config("spark.log.level", "ERROR").getOrCreate()
    spark.dataSource.register(PausingDataSource)
    reader = spark.readStream.format("rolling").options(**job["options"], **job["source_options"])
    writer = reader.load(job["source"]).writeStream.format("rolling").options(**job["options"])
    writer = writer.option("checkpointLocation", str(FOLDER / "checkpoint"))
    writer = (
        writer.trigger(availableNow=True) if sys.argv[2] == "once" else writer.trigger(processingTime="50 milliseconds")
    )
    writer.start(job["target"]).awaitTermination()


if __name__ == "__main__":
    main()
