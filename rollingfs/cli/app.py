"""The command line as a whole: all groups of commands, and the options before the command."""

from __future__ import annotations

import importlib.metadata
import sys
import warnings
from typing import Annotated

import typer

from rollingfs.cli import change, doctor, run as run_command, serve, show, streams, top, upkeep
from rollingfs.cli.command import Groups, add_commands

EPILOG = (
    "Exit codes: 0 done, 1 an error, 2 wrong usage, 3 verify found damage or doctor an unsafe store, 130 interrupted."
)

app = typer.Typer(
    name="rollingfs",
    cls=Groups,
    help="Append, seal, truncate and zero-copy concat for files on object stores and disks. "
    "A PATH is s3://…, file:///…, rolling::… or a local path.",
    epilog=EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"rollingfs {importlib.metadata.version('rollingfs')}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Say which release this is.")
    ] = False,
) -> None:
    """Accept the options before the command."""


add_commands(app, "Look at segments", show.ls, show.info, show.map_, top.top)
add_commands(app, "Read", show.cat, show.head, show.tail)
add_commands(
    app, "Write", change.append, change.truncate, change.seal, change.concat, change.mv, change.rm, change.ship
)
add_commands(app, "Streams", streams.cut, streams.trim, streams.retain)
add_commands(app, "Upkeep", upkeep.consolidate, upkeep.export, upkeep.rebuild, upkeep.collect, upkeep.verify)
add_commands(app, "Upkeep", upkeep.policy, run_command.run)
add_commands(app, "Tiers", run_command.offload, run_command.onload, run_command.roll)
add_commands(app, "Serve", serve.serve)
add_commands(app, "Stores and Spark", doctor.doctor, doctor.spark_jars)


def run() -> None:
    """Run the command line of this process."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # so that a terminal without Unicode ends no command
    # Ctrl-C may come between the making of a coroutine and its first step
    warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
    app(prog_name="rollingfs")
