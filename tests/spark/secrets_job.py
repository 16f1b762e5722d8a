"""The job of the test of secrets: every use of storage options, and all that Spark shows of it.

``secrets_job.py FOLDER BUCKET``. In FOLDER: ``storage.json``, the options of the store. In BUCKET: segments ``in`` and
``sealed``. All that explains a query is printed; Spark writes its event log to ``FOLDER/events``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from rollingfs.spark import configure, storage_options
from rollingfs.spark.source import RollingDataSource
from tests.support.spark import LOOPBACK

FOLDER = Path(sys.argv[1])
BUCKET = sys.argv[2]
STORAGE: dict[str, Any] = json.loads((FOLDER / "storage.json").read_text())
SETTINGS = {
    **LOOPBACK,
    "spark.eventLog.enabled": "true",
    "spark.eventLog.compress": "false",
    "spark.eventLog.dir": f"file://{FOLDER}/events",
}


def session() -> SparkSession:
    builder = SparkSession.builder.master("local[2]").appName("secrets").config(map=SETTINGS)
    found: SparkSession = configure(builder, STORAGE).getOrCreate()
    found.dataSource.register(RollingDataSource)
    return found


def fail(what: Callable[[], Any]) -> None:
    """Something that Spark explains, logs, and gives up."""
    try:
        what()
    except PySparkException as error:
        print("refused:", error)
    else:
        raise AssertionError("this should fail")


def batch(spark: SparkSession, options: dict[str, str]) -> None:
    frame = spark.read.format("rolling").options(**options).load(f"s3://{BUCKET}/in")
    frame.explain("extended")
    fail(lambda: frame.write.format("rolling").options(**options).mode("append").save(f"s3://{BUCKET}/sealed"))
    spark.sql(
        f"CREATE TEMPORARY VIEW named USING rolling OPTIONS (path 's3://{BUCKET}/in', "
        f"storage_options '{options['storage_options']}')"
    )
    found = spark.sql("SELECT value FROM named WHERE value > ''")
    found.explain("formatted")
    found.show()


def stream(spark: SparkSession, options: dict[str, str], target: str) -> None:
    frame = spark.readStream.format("rolling").options(**options).load(f"s3://{BUCKET}/in")
    writer = frame.writeStream.format("rolling").options(**options).trigger(availableNow=True)
    query = writer.option("checkpointLocation", f"{FOLDER}/{target}").start(f"s3://{BUCKET}/{target}")
    try:
        query.awaitTermination()
    finally:
        query.explain(True)
        print(query.status, query.recentProgress, query.exception())


def path(spark: SparkSession) -> None:
    frame = spark.read.text(f"rolling+s3://{BUCKET}/in")
    frame.explain("extended")
    frame.write.text(f"rolling+s3://{BUCKET}/table")
    fail(lambda: spark.read.text(f"rolling+s3://{BUCKET}/missing").count())
    spark.sql("SET").show(1000, truncate=False)


def main() -> None:
    spark = session()
    given_once = storage_options(spark, f"s3://{BUCKET}/in")  # what `configure` was given, by Hadoop's settings
    assert {key: given_once[key] for key in ("key", "secret")} == {key: STORAGE[key] for key in ("key", "secret")}
    options = {"storage_options": json.dumps(given_once)}
    batch(spark, options)
    stream(spark, options, "out")
    fail(lambda: stream(spark, options, "sealed"))
    path(spark)
    spark.stop()


if __name__ == "__main__":
    main()
