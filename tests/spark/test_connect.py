"""Spark Connect: a client without a JVM asks a server; the server's Python does the work."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rollingfs import OffloadPolicy, RetentionPolicy, RollingFileSystem
from rollingfs.spark import jar
from rollingfs.spark.maintain import maintain
from tests.support import spark as world
from tests.support.servers import require_module

JOB = Path(__file__).parent / "connect_job.py"
SEGMENTS = 12

pytestmark = pytest.mark.slow


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """The address of a Spark Connect server on this machine."""
    world.require_java()
    require_module("grpc_status")
    settings = {
        **world.LOOPBACK,
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.log.level": "INFO",
        "spark.sql.warehouse.dir": f"{tmp_path}/warehouse",
        "spark.sql.shuffle.partitions": "2",
    }
    command = [str(jar.spark_jars().parent / "bin" / "spark-submit"), "--master", "local[2]"]
    command += [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    env = world.environment(world.installed(tmp_path / "modules"))
    log = tmp_path / "server.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=env, cwd=tmp_path, stdout=output, stderr=output)
        try:
            port = world.told(log, r"Spark Connect server started at: \S+?:(\d+)", process)
            yield f"sc://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait()


def test_client_of_spark_connect_maintains_reads_and_writes_segments(server: str, tmp_path: Path) -> None:
    fs = RollingFileSystem("file", sync=False)
    for nth in range(SEGMENTS):
        fs.pipe_file(f"{tmp_path}/in/s{nth}", b"line\n" * nth)
    Path(f"{tmp_path}/in/s7$header").write_text("rubbish")
    for name in ("a", "b"):
        fs.pipe_file(f"{tmp_path}/sound/{name}", b"a line\n" * 10)
    cold = RollingFileSystem("file", sync=False, max_bytes=100, inline_bytes=0, tiers={"cold": f"{tmp_path}/cold"})
    for _ in range(4):
        with cold.open(f"{tmp_path}/stream/x", "ab") as file:
            file.write(b"x" * 100)
    cold.stream(f"{tmp_path}/stream").retention = RetentionPolicy.by_size(400, every=0)
    cold.set_policy(f"{tmp_path}/stream/x", OffloadPolicy("cold", after_bytes=200))
    found: dict[str, Any] = json.loads(world.run_python(JOB, server, tmp_path).stdout.splitlines()[-1])
    expected = {row.path: row for row in maintain(None, f"{tmp_path}/in", ["verify", "info"])}
    assert {row["path"] for row in found["info"]} == expected.keys()
    for row in found["info"]:
        one = expected[row["path"]]
        assert (row["done"], row["error"], row["details"]) == (one.done, one.error, one.details)
    assert (found["damaged"], found["lines"]) == (1, 20)
    assert fs.cat_file(f"{tmp_path}/copy") == b"a line\n" * 20
    error, did = found["kept"][f"{tmp_path}/stream/x"]
    assert (error, did["offload"]["bytes"]) == (None, 200)
    assert cold.cat_file(f"{tmp_path}/stream/x") == b"x" * 400
    assert "Spark Connect session" in found["doctor"][0]
