"""The protocol: chapters stay short, rules have numbers of their own, and code and tests cite rules that are there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CHAPTERS = sorted((ROOT / "docs" / "protocol").glob("*.md"))
CHAPTER_WORDS_MAX = 2000
DOCS_WORDS_MAX = 60_000
"""The goal is 60,000. The bound may only go down."""
RULE = re.compile(r"\*\*P(\d+)\.(\d+)\*\*")
CITED = re.compile(r"\bP\d+\.\d+\b")
CITED_MIN = 40


def words(path: Path) -> int:
    return sum(bool(re.search(r"\w", word)) for word in path.read_text(encoding="utf-8").split())


def rules(path: Path) -> list[tuple[int, int]]:
    found = RULE.findall(path.read_text(encoding="utf-8"))
    return [(int(chapter), int(number)) for chapter, number in found]


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_a_chapter_is_short_and_numbers_its_rules(path: Path) -> None:
    assert words(path) <= CHAPTER_WORDS_MAX
    numbered = rules(path)
    assert numbered
    assert len({chapter for chapter, _ in numbered}) == 1
    assert len(set(numbered)) == len(numbered)


def test_chapters_have_different_numbers() -> None:
    assert len({rules(path)[0][0] for path in CHAPTERS}) == len(CHAPTERS)


def test_cited_rules_exist() -> None:
    known = {f"P{chapter}.{number}" for path in CHAPTERS for chapter, number in rules(path)}
    files = [path for name in ("rollingfs", "tests", "docs") for path in (ROOT / name).rglob("*.*")]
    texts = [path.read_text(encoding="utf-8") for path in files if path.suffix in {".py", ".md", ".java"}]
    cited = {rule for text in texts for rule in CITED.findall(RULE.sub("", text))}
    assert len(cited) >= CITED_MIN
    assert cited - known == set()


def test_all_pages_together_stay_short() -> None:
    assert sum(map(words, [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])) <= DOCS_WORDS_MAX
