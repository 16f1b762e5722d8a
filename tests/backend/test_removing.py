"""Files that a bulk removal closes late: each once, whatever fails."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import Any

import pytest

from rollingfs import RollingFileSystem
from rollingfs.backend.local import removing
from rollingfs.backend.local.record_lock import HAS_RECORD_LOCKS, close_locks
from rollingfs.backend.local.removing import CLOSED_AT_ONCE, Closer

pytestmark = pytest.mark.skipif(not HAS_RECORD_LOCKS, reason="files are closed late only where Linux has its locks")

FORKS = """
import os, sys
from rollingfs.backend.local.removing import Closer
closer = Closer()
files = [os.open(sys.executable, os.O_RDONLY) for _ in range(3)]
for file in files:
    closer.take(file)
if child := os.fork():
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
left = 0
for file in files:
    try:
        os.fstat(file)
    except OSError:
        continue
    left += 1
os._exit(left)
"""


def opened(count: int) -> list[int]:
    return [os.open(os.devnull, os.O_RDONLY) for _ in range(count)]


def test_each_file_is_closed_once_though_a_thread_cannot_start(monkeypatch: Any) -> None:
    start, starts, closed = threading.Thread.start, [], []

    def limited(thread: threading.Thread) -> None:
        if thread.name.startswith("rollingfs-close"):
            starts.append(thread)
            if len(starts) == 2:
                raise RuntimeError("can't start new thread")
        start(thread)

    def counted(descriptors: Any) -> None:
        closed.extend(descriptors := list(descriptors))
        close_locks(descriptors)

    monkeypatch.setattr(threading.Thread, "start", limited)
    monkeypatch.setattr(removing, "close_locks", counted)
    files = opened(5 * CLOSED_AT_ONCE + 1)
    with Closer() as closer:
        for file in files:
            closer.take(file)
    assert sorted(closed) == sorted(files)


def test_a_child_keeps_none_of_them() -> None:
    assert subprocess.run([sys.executable, "-W", "ignore", "-c", FORKS], timeout=60, check=False).returncode == 0


def test_a_removal_needs_no_descriptor_for_each_segment(tmp_path: Any, monkeypatch: Any) -> None:
    fs = RollingFileSystem("file", sync=False)
    for nth in range(5):
        fs.pipe_file(f"{tmp_path}/t/{nth}", b"x")
    real = os.open

    def short(path: Any, flags: int, *args: Any, **more: Any) -> int:
        if str(path).endswith("$header") and sys._getframe(1).f_code.co_name == "remove":
            raise OSError(24, "Too many open files")
        return real(path, flags, *args, **more)

    monkeypatch.setattr(os, "open", short)
    fs.rm(f"{tmp_path}/t", recursive=True)
    assert not os.path.exists(f"{tmp_path}/t")
