"""What is missing, in plain words, where segments cannot be read or written through a Spark session."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Iterator
from typing import Any

from rollingfs.spark import jar

_S3A_CLASS = "org.apache.hadoop.fs.s3a.S3AFileSystem"


def doctor(spark: Any) -> list[str]:
    """Examine a Spark session.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession
        It runs one small job, to see Python on a worker.

    Returns
    -------
    list of str
        A sentence for each thing that is missing; empty if nothing is.
    """
    if not hasattr(spark, "_jvm"):
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
    source = _source(spark, _S3A_CLASS)
    if not source:
        yield (
            "There is no S3 connector, so rolling+s3:// cannot be opened: call rollingfs.spark.configure(builder, "
            f"storage_options), or add org.apache.hadoop:hadoop-aws:{version}."
        )
    elif f"hadoop-aws-{version}" not in source and "hadoop-aws" in source:
        name = source.rpartition("/")[2]
        yield f"The S3 connector is {name}, but Spark's Hadoop is {version}: they must be of one version."


def _source(spark: Any, name: str) -> str:
    """The jar that a class comes from; empty if it cannot be loaded."""
    from py4j.protocol import Py4JJavaError

    try:
        found = spark.sparkContext._jsc.hadoopConfiguration().getClassByName(name)
    except Py4JJavaError:
        return ""
    source = found.getProtectionDomain().getCodeSource()
    return str(source.getLocation()) if source is not None else "unknown"


def _version() -> str:
    try:
        return importlib.metadata.version("rollingfs")
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _on_worker(_: int) -> tuple[str, str]:
    return sys.version.split()[0], _version()


def _python(spark: Any) -> Iterator[str]:
    from py4j.protocol import Py4JJavaError

    try:
        [(python, found)] = spark.sparkContext.parallelize([0], 1).map(_on_worker).collect()
    except Py4JJavaError as error:
        yield f"Python does not run on the workers: {str(error.java_exception).splitlines()[0]}"
        return
    here = sys.version.split()[0]
    if python.split(".")[:2] != here.split(".")[:2]:
        yield f"Python is {python} on the workers and {here} here: set PYSPARK_PYTHON to the same."
    if found != _version():
        yield f"rollingfs is {found} on the workers and {_version()} here: install it there too."
