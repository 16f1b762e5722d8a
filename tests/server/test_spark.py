"""Hadoop's own client against a gateway, with no jar of ours: Spark reads and writes, `hdfs dfs` appends."""

import json
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rollingfs import RollingFileSystem
from tests.server.conftest import serving
from tests.support.servers import new_bucket
from tests.support.spark import require_java, run_python

JOB = Path(__file__).with_name("spark_job.py")
TOKEN = "t" * 20

pytestmark = [pytest.mark.slow, pytest.mark.nightly, pytest.mark.timeout(900)]


def test_a_session_has_a_gateway_of_its_own(tmp_path: Path) -> None:
    from rollingfs.spark import configure

    def builder_of(**options: str) -> Any:
        return SimpleNamespace(_options=options, config=options.__setitem__)

    vectored = "spark.hadoop.parquet.hadoop.vectored.io.enabled"
    (tmp_path / "a").write_bytes(b"one\n")
    builder = configure(builder_of(), gateway=str(tmp_path))
    again = configure(builder_of(**{vectored: "true"}), gateway=str(tmp_path))
    assert builder._options[vectored] == "false"
    assert again._options[vectored] == "true"
    where = builder._options["spark.hadoop.fs.defaultFS"]
    assert where == again._options["spark.hadoop.fs.defaultFS"]
    url = where.replace("webhdfs://", "http://")
    with urllib.request.urlopen(f"{url}/webhdfs/v1/a?op=OPEN") as answer:
        assert answer.read() == b"one\n"


SHELL = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, -1]
"""Codes of the commands: -rmdir removes no folder that is not empty, what is gone is not there, no end is cut off."""
DONE = ("written", "appended", "dynamic", "overwritten", "parquet", "stream", "state")
COMMITTED = {**dict.fromkeys(DONE, True), "again": "AnalysisException"}


@pytest.mark.s3
def test_spark_commits_to_an_object_store_through_a_gateway(minio: dict[str, Any], tmp_path: Path) -> None:
    require_java()
    bucket = new_bucket(minio)
    options = {f"ROLLINGFS_OPTION_S3_{name.upper()}": json.dumps(value) for name, value in minio.items()}
    options["ROLLINGFS_SERVER_TOKEN"] = TOKEN
    with serving(f"s3://{bucket}/root", env=options) as server:
        url = f"webhdfs://localhost:{server.url.rpartition(':')[2]}"
        found = json.loads(run_python(JOB, url, tmp_path, TOKEN).stdout.partition("FOUND ")[2])
    assert found == {"1": COMMITTED, "2": COMMITTED, "shell": SHELL}
    names = RollingFileSystem("s3", target_options=minio).find(f"{bucket}/root")
    assert not [name for name in names if "_temporary" in name or ".spark-staging" in name or "/nothing/part" in name]
