"""The life of obstore in a process: a fork, and the exit of the interpreter."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import errno
import signal
import sys
import threading
import time
import weakref
from collections.abc import Awaitable, Iterator
from typing import Any, TypeVar

from fsspec import AbstractFileSystem
from fsspec.asyn import reset_lock
from obstore.store import MemoryStore

from rollingfs.backend.objects.clouds import options_of
from rollingfs.backend.objects.errors import NotByObstoreError
from rollingfs.runtime import interpreter_exit
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


T = TypeVar("T")

WAIT_S_MAX = 1.0
"""Wait of the process's end for requests under way, and again after it has cancelled them."""
WAIT_STEP_S = 0.001

_exit_held: set[weakref.ref[Awaitable[object]]] = set()
_is_over = False


def watched(future: Awaitable[T]) -> Awaitable[T]:
    """Remember what obstore gave for a request until obstore has let go of it."""
    _exit_held.add(weakref.ref(future, _exit_held.discard))
    return future


def check_usable() -> None:
    """Refuse a call of obstore that would never return, or would abort the process.

    Raises
    ------
    NotByObstoreError
        The process was forked from a user of obstore, or it ends.
    """
    if obstore_is_lost():
        raise NotByObstoreError(
            "this process was forked from one that had used obstore, whose threads are not here, so nothing was "
            "sent: start processes by 'spawn' or 'forkserver'",
            errno.ENOTSUP,
        )
    if _is_over:
        raise NotByObstoreError("this process ends, so nothing was sent", errno.ENOTSUP)
    obstore_begins()


@atexit.register
def _end() -> None:
    global _is_over
    if obstore_is_lost():  # the futures are the parent's
        return
    _is_over = True
    with _without_interrupts():
        _wait()
        for future in [held() for held in _exit_held.copy()]:
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
    deadline_s = time.monotonic() + WAIT_S_MAX
    while _exit_held and time.monotonic() < deadline_s:
        MemoryStore()  # any call of obstore drops what was deferred
        time.sleep(WAIT_STEP_S)


if interpreter_exit.main_has_ended():  # a function of `atexit` sends the first request: `_end` is registered too late
    interpreter_exit.wait_by(_wait)
