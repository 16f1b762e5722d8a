"""The command line ``rollingfs``. What it needs beyond the library is imported only when it runs."""

import importlib.util
import sys

NEEDED = ("typer", "rich")


def main() -> None:
    """Run the command line; ends the process with its exit code."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        print(f"rollingfs: the command line needs {', '.join(missing)}: pip install 'rollingfs[cli]'", file=sys.stderr)
        sys.exit(1)
    from rollingfs.cli.app import run

    run()
