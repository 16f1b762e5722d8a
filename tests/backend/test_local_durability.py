"""The local backend over a loss of power and a kill: what it flushes, and what it has acknowledged."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path
from typing import Any

import pytest

from rollingfs.backend.contract import Part
from rollingfs.backend.local import disk
from rollingfs.backend.local.backend import LocalBackend
from rollingfs.testing import run
from tests.support.backends import joined

KILLS = 4
ACKNOWLEDGED_BEFORE_KILL = 20
WAIT_S = 60


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
    header, chunks = f"{tmp_path}/new/x$header", f"{tmp_path}/new/x$chunks"
    run(backend, backend.create(f"{tmp_path}/before$header", b"x"))
    assert _inode(tmp_path.parent) in flushed  # the folders above, once
    flushed.clear()
    token = run(backend, backend.create(header, b"x"))
    assert flushed == [_inode(tmp_path), _inode(tmp_path / "new"), _inode(header), _inode(tmp_path / "new")]
    flushed.clear()
    run(backend, backend.replace(header, b"y", token))
    assert flushed == [_inode(header), _inode(tmp_path / "new")]  # two, and no more
    flushed.clear()
    run(backend, backend.write(f"{chunks}/chunk", [b"x"]))
    assert flushed == [_inode(f"{chunks}/chunk"), _inode(chunks)]
    flushed.clear()
    upload = run(backend, backend.open_write(f"{chunks}/uploaded"))
    run(backend, upload.finish())
    assert flushed == [_inode(f"{chunks}/uploaded"), _inode(chunks)]
    flushed.clear()
    run(backend, backend.copy(f"{chunks}/chunk", f"{chunks}/copy"))
    assert flushed == [_inode(f"{chunks}/copy"), _inode(chunks)]
    flushed.clear()
    run(backend, joined(backend, [Part(f"{chunks}/chunk", 0, 1)], f"{chunks}/joined"))
    assert flushed == [_inode(f"{chunks}/joined"), _inode(chunks)]


def test_without_sync_nothing_is_flushed(tmp_path: Path, flushed: list[int]) -> None:
    backend = LocalBackend(sync=False)
    token = run(backend, backend.create(f"{tmp_path}/new/x$header", b"x"))
    run(backend, backend.replace(f"{tmp_path}/new/x$header", b"y", token))
    run(backend, backend.write(f"{tmp_path}/new/x$chunks/chunk", [b"x"]))
    upload = run(backend, backend.open_write(f"{tmp_path}/new/x$chunks/uploaded"))
    run(backend, upload.finish())
    run(backend, backend.copy(f"{tmp_path}/new/x$chunks/chunk", f"{tmp_path}/copy"))
    assert flushed == []


def _count_for_ever(header: str, acknowledged: Any) -> None:
    backend = LocalBackend(sync=False)
    while True:
        blob = run(backend, backend.read(header))
        number = int(blob.data[:20]) + 1
        run(backend, backend.replace(header, b"%020d" % number * 500, blob.token))
        acknowledged.send_bytes(b"%020d" % number)


def test_kill_9_loses_nothing_acknowledged_tears_nothing_and_frees_the_lock(header: str) -> None:
    backend = LocalBackend(sync=False)
    run(backend, backend.create(header, b"%020d" % 0 * 500))
    context = multiprocessing.get_context("spawn")
    for _ in range(KILLS):
        receiving, sending = context.Pipe(duplex=False)
        process = context.Process(target=_count_for_ever, args=(header, sending), daemon=True)
        process.start()
        sending.close()
        for _ in range(ACKNOWLEDGED_BEFORE_KILL):
            assert receiving.poll(WAIT_S)
            last = int(receiving.recv_bytes())
        process.kill()
        process.join()
        while True:  # what it acknowledged before it died
            try:
                last = int(receiving.recv_bytes())
            except EOFError:
                break
        blob = run(backend, backend.read(header))
        assert blob.data == blob.data[:20] * 500
        assert int(blob.data[:20]) in (last, last + 1)
        run(backend, backend.replace(header, blob.data, blob.token))
