"""Segments on other disks than ext4: on a disk that keeps open files under other names, and on mounts by FUSE."""

import contextlib
import errno
import itertools
import os
import shutil
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rollingfs import RollingFileSystem
from rollingfs.backend.local import disk, folders, system
from rollingfs.backend.local.backend import LocalBackend
from rollingfs.errors import ConflictError, UnsafeBackendError
from rollingfs.format import names
from rollingfs.runtime.concurrency import drive
from tests.support.backends import raises
from tests.support.disks import DISKS, mounted
from tests.support.nameless import is_open, keep_open_files
from tests.support.schedules import eventually


def _live(root: str) -> None:
    """A life in which each verb that removes a file or a folder has its turn; nothing of it is left.

    A disk that closes a file while it hides it may keep it for ever (fuse2fs 1.47.0, in half of the runs): that goes.
    """
    fs = RollingFileSystem("file", sync=False, skip_instance_cache=True)
    other = RollingFileSystem("file", sync=False, skip_instance_cache=True)
    fs.mkdir(f"{root}/life")
    fs.create(log := f"{root}/life/log")
    assert fs.append(log, b"first") == 0
    assert other.append(log, b"x" * 300_000) == 5
    fs.truncate(log, 5)
    with fs.open(log, "rb") as reader:
        assert reader.read(3) == b"xxx"
        fs.segment(log).consolidate(grace=0)
        other.pipe_file(log, b"another")
    fs.mv(log, moved := f"{root}/life/moved")
    fs.pipe_file(source := f"{root}/life/source", b" and more")
    fs.seal(source)
    fs.concat(moved, [source])
    assert other.cat_file(moved) == b"another and more"
    Path(plain := f"{root}/life/plain").write_bytes(b"plain")
    assert fs.append(plain, b", adopted") == 5
    Path(f"{root}/life/other").write_bytes(b"plain")
    with fs.open(f"{root}/life/other", "rb") as reader:
        assert reader.read(2) == b"pl"
        fs.rm(f"{root}/life/other")
    for nth in range(20):
        fs.pipe_file(f"{root}/life/many/{nth}", b"x")
    fs.mv(f"{root}/life/many", f"{root}/life/moved many", recursive=True)
    assert len(other.ls(f"{root}/life/moved many")) == 20
    fs.rm(f"{root}/life/moved many", recursive=True)
    assert sorted(os.path.basename(name) for name in fs.ls(f"{root}/life", detail=False)) == ["moved", "plain"]
    fs.collect(f"{root}/life", recursive=True, grace=0)
    fs.rm(f"{root}/life", recursive=True)

    def is_empty() -> bool:
        for hidden in Path(root).rglob(".fuse_hidden*"):
            with contextlib.suppress(FileNotFoundError):
                if not is_open(hidden.stat()):
                    hidden.unlink()
        fs.collect(root, recursive=True, grace=0)  # again: FUSE may free a closed file later (P6.28)
        return set(os.listdir(root)) <= {"System Volume Information"}

    eventually(is_empty)
    assert fs.ls(root) == []


def test_no_verb_needs_an_open_files_name_to_go(tmp_path, monkeypatch):
    keep_open_files(monkeypatch)
    RollingFileSystem("file", sync=False, skip_instance_cache=True).create(f"{tmp_path}/made/log")
    assert os.listdir(f"{tmp_path}/made/log$chunks") == []
    shutil.rmtree(f"{tmp_path}/made")
    _live(str(tmp_path))


def test_nameless_file_that_stays_is_hidden_and_harmless(tmp_path, monkeypatch):
    keep_open_files(monkeypatch, for_ever=True)
    fs = RollingFileSystem("file", sync=False, skip_instance_cache=True)
    fs.mkdir(f"{tmp_path}/life")
    fs.pipe_file(log := f"{tmp_path}/life/log", b"log")
    with fs.open(log, "rb") as reader:
        fs.pipe_file(log, b"another")
        assert reader.read() == b"log"
    fs.mv(log, f"{tmp_path}/life/moved")
    assert fs.ls(f"{tmp_path}/life", detail=False) == [f"{tmp_path}/life/moved"]
    fs.rm(f"{tmp_path}/life", recursive=True)
    assert fs.ls(str(tmp_path)) == []


