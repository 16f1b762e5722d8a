"""What the tests of the disk share, and the marks of tests that a class inherits from the contract."""

from __future__ import annotations

from pathlib import Path

import pytest

from rollingfs.backend.local.backend import LocalBackend


@pytest.fixture
def backend() -> LocalBackend:
    return LocalBackend()


@pytest.fixture
def header(tmp_path: Path) -> str:
    return f"{tmp_path}/segment$header"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark inherited tests as the table `MARKS` of their class says, by name, with or without a parameter."""
    for item in items:
        marks = getattr(getattr(item, "cls", None), "MARKS", {})
        for name in {item.name, item.name.partition("[")[0]} & marks.keys():
            item.add_marker(marks[name])
