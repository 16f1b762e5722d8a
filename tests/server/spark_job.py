"""What Spark does through a gateway, with no jar of ours: reads, writes, a stream; and what `hdfs dfs` does."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession


def shell(spark: Any, *words: str) -> int:
    """Run a command of ``hdfs dfs``; returns its exit code."""
    jvm = spark._jvm
    conf = spark.sparkContext._jsc.hadoopConfiguration()
    array = spark.sparkContext._gateway.new_array(jvm.java.lang.String, len(words))
    for number, word in enumerate(words):
        array[number] = word
    code: int = jvm.org.apache.hadoop.util.ToolRunner.run(conf, jvm.org.apache.hadoop.fs.FsShell(), array)
    return code


def main(url: str, local: str, token: str) -> dict[str, Any]:
    builder = SparkSession.builder.master("local[2]").appName("gateway")
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": "2",
        "spark.showConsoleProgress": "false",
    }
    settings |= {
        f"spark.hadoop.dfs.webhdfs.oauth2.{name}": value
        for name, value in {
            "enabled": "true",
            "access.token.provider": "org.apache.hadoop.hdfs.web.oauth2.ConfCredentialBasedAccessTokenProvider",
            "client.id": "rollingfs",
            "credential": token,
            "refresh.url": f"{url.replace('webhdfs://', 'http://')}/oauth2/token",
        }.items()
    }
    for key, value in settings.items():
        builder.config(key, value)
    spark = builder.getOrCreate()
    found: dict[str, Any] = {}
    events = spark.read.json(f"{url}/events")
    plain = spark.read.json(f"{local}/plain")
    found["read"] = sorted(map(tuple, events.collect())) == sorted(map(tuple, plain.collect()))
    found["rows"] = events.count()
    events.write.partitionBy("kind").json(f"{url}/out/json")
    found["json"] = spark.read.json(f"{url}/out/json").count()
    found["kinds"] = sorted(path.name for path in Path(local, "store/out/json").glob("kind=*"))
    events.write.mode("overwrite").parquet(f"{url}/out/parquet")
    events.limit(10).write.mode("append").parquet(f"{url}/out/parquet")
    found["parquet"] = spark.read.parquet(f"{url}/out/parquet").where("n >= 0").count()
    for _ in range(2):
        reading = spark.readStream.schema(events.schema).json(f"{url}/events")
        writing = reading.writeStream.format("json").option("checkpointLocation", f"{url}/check")
        writing.trigger(availableNow=True).start(f"{url}/out/stream").awaitTermination()
    found["stream"] = spark.read.json(f"{url}/out/stream").count()
    Path(local, "more").write_text('{"n": 1000, "kind": "c"}\n')
    found["append"] = shell(spark, "-appendToFile", f"{local}/more", f"{url}/events/a")
    found["after"] = spark.read.json(f"{url}/events").count()
    found["cat"] = shell(spark, "-cat", f"{url}/events/a")
    found["ls"] = shell(spark, "-ls", "-R", f"{url}/")
    found["du"] = shell(spark, "-du", f"{url}/events")
    found["truncate"] = shell(spark, "-truncate", "1", f"{url}/events/a")
    found["rm"] = shell(spark, "-rm", "-r", "-skipTrash", f"{url}/out/stream")
    found["text"] = spark.sparkContext.textFile(f"{url}/events/a").count()
    spark.stop()
    return found


if __name__ == "__main__":
    print("FOUND " + json.dumps(main(*sys.argv[1:])))
