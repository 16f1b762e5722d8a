"""The end of a process that uses obstore: by then, obstore must have let go of all that is Python's.

Threads of obstore hand results to event loops. Where one does so while the interpreter is taken down, the process is
aborted (SIGABRT): seen in one of four programs that end with their request. So, when a process ends, the futures of all
requests are waited for, and those of requests that take too long are cancelled. A future that is collected is one that
obstore has let go of. Nothing may be asked of obstore after that (`is_over`).
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import signal
import time
import weakref
from collections.abc import Awaitable, Iterator
from typing import TypeVar

from rollingfs.backend.obstores.forks import ObstoreLostError, obstore_is_lost

T = TypeVar("T")

WAIT_S_MAX = 1.0
"""How long the requests under way may take to end by themselves; and once they are cancelled."""
WAIT_STEP_S = 0.001

_held: set[weakref.ref[Awaitable[object]]] = set()
_is_over = False


def watched(future: Awaitable[T]) -> Awaitable[T]:
    """Remember what obstore gave for a request until obstore has let go of it."""
    _held.add(weakref.ref(future, _held.discard))
    return future


def is_over() -> bool:
    """Whether nothing more must be asked of obstore."""
    return _is_over


def check_usable() -> None:
    """Refuse to ask obstore where a call would never return, or would abort the process.

    Raises
    ------
    ObstoreLostError
        The process was forked from one that had imported obstore, or it ends.
    """
    if obstore_is_lost():
        raise ObstoreLostError(
            "this process was forked from one that had imported obstore, whose threads are not here, so nothing was "
            "sent: start processes by 'spawn' or 'forkserver'"
        )
    if _is_over:
        raise ObstoreLostError("this process ends, so nothing was sent")


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
        time.sleep(WAIT_STEP_S)
