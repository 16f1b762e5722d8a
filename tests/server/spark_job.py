"""What Spark does through a gateway, with no jar of ours: reads, writes, a stream; and what `hdfs dfs` does."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pyspark.errors import AnalysisException
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


def session(settings: Mapping[str, str]) -> Any:
    """A session on this machine."""
    builder = SparkSession.builder.master("local[2,3]").appName("gateway")
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": "2",
        "spark.showConsoleProgress": "false",
        **settings,
    }
    for key, value in settings.items():
        builder.config(key, value)
    return builder.getOrCreate()


def reads_and_writes(url: str, local: str, token: str) -> dict[str, Any]:
    """All kinds of work, with a token."""
    oauth2 = {
        "enabled": "true",
        "access.token.provider": "org.apache.hadoop.hdfs.web.oauth2.ConfCredentialBasedAccessTokenProvider",
        "client.id": "rollingfs",
        "credential": token,
        "refresh.url": f"{url.replace('webhdfs://', 'http://')}/oauth2/token",
    }
    spark = session({f"spark.hadoop.dfs.webhdfs.oauth2.{name}": value for name, value in oauth2.items()})
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


def commits(url: str, local: str) -> dict[str, Any]:
    """What Spark's committers do, by both algorithms: folders are made, renamed and deleted."""
    spark = session({})
    found = {version: _committed(spark, f"{url}/v{version}", version) for version in "12"}
    (Path(local) / "put").write_text("put\n")
    shells = [
        ("-mkdir", "-p", "/sh/empty/deep"),
        ("-test", "-d", "/sh/empty/deep"),
        ("-put", f"file://{local}/put", "/sh/a"),
        ("-cp", "/sh/a", "/sh/b"),
        ("-mv", "/sh/b", "/sh/empty/deep"),
        ("-test", "-e", "/sh/empty/deep/b"),
        ("-mv", "/sh/empty", "/sh/moved"),
        ("-ls", "/sh/moved/deep"),
        ("-touchz", "/sh/zero"),
        ("-rmdir", "/sh/moved"),
        ("-rm", "-r", "-skipTrash", "/sh/moved"),
        ("-test", "-e", "/sh/moved"),
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
    times = rows.selectExpr("id", "timestamp_seconds(id % 2) at", "concat('\u00e4 +&=', kind) kind")
    times.write.options(**algorithm).partitionBy("at", "kind").json(f"{url}/times")
    found["names"] = sorted(row.id for row in spark.read.json(f"{url}/times").select("id").collect()) == [*range(200)]

    def once_more(batch: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        yield from batch
        if context is not None and context.attemptNumber() == 0:
            raise RuntimeError("the first attempt fails, when its file is half written")

    failing = rows.rdd.mapPartitions(once_more).toDF("id long, kind long")
    failing.write.options(**algorithm).partitionBy("kind").json(f"{url}/retried")
    found["retried"] = ids(f"{url}/retried") == list(range(200))
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
    kinds = {"reads_and_writes": reads_and_writes, "commits": commits}
    print("FOUND " + json.dumps(kinds[sys.argv[1]](*sys.argv[2:])))
