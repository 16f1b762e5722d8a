"""Spark finds the data source by itself where its top-level module lies, as in the wheel."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support import spark as world
from tests.support.servers import require_module

require_module("pyspark")

pytestmark = pytest.mark.slow

SCRIPT = """
import sys
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
print([row[0] for row in builder.getOrCreate().read.format("rolling").load(sys.argv[1]).collect()])
"""


def test_a_session_reads_segments_with_nothing_registered(tmp_path):
    world.require_java()
    (tmp_path / "data").write_bytes(b"found\n")
    environment = world.environment(world.installed(tmp_path / "top"))
    command = [sys.executable, "-c", SCRIPT, f"file://{tmp_path}/data"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=world.JVM_S_MAX * 2)
    assert done.stdout.strip() == "['found']", done.stderr