@pytest.mark.parametrize("code", [errno.EPERM, errno.ENOSYS, errno.EMLINK, errno.EXDEV, errno.ERANGE])
def test_a_disk_without_hard_links_is_refused_in_words(tmp_path, monkeypatch, code):
    fs = RollingFileSystem("file", skip_instance_cache=True)
    monkeypatch.setattr(system, "link", raises(OSError(code, os.strerror(code))))
    with pytest.raises(UnsafeBackendError, match=r"makes no hard links .*nothing was written"):
        fs.create(f"{tmp_path}/a")
    assert fs.ls(str(tmp_path)) == []


def fail_opens(patch: pytest.MonkeyPatch, path: str, code: int, times: int, *, is_shown: bool) -> list[str]:
    """Let a disk of FUSE not open a file so many times, and perhaps `stat` find it; the list of failed opens grows."""
    failed: list[str] = []
    real_open, real_exists = system.open_file, os.path.exists

    def open_by_fuse(name: Any, *args: Any, **more: Any) -> int:
        if name == path and len(failed) < times:
            failed.append(path)
            raise OSError(code, os.strerror(code), path)
        return real_open(name, *args, **more)

    patch.setattr(folders, "is_local", lambda _: False)
    patch.setattr(system, "open_file", open_by_fuse)
    patch.setattr(os.path, "exists", lambda name: is_shown if name == path else real_exists(name))
    return failed


@pytest.mark.parametrize("code", [errno.ENOENT, errno.ESTALE])
@pytest.mark.parametrize(("times", "is_shown"), [(7, True), (2, False)])
def test_a_missed_name_is_opened_again(tmp_path, monkeypatch, code, times, is_shown):
    fs = RollingFileSystem("file", sync=False, skip_instance_cache=True)
    fs.pipe_file(log := f"{tmp_path}/log", b"log")
    for look in (lambda: fs.ls(str(tmp_path), detail=False) == [log], lambda: fs.cat_file(log) == b"log"):
        with monkeypatch.context() as patch:
            failed = fail_opens(patch, names.header_path(log), code, times, is_shown=is_shown)
            assert look()
        assert len(failed) == times


def test_a_stopped_process_opens_a_missed_name_again(tmp_path, monkeypatch):
    """A SIGSTOP of seconds between two looks: the first look after it met a stale file on GlusterFS."""
    (path := tmp_path / "file").write_bytes(b"file")
    failed = fail_opens(monkeypatch, str(path), errno.ESTALE, 3, is_shown=True)
    monkeypatch.setattr(disk.time, "monotonic", itertools.count(step=10).__next__)
    with disk.opened(str(path)):
        assert len(failed) == 3


def test_a_missing_file_is_soon_believed(tmp_path, monkeypatch):
    failed = fail_opens(monkeypatch, path := f"{tmp_path}/file", errno.ENOENT, 99, is_shown=False)
    monkeypatch.setattr(disk.time, "sleep", lambda _: pytest.fail("it waits"))
    with pytest.raises(FileNotFoundError), disk.opened(path):
        pass
    assert len(failed) == 1 + disk.DENIALS_MIN


def test_a_denied_name_is_asked_for_at_once(tmp_path, monkeypatch):
    """P6.35: JuiceFS denies a name for a second after another machine's rename, unless the kernel looks it up again."""
    failed = fail_opens(monkeypatch, path := f"{tmp_path}/file", errno.ENOENT, 99, is_shown=False)
    asked: list[str] = []

    def refresh(name: str) -> None:
        asked.append(name)
        monkeypatch.undo()

    (tmp_path / "file").write_bytes(b"file")
    monkeypatch.setattr(system, "refresh", refresh)
    with disk.opened(path):
        assert asked == [path]
    assert len(failed) == 2


@pytest.mark.skipif(os.name == "nt", reason="each open of Windows asks the server")
def test_a_look_at_a_name_makes_nothing(tmp_path):
    with pytest.raises(FileNotFoundError):
        system.look_up(f"{tmp_path}/missing")
    (tmp_path / "file").write_bytes(b"file")
    system.look_up(f"{tmp_path}/file")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").stat().st_nlink == 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", DISKS)
