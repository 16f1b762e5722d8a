"""The table of docs/stores.md, written from what was found and stored in `results.json`."""

import datetime
import json
import re
from pathlib import Path

from tests.ground.servers import SERVERS
from tests.support.pages import with_block

RESULTS = Path(__file__).parent / "results.json"
PAGE = Path(__file__).parents[2] / "docs" / "stores.md"
MARK = "made by python -m tests.ground"
FACTS = (
    "create",
    "replace",
    "delete",
    "complete",
    "copy",
    "reads",
    "crash",
    "ranges",
    "listing",
    "token",
    "dates",
    "doctor",
)
SHORT = {
    r"^one wins \(\d+\)$|^holds$|^as S3$|^whole \(\d+\)$|^safe$|^(new|old) \(.*$|^MD5, equal for equal bytes$": "✓",
    r"^\*\*ignored\*\*$|^refused$": "**✗**",
    r"\*\*several win\*\* \((\d+) of (\d+)\)": r"**\1/\2**",
    r"\*\*takes a newer file\*\* \((\d+) of (\d+)\)": r"**\1/\2**",
    r"(\d+) of (\d+) torn": r"\1/\2 torn",
    r"(\d+) of (\d+) of another ETag": r"\1/\2 mixed",
    r"(\d+) of (\d+) without an answer": r"\1/\2 hang",
    r"^refused \((\d+)\)$": r"\1",
    r"^all is gone$": "gone",
    r"suffix longer than the file": "long suffix",
    r"first byte of an empty file": "empty",
    r"no `a/b` beside `a` \((\d+)\)": r"\1",
    r"^.*, new for each write$": "new",
}
"""Texts as the page has them: it explains the signs."""
Results = dict[str, dict[str, str]]


def results() -> Results:
    """What was found of each server, with the day."""
    return dict(json.loads(RESULTS.read_text())) if RESULTS.exists() else {}


def recorded(name: str, found: dict[str, str]) -> None:
    """Store what was found today."""
    known = results() | {name: found | {"day": datetime.datetime.now(datetime.UTC).date().isoformat()}}
    text = json.dumps({name: known[name] for name in SERVERS if name in known}, indent=1, ensure_ascii=False)
    RESULTS.write_text(text + "\n")


def short(text: str) -> str:
    """Return a fact as the page has it."""
    for pattern, sign in SHORT.items():
        text = re.sub(pattern, sign, text)
    return text


def rendered(found: Results) -> str:
    """Return the table in Markdown."""
    rows = [[SERVERS[name].title, *(short(one[fact]) for fact in FACTS), one["day"]] for name, one in found.items()]
    lines = [["server", *FACTS, "day"], ["---"] * (2 + len(FACTS)), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def with_tables(page: str) -> str:
    """Return the page with a new table between the marks."""
    return with_block(page, MARK, rendered(results()) + "\n")


def write_page() -> None:
    """Write the table anew."""
    PAGE.write_text(with_tables(PAGE.read_text()))
