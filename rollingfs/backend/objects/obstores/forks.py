"""Connections belong to a process and an event loop: a forked child drops its parent's, and does not use obstore."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
import weakref
from collections.abc import Iterator
from typing import Any, TypeVar

from fsspec import AbstractFileSystem
from fsspec.asyn import reset_lock

from rollingfs.backend.objects.clouds import options_of
from rollingfs.backend.objects.errors import LastingError
from rollingfs.runtime.system import at_fork, thread_names

F = TypeVar("F", bound=AbstractFileSystem)
_THREADS = "tokio"
"""The names of obstore's threads begin so. Its first request starts them; an import and a store do not."""

FORK_WAIT_S_MAX = 10.0
"""A fork goes on after this time: the forking thread may itself be in an import that the other import waits for."""
_importing = threading.RLock()
"""A thread that forks takes it."""
_held = threading.local()
"""Whether this thread, which forks, has taken it."""
_is_begun = False
_used: weakref.WeakSet[Any] = weakref.WeakSet()
_used_while_forking: list[Any] = []
_used_by_parents: list[Any] = []
_loses_obstore = False
_obstore_is_lost = False


def keep_from_children(thing: object) -> None:
    """Never collect a thing in a child, which would close sockets or an epoll that the parent still uses."""
    _used.add(thing)


def clone_of(fs: F, forked: bool = False, **changes: Any) -> F:
    """Return a private copy of a filesystem, with its own connections; in a child, with the child's event loop."""
    options = options_of(fs) | changes | {"skip_instance_cache": True}
    if forked:
        options.pop("loop", None)  # the loop runs in the parent only
    clone: F = type(fs)(**options)
    keep_from_children(clone)
    return clone


class HomeLoop:
    """The event loop on which a filesystem's connections were made."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: weakref.ref[asyncio.AbstractEventLoop] | None = None

    def is_left(self) -> bool:
        """Return whether the connections belong to a loop that has ended; the running loop is theirs from now on.

        Raises
        ------
        LastingError
            Their loop still runs, in another thread.
        """
        here = asyncio.get_running_loop()
        with self._lock:
            before = self._loop
            loop = None if before is None else before()
            if loop is here:
                return False
            if loop is not None and loop.is_running():
                raise LastingError(
                    "this asynchronous filesystem is in use on another event loop, which runs, so nothing was sent: "
                    "make a filesystem for each loop (skip_instance_cache=True)"
                )
            self._loop = weakref.ref(here)
            return before is not None


@contextlib.contextmanager
def without_forks() -> Iterator[None]:
    """Let no other thread fork during an import: a child would wait for ever for the thread that has begun it."""
    with _importing:
        yield


def obstore_begins() -> None:
    """Note that a request through obstore is about to be sent; its threads have no names yet when they start."""
    global _is_begun
    _is_begun = True


def obstore_is_lost() -> bool:
    """Return whether a parent of this process had used obstore.

    Its threads are not here, and a call would never end.
    """
    return _obstore_is_lost


def _has_threads() -> bool:
    """Return whether obstore's threads run, or may run: not every system has the names of threads."""
    if "obstore" not in sys.modules:
        return False
    names = thread_names()
    return names is None or any(name.startswith(_THREADS) for name in names)


def _before() -> None:
    global _loses_obstore
    _held.now = _importing.acquire(timeout=FORK_WAIT_S_MAX)
    _used_while_forking.extend(_used)
    _loses_obstore = _is_begun or _has_threads()


def _in_parent() -> None:
    _used_while_forking.clear()
    _release()


def _in_child() -> None:
    global _obstore_is_lost
    _used_by_parents.extend(_used_while_forking)
    _obstore_is_lost = _obstore_is_lost or _loses_obstore
    _release()


def _release() -> None:
    if _held.now:
        _importing.release()


at_fork(before=_before, in_parent=_in_parent, in_child=_in_child)
at_fork(in_child=reset_lock)  # fsspec itself forgets its loop only (2026.9.0)
