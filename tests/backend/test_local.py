"""The local backend: the contract, and faults that only a disk has."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import shutil
import stat
import subprocess
import sys
import threading
import time
import zlib
from pathlib import Path
from typing import Any

import pytest

from rollingfs.backend.contract import Backend, Part
from rollingfs.backend.local import backend as local
from rollingfs.backend.local import disk, record_lock
from rollingfs.backend.local.backend import LocalBackend
from rollingfs.errors import ConflictError, UnsafeBackendError
from rollingfs.format import names
from rollingfs.testing import BackendContract, Factory, run
from tests.support.servers import require

KILLS = 4
ACKNOWLEDGED_BEFORE_KILL = 20
WAIT_S = 60

needs_ofd_locks = pytest.mark.skipif(not record_lock._HAS_OFD_LOCKS, reason="no locks of open file descriptions")


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


class TestLocalBackendWithoutSync(OnDisk):
    @pytest.fixture
    def backend(self) -> Backend:
        return LocalBackend(sync=False)

    def spawn_arguments(self) -> Factory:
        return LocalBackend, (False,)


@pytest.mark.skipif(not hasattr(os, "register_at_fork"), reason="needs POSIX record locks")
class TestLocalBackendWithoutOfdLocks(OnDisk):
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


@pytest.fixture
def backend() -> LocalBackend:
    return LocalBackend()


@pytest.fixture
def header(tmp_path: Path) -> str:
    return f"{tmp_path}/segment$header"


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


@pytest.mark.parametrize("given", ["a/b", "./a/b", "file://a/b", "local://a/b"])
def test_relative_paths_become_absolute(
    backend: LocalBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert backend.strip(given) == f"{tmp_path}/a/b"


def test_a_root_is_the_disk_of_the_nearest_folder_that_exists(backend: LocalBackend, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    assert (
        backend.root(f"{tmp_path}/no/such/folder") == backend.root(str(tmp_path)) == backend.root(f"{tmp_path}/file/x")
    )
    assert backend.root("/dev") != backend.root(str(tmp_path))


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

    def fail(*_args: Any, **_options: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        with pytest.raises(OSError, match="No space left"):
            run(backend, backend.replace(header, b"new", token))
    assert run(backend, backend.read(header)).data == b"old"
    assert os.listdir(tmp_path / "segment$chunks") == ["lock"]
    run(backend, backend.replace(header, b"new", token))  # and the lock is free


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


def test_short_writes_are_continued(backend: LocalBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = os.urandom(10_000)
    real_write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, rest: real_write(descriptor, rest[:777]))
    run(backend, backend.write(f"{tmp_path}/file", [data[:5000], data[5000:]]))
    assert (tmp_path / "file").read_bytes() == data


# -- tokens ---------------------------------------------------------------------------------------------------


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


# -- durability -----------------------------------------------------------------------------------------------


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
    run(backend, backend.join([Part(f"{chunks}/chunk", 0, 1)], f"{chunks}/joined"))
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


# -- the lock -------------------------------------------------------------------------------------------------


def _hold_posix_lock(path: str, pipe: Any) -> None:
    import fcntl

    with open(path, "r+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        pipe.send("locked")
        pipe.recv()


def _replace_in_thread(backend: LocalBackend, header: str, token: str) -> tuple[threading.Thread, threading.Event]:
    done = threading.Event()

    def replace() -> None:
        run(backend, backend.replace(header, b"new", token))
        done.set()

    thread = threading.Thread(target=replace, daemon=True)
    thread.start()
    return thread, done


@pytest.mark.parametrize("has_ofd_locks", [True, False])
def test_a_posix_lock_of_another_process_is_waited_for(
    backend: LocalBackend, header: str, monkeypatch: pytest.MonkeyPatch, has_ofd_locks: bool
) -> None:
    if has_ofd_locks and not record_lock._HAS_OFD_LOCKS:
        pytest.skip("this system has no locks of open file descriptions")
    monkeypatch.setattr(record_lock, "_HAS_OFD_LOCKS", has_ofd_locks)
    token = run(backend, backend.create(header, b"x"))
    token = run(backend, backend.replace(header, b"old", token))  # makes the lock file
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_hold_posix_lock, args=(names.lock_path(header), there), daemon=True)
    process.start()
    assert here.poll(WAIT_S)
    here.recv()
    thread, done = _replace_in_thread(backend, header, token)
    assert not done.wait(0.3)
    assert run(backend, backend.read(header)).data == b"old"
    here.send("go on")
    assert done.wait(WAIT_S)
    thread.join()
    process.join()
    assert run(backend, backend.read(header)).data == b"new"


JAVA_HOLDER = """
import java.io.RandomAccessFile;
public class Holder {
    public static void main(String[] args) throws Exception {
        try (var file = new RandomAccessFile(args[0], "rw"); var lock = file.getChannel().lock()) {
            System.out.println("locked");
            System.in.read();
        }
    }
}
"""


@pytest.mark.slow
def test_javas_lock_is_waited_for(backend: LocalBackend, header: str, tmp_path: Path) -> None:
    java = shutil.which("java")
    if java is None:
        require("java is not installed")
    assert java is not None
    (tmp_path / "Holder.java").write_text(JAVA_HOLDER)
    token = run(backend, backend.create(header, b"x"))
    token = run(backend, backend.replace(header, b"old", token))
    command = [java, str(tmp_path / "Holder.java"), names.lock_path(header)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline().strip() == b"locked"
        thread, done = _replace_in_thread(backend, header, token)
        assert not done.wait(0.3)
        process.stdin.write(b"\n")
        process.stdin.flush()
        assert done.wait(WAIT_S)
        thread.join()
    assert run(backend, backend.read(header)).data == b"new"


@needs_ofd_locks
def test_who_waits_for_a_lock_file_that_is_removed_locks_the_new_one(backend: LocalBackend, header: str) -> None:
    token = run(backend, backend.create(header, b"x"))
    token = run(backend, backend.replace(header, b"old", token))
    lock = names.lock_path(header)
    with contextlib.ExitStack() as new:
        with record_lock.record_lock(lock):
            thread, done = _replace_in_thread(backend, header, token)
            assert not done.wait(0.2)
            os.unlink(lock)
            new.enter_context(record_lock.record_lock(lock))
        assert not done.wait(0.2)  # it now holds the lock of the old file, which protects nothing
        assert run(backend, backend.read(header)).data == b"old"
    assert done.wait(WAIT_S)
    thread.join()
    assert run(backend, backend.read(header)).data == b"new"


@needs_ofd_locks
def test_a_lock_is_free_though_a_copy_of_its_descriptor_is_open(tmp_path: Path) -> None:
    """As after a fork that Python does not see."""
    lock = f"{tmp_path}/lock"
    with record_lock.record_lock(lock):
        (descriptor,) = record_lock._held
        copy = os.dup(descriptor)
    acquired = threading.Event()

    def acquire() -> None:
        with record_lock.record_lock(lock):
            acquired.set()

    thread = threading.Thread(target=acquire, daemon=True)
    thread.start()
    assert acquired.wait(WAIT_S / 10)
    thread.join()
    os.close(copy)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_that_was_forked_under_the_lock_does_not_keep_it(tmp_path: Path) -> None:
    lock = f"{tmp_path}/lock"
    reading, writing = os.pipe()
    with record_lock.record_lock(lock):
        child = os.fork()
        if child == 0:
            os.close(writing)
            os._exit(len(record_lock._held) + len(os.read(reading, 1)))
    os.close(reading)
    acquired = threading.Event()

    def acquire() -> None:
        with record_lock.record_lock(lock):
            acquired.set()

    thread = threading.Thread(target=acquire, daemon=True)
    thread.start()
    assert acquired.wait(WAIT_S)
    thread.join()
    os.close(writing)
    assert os.waitpid(child, 0)[1] == 0


def test_no_descriptor_is_left_open(backend: LocalBackend, header: str, tmp_path: Path) -> None:
    def everything() -> None:
        path = f"{tmp_path}/{os.urandom(4).hex()}$header"
        token = run(backend, backend.create(path, b"x"))
        run(backend, backend.replace(path, b"y", token))
        with pytest.raises(ConflictError):
            run(backend, backend.replace(path, b"y", token))
        with pytest.raises(FileNotFoundError):
            run(backend, backend.read(str(tmp_path)))
        run(backend, backend.copy(path, path + "$copy"))
        run(backend, backend.delete_if(path + "$copy", run(backend, backend.read(path + "$copy")).token))
        upload = run(backend, backend.open_write(path + "$upload"))
        run(backend, upload.abort())
        run(backend, backend.list(str(tmp_path)))

    everything()
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    for _ in range(5):
        everything()
    assert (len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0) == before
    assert record_lock._held == set()


# -- copies, conditional deletes --------------------------------------------------------------------------------


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
    assert run(backend, backend.now(target)) - info.modified < 600  # otherwise collection would delete it


def test_a_symbolic_link_is_copied_as_the_file_it_names(backend: LocalBackend, tmp_path: Path) -> None:
    _aged(tmp_path / "real", b"old", 2 * HOUR_S)
    (tmp_path / "plain").symlink_to("real")
    run(backend, backend.copy(f"{tmp_path}/plain", f"{tmp_path}/plain$chunks/chunk"))
    assert not os.path.islink(tmp_path / "plain$chunks/chunk")
    assert (tmp_path / "plain$chunks/chunk").read_bytes() == b"old"


@pytest.mark.parametrize("age_s", [0, 2 * HOUR_S])
def test_a_source_that_changes_during_the_copy_leaves_nothing(
    backend: LocalBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, age_s: float
) -> None:
    source = _aged(tmp_path / "plain", b"before", age_s)
    token = run(backend, backend.stat(source)).token
    real_flush = disk.flush

    def change(descriptor: int) -> None:
        (tmp_path / "plain").write_bytes(b"after!")
        real_flush(descriptor)

    monkeypatch.setattr(disk, "flush", change)
    with pytest.raises(ConflictError):
        run(backend, backend.copy(source, f"{tmp_path}/plain$chunks/chunk", token))
    assert os.listdir(tmp_path / "plain$chunks") == []


def test_a_write_in_the_middle_of_a_copy_leaves_nothing(
    backend: LocalBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Change the file in place, at the same length, where the token does not look."""
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
    monkeypatch.setattr(local, "DATE_TICK_S", 60.0)
    run(backend, backend.copy(f"{tmp_path}/plain", f"{tmp_path}/plain$chunks/chunk"))
    assert slept == [60.0]


