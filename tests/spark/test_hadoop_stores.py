"""An HDFS on this machine: Spark reads, `run` and `maintain` write; and what is said where a connector is missing."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rollingfs import OffloadPolicy, RollingFileSystem, RollingPolicy
from rollingfs.spark import jar, read_json
from rollingfs.spark.maintain import maintain
from tests.support.cli import done
from tests.support.servers import free_port, free_ports
from tests.support.spark import fetched

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

START_S_MAX = 240
POLL_S = 0.5
ROWS = [{"n": nth, "text": f"na\u00efve {nth}" * 50} for nth in range(100)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The authorities of an HDFS with one node for data, and of its WebHDFS."""
    folder, port = tmp_path_factory.mktemp("hdfs"), free_port()
    [http] = free_ports(1, but=port)
    own = fetched(f"org.apache.hadoop:hadoop-client-minicluster:{jar.hadoop_version()}")  # an HDFS for tests
    path = os.pathsep.join([str(own), f"{jar.spark_jars()}/*"])
    command = ["java", "-Xmx512m", "-cp", path, "org.apache.hadoop.test.MiniDFSClusterManager", "-format"]
    command += ["-nnport", str(port), "-httpport", str(http), "-datanodes", "1", "-D", f"hdfs.minidfs.basedir={folder}"]
    command += ["-writeDetails", f"{folder}/details.json"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            until_s = time.monotonic() + START_S_MAX
            while not (folder / "details.json").exists():
                assert process.poll() is None, "the HDFS has ended"
                assert time.monotonic() < until_s, "the HDFS has not started"
                time.sleep(POLL_S)
            yield f"127.0.0.1:{port}", f"127.0.0.1:{http}"
        finally:
            process.kill()


@pytest.fixture
def hdfs(cluster: tuple[str, str]) -> str:
    """The authority of the HDFS."""
    return cluster[0]


@pytest.fixture
def copied(spark: Any, hdfs: str, tmp_path: Path) -> str:
    """A folder on HDFS with a segment of many chunks and a tail, as rollingfs wrote its files to a disk."""
    fs = RollingFileSystem("file", sync=False)
    fs.create(f"{tmp_path}/logs/s", RollingPolicy(max_bytes=4000, inline_bytes=2000))
    for row in ROWS:
        fs.append(f"{tmp_path}/logs/s", (json.dumps(row) + "\n").encode())
    files = spark._jvm.org.apache.hadoop.fs
    target = files.Path(f"hdfs://{hdfs}/{tmp_path.name}")
    system = target.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
    system.copyFromLocalFile(files.Path(f"file://{tmp_path}/logs"), target)
    return f"rolling+hdfs://{hdfs}/{tmp_path.name}"


def test_segments_on_hdfs_are_read_and_listed(spark, copied):
    for url in (copied, f"{copied}/s"):
        assert sorted(row.n for row in spark.read.json(url).collect()) == [row["n"] for row in ROWS]
    found = read_json(spark, f"{copied}/s", "n int, text string").where("n = 7").first()
    assert found.asDict() == ROWS[7]


def test_run_and_maintain_keep_segments_on_hdfs_through_webhdfs(cluster):
    url, own = f"webhdfs://root@{cluster[1]}/kept", {"single_writer": True, "tiers": {"cold": {"root": "/cold"}}}
    host, port = cluster[1].split(":")
    fs = RollingFileSystem("webhdfs", {"host": host, "port": int(port), "user": "root"}, **own)
    data = b"".join(b"%09d\n" % number for number in range(400))
    for path in ("/kept/a", "/kept/b"):
        fs.create(path, RollingPolicy(max_bytes=100, inline_bytes=0))
        fs.append(path, data)
        fs.set_policy(path, max_bytes=4000)
        fs.seal(path)
    fs.set_policy("/kept/a", OffloadPolicy("cold", block_bytes=2000, deletion_lag=0))
    options = ["--option", "single_writer=true", "--option", "tiers.cold.root=/cold"]
    *_, whole = done("run", url, "--once", "--json", "--grace", "0", "--readers-grace", "0", *options).lines
    assert (whole["failed"], whole["moved_bytes"], whole["joined_chunks"]) == ({}, 4000, 42)
    assert [(chunk.tier, chunk.length) for chunk in fs.segment("/kept/a").chunks] == [("cold", 4000)]
    more = {"tier": "cold", "deletion_lag": 0, "grace": 0, "storage_options": {"rolling": own}}
    rows = maintain(None, f"rolling+{url}", ["verify", "offload", "collect"], **more)
    assert [row.error for row in rows] == [None] * 2
    assert fs.cat(["/kept/a", "/kept/b"]) == {"/kept/a": data, "/kept/b": data}
    rows = maintain(None, f"rolling+{url}", ["concat", "verify"], into="whole", storage_options={"rolling": own})
    assert ([row.error for row in rows], fs.cat_file("/kept/whole")) == ([None] * 3, data * 2)


@pytest.mark.parametrize(
    ("url", "connector"),
    [
        ("rolling+gs://bucket/x", "com.google.cloud.bigdataoss:gcs-connector"),
        ("rolling+abfss://c@account.dfs.core.windows.net/x", "org.apache.hadoop:hadoop-azure"),
        ("rolling+abfs://c@account.dfs.core.windows.net/x", "org.apache.hadoop:hadoop-azure"),
    ],
)
def test_a_filesystem_that_spark_lacks_is_refused_with_the_connector_to_add(spark, url, connector):
    with pytest.raises(Exception, match=f"has no filesystem for .*spark.jars.packages, {connector}"):
        spark.read.text(url).count()
