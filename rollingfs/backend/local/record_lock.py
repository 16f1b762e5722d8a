"""An exclusive lock on a file of a disk: against threads, processes, and Java's `FileChannel.lock`.

Java takes POSIX record locks, which `flock` does not see. A POSIX record lock excludes no other thread of its
process, and is lost when the process closes *any* descriptor of the file. A lock of the open file description
(`F_OFD_SETLK`) has neither fault, and conflicts with both kinds; a system without it is refused.

A process that waits for the lock tries again when a bell rings, and after pauses. It could not give up a request that
waits in the kernel, and the process that holds the lock may be stopped for ever. Linux rings the bell by a note of
inotify when a lock's file is closed or renamed, and when the process that has it open dies. Other hosts of a shared
disk do not ring it, and other systems have no bell.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import random
import select
import stat
import struct
import threading
import time
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator
from typing import Any, ParamSpec, TypeVar

from rollingfs.backend import shared_errors
from rollingfs.backend.local import folders, system
from rollingfs.errors import ConflictError, LockedError
from rollingfs.format import names
from rollingfs.runtime.concurrency import until_s
from rollingfs.runtime.system import at_fork

WAIT_S_MAX = 60.0
"""A caller without a deadline of its own waits for a lock this long."""
PAUSE_S_MIN = 0.0005
PAUSE_S_MAX = 0.02
"""Longest pause between two tries without a bell."""
BRIEF_PAUSES = 3
"""Tries before a wait by a bell: most appends hold a lock for less than that takes.

Without these, 8 processes at a segment waited by a bell 0.5 to 0.7 times an append instead of 0.2 to 0.4.
"""
BRIEF_PAUSE_S = 0.0001
_LOCK_MODE = 0o666
BELLS_FREE_MAX = 4
"""Bells that a process keeps for its next waits: the system takes some 8 ms to close a bell."""
_FLAGS = system.NO_WAIT | 0o2000000
"""Not to wait, and not to be inherited."""
_CLOSES = {0x8, 0x10}
"""A close, after writing or not."""
_EVENTS = 0x8 | 0x10 | 0x800
"""A close or a rename. Not a removal: who removes a lock's file is about to close it."""
_NOTE = struct.Struct("=iIII")
"""Watch, event, cookie, and the length of a name, which the note of a file has not."""
_NOTES_BYTES = 256 * _NOTE.size

P = ParamSpec("P")
T = TypeVar("T")

Close = Callable[[int], None]
"""Closes a file, or sees to it that `close_locks` does."""
_held: set[int] = set()
_opening: set[record_lock] = set()
"""Locks whose file a thread opens, or has opened and not noted in `_held` yet."""
_free: list[Bell] = []
_open: set[int] = set()


class _OfThread(threading.local):
    """Locks of each thread."""

    def __init__(self) -> None:
        self.locks: list[record_lock] = []
        """The locks that it holds or waits for."""


_of_thread = _OfThread()


def _after_fork_in_child() -> None:
    """Close the copies of descriptors that the parent's threads hold.

    A lock of an open file description lives until the *last* copy of the descriptor is closed. A child that kept a
    copy would hold the lock of a parent that was killed.
    """
    _of_thread.locks = []
    while _opening:
        _held.update(_descriptors_of(_opening.pop().path))
    while _held:
        os.close(_held.pop())
    _free.clear()
    while _open:  # the parent's bells: a copy would take its notes away
        os.close(_open.pop())


at_fork(in_child=_after_fork_in_child)


def _descriptors_of(path: str) -> Iterator[int]:
    """Yield the open descriptors of this process of the file at `path`.

    It is empty if the system does not list them.
    """
    if not os.path.isdir(system.DESCRIPTORS):
        return
    for descriptor in map(int, os.listdir(system.DESCRIPTORS)):
        with contextlib.suppress(OSError):  # it was that of the listing, or nobody may look at the path any more
            if _is_still(descriptor, path):
                yield descriptor


