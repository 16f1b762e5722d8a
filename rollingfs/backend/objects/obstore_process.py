"""Forks and the end of a process that uses obstore.

A forked child drops the connections of its parent, and does not use obstore.

Obstore must have let go of all Python objects before the end. Threads of obstore hand results to event loops. A thread
that does so while the interpreter is taken down aborts the process (SIGABRT); this happened in a quarter of programs
that ended with their request. So the end of a process waits for the futures of all requests, and cancels requests that
take too long. A collected future is a future that obstore has let go of. After that, no call of obstore is allowed
(`check_usable`).

A thread of obstore that drops a Python object while it does not hold the GIL puts the drop off until the next call of
obstore (PyO3 does so). So the wait makes such calls: else a program in 200 (in 12 on a busy machine) waits for the
whole time.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import errno
import signal
import sys
import time
import weakref
from collections.abc import Awaitable, Iterator
from typing import Any, TypeVar

from rollingfs.backend.objects.request_errors import NotByObstoreError
from rollingfs.runtime import interpreter
from rollingfs.runtime.system import at_fork, thread_names

T = TypeVar("T")

_THREADS = "tokio"
"""The names of obstore's threads begin so. Its first request starts them; an import and a store do not."""

WAIT_S_MAX = 1.0
"""Wait of the process's end for requests under way, and again after it has cancelled them."""
WAIT_STEP_S = 0.001

_is_begun = False
"""Whether a request through obstore was about to be sent; its threads have no names yet when they start."""
_used: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
"""By identity: filesystems of fsspec with the same options are equal."""
_used_while_forking: list[Any] = []
_used_by_parents: list[Any] = []
_loses_obstore = False
_obstore_is_lost = False
_watched: set[weakref.ref[Awaitable[object]]] = set()
_is_over = False


def keep_from_children(thing: object) -> None:
    """Keep a thing from collection in a child, which would close sockets or an epoll that the parent uses."""
    _used[id(thing)] = thing


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
    _used_while_forking.extend(_used.values())
    _loses_obstore = _is_begun or _has_threads()


def _in_child() -> None:
    global _obstore_is_lost
    # a fork that waited for this import called no `_before`
    _used_by_parents.extend([*_used_while_forking, *_used.values()])
    _obstore_is_lost = _obstore_is_lost or _loses_obstore or _is_begun


at_fork(before=_before, in_parent=_used_while_forking.clear, in_child=_in_child)


# -- the end ------------------------------------------------------------------------------------------------


def watched(future: Awaitable[T]) -> Awaitable[T]:
    """Remember what obstore gave for a request until obstore has let go of it."""
    _watched.add(weakref.ref(future, _watched.discard))
    return future


def check_usable() -> None:
    """Refuse a call of obstore that would never return, or would abort the process.

    Raises
    ------
    NotByObstoreError
        The process was forked from a user of obstore, or it ends.
    """
    global _is_begun
    if obstore_is_lost():
        raise NotByObstoreError(
            "this process was forked from one that had used obstore, whose threads are not here, so nothing was "
            "sent: start processes by 'spawn' or 'forkserver'",
            errno.ENOTSUP,
        )
    if _is_over:
        raise NotByObstoreError("this process ends, so nothing was sent", errno.ENOTSUP)
    _is_begun = True


def wait_at_exit() -> None:
    """Let the end of this process wait for the requests of obstore."""
    if interpreter.main_has_ended():  # a function of `atexit` sends the first request: too late for another
        interpreter.wait_by(_wait)
    else:
        atexit.register(_end)


def _end() -> None:
    global _is_over
    if obstore_is_lost():  # the futures are the parent's
        return
    _is_over = True
    with _without_interrupts():
        _wait()
        for future in [held() for held in _watched.copy()]:
            if isinstance(future, asyncio.Future) and not future.done() and not future.get_loop().is_closed():
                future.get_loop().call_soon_threadsafe(future.cancel)
        future = None
        _wait()


@contextlib.contextmanager
def _without_interrupts() -> Iterator[None]:
    """Let a second Ctrl-C not end the wait, and so abort the process."""
    before = None
    with contextlib.suppress(ValueError):  # only the main thread may set what a signal does
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)


def _wait() -> None:
    from obstore.store import MemoryStore

    deadline_s = time.monotonic() + WAIT_S_MAX
    while _watched and time.monotonic() < deadline_s:
        MemoryStore()  # any call of obstore drops what was deferred
        time.sleep(WAIT_STEP_S)
