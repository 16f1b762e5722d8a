"""The record lock of the local backend: against threads, processes and forks, and held by another for too long."""

import contextlib
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rollingfs.backend.local import record_lock
from rollingfs.backend.local.backend import LocalBackend
from rollingfs.errors import AppendOutcomeUnknown, ConflictError, LockedError
from rollingfs.format import names
from tests.support.backends import raises
from tests.support.descriptors import opened_below
from tests.support.forks import is_so_in_child, needs_fork, needs_posix, needs_removal, needs_signals
from tests.support.places import new_fs
from tests.support.schedules import beside

WAIT_S = 60


def _hold_posix_lock(path: str, pipe: Any) -> None:
    import fcntl

    with open(path, "r+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        pipe.send("locked")
        pipe.recv()


def begun(call: Callable[[], object]) -> tuple[threading.Thread, threading.Event]:
    """A thread, and whether its call is over."""
    over = threading.Event()
    thread = threading.Thread(target=lambda: (call(), over.set()), daemon=True)
    thread.start()
    return thread, over


def locking(path: str) -> tuple[threading.Thread, threading.Event]:
    """A thread that takes a lock and gives it back."""

    def lock_once() -> None:
        with record_lock.record_lock(path, time.monotonic() + 100 * WAIT_S):
            pass

    return begun(lock_once)


@needs_posix
def test_a_posix_lock_of_another_process_is_waited_for(backend, header):
    token = backend.replace(header, b"old", backend.create(header, b"x"))  # makes the lock file
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_hold_posix_lock, args=(names.lock_path(header), there), daemon=True)
    process.start()
    assert here.poll(WAIT_S)
    here.recv()
    thread, done = begun(lambda: backend.replace(header, b"new", token))
    assert not done.wait(0.3)
    assert backend.read(header).data == b"old"
    here.send("go on")
    assert done.wait(WAIT_S)
    thread.join()
    process.join()
    assert backend.read(header).data == b"new"


@needs_removal
def test_waiter_for_a_removed_lock_file_locks_the_new(backend, header):
    token = backend.replace(header, b"old", backend.create(header, b"x"))
    lock = names.lock_path(header)
    with contextlib.ExitStack() as new:
        with record_lock.record_lock(lock):
            thread, done = begun(lambda: backend.replace(header, b"new", token))
            assert not done.wait(0.2)
            new.enter_context(record_lock.record_lock(f"{lock}-new"))
            os.replace(f"{lock}-new", lock)  # in one step: else the waiter may make the new file
        assert not done.wait(0.2)  # it has the lock of the old file now, which is worth nothing
        assert backend.read(header).data == b"old"
    assert done.wait(WAIT_S)
    thread.join()
    assert backend.read(header).data == b"new"


def acquire(lock: str, wait_s: float) -> None:
    """Take a lock that nobody holds any more, in another thread."""
    thread, acquired = locking(lock)
    assert acquired.wait(wait_s)
    thread.join()


def test_lock_is_free_though_a_copied_descriptor_is_open(tmp_path):
    """As after a fork that Python does not see."""
    lock = f"{tmp_path}/lock"
    with record_lock.record_lock(lock):
        copy = os.dup(*record_lock._held)
    acquire(lock, WAIT_S / 10)
    os.close(copy)


@needs_fork
def test_child_forked_under_the_lock_does_not_keep_it(tmp_path, monkeypatch):
    """Nor does one that was forked when a thread had opened the lock's file, and not noted that yet."""
    opens, found = record_lock.folders.open_file, []

    def fork() -> None:
        found.append(is_so_in_child(lambda: not (record_lock._held or opened_below(tmp_path))))

    monkeypatch.setattr(record_lock.folders, "open_file", lambda *how: (opens(*how), fork())[0])
    with record_lock.record_lock(f"{tmp_path}/lock"):
        fork()
    assert found == [True, True]


def test_no_descriptor_is_left_open(backend, header, tmp_path):
    token = backend.create(header, b"x")
    backend.replace(header, b"y", token)
    with pytest.raises(ConflictError):
        backend.replace(header, b"y", token)
    with pytest.raises(FileNotFoundError):
        backend.read(str(tmp_path))
    backend.copy(header, header + "$copy")
    backend.delete_if(header + "$copy", backend.read(header + "$copy").token)
    backend.open_write(header + "$upload").abort()
    backend.list(str(tmp_path))
    assert opened_below(tmp_path) == []
    assert record_lock._held == set()