def test_segments_live_on_a_disk_by_fuse(tmp_path, kind):
    with mounted(kind, tmp_path) as there:
        _live(str(there))


def test_removals_on_a_read_only_disk_name_the_segment(tmp_path):
    with mounted("ext4", tmp_path) as there:
        for name in ("a", "d/x", "d/y"):
            RollingFileSystem("file").pipe_file(f"{there}/{name}", b"12345")
        (there / "plain").write_bytes(b"plain")
        subprocess.run(["mount", "-o", "remount,ro", str(there)], check=True)
        fs = RollingFileSystem("file", skip_instance_cache=True)
        for verb, path, why in (
            (lambda: fs.rm(f"{there}/a"), "a", "its header was not changed: the disk is mounted read-only"),
            (lambda: fs.mv(f"{there}/a", f"{there}/b"), "a", "its header was not changed"),
            (lambda: fs.rm(f"{there}/d", recursive=True), "d/x", "its header was not changed"),
            (lambda: fs.rm(f"{there}/plain"), "plain", "nothing was committed: Read-only"),
        ):
            with pytest.raises(OSError, match=why) as caught:
                verb()
            assert (caught.value.errno, caught.value.filename) == (errno.EROFS, f"{there}/{path}")
        assert fs.cat_file(f"{there}/a") == fs.cat_file(f"{there}/d/x") == b"12345"


@pytest.mark.parametrize("verb", ["append", "mv"])
def test_a_commit_finds_what_another_machine_put_there(tmp_path, monkeypatch, verb):
    """P6.35: a mount may know the old file of a name, until something is done that asks the server."""
    monkeypatch.setattr(folders, "is_local", lambda _: False)
    fs, other = (RollingFileSystem("file", skip_instance_cache=True) for _ in range(2))
    fs.pipe_file(log := f"{tmp_path}/log", b"one")
    os.link(header := names.header_path(log), old := f"{tmp_path}/old")
    other.append(log, b", two")
    is_known, real_open = [True], system.open_file

    def open_by_mount(name: Any, *args: Any, **more: Any) -> int:
        return real_open(old if name == header and is_known else name, *args, **more)

    monkeypatch.setattr(system, "open_file", open_by_mount)
    monkeypatch.setattr(system, "look_up", lambda _: is_known.clear())
    if verb == "append":
        fs.append(log, b", three")
    else:
        fs.mv(log, log := f"{tmp_path}/moved")
    assert not is_known
    assert other.cat_file(log) == {"append": b"one, two, three", "mv": b"one, two"}[verb]


@pytest.mark.parametrize("code", [errno.ESTALE, errno.EBADF, errno.EIO])
def test_a_failed_flush_puts_no_old_header_back(tmp_path, monkeypatch, code):
    """P6.35: a mount of GlusterFS calls the old file stale when it is flushed: 50 of 1,019 appends were lost."""
    fs, other = (RollingFileSystem("file", skip_instance_cache=True) for _ in range(2))
    fs.pipe_file(log := f"{tmp_path}/log", b"one")
    os.link(header := names.header_path(log), old := f"{tmp_path}/old")
    other.append(log, b", two")
    monkeypatch.setattr(folders, "is_local", lambda _: False)
    is_known, failed = [True], list[int]()
    real_open, real_status, real_flush = system.open_file, os.lstat, system.flush

    def flush(descriptor: int) -> None:
        if os.path.samestat(os.fstat(descriptor), os.stat(old)):
            failed.append(descriptor)
            raise OSError(code, os.strerror(code))
        real_flush(descriptor)

    monkeypatch.setattr(system, "open_file", lambda name, *more, **how: real_open(by_mount(name), *more, **how))
    monkeypatch.setattr(os, "lstat", lambda name, **how: real_status(by_mount(name), **how))
    monkeypatch.setattr(system, "look_up", lambda name: is_known.clear())
    monkeypatch.setattr(system, "flush", flush)

    def by_mount(name: Any) -> Any:
        return old if name == header and is_known else name

    with contextlib.suppress(OSError):  # only EIO is an error: a file that is gone needs no flush
        fs._bridge.run(fs._backend.flush(header))
    assert failed
    is_known.clear()
    assert other.cat_file(log) == b"one, two"


