"""What the tests of the disk share."""

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
