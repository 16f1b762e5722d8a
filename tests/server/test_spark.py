"""Hadoop's own client against a gateway, with no jar of ours: Spark reads and writes, `hdfs dfs` appends."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from rollingfs import RollingFileSystem
from tests.server.conftest import serving
from tests.support.servers import new_bucket
from tests.support.spark import require_java

JOB = Path(__file__).with_name("spark_job.py")
ROWS = 500
JOB_S_MAX = 900
TOKEN = "t" * 20

pytestmark = [pytest.mark.slow, pytest.mark.nightly, pytest.mark.timeout(JOB_S_MAX)]


def rows() -> bytes:
    return b"".join(b'{"n": %d, "kind": "%s"}\n' % (n, b"xy"[n % 2 :][:1]) for n in range(ROWS))


def found_by_job(*words: str) -> dict[str, Any]:
    done = subprocess.run([sys.executable, str(JOB), *words], capture_output=True, text=True, timeout=JOB_S_MAX)
    line = next((line for line in done.stdout.splitlines() if line.startswith("FOUND ")), None)
    assert line, done.stderr
    found: dict[str, Any] = json.loads(line.removeprefix("FOUND "))
    return found


def test_spark_reads_writes_and_streams_through_a_gateway(tmp_path: Path) -> None:
    require_java()
    fs = RollingFileSystem("file", max_bytes=4000, inline_bytes=1000)
    (tmp_path / "plain").mkdir()
    for name in "ab":
        data = rows()
        path = f"{tmp_path}/store/events/{name}"
        fs.create(path)
        for start in range(0, len(data), 1000):
            fs.append(path, data[start : start + 1000])
        (tmp_path / "plain" / name).write_bytes(data)
    with serving(f"{tmp_path}/store", env={"ROLLINGFS_SERVER_TOKEN": TOKEN}) as server:
        url = f"webhdfs://localhost:{server.url.rpartition(':')[2]}"
        found = found_by_job("reads_and_writes", url, str(tmp_path), TOKEN)
    assert found == {
        "read": True,
        "rows": 2 * ROWS,
        "json": 2 * ROWS,
        "kinds": ["kind=x", "kind=y"],
        "parquet": 2 * ROWS + 10,
        "stream": 2 * ROWS,
        "append": 0,
        "after": 2 * ROWS + 1,
        "cat": 0,
        "ls": 0,
        "du": 0,
        "truncate": -1,
        "rm": 0,
        "text": ROWS + 1,
    }


def test_a_session_has_a_gateway_of_its_own(tmp_path: Path) -> None:
    from rollingfs.spark import configure

    class Builder:
        def __init__(self, **options: str) -> None:
            self._options = options

        def config(self, key: str, value: str) -> None:
            self._options[key] = value

    vectored = "spark.hadoop.parquet.hadoop.vectored.io.enabled"
    (tmp_path / "a").write_bytes(b"one\n")
    builder = configure(Builder(), gateway=str(tmp_path))
    again = configure(Builder(**{vectored: "true"}), gateway=str(tmp_path))
    assert builder._options[vectored] == "false"
    assert again._options[vectored] == "true"
    where = builder._options["spark.hadoop.fs.defaultFS"]
    assert where == again._options["spark.hadoop.fs.defaultFS"]
    url = where.replace("webhdfs://", "http://")
    with urllib.request.urlopen(f"{url}/webhdfs/v1/a?op=OPEN") as answer:
        assert answer.read() == b"one\n"


SHELL = [0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1]
"""Codes of the commands: a folder that is not empty is not removed by -rmdir, and what is gone is not there."""
DONE = ("written", "appended", "dynamic", "overwritten", "parquet", "names", "retried", "stream", "state")
COMMITTED = {**dict.fromkeys(DONE, True), "again": "AnalysisException"}


@pytest.mark.s3
def test_spark_commits_to_an_object_store_through_a_gateway(minio: dict[str, Any], tmp_path: Path) -> None:
    require_java()
    bucket = new_bucket(minio)
    options = {f"ROLLINGFS_OPTION_S3_{name.upper()}": json.dumps(value) for name, value in minio.items()}
    with serving(f"s3://{bucket}/root", env=options) as server:
        url = f"webhdfs://localhost:{server.url.rpartition(':')[2]}"
        found = found_by_job("commits", url, str(tmp_path))
    assert found == {"1": COMMITTED, "2": COMMITTED, "shell": SHELL}
    names = RollingFileSystem("s3", target_options=minio).find(f"{bucket}/root")
    assert not [name for name in names if "_temporary" in name or ".spark-staging" in name or "/nothing/part" in name]
