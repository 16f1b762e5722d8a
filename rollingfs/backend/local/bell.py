"""A bell that rings when the lock of a file may be free: Linux notifies watchers of a closed file.

Closing and renaming a lock's file ring it; so does the death of the process that has the file open. Other hosts of a
shared disk do not ring it, so a waiter has pauses as well. Other systems have no bell.
"""

from __future__ import annotations

import contextlib
import os
import select

from rollingfs.backend.local import system
from rollingfs.runtime.system import at_fork

BELLS_FREE_MAX = 4
"""Bells that a process keeps for its next waits: the system takes some 8 ms to close a bell."""
_FLAGS = system.NO_WAIT | 0o2000000
"""Not to wait, and not to be inherited."""
_EVENTS = 0x8 | 0x10 | 0x800
"""A close, after writing or not; a rename. Not a removal: who removes a lock's file is about to close it."""
_NOTES_BYTES = 4096

_free: list[Bell] = []
_open: set[int] = set()


def _after_fork_in_child() -> None:
    """Close the copies of the parent's bells: they would take its notes away."""
    _free.clear()
    while _open:
        os.close(_open.pop())


at_fork(in_child=_after_fork_in_child)


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

    def wait(self, seconds: float) -> bool:
        """Wait until it rings, or the time is over; whether it rang. A dead process's locks are freed just after."""
        has_rung = bool(self._notes.poll(seconds * 1000))
        if has_rung:
            os.read(self._descriptor, _NOTES_BYTES)
        return has_rung

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
