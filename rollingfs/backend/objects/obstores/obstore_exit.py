"""The end of a process that uses obstore: obstore must have let go of all Python objects before.

Threads of obstore hand results to event loops. A thread that does so while the interpreter is taken down aborts the
process (SIGABRT); this happened in a quarter of programs that ended with their request. So the end of a process waits
for the futures of all requests, and cancels those that take too long. A collected future is a future that obstore has
let go of. After that, no call of obstore is allowed (`check_usable`).

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
import time
import weakref
from collections.abc import Awaitable, Iterator
from typing import TypeVar

from obstore.store import MemoryStore

from rollingfs.backend.objects.obstores.forks import obstore_begins, obstore_is_lost
from rollingfs.backend.objects.request_errors import NotByObstoreError
from rollingfs.runtime import interpreter

T = TypeVar("T")

WAIT_S_MAX = 1.0
"""Wait of the process's end for requests under way, and again after it has cancelled them."""
WAIT_STEP_S = 0.001

_held: set[weakref.ref[Awaitable[object]]] = set()
_is_over = False


def watched(future: Awaitable[T]) -> Awaitable[T]:
    """Remember what obstore gave for a request until obstore has let go of it."""
    _held.add(weakref.ref(future, _held.discard))
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
        for future in [held() for held in _held.copy()]:
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
    while _held and time.monotonic() < deadline_s:
        MemoryStore()  # any call of obstore drops what was deferred
        time.sleep(WAIT_STEP_S)


if interpreter.main_has_ended():  # a function of `atexit` sends the first request: `_end` is registered too late
    interpreter.wait_by(_wait)
