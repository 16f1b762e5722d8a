"""A client of Spark Connect that maintains, reads and writes segments. Arguments: the address, a folder."""

import json
import sys
from typing import Any

from pyspark.sql import SparkSession

from rollingfs.spark import doctor
from rollingfs.spark.maintain import maintain


def main(address: str, folder: str) -> dict[str, Any]:
    spark = SparkSession.builder.remote(address).getOrCreate()
    found: dict[str, Any] = {"doctor": doctor(spark)}
    frame = maintain(spark, f"{folder}/in", ["verify", "info"])
    found["info"] = [row.asDict() for row in frame.collect()]
    found["damaged"] = frame.filter("not done").count()
    tiers = {"rolling": {"tiers": {"cold": f"{folder}/cold"}}}
    kept = maintain(spark, f"{folder}/stream", ["retain", "offload"], storage_options=tiers)
    found["kept"] = {row.path: [row.error, json.loads(row.details)] for row in kept.collect()}
    lines = spark.read.format("rolling").load(f"{folder}/sound")
    found["lines"] = lines.count()
    lines.write.format("rolling").mode("append").save(f"file://{folder}/copy")
    return found


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
