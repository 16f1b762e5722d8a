"""Measure servers and write the table of docs/stores.md: `python -m tests.ground [--page | --survive] [NAME...]`."""

import argparse
import tempfile
from pathlib import Path

import pytest

from tests.ground.measure import SOAK_S, measured, measured_disk, survived
from tests.ground.page import DISK_RESULTS, RESULTS, results, write_page
from tests.ground.servers import SERVERS
from tests.support.disks import DISKS, KERNEL_DISKS
from tests.support.pages import record


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.ground", description=__doc__)
    parser.add_argument("names", nargs="*", help="servers, or disks; all by default", metavar="NAME")
    parser.add_argument("--page", action="store_true", help="measure nothing")
    parser.add_argument("--disks", action="store_true", help="measure disks, not servers")
    parser.add_argument("--survive", action="store_true", help="a life and killed processes, where doctor is content")
    given = parser.parse_args()
    for name in [] if given.page else given.names or ([*KERNEL_DISKS, *DISKS] if given.disks else SERVERS):
        try:
            if given.disks:
                with tempfile.TemporaryDirectory() as folder:
                    found = measured_disk(name, Path(folder), SOAK_S)
                record(DISK_RESULTS, name, found, sorted([*KERNEL_DISKS, *DISKS]))
            elif not given.survive:
                record(RESULTS, name, found := measured(SERVERS[name]), SERVERS)
            elif results()[name]["doctor"] == "safe":
                record(RESULTS, name, found := survived(SERVERS[name], SOAK_S), SERVERS, "day of kill -9")
            else:
                continue
        except pytest.skip.Exception as skipped:
            print(f"{name}: {skipped}", flush=True)
        else:
            print(f"{name}: {found}", flush=True)
    write_page()


if __name__ == "__main__":
    main()