@needs_removal
def test_a_holder_removes_its_own_file_and_no_other(tmp_path):
    path, elsewhere = tmp_path / "lock", tmp_path / "elsewhere"
    with (lock := record_lock.record_lock(str(path))):
        path.rename(elsewhere)
        path.touch()  # another process's
        lock.remove_file()
        assert path.exists()
        lock.path = str(elsewhere)
        lock.remove_file()
        assert not elsewhere.exists()


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set once somebody waits for a lock; no pause ends by itself before the waiter gives up."""
    if record_lock.take_bell() is None:
        pytest.skip("this system has no bell")
    begun = threading.Event()
    beside(monkeypatch, record_lock.Bell, "wait", lambda _, seconds: seconds and begun.set())
    monkeypatch.setattr(record_lock, "PAUSE_S_MIN", 10.0**6)
    monkeypatch.setattr(record_lock, "PAUSE_S_MAX", 10.0**6)
    return begun


@pytest.fixture
def waiter(tmp_path: Path, waiting: threading.Event) -> Any:
    """A lock that is held, and a thread that waits for it."""
    lock = record_lock.record_lock(f"{tmp_path}/lock")
    lock.acquire()
    thread, acquired = locking(lock.path)
    assert waiting.wait(WAIT_S)
    yield lock, acquired
    thread.join()


@pytest.mark.parametrize("ending", ["release", "remove", "rename"])
def test_who_waits_wakes_when_the_lock_is_given_back(tmp_path, waiter, ending):
    lock, acquired = waiter
    assert not acquired.is_set()
    if ending == "rename":
        os.rename(lock.path, f"{tmp_path}/elsewhere")
    else:
        if ending == "remove":
            lock.remove_file()
        lock.release()
    assert acquired.wait(WAIT_S), "it waits for the end of its pause"
    lock.release()


@needs_signals
@pytest.mark.parametrize(("error", "wait_s"), [(KeyboardInterrupt, WAIT_S), (LockedError, 0.05)])
def test_wait_ended_by_ctrl_c_or_deadline_leaves_nothing(tmp_path, waiting, error, wait_s):
    def interrupt() -> None:
        if waiting.wait(WAIT_S) and error is KeyboardInterrupt:
            time.sleep(0.05)  # a signal that comes just before the system call waits for the end of the pause
            os.kill(os.getpid(), signal.SIGINT)

    before, threads = set(record_lock._open), threading.active_count()
    with record_lock.record_lock(f"{tmp_path}/lock"):
        held, thread = set(record_lock._held), threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(error):
            record_lock.record_lock(f"{tmp_path}/lock", time.monotonic() + wait_s).acquire()
        thread.join()
        assert (waiting.is_set(), len(held), record_lock._held) == (True, 1, held)
    assert record_lock._open <= before
    assert threading.active_count() == threads
    assert record_lock._of_thread.locks == []


@needs_fork
def test_a_child_takes_no_notes_of_its_parents_bells(waiter):
    lock, acquired = waiter

    def has_none() -> bool:
        files = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
        bells = [file for file in files if os.path.islink(file) and "inotify" in os.readlink(file)]
        return not (record_lock._open or record_lock._free or bells)

    assert is_so_in_child(has_none)
    lock.release()
    assert acquired.wait(WAIT_S)


def test_a_bell_tells_a_rename_from_a_close(tmp_path):
    path, wait = f"{tmp_path}/lock", record_lock._Wait(f"{tmp_path}/lock", None)
    open(path, "wb").close()
    wait.watch()
    if wait._bell is None:
        pytest.skip("this system has no bell")
    open(path, "wb").close()
    assert not wait.pause()
    os.rename(path, f"{path}-new")
    assert wait.pause()
    assert wait.pause()  # by time: by a hand, or on another host, a file loses its name without a ring


def test_a_lock_held_briefly_needs_no_bell(tmp_path, monkeypatch):
    holder, pauses = record_lock.record_lock(f"{tmp_path}/lock"), []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == record_lock.BRIEF_PAUSES:
            holder.release()

    monkeypatch.setattr(time, "sleep", pause)
    monkeypatch.setattr(record_lock, "take_bell", raises(AssertionError()))
    with holder, record_lock.record_lock(f"{tmp_path}/lock") as lock:
        assert lock.is_held
        assert not holder.is_held
    assert pauses == [record_lock.BRIEF_PAUSE_S] * record_lock.BRIEF_PAUSES


def test_without_a_bell_a_waiter_tries_again_and_again(tmp_path, monkeypatch):
    monkeypatch.setattr(record_lock, "take_bell", lambda: None)
    slept, sleep = threading.Event(), time.sleep
    monkeypatch.setattr(record_lock.time, "sleep", lambda seconds: (slept.set(), sleep(seconds)))
    lock = record_lock.record_lock(f"{tmp_path}/lock")
    lock.acquire()
    thread, acquired = locking(f"{tmp_path}/lock")
    assert slept.wait(WAIT_S)
    lock.release()
    assert acquired.wait(WAIT_S)
    thread.join()


@needs_removal
def test_file_with_its_name_is_closed_immediately_for_waiters(tmp_path):
    late: list[int] = []
    for is_removed in (False, True):
        lock = record_lock.record_lock(f"{tmp_path}/lock", close=late.append)
        lock.acquire()
        if is_removed:
            lock.remove_file()
        lock.release()
        assert len(late) == is_removed
    record_lock.close_locks(late)


def test_delete_and_removal_do_not_wait_for_ever_either(backend, log, header, monkeypatch):
    monkeypatch.setattr(record_lock, "WAIT_S_MAX", 0.05)
    token = backend.read(header).token
    chunks = names.chunks_folder(log)
    with record_lock.record_lock(names.lock_path(header)):
        with pytest.raises(LockedError, match="holds the lock"):
            backend.delete_if(header, token)
        with pytest.raises(LockedError, match="holds the lock"):
            backend.remove_folder(chunks)
    assert backend.delete_if(header, token)


def test_outcome_is_unknown_if_an_earlier_attempt_may_count(log, header, monkeypatch):
    """A lost answer still counts if a later attempt meets a held lock."""
    fs = new_fs(commit_timeout_s=2.0, sync=False)  # by 0.5 s, a busy machine with Wine had made one try
    tries: list[str] = []

    def lose(_: LocalBackend, path: str, *__: Any, **___: Any) -> None:
        if path == header:  # not the probe's file
            tries.append(path)
        if tries == [path]:
            raise OSError(5, "injected: nobody knows what became of it")

    beside(monkeypatch, LocalBackend, "extend", lose)
    with record_lock.record_lock(names.lock_path(header)), pytest.raises(AppendOutcomeUnknown):
        fs.append(log, b"unknown")
    assert len(tries) > 1
