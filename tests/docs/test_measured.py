"""Figures that pages quote are those of the stored benchmarks; `python -m tests.docs.test_measured` quotes them anew.

A page says which case, and which of its columns, between `<!-- measured P1: unit ms, requests -->` and `<!-- end -->`;
`<!-- measured P1 at 60 ms -->` quotes the results at that latency. `missed.md` of the results has, between
`<!-- missed -->` and `<!-- end -->`, each missed goal with the reason, which a person writes, and, between
`<!-- lowered -->` and `<!-- end -->`, each goal that the code made easier.
"""

import json
import re
from pathlib import Path

import pytest

from benchmarks.cases import ALL
from tests.support.servers import require_module

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
QUOTED = re.compile(r"(<!-- measured (\w+)(?: at (\d+) ms)?(?:: ([^>]+))? -->\n)(.*?)(<!-- end -->)", re.DOTALL)
MISSED = re.compile(r"(<!-- missed -->\n)(.*?)(<!-- end -->)", re.DOTALL)
LOWERED = re.compile(r"(<!-- lowered -->\n)(.*?)(<!-- end -->)", re.DOTALL)
REASONS = RESULTS / "missed.md"
PAGES = [path for path in sorted(ROOT.glob("docs/**/*.md")) if QUOTED.search(path.read_text(encoding="utf-8"))]
PAGES.append(REASONS)


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def table(case: str, latency_ms: str | None, columns: str | None) -> str:
    """The table of a case, or some of its columns, with the sentence above it."""
    results = (RESULTS / f"latest{f'-{latency_ms}ms' if latency_ms else ''}.md").read_text(encoding="utf-8")
    found = re.search(rf"^\*\*{case}: .*\n\n((?:\|.*\n)+)", results, re.MULTILINE)
    assert found is not None, f"{case} is not among the results"
    rows = [cells(line) for line in found[1].splitlines()]
    wanted = rows[0][1:] if columns is None else [name.strip() for name in columns.split(",")]
    places = [0, *(rows[0].index(name) for name in wanted)]
    lines = ["| " + " | ".join(row[place] for place in places) + " |" for row in rows]
    lines[0] = lines[0].replace("|  |", "| |", 1)
    lines[1] = lines[1].replace(" ", "")
    return found[0].partition("\n")[0] + "\n\n" + "\n".join(lines) + "\n"


def missed(written: str) -> str:
    """The goals that the stored results miss, each with the reason that stands beside it already."""
    reasons = {(row[0], row[1]): row[4] for row in map(cells, written.splitlines()[2:])}
    lines = ["| case | ratio or bound | goal | measured | reason |", "|---|---|---|---:|---|"]
    for name, work in json.loads((RESULTS / "latest.json").read_text(encoding="utf-8"))["works"].items():
        for goal in work["goals"]:
            if goal["met"] is False:
                reason = reasons.get((name, goal["goal"]), "")
                lines.append(f"| {name} | {goal['goal']} | {goal['bound']} | {goal['found']:.2f} | {reason} |")
    return "\n".join(lines) + "\n"


def lowered() -> str:
    """The goals that were made easier, with what they were."""
    lines = ["| case | ratio or bound | goal | before | since | reason |", "|---|---|---|---|---|---|"]
    for case in ALL:
        for goal in case.goals:
            if goal.lowered is not None:
                old = goal.lowered
                lines.append(f"| {case.id} | {goal.text} | {goal.bound} | {old.bound} | {old.on} | {old.reason} |")
    return "\n".join(lines) + "\n"


def quote(text: str) -> str:
    """A page with the figures of the stored results."""
    text = QUOTED.sub(lambda match: match[1] + table(match[2], match[3], match[4]) + match[6], text)
    text = LOWERED.sub(lambda match: match[1] + lowered() + match[3], text)
    return MISSED.sub(lambda match: match[1] + missed(match[2]) + match[3], text)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_a_page_quotes_the_stored_results(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert text == quote(text), "quote them anew: python -m tests.docs.test_measured"


def test_pages_quote_and_a_wrong_figure_is_found() -> None:
    assert {page.name for page in PAGES} >= {"performance.md", "many_writers.md"}
    page = ROOT / "docs" / "many_writers.md"
    text = page.read_text(encoding="utf-8")
    figures = QUOTED.search(text)
    wrong = text.replace(figures[5], re.sub(r"\d", "7", figures[5]))
    assert wrong != text
    assert quote(wrong) == text


def test_each_missed_goal_has_a_reason() -> None:
    text = REASONS.read_text(encoding="utf-8")
    goals = MISSED.search(text)
    rows = [cells(line) for line in goals[2].splitlines()[2:]]
    assert rows
    assert [row for row in rows if not row[4]] == []
    last = goals[2].splitlines(keepends=True)[-1]
    assert quote(text.replace(last, "")) != text.replace(last, "")


@pytest.mark.parametrize("stem", ["latest", "latest-60ms"])
def test_the_stored_tables_are_those_of_the_stored_results(stem: str) -> None:
    require_module("rich")
    from benchmarks.report import markdown

    fields = json.loads((RESULTS / f"{stem}.json").read_text(encoding="utf-8"))
    assert (RESULTS / f"{stem}.md").read_text(encoding="utf-8") == markdown(fields)
    assert fields["latency_ms"] == (60 if stem.endswith("60ms") else 12)


def test_the_stored_goals_are_those_of_the_code() -> None:
    works = json.loads((RESULTS / "latest.json").read_text(encoding="utf-8"))["works"]
    stored = {name: [(goal["goal"], goal["bound"]) for goal in work["goals"]] for name, work in works.items()}
    assert stored == {case.id: [(goal.text, goal.bound) for goal in case.goals] for case in ALL}


def test_the_page_states_the_commit_of_its_tables() -> None:
    works = json.loads((RESULTS / "latest.json").read_text(encoding="utf-8"))["works"]
    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    assert ("all tables are of one commit" in page) == (len({work["commit"] for work in works.values()}) == 1)


if __name__ == "__main__":
    for each in PAGES:
        each.write_text(quote(each.read_text(encoding="utf-8")), encoding="utf-8")
