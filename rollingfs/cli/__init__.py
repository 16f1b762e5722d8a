"""The command line ``rollingfs``.

In: words of a command line, and standard input. Out: standard output, standard error, an exit code. Must not be here:
anything that a user of the library could want; the commands call the library. Typer and rich are imported only when
the command line runs.
"""

import importlib.util
import sys

NEEDED = ("typer", "rich")


def main() -> None:
    """Run the command line; it ends the process with its exit code."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        print(f"rollingfs: the command line needs {', '.join(missing)}: pip install 'rollingfs[cli]'", file=sys.stderr)
        sys.exit(1)
    try:
        from rollingfs.cli.app import run

        run()
    except KeyboardInterrupt:  # before the command began
        from rollingfs.cli.output import INTERRUPTED

        sys.exit(INTERRUPTED)