def fail_a_read(patch: pytest.MonkeyPatch, code: int, meanwhile: Callable[[], object] = lambda: None) -> list[int]:
    """Let the next read fail, and again once the list of failed ones is empty."""
    failed, real = list[int](), system.read_at

    def read_at(descriptor: int, size: int, start: int) -> bytes:
        if not failed:
            meanwhile()
            failed.append(descriptor)
            raise OSError(code, os.strerror(code))
        return real(descriptor, size, start)

    patch.setattr(system, "read_at", read_at)
    return failed


@pytest.mark.parametrize("code", [errno.ESTALE, errno.EBADF])
def test_a_header_that_another_machine_replaces_is_read_again(tmp_path, monkeypatch, code):
    fs = RollingFileSystem("file", skip_instance_cache=True)
    fs.pipe_file(log := f"{tmp_path}/log", b"log")
    failed = fail_a_read(monkeypatch, code)
    listed = partial(fs.ls, str(tmp_path), detail=False)
    for look in (
        lambda: fs.cat_file(log) == b"log",
        lambda: fs.append(log, b" and more") == 3,
        lambda: listed() == [log],
    ):
        assert look()
        assert failed
        failed.clear()


@pytest.mark.parametrize("code", [errno.ESTALE, errno.EBADF])  # JuiceFS answers EBADF
def test_plain_file_another_machine_replaces_is_seen_again(tmp_path, monkeypatch, code):
    backend, path = LocalBackend(), f"{tmp_path}/plain"
    token = drive(backend.stat(_written(path, b"one"))).token
    failed = fail_a_read(monkeypatch, code, lambda: os.replace(_written(f"{tmp_path}/other", b"another"), path))
    assert drive(backend.stat(path)).size == len(b"another")
    assert failed.pop()
    assert drive(backend.read(path)).data == b"another"
    assert failed.pop()
    with pytest.raises(ConflictError):
        drive(backend.read_range(path, 0, 3, token))
    assert failed.pop()
    drive(backend.copy(path, f"{tmp_path}/copy", drive(backend.stat(path)).token))
    assert failed


def _written(path: str, data: bytes) -> str:
    Path(path).write_bytes(data)
    return path


def test_file_that_goes_in_each_look_is_missing(tmp_path, monkeypatch):
    path = _written(f"{tmp_path}/plain", b"one")
    monkeypatch.setattr(system, "read_at", raises(OSError(errno.EBADF, os.strerror(errno.EBADF))))
    with pytest.raises(FileNotFoundError):
        drive(LocalBackend().stat(path))

    os.close(closed := os.dup(0))
    held = contextlib.nullcontext((closed, os.stat(path)))
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):  # of a descriptor of ours, which is closed
        disk.look(path, lambda descriptor, _: disk.read_exactly(descriptor, 0, 1), held=held)


@pytest.mark.parametrize("verb", ["delete_if", "remove_whole", "move_whole"])
@pytest.mark.parametrize("is_carried", [True, False])
def test_a_removal_asks_for_its_locks_name(tmp_path, monkeypatch, verb, is_carried):
    """P6.35: a mount may know a lock's file after another machine has put another in its place."""
    backend, header = LocalBackend(), names.header_path(f"{tmp_path}/log")
    token, asked = drive(backend.create(header, b"content")), []

    def look_up(path: str) -> None:
        asked.append(path)
        if path == names.lock_path(header):
            raise FileNotFoundError(errno.ENOENT, "injected", path)

    monkeypatch.setattr(folders, "is_local", lambda _: False)
    monkeypatch.setattr(system, "look_up", look_up)
    if not is_carried:
        monkeypatch.setattr(system, "PLACE", 0)
    args = (header, token, *([f"{tmp_path}/moved$header"] if verb == "move_whole" else []))
    if verb == "delete_if":
        assert not drive(backend.delete_if(*args))
    else:
        assert drive(getattr(backend, verb)([args])) == [False]
    assert asked == [header, names.lock_path(header)]
    assert os.path.exists(header)


