"""What is flushed on a disk and in which order, and what a disk that refuses a write leaves behind."""

import errno
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rollingfs import RollingFileSystem
from rollingfs.backend.contract import Buffer
from rollingfs.backend.local import disk, folders, system
from rollingfs.backend.local.backend import LocalBackend
from tests.support.driven import Driven
from tests.support.schedules import beside


@pytest.fixture
def flushed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The inodes given to fsync, in order."""
    inodes: list[int] = []
    beside(monkeypatch, system, "flush", lambda descriptor: inodes.append(os.fstat(descriptor).st_ino))
    return inodes


def _inode(path: str | Path) -> int:
    return os.stat(path).st_ino


def test_file_and_folders_are_flushed(backend, tmp_path, flushed):
    header = f"{tmp_path}/new/x$header"
    backend.create(f"{tmp_path}/before$header", b"x")
    assert _inode(tmp_path.parent) in flushed  # the folders above, once
    flushed.clear()
    token = backend.create(header, b"x")
    assert flushed == [_inode(tmp_path), _inode(tmp_path / "new"), _inode(header), _inode(tmp_path / "new")]
    flushed.clear()
    backend.replace(header, b"y", token)
    assert flushed == [_inode(header), _inode(tmp_path / "new")]  # two, and no more


def test_failed_flush_of_a_folder_names_a_path(tmp_path, monkeypatch):
    def fail(_descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(system, "flush", fail)
    with pytest.raises(OSError, match="error") as caught:
        folders.flush_folder_of(f"{tmp_path}/x$header")
    assert (caught.value.errno, caught.value.filename) == (errno.EIO, f"{tmp_path}/x$header")


def test_without_sync_nothing_is_flushed(tmp_path, flushed):
    backend = Driven(LocalBackend(sync=False))
    backend.replace(f"{tmp_path}/new/x$header", b"y", backend.create(f"{tmp_path}/new/x$header", b"x"))
    backend.write(f"{tmp_path}/new/x$chunks/chunk", [b"x"])
    backend.open_write(f"{tmp_path}/new/x$chunks/uploaded").finish()
    backend.copy(f"{tmp_path}/new/x$chunks/chunk", f"{tmp_path}/copy")
    assert flushed == []


@pytest.mark.parametrize(
    ("verb", "call"),
    [*(("replace", call) for call in ("flush", "rename", "set_date")), ("write", "write"), ("put", "rename")],
)
def test_what_the_disk_refuses_leaves_what_was_there(backend, header, tmp_path, monkeypatch, verb, call):
    token, write = backend.create(header, b"old"), os.write

    def full(*args: Any, **_: Any) -> int:
        if call != "write" or len(args[1]) < 5000:
            raise OSError(28, "No space left on device")
        return write(args[0], args[1][:5000])

    folder = tmp_path / "segment$chunks"
    args = {"replace": (header, b"new", token), "write": (f"{folder}/chunk", [bytes(12_000)])}
    with monkeypatch.context() as patch:
        patch.setattr({"write": os}.get(call, system), call, full)
        with pytest.raises(OSError, match="No space left"):
            getattr(backend, verb)(*args.get(verb, (f"{folder}/pin", b"content")))
    assert backend.read(header).data == b"old"
    assert os.listdir(folder) == ["lock"] * (verb == "replace")
    backend.replace(header, b"new", token)  # the lock is free as well


def test_a_pin_is_not_seen_before_it_is_whole(tmp_path, monkeypatch):
    fs = RollingFileSystem("file", inline_bytes=0)
    fs.pipe_file(f"{tmp_path}/source", b"of a chunk")
    fs.seal(f"{tmp_path}/source")
    fs.touch(f"{tmp_path}/target")
    seen = []

    def look(_: int, data: Sequence[Buffer]) -> None:
        if bytes(data[0]).startswith(b"rollingfs-pin"):
            seen.append(list(tmp_path.glob("source$chunks/pin-*")))  # a collection would fail to read it

    beside(monkeypatch, disk, "write_all", look)
    fs.concat(f"{tmp_path}/target", [f"{tmp_path}/source"])
    assert seen == [[]]
    assert fs.cat_file(f"{tmp_path}/target") == b"of a chunk"


def test_header_dates_only_go_up_when_clocks_go_back(backend, header, monkeypatch):
    token = backend.create(header, b"x")
    dates = [os.stat(header).st_mtime_ns]
    monkeypatch.setattr(time, "time_ns", lambda: 10**18)
    for _ in range(5):
        token = backend.replace(header, b"x", token)
        dates.append(os.stat(header).st_mtime_ns)
    assert dates == sorted(set(dates))
