"""The local backend: the contract, the faults that only a disk can have, its flushes, copies and bulk removals."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from rollingfs import RollingFileSystem
from rollingfs.backend.contract import Backend, Buffer, Link, Part
from rollingfs.backend.local import backend as local
from rollingfs.backend.local import disk, record_lock, removing
from rollingfs.backend.local.backend import LocalBackend
from rollingfs.backend.local.record_lock import HAS_RECORD_LOCKS, close_locks
from rollingfs.backend.local.removing import CLOSED_AT_ONCE, Closer
from rollingfs.errors import ConflictError, UnsafeBackendError
from rollingfs.testing import BackendContract, Factory, run
from tests.support.backends import joined, raises

RACES = ("test_every_race_of_creates_and_of_replaces_has_one_winner", "test_no_acknowledged_increment_is_lost")


class OnDisk(BackendContract):
    @pytest.fixture
    def folder(self, tmp_path: Path) -> str:
        return f"{tmp_path}/fresh"

    def raw_read(self, path: str) -> bytes:
        return Path(path).read_bytes()

    def raw_write(self, path: str, data: bytes) -> None:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        Path(path).write_bytes(data)


class TestLocalBackend(OnDisk):
    @pytest.fixture
    def backend(self) -> Backend:
        return LocalBackend()

    def spawn_arguments(self) -> Factory:
        return LocalBackend, ()


class OnDiskByThreads(OnDisk):
    """Races of processes are in the slow step; those of `TestLocalBackend` are fast enough for all."""

    MARKS: ClassVar = {f"{race}[processes]": pytest.mark.slow for race in RACES}


@pytest.mark.skipif(not hasattr(os, "register_at_fork"), reason="needs POSIX record locks")
class TestLocalBackendWithoutOfdLocks(OnDiskByThreads):
    """As on macOS: `lockf`, under a mutex of the process."""

    @pytest.fixture
    def backend(self, monkeypatch: pytest.MonkeyPatch) -> Backend:
        monkeypatch.setattr(record_lock, "_HAS_OFD_LOCKS", False)
        return LocalBackend(sync=False)

    def spawn_arguments(self) -> Factory:
        return _backend_without_ofd_locks, ()


def _backend_without_ofd_locks() -> Backend:
    record_lock._HAS_OFD_LOCKS = False
    return LocalBackend(sync=False)


def _modes(*paths: str) -> list[int]:
    return [stat.S_IMODE(os.stat(path).st_mode) for path in paths]


# -- names --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ("/a/b", "/a/b"),
        ("/a/b/", "/a/b"),
        ("file:///a/b", "/a/b"),
        ("local:///a/b", "/a/b"),
        ("file:/a", "/a"),
        ("", "/"),
        ("/", "/"),
        ("file://", "/"),
        ("file:///", "/"),
    ],
)
def test_paths_and_urls_become_paths(backend: LocalBackend, given: str, path: str) -> None:
    assert backend.strip(given) == path


def test_relative_paths_become_absolute(backend: LocalBackend) -> None:
    urls = ["a/b", "./a/b", "file://a/b", "local://a/b"]
    assert [backend.strip(given) for given in urls] == [f"{os.getcwd()}/a/b"] * 4


def test_a_root_is_the_disk_of_the_nearest_folder_that_exists(backend: LocalBackend, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    assert (
        backend.root(f"{tmp_path}/no/such/folder") == backend.root(str(tmp_path)) == backend.root(f"{tmp_path}/file/x")
    )
    assert backend.root("/dev/x") != backend.root(str(tmp_path))


# -- conditional verbs ----------------------------------------------------------------------------------------


def test_conditional_writes_are_for_headers_only(backend: LocalBackend, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="header"):
        run(backend, backend.create(f"{tmp_path}/chunk", b""))
    with pytest.raises(ValueError, match="header"):
        run(backend, backend.replace(f"{tmp_path}/chunk", b"", "token"))
    assert os.listdir(tmp_path) == []


def test_without_record_locks_writing_is_refused_and_reading_is_not(
    header: str, backend: LocalBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = run(backend, backend.create(header, b"x"))
    monkeypatch.setattr(local, "HAS_RECORD_LOCKS", False)
    for verb in (
        backend.create(header + "2$header", b"y"),
        backend.replace(header, b"y", token),
        backend.delete_if(header, token),
    ):
        with pytest.raises(UnsafeBackendError, match="record locks"):
            run(backend, verb)
    assert run(backend, backend.read(header)).data == b"x"


def test_the_module_imports_and_reads_where_there_is_no_fcntl(tmp_path: Path) -> None:
    (tmp_path / "plain").write_bytes(b"bytes")
    code = (
        "import sys; sys.modules['fcntl'] = None\n"
        "from rollingfs.backend.local.backend import LocalBackend\n"
        "from rollingfs.testing import run\n"
        "backend = LocalBackend()\n"
        "assert not backend.can_write\n"
        f"print(run(backend, backend.read({str(tmp_path / 'plain')!r})).data)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("b'bytes'\n", "")


def test_a_refused_create_or_replace_leaves_no_file_behind(backend: LocalBackend, header: str, tmp_path: Path) -> None:
    run(backend, backend.create(header, b"x"))
    before = sorted(os.listdir(tmp_path / "segment$chunks"))
    with pytest.raises(FileExistsError):
        run(backend, backend.create(header, b"y"))
    with pytest.raises(ConflictError):
        run(backend, backend.replace(header, b"y", "stale"))
    assert sorted({*before, "lock"}) == sorted(os.listdir(tmp_path / "segment$chunks"))


@pytest.mark.parametrize("call", ["fsync", "rename", "utime"])
def test_a_replace_that_fails_leaves_the_old_header_and_no_temporary_file(
    backend: LocalBackend, header: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    token = run(backend, backend.create(header, b"old"))
    with monkeypatch.context() as patch:
        patch.setattr(os, call, raises(OSError(28, "No space left on device")))
        with pytest.raises(OSError, match="No space left"):
            run(backend, backend.replace(header, b"new", token))
    assert run(backend, backend.read(header)).data == b"old"
    assert os.listdir(tmp_path / "segment$chunks") == ["lock"]
    run(backend, backend.replace(header, b"new", token))  # the lock is free as well


def test_a_full_disk_leaves_no_half_written_chunk(
    backend: LocalBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"{tmp_path}/segment$chunks/chunk"
    real_write = os.write

    def fail(descriptor: int, data: memoryview) -> int:
        if len(data) < 5000:
            raise OSError(28, "No space left on device")
        return real_write(descriptor, data[:5000])

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", fail)
        with pytest.raises(OSError, match="No space left"):
            run(backend, backend.write(path, [bytes(12_000)]))
    assert not os.path.exists(path)


def test_a_pin_is_not_seen_before_it_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fs = RollingFileSystem("file", inline_bytes=0)
    fs.pipe_file(f"{tmp_path}/source", b"of a chunk")
    fs.seal(f"{tmp_path}/source")
    fs.touch(f"{tmp_path}/target")
    real_write, seen = disk.write_all, []

    def look(descriptor: int, data: Sequence[Buffer]) -> None:
        if bytes(data[0]).startswith(b"rollingfs-pin"):
            seen.append(list(tmp_path.glob("source$chunks/pin-*")))  # a collection would fail to read it
        real_write(descriptor, data)

    monkeypatch.setattr(disk, "write_all", look)
    fs.concat(f"{tmp_path}/target", [f"{tmp_path}/source"])
    assert seen == [[]]
    assert fs.cat_file(f"{tmp_path}/target") == b"of a chunk"


def test_a_put_that_cannot_take_its_name_leaves_nothing(
    backend: LocalBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", raises(OSError(5, "Input/output error")))
        with pytest.raises(OSError, match="Input/output error"):
            run(backend, backend.put(f"{tmp_path}/log$chunks/pin", b"content"))
    assert list((tmp_path / "log$chunks").iterdir()) == []


# -- tokens ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("has_preadv", [True, False])
def test_a_buffer_is_filled_as_far_as_the_file_goes(
    backend: LocalBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_preadv: bool
) -> None:
    path = f"{tmp_path}/digits"
    Path(path).write_bytes(b"0123456789")
    if not has_preadv:
        monkeypatch.delattr(os, "preadv", raising=False)
    elif hasattr(os, "preadv"):
        real = os.preadv  # the kernel may give less than was asked for
        monkeypatch.setattr(os, "preadv", lambda file, targets, start: real(file, [targets[0][:3]], start))
    for start, expected in [(0, b"01234567"), (5, b"56789"), (10, b""), (99, b"")]:
        target = bytearray(b"-" * 8)
        assert run(backend, backend.read_into(path, start, memoryview(target))) == len(expected)
        assert target == expected.ljust(8, b"-")


def test_dates_of_a_header_only_go_up_even_if_the_clock_goes_back(
    backend: LocalBackend, header: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = run(backend, backend.create(header, b"x"))
    dates = [os.stat(header).st_mtime_ns]
    monkeypatch.setattr(time, "time_ns", lambda: 10**18)
    for _ in range(5):
        token = run(backend, backend.replace(header, b"x", token))
        dates.append(os.stat(header).st_mtime_ns)
    assert dates == sorted(set(dates))


def test_a_token_sees_the_first_bytes_though_inode_date_and_size_are_equal(backend: LocalBackend, header: str) -> None:
    token = run(backend, backend.create(header, b"version 1"))
    status = os.stat(header)
    with open(header, "r+b") as file:
        file.write(b"version 2")
    os.utime(header, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(ConflictError):
        run(backend, backend.replace(header, b"lost", token))
    assert token.endswith(f"{zlib.crc32(b'version 1'):08x}")


# -- modes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_new_files_follow_the_umask(backend: LocalBackend, tmp_path: Path, umask: int) -> None:
    header, chunk, uploaded = (f"{tmp_path}/x{tail}" for tail in ("$header", "$chunks/chunk", "$chunks/uploaded"))
    before = os.umask(umask)
    try:
        token = run(backend, backend.create(header, b"x"))
        run(backend, backend.replace(header, b"y", token))
        run(backend, backend.write(chunk, [b"x"]))
        upload = run(backend, backend.open_write(uploaded))
        run(backend, upload.finish())
    finally:
        os.umask(before)
    assert _modes(header, chunk, uploaded, f"{tmp_path}/x$chunks") == [0o666 & ~umask] * 3 + [0o777 & ~umask]


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664])
def test_a_replaced_header_keeps_its_mode(backend: LocalBackend, header: str, mode: int) -> None:
    token = run(backend, backend.create(header, b"x"))
    os.chmod(header, mode)
    run(backend, backend.replace(header, b"y", token))
    assert _modes(header) == [mode]


def test_a_temporary_file_is_never_more_readable_than_the_header(
    backend: LocalBackend, header: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = run(backend, backend.create(header, b"x"))
    os.chmod(header, 0o600)
    seen = []
    real_write = os.write

    def spy(descriptor: int, data: memoryview) -> int:
        seen.append(stat.S_IMODE(os.fstat(descriptor).st_mode))
        return real_write(descriptor, data)

    monkeypatch.setattr(os, "write", spy)
    run(backend, backend.replace(header, b"secret", token))
    assert seen == [0o600]


# -- listings -------------------------------------------------------------------------------------------------


def test_a_listing_skips_what_is_neither_file_nor_folder(backend: LocalBackend, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12")
    (tmp_path / "folder").mkdir()
    (tmp_path / "to-file").symlink_to("file")
    (tmp_path / "to-folder").symlink_to("folder")
    (tmp_path / "broken").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "pipe")
    entries = run(backend, backend.list(str(tmp_path))).entries
    assert [(os.path.basename(entry.path), entry.size, entry.is_folder, entry.link) for entry in entries] == [
        ("broken", 0, False, Link.NOTHING),
        ("file", 2, False, None),
        ("folder", 0, True, None),
        ("loop", 0, False, Link.NOTHING),
        ("to-file", 2, False, Link.FILE),
        ("to-folder", 0, True, Link.FOLDER),
    ]


def test_a_pipe_is_no_file_and_nobody_waits_for_it(backend: LocalBackend, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileNotFoundError):
        run(backend, backend.read(f"{tmp_path}/pipe"))


def test_the_root_folder_is_listed_with_plain_paths(backend: LocalBackend) -> None:
    paths = [entry.path for entry in run(backend, backend.list("/")).entries]
    assert paths
    assert all(path.count("/") == 1 for path in paths)


def test_files_that_cannot_be_deleted_are_told_after_the_others_are(backend: LocalBackend, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OSError, match=r"1 of 2 files could not be deleted.*folder"):
        run(backend, backend.delete([f"{tmp_path}/folder", f"{tmp_path}/file"]))
    assert os.listdir(tmp_path) == ["folder"]


def test_a_folder_that_another_process_removes_while_it_is_looked_for_is_made(tmp_path, monkeypatch):
    folder, mkdir = tmp_path / "s$chunks", os.mkdir
    folder.mkdir()

    def refused(path: str) -> None:
        monkeypatch.setattr(os, "mkdir", mkdir)
        try:
            mkdir(path)
        finally:
            folder.rmdir()

    monkeypatch.setattr(os, "mkdir", refused)
    disk.make_folders(str(folder), True)
    assert folder.is_dir()


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


HOUR_S = 3600


def _aged(path: Path, data: bytes, age_s: float) -> str:
    path.write_bytes(data)
    os.utime(path, (time.time() - age_s,) * 2)
    return str(path)


@pytest.mark.parametrize("age_s", [0, HOUR_S / 2, 48 * HOUR_S])
@pytest.mark.parametrize("mode", ["ab", "wb", "r+b"])
def test_a_copy_is_young_and_not_changed_by_who_writes_to_the_old_name(
    backend: LocalBackend, tmp_path: Path, age_s: float, mode: str
) -> None:
    source = _aged(tmp_path / "plain", b"as adopted", age_s)
    target = f"{tmp_path}/plain$chunks/chunk"
    before = run(backend, backend.stat(source))
    with open(source, "r+b") as held:  # by a program that goes on writing
        run(backend, backend.copy(source, target, before.token))
        assert run(backend, backend.stat(source)) == before
        with open(source, mode) as file:
            file.write(b"by another program")
        held.write(b"and this")
    assert Path(target).read_bytes() == b"as adopted"
    assert os.stat(target).st_nlink == 1
    info = run(backend, backend.stat(target))
    assert run(backend, backend.now(target)) - info.modified < 600  # else collection would take it


def test_a_symbolic_link_is_copied_as_the_file_it_names(backend: LocalBackend, tmp_path: Path) -> None:
    _aged(tmp_path / "real", b"old", 2 * HOUR_S)
    (tmp_path / "plain").symlink_to("real")
    run(backend, backend.copy(f"{tmp_path}/plain", f"{tmp_path}/plain$chunks/chunk"))
    assert not os.path.islink(tmp_path / "plain$chunks/chunk")
    assert (tmp_path / "plain$chunks/chunk").read_bytes() == b"old"


def test_a_write_in_the_middle_of_a_copy_leaves_nothing(
    backend: LocalBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In place, of the same length, and beyond what the token looks at."""
    source = _aged(tmp_path / "plain", bytes(100_000), 2 * HOUR_S)
    token = run(backend, backend.stat(source)).token
    real_copy = disk.copy_bytes

    def torn(origin: int, target: int, start: int, end: int) -> None:
        real_copy(origin, target, start, end // 2)
        with open(source, "r+b") as file:
            file.seek(1000)
            file.write(b"changed")
        real_copy(origin, target, end // 2, end)

    monkeypatch.setattr(disk, "copy_bytes", torn)
    with pytest.raises(ConflictError):
        run(backend, backend.copy(source, f"{tmp_path}/plain$chunks/chunk", token))
    assert os.listdir(tmp_path / "plain$chunks") == []


@pytest.mark.parametrize("machine_s", [0.0, 10.0**9, 10.0**10])
def test_a_copy_of_what_was_just_written_waits_for_the_dates_to_go_on_whatever_time_the_machine_has(
    backend: LocalBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine_s: float
) -> None:
    slept: list[float] = []
    (tmp_path / "plain").write_bytes(b"just now")
    monkeypatch.setattr(time, "time", lambda: machine_s)
    monkeypatch.setattr(time, "sleep", slept.append)
    monkeypatch.setattr(disk, "DATE_TICK_S", 60.0)
    run(backend, backend.copy(f"{tmp_path}/plain", f"{tmp_path}/plain$chunks/chunk"))
    assert slept == [60.0]


def test_bytes_are_copied_where_the_kernel_cannot(
    backend: LocalBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = os.urandom(2_500_000)
    (tmp_path / "plain").write_bytes(data)

    monkeypatch.setattr(os, "copy_file_range", raises(OSError(18, "Invalid cross-device link")), raising=False)
    run(backend, backend.copy(f"{tmp_path}/plain", f"{tmp_path}/copy"))
    run(backend, joined(backend, [Part(f"{tmp_path}/plain", 5, 2_000_000)], f"{tmp_path}/joined"))
    assert (tmp_path / "copy").read_bytes() == data
    assert (tmp_path / "joined").read_bytes() == data[5:2_000_000]


def test_a_plain_file_replaced_in_the_middle_of_delete_if_is_put_back(
    backend: LocalBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = tmp_path / "plain"
    plain.write_bytes(b"adopted")
    token = run(backend, backend.stat(str(plain))).token
    assert token is not None
    real_rename = os.rename

    def write_before(source: str, target: str, **place: Any) -> None:
        plain.write_bytes(b"written in between")
        real_rename(source, target, **place)

    monkeypatch.setattr(os, "rename", write_before)
    assert run(backend, backend.delete_if(str(plain), token)) is False
    assert plain.read_bytes() == b"written in between"
    assert os.listdir(tmp_path) == ["plain"]


# -- files that a bulk removal closes late -----------------------------------------------------------------------

needs_locks = pytest.mark.skipif(not HAS_RECORD_LOCKS, reason="files are closed late only where Linux has its locks")


def opened(count: int) -> list[int]:
    return [os.open(os.devnull, os.O_RDONLY) for _ in range(count)]


@needs_locks
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
    files += opened(1)
    closer.take(files[-1])  # after the end
    assert sorted(closed) == sorted(files)


def is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


@needs_locks
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_a_child_keeps_none_of_the_files_that_are_closed_late() -> None:
    with Closer() as closer:
        for file in (files := opened(3)):
            closer.take(file)
        child = os.fork()
        if not child:
            os._exit(any(map(is_open, files)))
        assert os.waitpid(child, 0)[1] == 0


@needs_locks
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
