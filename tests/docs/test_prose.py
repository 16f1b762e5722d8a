"""Docstrings are rated by kinds of words that are hard to read; `python -m tests.docs.test_prose` lowers the ratchet.

Rates are occurrences per 1,000 words of docstrings, package by package. A package may have twice the rate of the worst
peer. A package with a higher rate is in `prose_rates.json` with its present rate, which may only go down. A package
that is new because modules moved enters the table by the same command.
"""

import ast
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
RATES = Path(__file__).with_name("prose_rates.json")
KINDS = {
    "begins with a question": r"(?:^|\n|[.!?:]\s)\s*(?:What|Which|Where|How)\b",
    "one": r"\b[Oo]nes?\b",
    "none": r"\b(?:none|None of|[Nn]othing|[Nn]obody)\b",
    "say": r"\b(?:say|says|said|tell|tells|told)\b",
    "behind": r"\b(?:[Bb]ehind|[Bb]esides?|[Aa]new|[Mm]eanwhile|[Aa]lone)\b",
    "that of": r"\b(?:[Tt]hat of|[Tt]hose (?:that|of|which))\b",
    "lies": r"\b(?:lies?|lay)\b",
}
PEERS = {
    "zarr 3.1.6": (0.04, 1.04, 0.19, 0.0, 0.04, 0.02, 0.02),
    "obstore 0.12.1": (0.22, 1.11, 0.0, 0.0, 0.0, 0.0, 0.0),
}
"""Rates of the kinds in the installed packages, stubs included and tests excluded, by `rates` on 2026-11-28."""
ALLOWED = {kind: round(2 * max(peer), 2) for kind, peer in zip(KINDS, zip(*PEERS.values(), strict=True), strict=True)}
MARGIN = 0.3
"""About one occurrence in a package of 3,000 words, so that a shorter text elsewhere does not fail the test."""
NAME_WORDS_MAX = 9


def docstrings(tree: ast.Module) -> Iterator[str]:
    """Yield each text that is a statement."""
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield text.strip()


def prose(texts: Iterable[str]) -> str:
    """Return texts without code."""
    return "\n\n".join(re.sub(r"``?[^`]*``?|^ *(?:>>>|\.\.\. ).*$", "", text, flags=re.MULTILINE) for text in texts)


def count(pattern: str, text: str) -> int:
    return len(re.findall(pattern, text))


def rates(files: list[Path]) -> dict[str, float]:
    """Return the rate of each kind in the docstrings of files."""
    text = prose(text for file in files for text in docstrings(ast.parse(file.read_text(encoding="utf-8"))))
    words = max(count(r"[A-Za-z][\w'-]*", text), 1)
    return {kind: round(1000 * count(pattern, text) / words, 2) for kind, pattern in KINDS.items()}


def packages() -> dict[str, list[Path]]:
    """Return the files of each package of `rollingfs`."""
    found: dict[str, list[Path]] = {}
    for file in sorted((ROOT / "rollingfs").rglob("*.py")):
        parts = file.relative_to(ROOT / "rollingfs").parts
        found.setdefault(parts[0] if len(parts) > 1 else "top", []).append(file)
    return found


def long_names() -> list[str]:
    """Return the names of tests that have too many words."""
    files = [*(ROOT / "tests").rglob("test_*.py"), *(ROOT / "rollingfs/testing").glob("*.py")]
    names = [name for file in files for name in re.findall(r"def test_(\w+)", file.read_text(encoding="utf-8"))]
    return [name for name in names if name.count("_") >= NAME_WORDS_MAX]


def measured() -> dict[str, dict[str, float]]:
    """Return the rates above the allowed rates, by package."""
    found = {name: rates(files) for name, files in packages().items()}
    return {name: {kind: rate for kind, rate in each.items() if rate > ALLOWED[kind]} for name, each in found.items()}


def stored() -> dict[str, Any]:
    return json.loads(RATES.read_text(encoding="utf-8"))


@pytest.mark.parametrize("package", sorted(packages()))
def test_docstrings_become_no_harder_to_read(package: str) -> None:
    table = stored()["docstrings"].get(package, {})
    found = rates(packages()[package])
    limits = {kind: max(ALLOWED[kind], table.get(kind, 0) + MARGIN) for kind in KINDS}
    assert {kind: rate for kind, rate in found.items() if rate > limits[kind]} == {}, limits


def test_no_test_has_a_long_name() -> None:
    assert long_names() == []


def test_each_kind_is_counted_and_code_is_not() -> None:
    code = '''
def f():
    """Whether it is. What lies behind ``one``, nobody says.

    >>> one
    """
x: str
"""Those that have one."""
'''
    texts = list(docstrings(ast.parse(code)))
    assert {kind: count(pattern, prose(texts)) for kind, pattern in KINDS.items()} == dict.fromkeys(KINDS, 1)


if __name__ == "__main__":
    table = {}
    for package, each in measured().items():
        before = stored()["docstrings"].get(package, each)
        table[package] = {kind: min(rate, before.get(kind, ALLOWED[kind])) for kind, rate in each.items()}
    table = {package: each for package, each in table.items() if each}
    RATES.write_text(json.dumps({"docstrings": table}, indent=1) + "\n", encoding="utf-8")
