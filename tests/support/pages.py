"""Blocks of pages that a program writes: between ``<!-- MARK -->`` and ``<!-- end -->``."""

import datetime
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

END = "<!-- end -->"
Results = dict[str, dict[str, str]]


def _split(page: str, mark: str) -> tuple[str, str, str]:
    """Return a page up to its block, the block, and the rest."""
    before, begin, rest = page.partition(f"<!-- {mark} -->\n")
    block, end, after = rest.partition(END)
    assert begin, f"the page has no {mark}"
    assert end, f"{mark} has no end"
    return before + begin, block, end + after


def block_of(page: str, mark: str) -> str:
    """Return the text of a block."""
    return _split(page, mark)[1]


def with_block(page: str, mark: str, block: str) -> str:
    """Return a page with another text in its block."""
    before, _, after = _split(page, mark)
    return before + block + after


def table_rows(page: str, mark: str) -> list[list[str]]:
    """Return the cells of a block's table in Markdown, without its head."""
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in block_of(page, mark).splitlines()[2:]]


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    return "".join(f"| {' | '.join(line)} |\n" for line in (head, ["---"] * len(head), *rows))


def found_in(file: Path) -> Results:
    """Return what was found and stored, by name, with the day."""
    return dict(json.loads(file.read_text())) if file.exists() else {}


def record(file: Path, name: str, found: dict[str, str], order: Iterable[str], day_of: str = "day") -> None:
    """Store what was found of a name today, and the day, among those of an order."""
    known, today = found_in(file), datetime.datetime.now(datetime.UTC).date().isoformat()
    known[name] = known.get(name, {}) | found | {day_of: today}
    text = json.dumps({one: known[one] for one in order if one in known}, indent=1, ensure_ascii=False)
    file.write_text(text + "\n")
