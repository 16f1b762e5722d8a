"""A job for a cluster: it writes and reads by the data source, reads by the path, and maintains. Argument: a folder."""

from __future__ import annotations

import json
import sys
from typing import Any

from cluster_module import doubled  # goes to the workers by --py-files
from pyspark.sql import SparkSession

from rollingfs.spark import doctor, to_json
from rollingfs.spark.maintain import maintain


def main(folder: str) -> dict[str, Any]:
    spark = SparkSession.builder.getOrCreate()
    found: dict[str, Any] = {"doctor": doctor(spark)}
    rows = spark.range(0, 1000, numPartitions=4)
    to_json(rows).write.format("rolling").mode("append").save(f"file://{folder}/log/n")
    source = spark.read.format("rolling").options(format="json", partitionBytes=2000).schema("id long")
    found["source"] = source.load(f"file://{folder}/log").selectExpr("sum(id)").first()[0]
    found["path"] = spark.read.schema("id long").json(f"rolling+file://{folder}/log/n").count()
    kept = maintain(spark, f"file://{folder}/log", ["verify", "seal"]).collect()
    found["maintain"] = [[row.error, row.sealed] for row in kept]
    found["doubled"] = sum(spark.sparkContext.parallelize(range(10), 4).map(doubled).collect())
    context = spark.sparkContext
    found["executors"] = context._jsc.sc().getExecutorMemoryStatus().size() - 1  # without the driver
    pythons = context.parallelize(range(4), 4).map(lambda _: sys.executable).collect()
    found["pythons"] = sorted(set(pythons))
    return found


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
