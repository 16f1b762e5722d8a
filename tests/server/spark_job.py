"""What Spark does through a gateway, with a token and no jar of ours: it commits; and what `hdfs dfs` does."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from tests.support.spark import LOOPBACK


def shell(spark: Any, *words: str) -> int:
    """Run a command of ``hdfs dfs``; returns its exit code."""
    jvm = spark._jvm
    conf = spark.sparkContext._jsc.hadoopConfiguration()
    array = spark.sparkContext._gateway.new_array(jvm.java.lang.String, len(words))
    for number, word in enumerate(words):
        array[number] = word
    return jvm.org.apache.hadoop.util.ToolRunner.run(conf, jvm.org.apache.hadoop.fs.FsShell(), array)


def session(settings: Mapping[str, str]) -> Any:
    """A session on this machine."""
    quiet = {"spark.log.level": "ERROR", "spark.sql.shuffle.partitions": "2", "spark.showConsoleProgress": "false"}
    builder = SparkSession.builder.master("local[2,3]").appName("gateway")
    return builder.config(map={**LOOPBACK, **quiet, **settings}).getOrCreate()


def commits(url: str, local: str, token: str) -> dict[str, Any]:
    """What Spark's committers do, by both algorithms: folders are made, renamed and deleted."""
    oauth2 = {
        "enabled": "true",
        "access.token.provider": "org.apache.hadoop.hdfs.web.oauth2.ConfCredentialBasedAccessTokenProvider",
        "client.id": "rollingfs",
        "credential": token,
        "refresh.url": f"{url.replace('webhdfs://', 'http://')}/oauth2/token",
    }
    spark = session({f"spark.hadoop.dfs.webhdfs.oauth2.{name}": value for name, value in oauth2.items()})
    found = {version: _committed(spark, f"{url}/v{version}", version) for version in "12"}
    (Path(local) / "put").write_text("put\n")
    shells = [
        ("-mkdir", "-p", "/sh/empty/deep"),
        ("-test", "-d", "/sh/empty/deep"),
        ("-put", f"file://{local}/put", "/sh/a"),
        ("-appendToFile", f"{local}/put", "/sh/a"),
        ("-du", "/sh/a"),
        ("-cp", "/sh/a", "/sh/b"),
        ("-mv", "/sh/b", "/sh/empty/deep"),
        ("-test", "-e", "/sh/empty/deep/b"),
        ("-mv", "/sh/empty", "/sh/moved"),
        ("-ls", "/sh/moved/deep"),
        ("-touchz", "/sh/zero"),
        ("-rmdir", "/sh/moved"),
        ("-rm", "-r", "-skipTrash", "/sh/moved"),
        ("-test", "-e", "/sh/moved"),
        ("-truncate", "1", "/sh/a"),
    ]
    there = [[f"{url}{word}" if word.startswith("/sh") else word for word in words] for words in shells]
    found["shell"] = [shell(spark, *words) for words in there]
    spark.stop()
    return found


def _committed(spark: Any, url: str, version: str) -> dict[str, Any]:
    algorithm = {"mapreduce.fileoutputcommitter.algorithm.version": version}
    rows = spark.range(0, 200, 1, 4).selectExpr("id", "id % 3 kind")

    def ids(where: str, kind: str = "json") -> list[int]:
        return sorted(row.id for row in spark.read.schema("id long, kind long").format(kind).load(where).collect())

    found: dict[str, Any] = {}
    rows.write.options(**algorithm).partitionBy("kind").json(f"{url}/json")
    found["written"] = ids(f"{url}/json") == list(range(200))
    try:
        rows.write.options(**algorithm).json(f"{url}/json")
    except AnalysisException as error:
        found["again"] = type(error).__name__
    rows.where("id < 50").write.mode("append").options(**algorithm).partitionBy("kind").json(f"{url}/json")
    found["appended"] = ids(f"{url}/json") == sorted([*range(200), *range(50)])
    new = rows.where("id < 10 and kind = 1")
    dynamic = {**algorithm, "partitionOverwriteMode": "dynamic"}
    new.write.mode("overwrite").options(**dynamic).partitionBy("kind").json(f"{url}/json")
    left = sorted([one for one in [*range(200), *range(50)] if one % 3 != 1] + [1, 4, 7])
    found["dynamic"] = ids(f"{url}/json") == left
    rows.where("id < 10").write.mode("overwrite").options(**algorithm).partitionBy("kind").json(f"{url}/json")
    found["overwritten"] = ids(f"{url}/json") == list(range(10))
    rows.write.options(**algorithm).parquet(f"{url}/a folder/100%/parquet")
    found["parquet"] = ids(f"{url}/a folder/100%/parquet", "parquet") == list(range(200))
    rows.limit(0).write.options(**algorithm).partitionBy("kind").json(f"{url}/nothing")
    for end in (100, 150):
        rows.where(f"id < {end} and id >= {end - 100}").write.mode("append").options(**algorithm).json(f"{url}/in")
        for kind, mode in (("json", "append"), ("memory", "complete")):
            stream = spark.readStream.schema("id long, kind long").json(f"{url}/in")
            stream = stream if mode == "append" else stream.groupBy("kind").count()
            writing = stream.writeStream.format(kind).outputMode(mode).queryName(f"{kind}{version}{end}")
            writing = writing.option("checkpointLocation", f"{url}/check-{kind}").trigger(availableNow=True)
            (writing.start(f"{url}/out") if kind == "json" else writing.start()).awaitTermination()
    found["stream"] = ids(f"{url}/out") == sorted([*range(100), *range(50, 150)])
    counted = spark.table(f"memory{version}150").collect()
    found["state"] = sum(row["count"] for row in counted) == 200
    return found


if __name__ == "__main__":
    print("FOUND " + json.dumps(commits(*sys.argv[1:])))
