"""A forked child drops the connections of its parent, and does not use obstore."""

from __future__ import annotations

import contextlib
import sys
import threading
import weakref
from collections.abc import Iterator
from typing import Any

from fsspec.asyn import reset_lock

from rollingfs.runtime.system import at_fork, thread_names

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
