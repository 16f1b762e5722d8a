"""The figures of docs/reliability.md are counted, not typed; `python -m tests.docs.test_reliability` counts them anew.

What can be counted at once is compared with the tests as they are. What takes minutes is noted in `FIGURES`, with its
date: how many tests there are, and what the long run of the simulation did.
"""

import json
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from tests.simulation.test_worlds import LONG_RUN, WORLDS_OF_CI
from tests.support.faults import Fault
from tests.support.pages import block_of, with_block

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reliability.md"
MONTHS = (  # not by `strftime`, which speaks the language of the locale
    *("January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November"),
    "December",
)
FIGURES = ROOT / "tests" / "fixtures" / "reliability.json"
MARK = "counted"
RUN = re.compile(r"(?P<worlds>\d+) worlds, (?P<operations>\d+) operations, (?P<faults>\d+) faults, 0 failed")


def block(found: dict[str, int | str]) -> str:
    """The lines of the page that state figures."""
    return (
        f"- {found['tests']:,} tests; {found['fast']:,} of them in the fast suite, on {found['date']}.\n"
        f"- On {found['run_date']}, the long run of the simulation did {found['operations']:,} operations in "
        f"{found['worlds']} worlds, among {found['faults']:,} faults of {len(Fault)} kinds, "
        f"and broke no rule. (`python -m tests.simulation {' '.join(LONG_RUN)}`; "
        f"CI does {WORLDS_OF_CI} of the worlds.)\n"
    )


def test_the_page_states_what_was_counted() -> None:
    text = PAGE.read_text(encoding="utf-8")
    noted = json.loads(FIGURES.read_text(encoding="utf-8"))
    assert block_of(text, MARK) == block(noted), "write it anew: python -m tests.docs.test_reliability"


def test_numbers_in_the_table_are_those_of_the_tests() -> None:
    text = PAGE.read_text(encoding="utf-8")
    traces = (ROOT / "tests" / "fixtures" / "traces.txt").read_text(encoding="utf-8")
    assert f"recorded for {len(re.findall('^== ', traces, re.MULTILINE))} operations" in text
    pravega = (ROOT / "tests" / "system" / "test_pravega.py").read_text(encoding="utf-8")
    behaviours = re.search(r"The (\d+) behaviours", pravega)
    assert f"| {behaviours[1]} behaviours" in text


def count() -> dict[str, int | str]:
    """Count the tests, and do the long run; this takes minutes."""

    def output(*words: str) -> str:
        command = [sys.executable, "-m", *words]
        return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout

    def tests(*words: str) -> int:
        said = output("pytest", "-q", "-p", "no:cacheprovider", "--collect-only", *words)
        return int(re.search(r"^(\d+)(?:/\d+)? tests? collected", said, re.MULTILINE)[1])

    run = RUN.search(output("tests.simulation", *LONG_RUN))
    counted = {"tests": tests(), "fast": tests("-m", "not slow")}
    numbers = {name: int(number) for name, number in run.groupdict().items()}
    now = datetime.now(UTC)
    today = f"{now.day} {MONTHS[now.month - 1]} {now.year}"
    return {"date": today, "run_date": today, **counted, **numbers}


if __name__ == "__main__":
    FIGURES.write_text(json.dumps(count(), indent=1) + "\n", encoding="utf-8")
    figures = json.loads(FIGURES.read_text(encoding="utf-8"))
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(with_block(page, MARK, block(figures)), encoding="utf-8")
