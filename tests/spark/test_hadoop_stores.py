"""Spark reads of an HDFS, of Azure and of Google on this machine, by the connectors that a user adds.

On HDFS `run` and `maintain` write. What is said where a connector is missing.
"""

import json
import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rollingfs import OffloadPolicy, RollingFileSystem, RollingPolicy
from rollingfs.spark import jar, read_json
from rollingfs.spark.maintain import maintain
from tests.support.cli import done
from tests.support.clouds import ACCOUNT, ACCOUNT_KEY, new_container, new_google_bucket
from tests.support.proxy import Proxy, proxy_to
from tests.support.schedules import eventually
from tests.support.servers import free_port, free_ports, new_bucket, require
from tests.support.spark import LOOPBACK, fetched, require_java, run_python

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

START_S_MAX = 240
ROWS = [{"n": nth, "text": f"na\u00efve {nth}" * 50} for nth in range(100)]


def fill(fs: RollingFileSystem, folder: str) -> None:
    """A segment of many chunks and a tail."""
    fs.create(f"{folder}/s", RollingPolicy(max_bytes=4000, inline_bytes=2000))
    for row in ROWS:
        fs.append(f"{folder}/s", (json.dumps(row) + "\n").encode())


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
            eventually((folder / "details.json").exists, START_S_MAX, process=process)
            yield f"127.0.0.1:{port}", f"127.0.0.1:{http}"
        finally:
            process.kill()


@pytest.fixture
def copied(spark: Any, cluster: tuple[str, str], tmp_path: Path) -> str:
    """A folder on HDFS with a segment of many chunks and a tail, as rollingfs wrote its files to a disk."""
    fill(RollingFileSystem("file", sync=False), f"{tmp_path}/logs")
    files = spark._jvm.org.apache.hadoop.fs
    target = files.Path(f"hdfs://{cluster[0]}/{tmp_path.name}")
    system = target.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
    system.copyFromLocalFile(files.Path(f"file://{tmp_path}/logs"), target)
    return f"rolling+hdfs://{cluster[0]}/{tmp_path.name}"


def test_segments_on_hdfs_are_read_and_listed(spark, copied):
    for url in (copied, f"{copied}/s"):
        assert sorted(row.n for row in spark.read.json(url).collect()) == [row["n"] for row in ROWS]
    assert read_json(spark, f"{copied}/s", "n int, text string").where("n = 7").first().asDict() == ROWS[7]


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
def test_unsupported_filesystem_is_refused_with_its_connector(spark, url, connector):
    with pytest.raises(Exception, match=f"has no filesystem for .*spark.jars.packages, {connector}"):
        spark.read.text(url).count()


# -- Azure and Google, on stand-ins ----------------------------------------------------------------------------

JOB = Path(__file__).with_name("cloud_job.py")
HADOOP_OF_BLOBS = "3.5.0"
"""The first Hadoop that reads Azure without its endpoint for file systems, which azurite lacks."""
CONNECTORS = (
    f"org.apache.hadoop:hadoop-azure:{HADOOP_OF_BLOBS}",
    "org.wildfly.openssl:wildfly-openssl:2.1.4.Final",
    "com.google.cloud.bigdataoss:gcs-connector:hadoop3-2.2.26:jar:shaded",
)
HOST = f"{ACCOUNT}.dfs.core.windows.net"
AZURE = {
    "fs.azure.fns.account.service.type": "BLOB",
    "fs.azure.account.hns.enabled": "false",
    "fs.azure.always.use.https": "false",
    "fs.azure.networking.library": "JDK_HTTP_URL_CONNECTION",
    f"fs.azure.account.key.{HOST}": ACCOUNT_KEY,
}
SIZES = ("block.size", "outputstream.buffer.size", "rewrite.max.chunk.size")
MORE_SIZES = ("inputstream.inplace.seek.limit", "inputstream.min.range.request.size")
GOOGLE = {
    "fs.gs.impl": "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem",
    "fs.gs.auth.null.enable": "true",
    "fs.gs.auth.service.account.enable": "false",
    **{f"fs.gs.{name}": str(2**23) for name in (*SIZES, *MORE_SIZES)},  # Hadoop's defaults, "64m", are no numbers to it
}


@pytest.fixture(scope="module")
def found(azurite: dict[str, Any], fake_google: dict[str, Any]) -> dict[str, Any]:
    """What a job reads of both stores, by scheme."""
    require_java()
    if jar.hadoop_version() < HADOOP_OF_BLOBS:
        require(f"Hadoop {jar.hadoop_version()} does not read Azure by blobs")
    container, bucket = new_container(azurite), new_google_bucket(fake_google)
    fill(RollingFileSystem("az", azurite), f"{container}/f")
    fill(RollingFileSystem("gs", fake_google), f"{bucket}/f")
    [endpoint] = [one for one in azurite["connection_string"].split(";") if one.startswith("BlobEndpoint=http://")]
    where = {
        "fs.azure.abfs.endpoint": endpoint.removeprefix("BlobEndpoint=http://").partition("/")[0],
        "fs.gs.storage.root.url": f"{fake_google['endpoint_url']}/",
    }
    conf = {f"spark.hadoop.{key}": value for key, value in {**AZURE, **GOOGLE, **where}.items()}
    urls = {"abfs": f"rolling+abfs://{container}@{HOST}/f", "gs": f"rolling+gs://{bucket}/f"}
    given = {"jars": [str(fetched(one)) for one in CONNECTORS], "conf": {**LOOPBACK, **conf}, "urls": [*urls.values()]}
    by_url = json.loads(run_python(JOB, input=json.dumps(given)).stdout)
    return {scheme: by_url[url] for scheme, url in urls.items()}


@pytest.mark.nightly
@pytest.mark.parametrize("scheme", ["abfs", "gs"])
def test_segments_on_a_cloud_are_read_by_the_path(found, scheme):
    assert found[scheme] == [[row["n"] for row in ROWS], [ROWS[7]["text"]]]


# -- S3: the requests of jobs, counted on the wire, beside those of S3A itself ---------------------------------------

FILES = 8
LOOKS_MAX = 300
"""Maximum number of HEAD and LIST requests of a job that writes so many small files."""


@pytest.fixture
def wire(spark: Any, spark_s3: dict[str, Any]) -> Iterator[tuple[Proxy, str]]:
    """A bucket behind a proxy that counts."""
    bucket = new_bucket(spark_s3)
    conf = spark.sparkContext._jsc.hadoopConfiguration()
    key = f"fs.s3a.bucket.{bucket}.endpoint"
    with proxy_to(spark_s3["endpoint_url"]) as proxy:
        conf.set(key, proxy.url)
        yield proxy, bucket
        conf.unset(key)


def asked(proxy: Proxy) -> Counter[str]:
    """The requests since the last call, by kind."""
    kinds = Counter("LIST" if seen.method == "GET" and "list-type" in seen.path else seen.method for seen in proxy.seen)
    proxy.seen.clear()
    return kinds


@pytest.mark.s3
def test_small_file_job_asks_little_more_than_s3a(spark: Any, wire: tuple[Proxy, str]) -> None:
    proxy, bucket = wire
    rows = spark.range(80).repartition(FILES)
    rows.write.json(f"s3a://{bucket}/plain")
    plain = asked(proxy)
    rows.write.json(f"rolling+s3://{bucket}/ours")
    ours = asked(proxy)
    assert ours["HEAD"] + ours["LIST"] <= LOOKS_MAX, (plain, ours)
