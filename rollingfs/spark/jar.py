"""The jars: our own, which the wheel contains, and Spark's."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from rollingfs.spark.hadoop import compile as compiler

SCHEMES = ("rolling+file", "rolling+s3", "rolling+s3a", "rollingfile", "rollings3", "rollings3a")
"""The schemes that are over the local disk and over Hadoop's S3 connector."""
_OTHERS = ("abfs", "abfss", "gs", "hdfs")
MORE_SCHEMES = tuple(f"rolling{plus}{other}" for plus in ("+", "") for other in _OTHERS)
"""Schemes of other filesystems of Hadoop. Users add their connectors; Spark has HDFS's."""
FILE_SYSTEM = "rollingfs.hadoop.RollingFileSystem"
ABSTRACT_FILE_SYSTEM = "rollingfs.hadoop.RollingFs"
OWN_JAR_NAME = compiler.JAR.name


def own_jar() -> Path:
    """Return the path of the jar of our Hadoop filesystem; a checkout compiles it if it is not current.

    Raises
    ------
    FileNotFoundError
        rollingfs was built without a JDK, and the jar cannot be compiled now.
    """
    if compiler.JAR.exists() and not compiler.sources():
        return compiler.JAR
    try:
        return compiler.ensure()
    except compiler.CannotCompileError as error:
        raise FileNotFoundError(
            f"rollingfs is installed without its jar for Spark, and the jar cannot be compiled now: {error}. "
            f"Install a wheel that was built with a JDK, or install a JDK {compiler.JAVA_RELEASE}"
        ) from error


def spark_jars() -> Path:
    """Return the folder of Spark's own jars.

    Raises
    ------
    FileNotFoundError
        ``SPARK_HOME`` does not have it, or in an installed PySpark.
    """
    spec = importlib.util.find_spec("pyspark")
    homes = [os.environ.get("SPARK_HOME"), str(Path(spec.origin).parent) if spec and spec.origin else None]
    for home in homes:
        if home and (Path(home) / "jars").is_dir():
            return Path(home) / "jars"
    raise FileNotFoundError("there is no Spark: install pyspark, or set SPARK_HOME")


def hadoop_version() -> str:
    """Return the version of the Hadoop that Spark brings.

    Raises
    ------
    FileNotFoundError
        There is no Hadoop among the jars of Spark.
    """
    for path in sorted(spark_jars().glob(f"{compiler.HADOOP_API}-*.jar")):
        return path.stem.removeprefix(f"{compiler.HADOOP_API}-")
    raise FileNotFoundError(
        f"{spark_jars()} has no {compiler.HADOOP_API}: install a Spark with Hadoop, or put Hadoop's client API there"
    )
