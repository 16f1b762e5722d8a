"""P12: what it costs to have the library: imports, and memory after many opens."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

from benchmarks.case import Case, Goal, Job, figure, reset_peak
from benchmarks.cases.p8_open import prepare
from benchmarks.clients import rolling

IMPORT = "import time; import {0}; began = time.perf_counter(); import {1}; print(time.perf_counter() - began)"


def _import(job: Job, before: str, module: str) -> None:
    code = IMPORT.format(before, module)
    with tempfile.TemporaryDirectory() as compiled:
        # compiled once, as installed packages are
        env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        command, env = [sys.executable, "-c", code], env | {"PYTHONPYCACHEPREFIX": compiled}
        subprocess.run(command, env=env, capture_output=True, check=True)
        with job.measured() as sample:
            for _ in range(job.pick(20, 5)):
                found = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
                sample.latencies_s.append(float(found.stdout))


def import_ours(job: Job) -> None:
    _import(job, "fsspec", "rollingfs")


def import_filesystem(job: Job) -> None:
    _import(job, "fsspec", "rollingfs.fs.filesystem")


def import_memory(job: Job) -> None:
    """With a filesystem made, beyond what fsspec imports for its own on memory."""
    before = "fsspec.asyn, fsspec.implementations.memory"
    _import(job, before, "rollingfs; rollingfs.RollingFileSystem('memory')")


def import_s3fs(job: Job) -> None:
    _import(job, "fsspec", "s3fs")


def many_opens(job: Job) -> None:
    fs, count = rolling(job), job.pick(10_000, 2_000)

    def once(_: int) -> None:
        fs.open(job.given["segment"], "rb").close()

    for number in range(500):
        once(number)
    before = reset_peak()
    job.each(once, count)
    job.sample.extra["growth_bytes"] = reset_peak() - before


CASES = (
    Case(
        "P12",
        "imports; 10,000 opens of a sealed segment",
        {
            "import rollingfs": import_ours,
            "import rollingfs.fs.filesystem": import_filesystem,
            "a filesystem on memory": import_memory,
            "import s3fs": import_s3fs,
            "rollingfs opens": many_opens,
        },
        (
            Goal("import rollingfs, ms", figure("unit_s", "import rollingfs", 1000), at_most=50),
            Goal("a filesystem on memory, ms", figure("unit_s", "a filesystem on memory", 1000), at_most=60),
            Goal("growth by opens, MiB", figure("growth_bytes", "rollingfs opens", 1 / 2**20), at_most=1),
        ),
        prepare,
        shown=("unit_s", "requests", "cpu_unit_s"),
    ),
)