def test_a_chunk_that_another_machine_removes_is_found_elsewhere(tmp_path, monkeypatch):
    """GlusterFS 10.3 opens a file that is gone, for a second, and calls it stale when it is read."""
    fs, other = (RollingFileSystem("file", max_bytes=64, inline_bytes=0, skip_instance_cache=True) for _ in range(2))
    fs.pipe_file(log := f"{tmp_path}/log", b"one ")
    fs.append(log, b"two ")
    view = fs.segment(log)._snapshot
    known = {one.path: os.open(one.path, os.O_RDONLY) for one in os.scandir(f"{log}$chunks")}
    other.segment(log).consolidate(grace=0)
    opens, read_at, read_into = system.open_file, system.read_at, system.read_into
    met: list[int] = []

    def open_file(name: Any, *args: Any, **more: Any) -> int:
        return os.dup(known[name]) if name in known and not os.path.exists(name) else opens(name, *args, **more)

    def there(descriptor: int) -> int:
        if os.fstat(descriptor).st_nlink == 0:
            met.append(descriptor)
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return descriptor

    monkeypatch.setattr(system, "open_file", open_file)
    monkeypatch.setattr(system, "read_at", lambda one, *more: read_at(there(one), *more))
    monkeypatch.setattr(system, "read_into", read_into and (lambda one, *more: read_into(there(one), *more)))
    assert fs._bridge.run(fs._client.fetcher.read(view, 0, 8)) == b"one two "
    assert met


def test_a_stale_held_file_is_opened_again_once(tmp_path, monkeypatch):
    (path := tmp_path / "file").write_bytes(b"bytes")
    backend, real, stale = LocalBackend(), system.read_at, list[int]()
    token = drive(backend.stat(str(path))).token
    assert token is not None
    held = backend.hold(str(path), token)

    def read_at(descriptor: int, size: int, start: int) -> bytes:
        if descriptor == held._descriptor:  # type: ignore[union-attr]
            stale.append(descriptor)
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return real(descriptor, size, start)

    monkeypatch.setattr(system, "read_at", read_at)
    assert drive(backend.read_range(str(path), 0, 5, token)) == b"bytes"
    assert len(stale) == 1


@pytest.mark.parametrize("verb", ["read", "export", "consolidate"])
def test_a_reader_waits_for_the_newer_header(tmp_path, monkeypatch, verb):
    """P6.35: a mount of GlusterFS knows the old header, whose chunks another machine has dropped, for a second."""
    monkeypatch.setattr(folders, "is_local", lambda _: False)
    fs, other = (RollingFileSystem("file", max_bytes=64, inline_bytes=0, skip_instance_cache=True) for _ in range(2))
    fs.pipe_file(log := f"{tmp_path}/log", b"one ")
    fs.append(log, b"two ")
    os.link(header := names.header_path(log), old := f"{tmp_path}/old")
    other.segment(log).consolidate(grace=0)
    opens, looks = system.open_file, list[str]()

    def open_file(name: Any, *args: Any, **more: Any) -> int:
        looks.extend([name] * (name == header))
        return opens(old if name == header and len(looks) < 6 else name, *args, **more)

    monkeypatch.setattr(system, "open_file", open_file)
    if verb == "consolidate":
        fs.segment(log).consolidate()
    if verb == "export":
        fs.export(log, target := f"{tmp_path}/target")
    assert (Path(target).read_bytes() if verb == "export" else fs.cat_file(log)) == b"one two "
    assert len(looks) >= 6


def test_a_file_may_be_gone_when_it_is_closed(tmp_path, monkeypatch):
    """GlusterFS 10.3 says so of a header that another machine has replaced meanwhile."""
    fs, real = RollingFileSystem("file", skip_instance_cache=True), os.close
    fs.pipe_file(log := f"{tmp_path}/log", b"log")
    header = os.stat(names.header_path(log))

    def close(descriptor: int) -> None:
        is_stale = os.path.samestat(os.fstat(descriptor), header)
        real(descriptor)
        if is_stale:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    monkeypatch.setattr(os, "close", close)
    assert fs.ls(str(tmp_path), detail=False) == [log]
    assert fs.cat_file(log) == b"log"
