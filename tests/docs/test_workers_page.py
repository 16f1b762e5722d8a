"""The recipe of workers: its programs as they stand on the page, by processes of Dask and by executors of Spark."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.test_docs import PROMISE, page_blocks
from tests.support import spark as world
from tests.support.servers import require_module

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1000)]

PAGE = "docs/recipes/workers.md"
PROGRAM_S_MAX = 900
"""Far beyond what is needed: 17 s beside a load of 3 on two cores, nearly all of it for the start of Spark.

No commit of the library takes longer than 60 s: then it raises an error, which ends the program.
"""
SETTINGS = "spark.ui.enabled false\nspark.driver.host 127.0.0.1\nspark.driver.bindAddress 127.0.0.1\n"


def program_of(name: str) -> str:
    [code] = [block.code for block in page_blocks(PAGE) if f"not-run: {name}," in block.info]
    return code


def run_program(name: str, code: str, folder: Path, environment: dict[str, str]) -> None:
    """Run a program of the page; check what it prints. One that hangs shows where, and what was committed by then."""
    program = folder / name
    program.write_text(f"import faulthandler\nfaulthandler.dump_traceback_later({PROGRAM_S_MAX}, exit=True)\n{code}")
    done = subprocess.run(
        [sys.executable, str(program)], cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True
    )
    there = [path.read_bytes() for path in folder.glob("jobs/*$header")]
    assert done.returncode == 0, (done.stderr, there)
    assert done.stdout.splitlines() == PROMISE.findall(code), (done.stderr, there)


def test_workers_of_dask_append_to_one_segment(tmp_path: Path) -> None:
    require_module("dask")
    run_program("with_dask.py", program_of("with_dask.py"), tmp_path, {})


def test_executors_of_spark_append_to_one_segment(tmp_path: Path) -> None:
    world.require_java()
    (tmp_path / "spark-defaults.conf").write_text(SETTINGS)
    environment = {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable, "SPARK_CONF_DIR": str(tmp_path)}
    run_program("with_spark.py", program_of("with_spark.py"), tmp_path, environment)
