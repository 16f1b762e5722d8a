"""Run shippers and write the table of docs/shippers.md: `python -m tests.shippers [--page] [NAME...]`."""

import argparse
import tempfile
from pathlib import Path

import pytest

from tests.shippers.measure import measured
from tests.shippers.page import PAGE, RESULTS, with_table
from tests.shippers.programs import SHIPPERS
from tests.support.pages import record


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.shippers", description=__doc__)
    parser.add_argument("names", nargs="*", help="shippers; all by default", metavar="NAME")
    parser.add_argument("--page", action="store_true", help="run nothing")
    given = parser.parse_args()
    for name in [] if given.page else given.names or SHIPPERS:
        try:
            with tempfile.TemporaryDirectory(prefix="rollingfs-shipper-") as folder:
                record(RESULTS, name, found := measured(SHIPPERS[name], Path(folder)), SHIPPERS)
        except pytest.skip.Exception as skipped:
            print(f"{name}: {skipped}", flush=True)
        else:
            print(f"{name}: {found}", flush=True)
    PAGE.write_text(with_table(PAGE.read_text()))


if __name__ == "__main__":
    main()
