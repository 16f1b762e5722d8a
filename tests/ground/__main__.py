"""Measure servers and write the table of docs/stores.md: `python -m tests.ground [--page] [NAME...]`."""

import argparse

import pytest

from tests.ground.measure import measured
from tests.ground.page import recorded, write_page
from tests.ground.servers import SERVERS


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.ground", description=__doc__)
    parser.add_argument("names", nargs="*", help="servers; all by default", metavar="NAME")
    parser.add_argument("--page", action="store_true", help="measure nothing")
    given = parser.parse_args()
    for name in [] if given.page else given.names or SERVERS:
        try:
            recorded(name, found := measured(SERVERS[name]))
        except pytest.skip.Exception as skipped:
            print(f"{name}: {skipped}", flush=True)
        else:
            print(f"{name}: {found}", flush=True)
    write_page()


if __name__ == "__main__":
    main()
