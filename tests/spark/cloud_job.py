"""Reads segments by Spark, with connectors as a user adds them. Its input is JSON: `jars`, `conf` and `urls`."""

import json
import sys
from typing import Any

from pyspark.sql import SparkSession

from rollingfs.spark import configure, read_json


def main(jars: list[str], conf: dict[str, str], urls: list[str]) -> dict[str, Any]:
    """By URL of a folder with the segment ``s``: its numbers, by the folder and by a filter; or why there are none."""
    builder = SparkSession.builder.master("local[2]").config(map={"spark.jars": ",".join(jars), **conf})
    spark = configure(builder).getOrCreate()
    found: dict[str, Any] = {}
    for url in urls:
        try:
            whole = [row.n for row in spark.read.json(url).sort("n").collect()]
            found[url] = [whole, [row.text for row in read_json(spark, f"{url}/s").where("n = 7").collect()]]
        except Exception as error:  # noqa: BLE001 - the test shows it
            found[url] = str(error)[:5000]
    return found


if __name__ == "__main__":
    print(json.dumps(main(**json.load(sys.stdin))))
