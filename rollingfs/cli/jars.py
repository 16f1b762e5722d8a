"""The command that gathers jars for Spark: ``spark-jars``."""

from __future__ import annotations

from pathlib import Path

from rollingfs.cli import output
from rollingfs.cli.command import Commands
from rollingfs.cli.session import Session

commands = Commands("Stores and Spark")


@commands("spark-jars")
def spark_jars(session: Session, to: Path, s3: bool = True) -> None:
    """Gather the jars that Spark needs for rolling+s3:// and rolling+file://, for machines without Maven.

    The installed Spark fetches the S3 connector that fits; that needs a JDK.

    With --json: jars, a list of paths.

    Parameters
    ----------
    to : --to DIR
        The folder; it is made.
    s3
        Add Hadoop's S3 connector, fetched from Maven.
    """
    from rollingfs.spark.gather import gather

    with session.progress(f"gathering jars in {to}"):
        found = gather(to, s3=s3)
    if session.json:
        output.write_json({"jars": [str(path) for path in found]})
        return
    output.say(f"{len(found)} jars in {to}; give them to Spark:")
    output.say(f"spark-submit --jars {','.join(map(str, found))}")
