"""Folders that several callers make at once."""

from pathlib import Path

import pytest

from rollingfs import RollingFileSystem
from rollingfs.backend.local.backend import LocalBackend
from tests.support.backends import Scripted


@pytest.fixture
def backend() -> Scripted:
    return Scripted(LocalBackend(sync=False))


def test_makedirs_accepts_a_folder_that_another_caller_makes_meanwhile(tmp_path: Path, backend: Scripted) -> None:
    folder = tmp_path / "folder"
    backend.plan("is_folder", str(folder), after=folder.mkdir)
    RollingFileSystem(backend=backend, skip_instance_cache=True).makedirs(str(folder), exist_ok=True)
    assert folder.is_dir()
