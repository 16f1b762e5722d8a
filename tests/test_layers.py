"""Packages import in one direction only; the picture of the layers is `docs/architecture.md`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROLLINGFS = Path(__file__).parents[1] / "rollingfs"
LAYERS = (
    "errors",
    "policy",
    "runtime",
    "format",
    "backend",
    "commit",
    "read",
    "write",
    "maintenance",
    "client",
    "folders",
    "stream",
    "fs",
    "logging",
    "testing",
    "spark",
    "cli",
    "demo",
)
"""From the ground up: each imports only what stands before it, and itself."""
TOP_NAMES_MAX = 20


def _imported(tree: ast.AST) -> Iterator[str]:
    """What a module imports of this project, below the top: `format` for ``rollingfs.format.header``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "rollingfs":
            yield from (alias.name for alias in node.names if alias.name in LAYERS)
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("rollingfs."):
            yield node.module.split(".")[1]
        elif isinstance(node, ast.Import):
            yield from (alias.name.split(".")[1] for alias in node.names if alias.name.startswith("rollingfs."))


@pytest.mark.parametrize("layer", LAYERS)
def test_a_package_imports_only_what_stands_above_it_in_the_picture(layer: str) -> None:
    path = ROLLINGFS / layer
    modules = sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]
    allowed = set(LAYERS[: LAYERS.index(layer) + 1])
    found = {
        f"{module.relative_to(ROLLINGFS)} imports {name}"
        for module in modules
        for name in _imported(ast.parse(module.read_text()))
        if name not in allowed
    }
    assert modules
    assert not found


def test_every_name_at_the_top_has_its_place_in_the_picture() -> None:
    names = {path.stem for path in ROLLINGFS.iterdir() if path.name != "__pycache__"}
    assert names - {"__init__", "py"} == set(LAYERS)
    assert len(names) <= TOP_NAMES_MAX


@pytest.mark.parametrize("layer", [layer for layer in LAYERS if (ROLLINGFS / layer).is_dir()])
def test_a_package_opens_with_its_contract(layer: str) -> None:
    text = ast.get_docstring(ast.parse((ROLLINGFS / layer / "__init__.py").read_text()))
    assert text
    if layer not in ("testing", "cli", "spark"):  # programs on top, which have pages of their own
        assert "Must not be here:" in text
