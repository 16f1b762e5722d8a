"""A check of a Spark session: sentences on the settings that it lacks to read and write segments."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from typing import Any

from rollingfs.spark import jar
from rollingfs.spark.storage_options import is_classic

_SET_PYTHON = "set PYSPARK_PYTHON (or spark.pyspark.python) to a Python of the driver's version that every worker has"


def doctor(spark: Any) -> list[str]:
    """Examine a Spark session.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession
        It runs a small job, which looks at Python on a worker.

    Returns
    -------
    list of str
        A sentence for each missing thing, with the remedy.
    """
    if not is_classic(spark):
        return ["This is a Spark Connect session: configure the server that it is connected to, and examine it there."]
    return [*_jar(), *_classes(spark), *_s3a(spark), *_python(spark)]


def _jar() -> Iterator[str]:
    try:
        jar.own_jar()
    except FileNotFoundError as error:
        yield f"The jar is missing: {error}."


def _classes(spark: Any) -> Iterator[str]:
    conf = spark.sparkContext._jsc.hadoopConfiguration()
    lacking = [scheme for scheme in jar.SCHEMES if conf.get(f"fs.{scheme}.impl") is None]
    if lacking:
        yield (
            f"The session does not know {', '.join(scheme + '://' for scheme in lacking)}: call "
            "rollingfs.spark.configure(builder) before the first session of this process is made."
        )
    if not _source(spark, jar.FILE_SYSTEM):
        yield (
            f"The session cannot load {jar.FILE_SYSTEM}: its spark.jars lack {jar.OWN_JAR_NAME}. They are read "
            "when the first session of a process is made, and --jars of spark-submit replaces them."
        )


def _s3a(spark: Any) -> Iterator[str]:
    version = spark._jvm.org.apache.hadoop.util.VersionInfo.getVersion()
    source = _source(spark, "org.apache.hadoop.fs.s3a.S3AFileSystem")
    if not source:
        yield (
            "There is no S3 connector, so rolling+s3:// cannot be opened: call rollingfs.spark.configure(builder, "
            f"storage_options), or add org.apache.hadoop:hadoop-aws:{version}."
        )
    elif f"hadoop-aws-{version}" not in source and "hadoop-aws" in source:
        own = os.path.basename(source)
        yield f"The S3 connector is {own}, but Spark's Hadoop is {version}: they must be of one version."


def _source(spark: Any, name: str) -> str:
    """Return the jar of a class; empty if the class cannot be loaded."""
    from py4j.protocol import Py4JJavaError

    try:
        found = spark.sparkContext._jsc.hadoopConfiguration().getClassByName(name)
    except Py4JJavaError:
        return ""
    source = found.getProtectionDomain().getCodeSource()
    return str(source.getLocation()) if source is not None else "unknown"


def _finder() -> Callable[[int], dict[str, str]]:
    """Return a function that reports the Python and packages of its process.

    It is not a function of the module, because Spark would send that by its name, and a worker without rollingfs could
    not run it.
    """

    def find(_: int) -> dict[str, str]:
        import contextlib
        import importlib.metadata
        import sys

        found = {"Python": sys.version.split()[0], "executable": sys.executable, "rollingfs": "", "pyarrow": ""}
        for name in ("rollingfs", "pyarrow"):
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                found[name] = importlib.metadata.version(name)
        return found

    return find


def _python(spark: Any) -> Iterator[str]:
    from py4j.protocol import Py4JJavaError

    find = _finder()
    here = find(0)
    try:
        [there] = spark.sparkContext.parallelize([0], 1).map(find).collect()
    except Py4JJavaError as error:
        yield f"Python does not run on the workers ({_cause(str(error.java_exception))}): {_SET_PYTHON}."
        return
    if there["Python"].split(".")[:2] != here["Python"].split(".")[:2]:
        yield f"Python is {there['Python']} on the workers and {here['Python']} here: {_SET_PYTHON}."
    for name, version in here.items():
        if name in ("rollingfs", "pyarrow") and not there[name]:
            yield (
                f"{name} is not installed for {there['executable']} on the workers: install it there (pip install "
                f"'rollingfs[spark]'), or {_SET_PYTHON}, with {name}."
            )
        elif name == "rollingfs" and there[name] != version:
            yield f"rollingfs is {there[name]} on the workers and {version or 'not installed'} here: install the same."


def _cause(text: str) -> str:
    """Return the cause of a failed job.

    It is the error at the end of a Python traceback, else the first line.
    """
    error = re.search(r"Traceback \(most recent call last\).*\n(?:\s.*\n|\n)*(\S.*)", text)
    return error[1] if error else text.strip().partition("\n")[0]
