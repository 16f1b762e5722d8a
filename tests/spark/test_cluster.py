"""The commands of docs/spark.md, "On a cluster", as they stand there, on a standalone cluster of two workers.

Not in CI, because it installs an environment and packs it, which takes minutes.
"""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rollingfs.spark import jar
from tests.docs.test_docs import page_blocks
from tests.support import spark as world

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

WORKERS = 2
STEP_S_MAX = 600
JOB = Path(__file__).parent / "cluster_job.py"
INSTALLED = "pip install 'rollingfs[cli,spark]' && rollingfs "
"""What the tests run in has rollingfs already."""
MODULE = "def doubled(number):\n    return 2 * number\n"
SMALL = {
    **world.LOOPBACK,
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.cores.max": str(WORKERS),
    "spark.scheduler.minRegisteredResourcesRatio": "1",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": f"{world.READY_S_MAX}s",
}


def commands(begin: str) -> str:
    """The block of the page that begins so."""
    [block] = [block.code for block in page_blocks("docs/spark.md") if block.code.startswith(begin)]
    return block


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[str]:
    """The address of a standalone cluster on this machine."""
    world.require_java()
    binary = str(jar.spark_jars().parent / "bin" / "spark-class")
    package, loopback = "org.apache.spark.deploy", ["--host", "127.0.0.1", "--webui-port", "0"]
    processes = []

    def start(name: str, *command: str) -> Path:
        log = tmp_path / f"{name}.log"
        env = {**os.environ, "SPARK_NO_DAEMONIZE": "1", "SPARK_LOCAL_IP": "127.0.0.1"}
        with log.open("wb") as output:
            processes.append(subprocess.Popen([binary, *command], cwd=tmp_path, env=env, stdout=output, stderr=output))
        return log

    try:
        address = world.told(start("master", f"{package}.master.Master", *loopback, "--port", "0"), r"at (spark://\S+)")
        for nth in range(WORKERS):
            more = ["--cores", "1", "--memory", "1g", "--work-dir", f"{tmp_path}/work{nth}", address]
            world.told(start(f"worker{nth}", f"{package}.worker.Worker", *loopback, *more), "(registered) with master")
        yield address
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()


def run(script: str, folder: Path, **env: str) -> str:
    how: dict[str, Any] = {"capture_output": True, "text": True, "timeout": STEP_S_MAX}
    done = subprocess.run(["bash", "-euc", script], cwd=folder, env={**os.environ, **env}, **how)
    assert done.returncode == 0, f"{script}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def test_commands_of_chapter_run_job_on_two_workers(cluster: str, tmp_path: Path) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    making, submitting = commands("python3 -m venv env"), commands("export PYSPARK_DRIVER_PYTHON")
    assert INSTALLED in making
    making = making.replace(INSTALLED, f"{shlex.quote(sys.executable)} -m rollingfs.cli ")
    making = making.replace("install rollingfs ", f"install --quiet {shlex.quote(str(world.ROOT))} ")
    making = making.replace("python3 ", f"{shlex.quote(sys.executable)} ")
    run(making, folder)
    (folder / "job.py").write_text(JOB.read_text())
    (folder / "cluster_module.py").write_text(MODULE)
    settings = " ".join(f"--conf {key}={value}" for key, value in SMALL.items())
    submit = jar.spark_jars().parent / "bin" / "spark-submit"
    submitting = submitting.replace("spark-submit ", f"{submit} --py-files cluster_module.py {settings} ")
    submitting = submitting.replace("spark://host:7077", cluster).replace("job.py\n", f"job.py {tmp_path}\n")
    found: dict[str, Any] = json.loads(run(submitting, folder, PYTHONPATH="").splitlines()[-1])
    pythons, missing = found.pop("pythons"), found.pop("doctor")
    assert all("s3" in one for one in missing), missing  # the chapter's example is of a disk
    totals = {"source": sum(range(1000)), "path": 1000, "doubled": 90}
    assert found == {**totals, "maintain": [[None, True]], "executors": WORKERS}
    # each worker has unpacked the archive for itself
    assert len(pythons) == WORKERS
    assert all(re.search(r"/work\d/app-.*/env/bin/python", python) for python in pythons)
