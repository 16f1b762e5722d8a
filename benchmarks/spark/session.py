"""A session of Spark that lives as long as a case, and what it costs."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.case import Job, Skip

CORES = 2
DRIVER_MEMORY = "3g"
REPOSITORY = Path(__file__).parents[2]


def need_spark() -> None:
    """Skip where a session cannot be started."""
    if importlib.util.find_spec("pyspark") is None:
        raise Skip("pyspark is not installed")
    if shutil.which("java", path=_java_path()) is None:
        raise Skip("there is no Java: install a JDK 17 and put it on the PATH, or set JAVA_HOME")
    from rollingfs.spark import jar

    try:
        jar.own_jar()
    except FileNotFoundError as error:
        raise Skip(str(error)) from error


def _java_path() -> str | None:
    home = os.environ.get("JAVA_HOME")
    return os.path.join(home, "bin") if home else None


@contextlib.contextmanager
def open_session() -> Iterator[tuple[Any, str]]:
    """A session configured as users configure it, and a folder that is deleted afterwards.

    Plain files are read and written without check sums, as segments are.
    """
    need_spark()
    from pyspark.sql import SparkSession

    from rollingfs.spark import configure

    folder = tempfile.mkdtemp(prefix="rollingfs-bench-", dir=os.environ.get("ROLLINGFS_BENCH_DIR"))
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join([str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])])
    builder = SparkSession.builder.master(f"local[{CORES}]").appName("rollingfs benchmarks")
    settings = {
        "spark.driver.memory": DRIVER_MEMORY,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
        "spark.local.dir": f"{folder}/spark",
        "spark.log.level": "ERROR",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(CORES),
        "spark.sql.warehouse.dir": f"file://{folder}/warehouse",
        "spark.ui.enabled": "false",
    }
    for key, value in settings.items():
        builder.config(key, value)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            spark = configure(builder).getOrCreate()
        try:
            spark.range(0, CORES, 1, CORES).selectExpr("sum(id)").first()  # loads classes
            yield spark, folder
        finally:
            spark.stop()
    finally:
        shutil.rmtree(folder)


@contextlib.contextmanager
def measured(job: Job) -> Iterator[None]:
    """Measure a block, with the CPU time of the JVM and of Spark's Python processes."""
    before = _family_cpu_s()
    with job.measured() as sample:
        yield
    if before is not None:
        sample.cpu_s = (_family_cpu_s() or 0) - before


def _family_cpu_s() -> float | None:
    """CPU time of this process and all its descendants, ended ones too; None where there is no ``/proc``."""
    if not os.path.exists("/proc/self/stat"):
        return None
    found: dict[int, tuple[int, int]] = {}
    for entry in os.listdir("/proc"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if entry.isdigit():
                # the name is in parentheses and may have spaces
                fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
                found[int(entry)] = int(fields[1]), sum(map(int, fields[11:15]))
    ours = {os.getpid()}
    while more := {pid for pid, (parent, _) in found.items() if parent in ours} - ours:
        ours |= more
    return sum(found[pid][1] for pid in ours) / os.sysconf("SC_CLK_TCK")
