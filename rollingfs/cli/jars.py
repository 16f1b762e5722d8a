"""The command that gathers jars for Spark: ``spark-jars``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rollingfs.cli import output
from rollingfs.cli.command import Commands
from rollingfs.cli.session import Session

commands = Commands("Stores and Spark")


@commands("spark-jars")
def spark_jars(
    session: Session,
    to: Annotated[Path, typer.Option("--to", metavar="DIR", help="The folder; it is made.", show_default=False)],
    s3: Annotated[bool, typer.Option("--s3/--no-s3", help="Add Hadoop's S3 connector, fetched from Maven.")] = True,
) -> None:
    """Gather the jars that Spark needs for rolling+s3:// and rolling+file://, for machines without Maven.

    The Spark that is installed here says which S3 connector fits, and fetches it; that needs a JDK.

    With --json: jars, a list of paths.
    """
    from rollingfs.spark.gather import gather

    with session.progress(f"gathering jars in {to}"):
        found = gather(to, s3=s3)
    if session.json:
        output.write_json({"jars": [str(path) for path in found]})
        return
    output.say(f"{len(found)} jars in {to}; give them to Spark:")
    output.say(f"spark-submit --jars {','.join(map(str, found))}")
