"""The end of a program: what is called when its main thread ends, and how requests still get through after that.

`collected_later` puts garbage collection off while a call makes many objects that stay.

When the main thread ends, Python closes all executors (`concurrent.futures`). Then it waits for the other threads, and
then it runs `atexit`. A request that opens a connection needs an executor, for the names of hosts and for certificates.
So `at_end` calls while executors are open, and `without_executors` lets an event loop do without them from then on.

SIGTERM ends a process without any of that, unless the process handles it. `at_sigterm` calls before, in a thread of its
own: a signal's handler interrupts the main thread anywhere, so it must wait for no lock that the main thread may hold.
The main thread goes on until then, as if the signal came later.
"""

from __future__ import annotations

import _thread
import asyncio
import atexit
import contextlib
import gc
import os
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures.thread import ThreadPoolExecutor  # an import after the main thread's end would fail
from contextlib import contextmanager
from types import FrameType
from typing import Any, ParamSpec, TypeVar

from rollingfs.runtime.system import HANDLES_SIGTERM, at_fork

P = ParamSpec("P")
T = TypeVar("T")


class _Here(ThreadPoolExecutor):
    """Runs everything at once, in the calling thread."""

    def submit(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        try:
            future.set_result(function(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001 - the caller gets it from the future, as of every executor
            future.set_exception(error)
        return future


_here = _Here(1)
_told: weakref.WeakKeyDictionary[Any, None] = weakref.WeakKeyDictionary()
_told_by_sigterm: weakref.WeakSet[Any] = weakref.WeakSet()
_main_has_ended = False
_waits: list[Callable[[], None]] = []


def at_end(thing: Any) -> None:
    """Register an object, whose `main_ends` is called at the end of the main thread, while other threads go on.

    Callbacks run in the order of registration, and are held by weak references.
    """
    _told[thing] = None


def at_last(method: Callable[[], None]) -> None:
    """Call a method when all threads have ended, the last registered first; its object is not kept alive by this."""
    import multiprocessing.util  # a program without such a method starts sooner without it

    weak = weakref.WeakMethod(method)

    def end() -> None:
        if (found := weak()) is not None:
            found()

    atexit.register(end)
    multiprocessing.util.Finalize(None, end, exitpriority=0)  # a child of multiprocessing runs no `atexit`


def main_has_ended() -> bool:
    """Return whether the main thread has ended."""
    return _main_has_ended


def is_over() -> bool:
    """Return whether the interpreter is taken down: the threads of event loops have ended, and never answer."""
    return sys.is_finalizing()


def without_executors(loop: asyncio.AbstractEventLoop) -> None:
    """Let an event loop run in its own thread what it would give to an executor."""
    loop.set_default_executor(_here)


def wait_by(wait: Callable[[], None]) -> None:
    """Let a function end each blocking call from now on (`settle`).

    For a library that is first used by a function of `atexit`: what it registers with `atexit` then is never called.
    """
    _waits.append(wait)


def settle() -> None:
    """Wait, at the end of a blocking call, for libraries whose threads must not outlive the interpreter."""
    for wait in _waits:
        wait()


def at_sigterm(thing: Any) -> None:
    """Register an object, whose `sigterm_comes` is called before SIGTERM ends the process.

    A process that handles or ignores SIGTERM itself, now or later, gets no callback. Python lets only the
    main thread change it: a call on another thread has no effect. The callback is held by a weak reference.
    """
    _told_by_sigterm.add(thing)
    is_main = threading.current_thread() is threading.main_thread()
    if HANDLES_SIGTERM and is_main and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        with contextlib.suppress(ValueError):  # in a subinterpreter
            signal.signal(signal.SIGTERM, _sigterm_comes)


def _sigterm_comes(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # so that the next one ends the process: another's, or ours
    try:
        _thread.start_new_thread(_end_by_sigterm, ())  # `threading` takes a lock for it
    except RuntimeError:  # there are too many threads, or the interpreter ends
        _end_by_sigterm()


def _end_by_sigterm() -> None:
    with contextlib.ExitStack() as stack:
        stack.callback(os.kill, os.getpid(), signal.SIGTERM)  # the last, so the exit status is that of SIGTERM
        for thing in list(_told_by_sigterm):
            stack.callback(thing.sigterm_comes)


def _main_ends() -> None:
    global _main_has_ended
    _main_has_ended = True
    for thing in list(_told):
        thing.main_ends()


# No public function is called so early. Python 3.9 to 3.14 have this one, by which `concurrent.futures` closes
# executors; what is registered later is called earlier.
with contextlib.suppress(RuntimeError):  # the main thread has ended before this import
    threading._register_atexit(_main_ends)  # type: ignore[attr-defined]


# -- garbage collection: each 700 new objects make Python look through the young ones, and every few thousand through
# all of them. A listing of 60,000 segments spent more than half of its CPU time on that, without a result.

_lock = threading.Lock()
_inside = 0
_was_enabled = False


def _after_fork_in_child() -> None:
    """Turn collection on in a child, which has no other thread to do it."""
    global _lock, _inside
    _lock = threading.Lock()
    if _inside and _was_enabled:
        gc.enable()
    _inside = 0


@contextmanager
def collected_later() -> Iterator[None]:
    """Collect no garbage in this context, in no thread: for code that takes a second at most and does not await."""
    global _inside, _was_enabled
    with _lock:
        if _inside == 0:
            _was_enabled = gc.isenabled()
            gc.disable()
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0 and _was_enabled:
                gc.enable()


at_fork(in_child=_after_fork_in_child)
