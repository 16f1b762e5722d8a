"""The recipe of workers: its programs as they stand on the page, by processes of Dask and by executors of Spark."""

from pathlib import Path

import pytest

from tests.docs.test_docs import PROMISE, program_of
from tests.support import spark as world
from tests.support.servers import require_module

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1000)]

PAGE = "docs/recipes/workers.md"
PROGRAM_S_MAX = 800
"""Far beyond what is needed: 17 s beside a load of 3 on two cores, nearly all of it for the start of Spark.

No commit of the library takes longer than 60 s: then it raises an error, which ends the program.
"""


def run_program(name: str, folder: Path, env: dict[str, str] | None = None) -> None:
    """Run a program of the page; check what it prints. One that hangs shows where."""
    code = program_of(PAGE, name)
    hangs = f"import faulthandler\nfaulthandler.dump_traceback_later({PROGRAM_S_MAX}, exit=True)\n"
    (folder / name).write_text(hangs + code)
    done = world.run_python(name, env=env, cwd=folder)
    there = [path.read_bytes() for path in folder.glob("jobs/*$header")]
    assert done.stdout.splitlines() == PROMISE.findall(code), (done.stderr, there)


def test_workers_of_dask_append_to_one_segment(tmp_path: Path) -> None:
    require_module("dask")
    run_program("with_dask.py", tmp_path)


@pytest.mark.nightly
def test_executors_of_spark_append_to_one_segment(tmp_path: Path) -> None:
    world.require_java()
    run_program("with_spark.py", tmp_path, world.as_installed(tmp_path))
