"""The table of docs/shippers.md, written from what was found and stored in `results.json`."""

from pathlib import Path

from tests.support.pages import Results, found_in, table, with_block

RESULTS = Path(__file__).parent / "results.json"
PAGE = Path(__file__).parents[2] / "docs" / "shippers.md"
MARK = "made by python -m tests.shippers"
FACTS = ("program", "version", "output", "sent", "lost", "doubled", "day")


def results() -> Results:
    """Return what was found of each shipper, with the day."""
    return found_in(RESULTS)


def with_table(page: str) -> str:
    """Return the page with a new table between the marks."""
    return with_block(page, MARK, table(FACTS, [[one[fact] for fact in FACTS] for one in results().values()]))
