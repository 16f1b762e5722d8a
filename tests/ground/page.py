"""The tables of docs/stores.md, written from what was found and stored in `results.json` and `disks.json`."""

import datetime
import json
import re
from pathlib import Path

from tests.ground.servers import SERVERS
from tests.support.pages import with_block

RESULTS = Path(__file__).parent / "results.json"
PAGE = Path(__file__).parents[2] / "docs" / "stores.md"
MARK = "made by python -m tests.ground"
DISK_RESULTS = Path(__file__).parent / "disks.json"
DISK_MARK = "disks, made by python -m tests.ground --disks"
DISK_COLUMNS = ("version", "link", "rename", "locks", "append", "doctor", "life", "kill -9", "day")
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
    "life",
    "kill -9",
)
SHORT = {
    r"^one wins \(\d+\)$|^holds$|^as S3$|^whole \(\d+\)$|^safe$|^(new|old) \(.*$|^MD5, equal for equal bytes$": "✓",
    r"^hold$|^kept \(\d+\)$": "✓",
    r"^\*\*(\d+) of (\d+) ([a-z, ]+)\*\*$": r"**\1/\2 \3**",
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


def recorded(name: str, found: dict[str, str], day_of: str = "day") -> None:
    """Store what was found today, and the day."""
    known = results() | {
        name: results().get(name, {}) | found | {day_of: datetime.datetime.now(datetime.UTC).date().isoformat()}
    }
    text = json.dumps({name: known[name] for name in SERVERS if name in known}, indent=1, ensure_ascii=False)
    RESULTS.write_text(text + "\n")


def short(text: str) -> str:
    """Return a fact as the page has it."""
    for pattern, sign in SHORT.items():
        text = re.sub(pattern, sign, text)
    return text


def rendered(found: Results) -> str:
    """Return the table in Markdown."""
    rows = [
        [SERVERS[name].title, *(short(one.get(fact, "")) for fact in FACTS), one["day"]] for name, one in found.items()
    ]
    lines = [["server", *FACTS, "day"], ["---"] * (2 + len(FACTS)), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def disk_results() -> Results:
    """What was found of each disk, with the day."""
    return dict(json.loads(DISK_RESULTS.read_text()))


def record_disk(kind: str, found: dict[str, str]) -> None:
    """Store what was found of a disk today."""
    known = disk_results() | {kind: found | {"day": datetime.datetime.now(datetime.UTC).date().isoformat()}}
    DISK_RESULTS.write_text(json.dumps(known, indent=1, ensure_ascii=False, sort_keys=True) + "\n")


def rendered_disks(found: Results) -> str:
    """Return the table of disks in Markdown."""
    rows = [[kind, *(short(one[column]) for column in DISK_COLUMNS)] for kind, one in found.items()]
    lines = [["disk", *DISK_COLUMNS], ["---"] * (1 + len(DISK_COLUMNS)), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def with_tables(page: str) -> str:
    """Return the page with new tables between the marks."""
    page = with_block(page, MARK, rendered(results()) + "\n")
    return with_block(page, DISK_MARK, rendered_disks(disk_results()) + "\n")


def write_page() -> None:
    """Write the table anew."""
    PAGE.write_text(with_tables(PAGE.read_text()))
