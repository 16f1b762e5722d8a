"""A client of Spark Connect that maintains, reads and writes segments. Arguments: the address, a folder."""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.sql import SparkSession

from rollingfs import RollingFileSystem
from rollingfs.spark import doctor
from rollingfs.spark.maintain import maintain


def main(address: str, folder: str) -> dict[str, Any]:
    spark = SparkSession.builder.remote(address).getOrCreate()
    found: dict[str, Any] = {"doctor": doctor(spark)}
    frame = maintain(spark, f"{folder}/in", ["verify", "info"])
    found["info"] = [row.asDict() for row in frame.collect()]
    found["damaged"] = frame.filter("not done").count()
    frame = maintain(spark, f"{folder}/sound", ["truncate", "seal"], keep=40, align="\n")
    found["truncated"] = [row.bytes for row in frame.collect()]
    exported = maintain(spark, f"{folder}/sound", "export", target=f"file://{folder}/out")
    found["exported"] = [row.error for row in exported.collect()]
    tiers = {"rolling": {"tiers": {"cold": f"{folder}/cold"}}}
    kept = maintain(spark, f"{folder}/stream", ["retain", "offload"], storage_options=tiers)
    found["kept"] = {row.path: [row.error, json.loads(row.details)] for row in kept.collect()}
    cut = RollingFileSystem("file").stream(f"{folder}/trimmed").cut()
    trimmed = maintain(spark, f"{folder}/trimmed", "trim", cut=cut)
    found["trimmed"] = [[row.operation, row.error, row.bytes, row.start] for row in trimmed.collect()]
    found["gone"] = maintain(spark, f"{folder}/deleted", "seal").collect()
    lines = spark.read.format("rolling").load(f"{folder}/sound")
    found["lines"] = lines.count()
    lines.write.format("rolling").mode("append").save(f"file://{folder}/copy")
    return found


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
