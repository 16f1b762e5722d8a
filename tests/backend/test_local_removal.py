"""The bulk removal on a disk: which of its files are closed late, and by whom."""

import contextlib
import os
import sys
import textwrap
import threading
from typing import Any

import pytest

from rollingfs import RollingFileSystem
from rollingfs.backend.local import removing, system
from rollingfs.backend.local.removing import CLOSED_AT_ONCE, Closer
from tests.support.cli import python
from tests.support.forks import is_so_in_child
from tests.support.schedules import beside

needs_locks = pytest.mark.skipif(not system.PLACE, reason="files are closed late only where Linux has its locks")


def opened(count: int) -> list[int]:
    return [os.open(os.devnull, os.O_RDONLY) for _ in range(count)]


@needs_locks
def test_each_file_is_closed_once_though_thread_cannot_start(monkeypatch):
    starts, closed = [], []

    def limited(thread: threading.Thread) -> None:
        if thread.name.startswith("rollingfs-close"):
            starts.append(thread)
            if len(starts) == 2:
                raise RuntimeError("can't start new thread")

    beside(monkeypatch, threading.Thread, "start", limited)
    beside(monkeypatch, removing, "close_locks", closed.extend)
    files = opened(5 * CLOSED_AT_ONCE + 1)
    with contextlib.closing(Closer()) as closer:
        for file in files:
            closer.take(file)
    files += opened(1)
    closer.take(files[-1])  # after the end
    assert sorted(closed) == sorted(files)


@needs_locks
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_child_keeps_none_of_files_that_are_closed_late():
    with contextlib.closing(Closer()) as closer:
        for file in (files := opened(3)):
            closer.take(file)
        assert is_so_in_child(lambda: not any(os.path.exists(f"/proc/self/fd/{file}") for file in files))


@needs_locks
def test_a_removal_needs_no_descriptor_for_each_segment(tmp_path, monkeypatch):
    fs = RollingFileSystem("file", sync=False)
    for nth in range(5):
        fs.pipe_file(f"{tmp_path}/t/{nth}", b"x")

    def short(path: Any, *_: Any, **__: Any) -> None:
        if str(path).endswith("$header") and sys._getframe(2).f_code.co_name == "remove":
            raise OSError(24, "Too many open files")

    beside(monkeypatch, system, "open_file", short)
    fs.rm(f"{tmp_path}/t", recursive=True)
    assert not os.path.exists(f"{tmp_path}/t")


@pytest.mark.slow
@needs_locks
def test_a_folder_goes_with_64_open_files(tmp_path):
    python(
        textwrap.dedent(f"""
        import resource
        from rollingfs import RollingFileSystem
        fs, root = RollingFileSystem("file", sync=False), {str(tmp_path)!r}
        for number in range(200):
            fs.pipe_file(f"{{root}}/a/{{number}}", bytes(10_000 * (number % 2)))
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        fs.collect(root, recursive=True, grace=0)
        fs.cp(f"{{root}}/a", f"{{root}}/b", recursive=True)
        fs.get(f"{{root}}/b", f"{{root}}/c", recursive=True)
        fs.mv(f"{{root}}/a", f"{{root}}/d", recursive=True)
        assert len(fs.find(f"{{root}}/d")) == 200
        fs.rm(root, recursive=True)
        assert not fs.exists(root)
    """)
    )


@pytest.mark.parametrize("size", [10, 300_000])
@pytest.mark.parametrize(
    "name", [".DS_Store", "._00000000000000000000-0123456789ab", "thumbs.db", "Desktop.ini", "mine"]
)
def test_files_of_file_managers_go_along(tmp_path, name, size):
    fs, folder = RollingFileSystem("file", sync=False, inline_bytes=1000), tmp_path / "f" / "x$chunks"
    for is_folder in (False, True):
        fs.pipe_file(f"{tmp_path}/f/x", bytes(size))
        folder.mkdir(exist_ok=True)
        (folder / name).touch()
        fs.collect(f"{tmp_path}/f/x", grace=0)
        assert (folder / name).exists()
        fs.rm(f"{tmp_path}/f", recursive=True) if is_folder else fs.rm(f"{tmp_path}/f/x")
        assert not fs.exists(f"{tmp_path}/f/x")
        assert os.path.lexists(folder) == (name == "mine"), "a user's own file stays"
        if name == "mine":
            return
        assert is_folder or os.listdir(tmp_path / "f") == []
