"""Gathers the jars that a cluster needs into a folder, for machines without Maven."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from rollingfs.spark import jar
from rollingfs.spark.configure import S3A_EXCLUDES, s3a_packages

FETCH_S_MAX = 900
SHOWN_CHARACTERS_MAX = 2000


def gather(folder: Path, *, s3: bool = True) -> list[Path]:
    """Put our jar, and Hadoop's S3 connector with the parts that it uses of the AWS SDK, into a folder.

    Parameters
    ----------
    folder
        It is made if it is missing. Jars of the same name are replaced, others stay.
    s3
        Whether to add the S3 connector, which the Spark that is installed here fetches from Maven.

    Returns
    -------
    list of Path
        The jars, sorted.

    Raises
    ------
    FileNotFoundError
        There is no Spark, or rollingfs is installed without its jar.
    ValueError
        The S3 connector for the Hadoop of this Spark is not known.
    OSError
        The jars cannot be fetched, or the folder cannot be written.
    """
    sources = [jar.own_jar()]
    with tempfile.TemporaryDirectory(prefix="rollingfs-jars-") as scratch:
        if s3:
            sources += _fetch(Path(scratch))
        folder.mkdir(parents=True, exist_ok=True)
        return sorted(Path(shutil.copy(source, folder)) for source in sources)


def _fetch(scratch: Path) -> list[Path]:
    """Return the jars of the S3 connector: Spark fetches them for an empty program."""
    nothing = scratch / "nothing.py"
    nothing.touch()
    home = jar.spark_jars().parent
    command = [str(home / "bin" / "spark-submit"), "--conf", f"spark.jars.ivy={scratch}", "--master", "local[1]"]
    command += ["--packages", ",".join(s3a_packages()), "--exclude-packages", ",".join(S3A_EXCLUDES), str(nothing)]
    env = {**os.environ, "SPARK_HOME": str(home)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=FETCH_S_MAX, check=False)
    found = sorted((scratch / "jars").glob("*.jar"))
    if done.returncode or not found:
        said = (done.stderr or done.stdout).strip()[-SHOWN_CHARACTERS_MAX:]
        raise OSError(f"Spark could not fetch the S3 connector, so no jar was gathered; it said: {said}")
    return found
