"""Figures that pages quote are those of the stored benchmarks; `python -m tests.docs.test_measured` quotes them anew.

A page says which case, and which of its columns, between `<!-- measured P1: unit ms, requests -->` and `<!-- end -->`.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RESULTS = (ROOT / "benchmarks" / "results" / "latest.md").read_text(encoding="utf-8")
QUOTED = re.compile(r"(<!-- measured (\w+)(?:: ([^>]+))? -->\n)(.*?)(<!-- end -->)", re.DOTALL)
PAGES = [path for path in sorted(ROOT.glob("docs/**/*.md")) if QUOTED.search(path.read_text(encoding="utf-8"))]


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def table(case: str, columns: str | None) -> str:
    """The table of a case, or some of its columns, with the sentence above it."""
    found = re.search(rf"^\*\*{case}: .*\n\n((?:\|.*\n)+)", RESULTS, re.MULTILINE)
    assert found is not None, f"{case} is not among the results"
    rows = [cells(line) for line in found[1].splitlines()]
    wanted = rows[0][1:] if columns is None else [name.strip() for name in columns.split(",")]
    places = [0, *(rows[0].index(name) for name in wanted)]
    lines = ["| " + " | ".join(row[place] for place in places) + " |" for row in rows]
    lines[0] = lines[0].replace("|  |", "| |", 1)
    lines[1] = lines[1].replace(" ", "")
    return found[0].partition("\n")[0] + "\n\n" + "\n".join(lines) + "\n"


def quote(text: str) -> str:
    """A page with the figures of the stored results."""
    return QUOTED.sub(lambda match: match[1] + table(match[2], match[3]) + match[5], text)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_a_page_quotes_the_stored_results(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert text == quote(text), "quote them anew: python -m tests.docs.test_measured"


def test_pages_quote_and_a_wrong_figure_is_found() -> None:
    assert {page.name for page in PAGES} >= {"comparison.md", "many_writers.md"}
    page = ROOT / "docs" / "comparison.md"
    text = page.read_text(encoding="utf-8")
    figures = QUOTED.search(text)
    assert figures is not None
    wrong = text.replace(figures[4], re.sub(r"\d", "7", figures[4]))
    assert wrong != text
    assert quote(wrong) == text


if __name__ == "__main__":
    for each in PAGES:
        each.write_text(quote(each.read_text(encoding="utf-8")), encoding="utf-8")
