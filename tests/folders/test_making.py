"""Folders that several callers make at once."""

from pathlib import Path

from rollingfs import RollingFileSystem
from rollingfs.backend.local.backend import LocalBackend
from tests.support.backends import Scripted


def test_makedirs_accepts_a_folder_that_another_caller_makes_meanwhile(tmp_path: Path) -> None:
    folder, backend = tmp_path / "folder", Scripted(LocalBackend(sync=False))
    backend.plan("is_folder", str(folder), after=folder.mkdir)
    RollingFileSystem(backend=backend, skip_instance_cache=True).makedirs(str(folder), exist_ok=True)
    assert folder.is_dir()
