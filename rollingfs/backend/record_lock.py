"""An exclusive lock on a file of a disk: against threads, processes, and Java's `FileChannel.lock`.

Java takes POSIX record locks, which `flock` does not see. A POSIX record lock excludes no other thread of its
process and is lost when the process closes *any* descriptor of the file; a lock of the open file description
(`F_OFD_SETLKW`) has neither fault and conflicts with both kinds.
"""

from __future__ import annotations

import contextlib
import functools
import os
import struct
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, ParamSpec, TypeVar

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

HAS_RECORD_LOCKS = fcntl is not None
_HAS_OFD_LOCKS = hasattr(fcntl, "F_OFD_SETLKW")
_LOCK_MODE = 0o666

# struct flock: type, whence, start, length, process id (which the kernel wants to be 0); "0q" pads its end
_FLOCK_FORMAT = "hhqqi0q"

P = ParamSpec("P")
T = TypeVar("T")

_held: set[int] = set()
_process_mutex = threading.Lock()
_of_thread = threading.local()


def _after_fork_in_child() -> None:
    """Give up the copies of descriptors that the parent's threads hold, and a mutex nobody here will release.

    A lock of an open file description lives until the *last* copy of the descriptor is closed: a child that
    kept one would hold the lock of a parent that was killed.
    """
    global _process_mutex
    _process_mutex = threading.Lock()
    while _held:
        os.close(_held.pop())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


@contextlib.contextmanager
def record_lock(path: str) -> Iterator[None]:
    """Hold the exclusive lock of the file at `path`, which is made if it is missing.

    Nothing else may open that file: where only POSIX record locks exist, closing it loses the lock. It may be
    unlinked by who holds the lock; those who wait then begin again.

    Raises
    ------
    FileNotFoundError
        The folder of the lock file is missing.
    OSError
        The system or the disk refuses the lock.
    """
    with contextlib.nullcontext() if _HAS_OFD_LOCKS else _process_mutex:
        lock = _Lock()
        try:
            lock.acquire(path)
            yield
        finally:
            lock.release()


def gives_locks_back(verb: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Make a verb of a sync backend end without the record locks that it took.

    Ctrl-C may come within the end of a ``with`` block, before the lock is released; the block would keep it as long as
    the exception and its frames live.
    """

    @functools.wraps(verb)
    async def guarded(*args: P.args, **kwargs: P.kwargs) -> T:
        locks = _locks_of_thread()
        before = len(locks)
        try:
            return await verb(*args, **kwargs)
        finally:
            for lock in locks[before:]:
                lock.release()

    return guarded


def _locks_of_thread() -> list[_Lock]:
    if not hasattr(_of_thread, "locks"):
        _of_thread.locks = []
    locks: list[_Lock] = _of_thread.locks
    return locks


class _Lock:
    """One lock, which may be released twice: Ctrl-C can come before the first time is through."""

    def __init__(self) -> None:
        self._descriptor: int | None = None
        self._locks = _locks_of_thread()
        self._locks.append(self)

    def acquire(self, path: str) -> None:
        while True:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, _LOCK_MODE)
            _held.add(self._descriptor)
            _lock(self._descriptor)
            if _is_still(self._descriptor, path):
                return
            self._close()

    def release(self) -> None:
        self._close()
        if self in self._locks:
            self._locks.remove(self)

    def _close(self) -> None:
        descriptor = self._descriptor
        if descriptor is None:
            return
        try:
            _unlock(descriptor)
        finally:
            # forgotten first: once closed, its number may be another thread's file
            self._descriptor = None
            _held.discard(descriptor)
            os.close(descriptor)


def _unlock(descriptor: int) -> None:
    # by name, not by closing: a child forked meanwhile may still have a copy of the descriptor
    if _HAS_OFD_LOCKS:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, struct.pack(_FLOCK_FORMAT, fcntl.F_UNLCK, os.SEEK_SET, 0, 0, 0))


def _lock(descriptor: int) -> None:
    if _HAS_OFD_LOCKS:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLKW, struct.pack(_FLOCK_FORMAT, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    else:
        fcntl.lockf(descriptor, fcntl.LOCK_EX)


def _is_still(descriptor: int, path: str) -> bool:
    """Whether the file that was locked is the one at `path`: it may have been removed while waiting."""
    mine = os.fstat(descriptor)
    try:
        other = os.stat(path)
    except FileNotFoundError:
        return False
    return (mine.st_dev, mine.st_ino) == (other.st_dev, other.st_ino)