def test_bytes_are_copied_where_the_kernel_cannot(
    backend: LocalBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = os.urandom(2_500_000)
    (tmp_path / "plain").write_bytes(data)

    def refuse(*_args: Any, **_options: Any) -> int:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "copy_file_range", refuse, raising=False)
    run(backend, backend.copy(f"{tmp_path}/plain", f"{tmp_path}/copy"))
    run(backend, backend.join([Part(f"{tmp_path}/plain", 5, 2_000_000)], f"{tmp_path}/joined"))
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

    def write_before(source: str, target: str) -> None:
        plain.write_bytes(b"written in between")
        real_rename(source, target)

    monkeypatch.setattr(os, "rename", write_before)
    assert run(backend, backend.delete_if(str(plain), token)) is False
    assert plain.read_bytes() == b"written in between"
    assert os.listdir(tmp_path) == ["plain"]


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
    assert [(os.path.basename(entry.path), entry.size, entry.is_folder) for entry in entries] == [
        ("file", 2, False),
        ("folder", 0, True),
        ("to-file", 2, False),
        ("to-folder", 0, True),
    ]


def test_a_pipe_is_no_file_and_nobody_waits_for_it(backend: LocalBackend, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileNotFoundError):
        run(backend, backend.read(f"{tmp_path}/pipe"))


def test_a_listing_has_the_tokens_of_headers(backend: LocalBackend, header: str, tmp_path: Path) -> None:
    token = run(backend, backend.create(header, b"x"))
    entry = next(entry for entry in run(backend, backend.list(str(tmp_path))).entries if entry.path == header)
    assert entry.token == token
    assert run(backend, backend.replace(header, b"y", entry.token)) != token


def test_the_root_folder_is_listed_with_plain_paths(backend: LocalBackend) -> None:
    paths = [entry.path for entry in run(backend, backend.list("/")).entries]
    assert paths
    assert all(path.count("/") == 1 for path in paths)


def test_files_that_cannot_be_deleted_are_told_after_the_others_are(backend: LocalBackend, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OSError, match=r"1 of 2 files not deleted.*folder"):
        run(backend, backend.delete([f"{tmp_path}/folder", f"{tmp_path}/file"]))
    assert os.listdir(tmp_path) == ["folder"]
