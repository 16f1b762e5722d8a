"""The tables of docs/stores.md, written from what was found and stored in `results.json` and `disks.json`."""

import re
from pathlib import Path

from tests.ground.servers import SERVERS
from tests.support.pages import Results, found_in, table, with_block

RESULTS = Path(__file__).parent / "results.json"
PAGE = Path(__file__).parents[2] / "docs" / "stores.md"
MARK = "made by python -m tests.ground"
DISK_RESULTS = Path(__file__).parent / "disks.json"
DISK_MARK = "disks, made by python -m tests.ground --disks"
DISK_COLUMNS = ("version", "link", "rename", "locks", "append", "doctor", "life", "kill -9", "day")
FACTS = (
    *("create", "replace", "delete", "complete", "copy", "reads", "crash", "ranges", "listing", "token", "dates"),
    *("doctor", "life", "kill -9"),
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


def results() -> Results:
    """Return what was found of each server, with the day."""
    return found_in(RESULTS)


def short(text: str) -> str:
    """Return a fact as the page has it."""
    for pattern, sign in SHORT.items():
        text = re.sub(pattern, sign, text)
    return text


def with_tables(page: str) -> str:
    """Return the page with new tables between the marks."""
    servers = [
        [SERVERS[name].title, *(short(one.get(fact, "")) for fact in FACTS), one["day"]]
        for name, one in results().items()
    ]
    disks = [[kind, *(short(one[column]) for column in DISK_COLUMNS)] for kind, one in found_in(DISK_RESULTS).items()]
    page = with_block(page, MARK, table(["server", *FACTS, "day"], servers))
    return with_block(page, DISK_MARK, table(["disk", *DISK_COLUMNS], disks))


def write_page() -> None:
    """Write the table anew."""
    PAGE.write_text(with_tables(PAGE.read_text()))
