"""The local backend over a loss of power and a kill: what it flushes, and what it has acknowledged."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rollingfs.backend.local import disk
from rollingfs.backend.local.backend import LocalBackend
from rollingfs.testing import run


@pytest.fixture
def flushed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The inodes given to fsync, in order."""
    inodes: list[int] = []
    real_fsync = os.fsync

    def spy(descriptor: int) -> None:
        inodes.append(os.fstat(descriptor).st_ino)
        real_fsync(descriptor)

    monkeypatch.setattr(os, "fsync", spy)
    monkeypatch.delattr(disk.fcntl, "F_FULLFSYNC", raising=False)
    return inodes


def _inode(path: str | Path) -> int:
    return os.stat(path).st_ino


def test_file_and_folders_are_flushed(backend: LocalBackend, tmp_path: Path, flushed: list[int]) -> None:
    header = f"{tmp_path}/new/x$header"
    run(backend, backend.create(f"{tmp_path}/before$header", b"x"))
    assert _inode(tmp_path.parent) in flushed  # the folders above, once
    flushed.clear()
    token = run(backend, backend.create(header, b"x"))
    assert flushed == [_inode(tmp_path), _inode(tmp_path / "new"), _inode(header), _inode(tmp_path / "new")]
    flushed.clear()
    run(backend, backend.replace(header, b"y", token))
    assert flushed == [_inode(header), _inode(tmp_path / "new")]  # two, and no more


def test_without_sync_nothing_is_flushed(tmp_path: Path, flushed: list[int]) -> None:
    backend = LocalBackend(sync=False)
    token = run(backend, backend.create(f"{tmp_path}/new/x$header", b"x"))
    run(backend, backend.replace(f"{tmp_path}/new/x$header", b"y", token))
    run(backend, backend.write(f"{tmp_path}/new/x$chunks/chunk", [b"x"]))
    upload = run(backend, backend.open_write(f"{tmp_path}/new/x$chunks/uploaded"))
    run(backend, upload.finish())
    run(backend, backend.copy(f"{tmp_path}/new/x$chunks/chunk", f"{tmp_path}/copy"))
    assert flushed == []