def gives_locks_back(verb: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Make a verb of a sync backend release all record locks that it took, except a lock that it keeps as a turn.

    Ctrl-C may come at the end of a ``with`` block, before the block releases its lock. The lock would then be held as
    long as the exception and its frames live.
    """

    @functools.wraps(verb)
    async def guarded(*args: P.args, **kwargs: P.kwargs) -> T:
        locks = _of_thread.locks
        before = [lock for lock in locks if not lock.is_turn] if locks else []
        try:
            return await verb(*args, **kwargs)
        finally:
            for lock in [lock for lock in locks if not lock.is_turn and lock not in before] if locks else ():
                lock.release()

    return guarded


def lock_of(header: str, sync: bool) -> record_lock:
    """Return the lock of a header, kept as a turn, or taken now.

    `ConflictError`: the header is gone.
    """
    path = names.lock_path(header)
    if _of_thread.locks and (turn := turn_of_thread(path)) is not None:
        return turn
    lock, make = record_lock(path, header=header), False  # nearly every header has the lock's file
    while True:
        try:
            lock.acquire(make=make)
            return lock  # of a header that is gone, the caller sees it under the lock
        except FileNotFoundError:  # the folder was never made, or another process is removing it
            if make and os.path.lexists(header):
                folders.make_folders(os.path.dirname(lock.path), sync)
        make = True
        try:
            mode = os.lstat(header).st_mode
        except FileNotFoundError:
            raise ConflictError(f"{header!r} is gone") from None  # before a lock and a folder are made for it
        if stat.S_ISLNK(mode):
            raise shared_errors.linked(header)


def turn_of_thread(path: str) -> record_lock | None:
    """Return the lock at `path` that this thread keeps as a turn, or None.

    From now on it is the caller's.
    """
    for lock in _turns_of_thread(path):
        if lock.is_held:
            lock.is_turn = False  # what else begins within the verb, as by garbage collection, must not share the lock
            return lock
        lock.release()
    return None


def end_turn_of_thread(path: str) -> None:
    """Release the lock at `path` that this thread keeps as a turn; after Ctrl-C within, another call goes on."""
    for lock in _turns_of_thread(path):
        lock.release()  # it stays a turn until it is released: the other call must find it


def _turns_of_thread(path: str) -> list[record_lock]:
    return [lock for lock in _of_thread.locks if lock.is_turn and lock.path == path]


class Bell:
    """A bell for a waiting thread; `hang` it at a file."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        _open.add(descriptor)
        self._watch = -1
        self._notes = select.poll()
        self._notes.register(descriptor, select.POLLIN)

    def __del__(self) -> None:
        if self._descriptor in _open:
            _open.discard(self._descriptor)
            os.close(self._descriptor)

    def hang(self, path: str) -> None:
        """Let it ring for this file. If the system refuses, it rings for no file."""
        self.take_down()
        self._watch = system.notifier().inotify_add_watch(self._descriptor, os.fsencode(path), _EVENTS)

    def take_down(self) -> None:
        """Let it ring for no file."""
        if self._watch >= 0:
            system.notifier().inotify_rm_watch(self._descriptor, self._watch)
            self._watch = -1
            self.wait(0)

    def wait(self, seconds: float) -> Collection[int]:
        """Wait until it rings, or the time is over; return the events. A dead process's locks are freed just after."""
        has_rung = self._notes.poll(seconds * 1000)
        notes = os.read(self._descriptor, _NOTES_BYTES) if has_rung else b""
        return {events for _, events, _, _ in _NOTE.iter_unpack(notes)}

    def give_back(self) -> None:
        """Keep it for another wait of this process; the caller forgets it."""
        self.take_down()
        if len(_free) < BELLS_FREE_MAX:
            _free.append(self)


def take_bell() -> Bell | None:
    """Return an unused bell; None if the system has no bells, or no more bells."""
    with contextlib.suppress(IndexError):  # none is free, or another thread took it just now
        return _free.pop()
    library = system.notifier()
    descriptor = -1 if library is None else library.inotify_init1(_FLAGS)
    return Bell(descriptor) if descriptor >= 0 else None


class _Wait:
    """The tries of a caller that waits for a lock, until its deadline."""

    def __init__(self, path: str, end_s: float | None) -> None:
        self._path = path
        self._began_s = time.monotonic()
        self._end_s = end_s if end_s is not None else until_s() or self._began_s + WAIT_S_MAX
        self._pause_s = PAUSE_S_MIN
        self._bell: Bell | None = None

    def watch(self) -> None:
        """Let a release of the lock end a pause from now on."""
        self._bell = self._bell or take_bell()
        if self._bell is not None:
            self._bell.hang(self._path)

    def pause(self) -> bool:
        """Let the holder go on; return whether the lock's file may have lost its name since."""
        left_s = self._end_s - time.monotonic()
        if left_s <= 0:
            raise self.over()
        pause_s = min(self._pause_s * random.uniform(0.5, 1.5), left_s)
        if self._bell is None:
            time.sleep(pause_s)
        events = self._bell.wait(pause_s) if self._bell is not None else ()
        self._pause_s = PAUSE_S_MIN if events else min(2 * self._pause_s, PAUSE_S_MAX)
        return not events or not _CLOSES.issuperset(events)

    def end(self, *, is_locked: bool) -> None:
        """Give the bell back; after an error, the system may take its time to close it."""
        bell, self._bell = self._bell, None
        if bell is not None and is_locked:
            bell.give_back()

    def over(self) -> LockedError:
        waited_s = time.monotonic() - self._began_s
        return LockedError(
            f"another process (or thread) holds the lock {self._path}, for {waited_s:.1f} s so far; it may be stopped"
        )


class record_lock:  # noqa: N801 - used as a function
    """Hold the exclusive lock of the file at `path`. A missing file is made, unless it must be there.

    The holder of the lock may unlink or rename the file; the processes that wait then begin again.

    Parameters
    ----------
    end_s
        When to give up, by the monotonic clock; by default at the caller's deadline, or after `WAIT_S_MAX`.
    close
        Closes the file once the lock is released.
    header
        The header that it guards: if that went while this process waited, the lock's file goes, too.

    Raises
    ------
    LockedError
        Another process, or thread, held the lock until then.
    FileNotFoundError
        The folder of the lock file is missing.
    OSError
        The system or the disk refuses the lock.
    """

    def __init__(self, path: str, end_s: float | None = None, close: Close | None = None, header: str = "") -> None:
        self.path, self._header = path, header
        self._close_file = close
        self.is_turn = False
        """Whether the thread keeps the lock for its next change of what the lock guards."""
        self._end_s = end_s
        self._wait: _Wait | None = None
        self._descriptor: int | None = None
        self._locks = _of_thread.locks

    @property
    def is_held(self) -> bool:
        """Return whether it excludes others: not released, and not replaced by a hand."""
        return self._descriptor is not None and _is_still(self._descriptor, self.path)

    @property
    def is_deleted(self) -> bool:
        """Return whether a hand has deleted its file; quicker than `is_held`."""
        return self._descriptor is None or not os.fstat(self._descriptor).st_nlink

    def check(self) -> None:
        """Refuse a disk that lets a second opener of the file have the held lock."""
        with open(self.path, "r+b") as other:
            if system.lock(other.fileno()):
                raise OSError(errno.ENOTSUP, "the disk gives a lock to two at once", self.path)

    def __enter__(self) -> record_lock:
        if self._descriptor is None:
            self.acquire()
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        try:
            if self._header and isinstance(error, ConflictError | FileNotFoundError):
                self.remove_of_nothing()
        finally:
            if not self.is_turn:
                self.release()

    def acquire(self, *, make: bool = True) -> None:
        """Take the lock; after an error it is not held, and the caller may try again.

        Parameters
        ----------
        make
            Whether a missing file is made.
        """
        self._locks.append(self)
        try:
            while True:
                _opening.add(self)
                self._descriptor = folders.open_file(self.path, os.O_RDWR | (os.O_CREAT if make else 0), _LOCK_MODE)
                _held.add(self._descriptor)
                _opening.discard(self)
                if (system.lock(self._descriptor) or self._waits()) and _is_still(self._descriptor, self.path):
                    break
                self._close()
            if self._wait is not None:
                self._wait.end(is_locked=True)
        except BaseException as error:
            self.release()
            if isinstance(error, OSError) and error.errno == errno.EROFS:
                why = "its header was not changed: the disk is mounted read-only, so no lock is made; mount it writable"
                raise OSError(errno.EROFS, why, os.path.dirname(self.path).removesuffix(names.CHUNKS_SUFFIX)) from error
            raise

    def _waits(self) -> bool:
        """Wait until the open file is locked; return False if the file is gone before."""
        assert self._descriptor is not None
        for _ in range(BRIEF_PAUSES):
            time.sleep(BRIEF_PAUSE_S)
            if system.lock(self._descriptor):
                return True
        self._wait = self._wait or _Wait(self.path, self._end_s)
        self._wait.watch()  # before the next try: the lock may be given back meanwhile
        may_be_gone = True
        while not system.lock(self._descriptor):
            if may_be_gone and not _is_still(self._descriptor, self.path):
                return False
            may_be_gone = self._wait.pause()
        return True

    def remove_file(self) -> None:
        """Remove the file of the held lock, unless the name is free, or another file's."""
        if self._descriptor is not None and _is_still(self._descriptor, self.path):
            folders.unlink(self.path)

    def remove_of_nothing(self) -> None:
        """Remove the file of the held lock if the header went while this process waited: the file is its own."""
        if not os.path.lexists(self._header):
            self.remove_file()
            self.release()
            folders.remove_folder_if_empty(os.path.dirname(self.path))

    def release(self) -> None:
        """Release the lock; it may be released twice, because Ctrl-C can come before the first time is through."""
        _opening.discard(self)
        self._close()
        if self._wait is not None:
            self._wait.end(is_locked=False)
        if self in self._locks:
            self._locks.remove(self)

    def _close(self) -> None:
        descriptor = self._descriptor
        if descriptor is None:
            return
        try:
            system.unlock(descriptor)  # by itself: a child forked just now may still have a copy of the descriptor
        finally:
            self._descriptor = None
            # those who wait for a file that has its name still wait for its close
            if self._close_file is not None and not os.fstat(descriptor).st_nlink:
                self._close_file(descriptor)
            else:
                close_locks([descriptor])


def hold(descriptor: int) -> None:
    """Close the copy of an open file in children that are forked from now on; `close_locks` ends this."""
    _held.add(descriptor)


def close_locks(descriptors: Iterable[int]) -> None:
    """Close files that were locked, and others."""
    for descriptor in descriptors:
        # forget the descriptor before closing it: afterwards its number may be another thread's file
        _held.discard(descriptor)
        os.close(descriptor)


def _is_still(descriptor: int, path: str) -> bool:
    """Return whether the locked file is still at `path`.

    Another process may have removed it during the wait.
    """
    try:
        mine, other = os.fstat(descriptor), os.lstat(path)
    except system.GONE:
        return False
    return (mine.st_dev, mine.st_ino) == (other.st_dev, other.st_ino)
