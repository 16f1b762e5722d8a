"""The table of docs/shippers.md, written from what was found and stored in `results.json`."""

import datetime
import json
from pathlib import Path

from tests.shippers.programs import SHIPPERS
from tests.support.pages import with_block

RESULTS = Path(__file__).parent / "results.json"
PAGE = Path(__file__).parents[2] / "docs" / "shippers.md"
MARK = "made by python -m tests.shippers"
FACTS = ("program", "version", "output", "sent", "lost", "doubled", "day")


def results() -> dict[str, dict[str, str]]:
    """What was found of each shipper, with the day."""
    return dict(json.loads(RESULTS.read_text())) if RESULTS.exists() else {}


def recorded(name: str, found: dict[str, str]) -> None:
    """Store what was found today."""
    known = results() | {name: found | {"day": datetime.datetime.now(datetime.UTC).date().isoformat()}}
    text = json.dumps({name: known[name] for name in SHIPPERS if name in known}, indent=1, ensure_ascii=False)
    RESULTS.write_text(text + "\n")


def with_table(page: str) -> str:
    """Return the page with a new table between the marks."""
    rows = [FACTS, ["---"] * len(FACTS), *([one[fact] for fact in FACTS] for one in results().values())]
    return with_block(page, MARK, "".join(f"| {' | '.join(row)} |\n" for row in rows))
