"""Where the jars are: our own, which the wheel carries, and Spark's."""

from __future__ import annotations

import importlib.util
import os
import re
from pathlib import Path

from rollingfs.spark.hadoop import compile as compiler

SCHEMES = ("rolling+file", "rolling+s3", "rolling+s3a")
FILE_SYSTEM = "rollingfs.hadoop.RollingFileSystem"
ABSTRACT_FILE_SYSTEM = "rollingfs.hadoop.RollingFs"
OWN_JAR_NAME = compiler.JAR.name


def own_jar() -> Path:
    """The jar of our Hadoop filesystem; in a checkout it is compiled if need be.

    Raises
    ------
    FileNotFoundError
        This installation was built without a JDK.
    """
    if compiler.JAR.exists() and not compiler.sources():
        return compiler.JAR
    try:
        return compiler.ensure()
    except compiler.CannotCompileError as error:
        raise FileNotFoundError(
            f"rollingfs was installed without its jar for Spark, and it cannot be compiled now: {error}. "
            f"Install a wheel of rollingfs, or a JDK {compiler.JAVA_RELEASE}"
        ) from error


def spark_jars() -> Path:
    """The folder of Spark's own jars.

    Raises
    ------
    FileNotFoundError
        Neither ``SPARK_HOME`` nor an installed PySpark has one.
    """
    spec = importlib.util.find_spec("pyspark")
    homes = [os.environ.get("SPARK_HOME"), str(Path(spec.origin).parent) if spec and spec.origin else None]
    for home in homes:
        if home and (Path(home) / "jars").is_dir():
            return Path(home) / "jars"
    raise FileNotFoundError("no Spark is found: install pyspark, or set SPARK_HOME")


def hadoop_version() -> str:
    """Of the Hadoop that Spark brings.

    Raises
    ------
    FileNotFoundError
        Spark's jars have none.
    """
    for path in sorted(spark_jars().glob(f"{compiler.HADOOP_API}-*.jar")):
        match = re.fullmatch(rf"{compiler.HADOOP_API}-(.+)\.jar", path.name)
        if match:
            return match[1]
    raise FileNotFoundError(f"{spark_jars()} has no {compiler.HADOOP_API}: a Spark without Hadoop needs one beside it")
