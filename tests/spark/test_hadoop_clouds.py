"""Segments on Azure and Google, on stand-ins: Spark reads them through the connectors that a user adds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rollingfs import RollingFileSystem, RollingPolicy
from rollingfs.spark import jar
from tests.support.clouds import ACCOUNT, ACCOUNT_KEY, new_container, new_google_bucket
from tests.support.servers import require
from tests.support.spark import LOOPBACK, fetched, require_java, run_python

pytestmark = [pytest.mark.slow, pytest.mark.nightly]

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
ROWS = [{"n": nth, "text": f"na\u00efve {nth}" * 50} for nth in range(100)]


def fill(fs: RollingFileSystem, root: str) -> None:
    """A segment of many chunks and a tail."""
    fs.create(f"{root}/f/s", RollingPolicy(max_bytes=4000, inline_bytes=2000))
    for row in ROWS:
        fs.append(f"{root}/f/s", (json.dumps(row) + "\n").encode())


@pytest.fixture(scope="module")
def found(azurite: dict[str, Any], fake_google: dict[str, Any]) -> dict[str, Any]:
    """What a job reads of both stores, by scheme."""
    require_java()
    if jar.hadoop_version() < HADOOP_OF_BLOBS:
        require(f"Hadoop {jar.hadoop_version()} does not read Azure by blobs")
    container, bucket = new_container(azurite), new_google_bucket(fake_google)
    fill(RollingFileSystem("az", azurite), container)
    fill(RollingFileSystem("gs", fake_google), bucket)
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


@pytest.mark.parametrize("scheme", ["abfs", "gs"])
def test_segments_on_a_cloud_are_read_by_the_path(found, scheme):
    assert found[scheme] == [[row["n"] for row in ROWS], [ROWS[7]["text"]]]
