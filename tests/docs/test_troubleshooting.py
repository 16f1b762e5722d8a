"""The messages that docs/troubleshooting.md explains are messages of the code."""

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8")
MESSAGES = re.findall(r"^### `([^`]+)`$", PAGE, re.MULTILINE)
GAP = "…"
MESSAGES_MIN = 25


def texts(tree: ast.AST) -> Iterator[str]:
    """The texts that a module makes, with `GAP` in the place of each value."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            yield "".join(part.value if isinstance(part, ast.Constant) else GAP for part in node.values)


@functools.cache  # not at import: each worker imports this module, and one runs its tests
def code() -> list[str]:
    files = (ROOT / "rollingfs").rglob("*.py")
    return [text for path in files for text in texts(ast.parse(path.read_text(encoding="utf-8")))]


def is_in_the_code(message: str) -> bool:
    """Whether one text has all pieces of a message, in their order."""
    pattern = re.compile(".*".join(re.escape(piece) for piece in re.split(rf"\s*{GAP}\s*", message)), re.DOTALL)
    return any(pattern.search(text) for text in code())


def test_the_page_has_messages_and_each_only_once() -> None:
    assert len(MESSAGES) >= MESSAGES_MIN
    assert len(set(MESSAGES)) == len(MESSAGES)


@pytest.mark.parametrize("message", MESSAGES)
def test_a_message_of_the_page_is_in_the_code(message: str) -> None:
    assert is_in_the_code(message)


def test_a_message_that_nobody_writes_is_found() -> None:
    assert not is_in_the_code("… is on fire; nothing was written")
    assert not is_in_the_code("has an option … neither rolling nor")
