"""Ways of callers to the core's coroutines: directly, by a hop to the backend's loop, or by a thread.

It also decides what Ctrl-C means in a blocking call.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Generic, Protocol, TypeVar

from rollingfs.errors import AppendInterrupted, AppendOutcomeUnknown, CorruptHeaderError, RollingError, interrupted
from rollingfs.runtime import concurrency, interpreter
from rollingfs.runtime.concurrency import be_lasting, drive

T = TypeVar("T")

INTERRUPT_WAIT_S_MAX = 5.0
"""Ctrl-C waits this long for the verdict of a commit that is under way on another thread."""
WAIT_POLL_S = 1.0
"""A wait without a time limit cannot be interrupted on Windows."""
_IS_ASYNC = "the filesystem is asynchronous: await its methods with an underscore, like _cat_file"
_IS_OVER = (
    "the program ends, and the thread that sends requests has ended with it, so nothing was read or written: do this "
    "earlier, by a `with` block or a function of `atexit`, and not in __del__ or in a generator's `finally`"
)


class Below(Protocol):
    """The part of a backend that a bridge uses."""

    @property
    def is_async(self) -> bool: ...
    def after_fork(self) -> None: ...


class Bridge:
    """Runs coroutines of the core for callers of every kind.

    Parameters
    ----------
    backend
        Tells whether its verbs suspend and, if so, on which loop they must run.
    on_fork
        The bridge calls it once in a child process, before anything runs there; by default the backend's `after_fork`.
    """

    def __init__(self, backend: Below, on_fork: Callable[[], None] | None = None) -> None:
        self.backend = backend
        self.is_async = backend.is_async
        self._on_fork = on_fork or backend.after_fork
        self._process = os.getpid()
        self._fork_locks: dict[int, threading.Lock] = {}
        """By process: a child may be forked while a thread of its parent, itself a child, has a lock."""
        interpreter.at_end(self)

    def run(self, coroutine: Coroutine[Any, Any, T], *, commits: str | None = None, waits: bool = True) -> T:
        """Run a coroutine to its end, blocking the calling thread.

        Parameters
        ----------
        coroutine
            A coroutine of the core. Before its commit it should do no long work: upload in another call, which Ctrl-C
            can cancel without a commit.
        commits
            The segment that the coroutine commits to. Ctrl-C then waits up to `INTERRUPT_WAIT_S_MAX` seconds for the
            verdict. None without a commit: then Ctrl-C cancels the coroutine and raises no verdict.
        waits
            Whether the coroutine may wait for the backend; if not, the bridge spares the hop to its loop.

        Raises
        ------
        AppendInterrupted
            Ctrl-C hit a commit; `outcome` has the known outcome.
        RuntimeError
            The caller is on the loop on which the coroutine would have to run.
        """
        if self._process != os.getpid():
            self.check_process()
        if not self.is_async or not waits:
            try:
                return drive(coroutine)
            except AppendInterrupted as interrupt:
                raise _judged(interrupt, commits) from interrupt.__cause__
            except KeyboardInterrupt as interrupt:
                coroutine.close()  # Ctrl-C may have come before its first step
                if commits is None:
                    raise
                raise interrupted(commits, "unknown") from interrupt  # the core did not see Ctrl-C in time to judge
        loop = self._other_loop(coroutine)
        call = _Call(coroutine, is_lasting=commits is not None)
        try:
            if concurrency.is_locked_here():
                concurrency.let_others_log()
            loop.call_soon_threadsafe(call.begin, loop)
            return wait(call.outcome)
        except AppendInterrupted as interrupt:
            raise _judged(interrupt, commits) from interrupt.__cause__
        except KeyboardInterrupt as interrupt:
            if commits is not None:
                raise _interrupted(call.outcome, commits) from interrupt
            loop.call_soon_threadsafe(call.cancel)
            raise
        finally:
            interpreter.settle()

    def start(self, coroutine: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Begin a coroutine and do not wait for it, from any thread or loop; for async backends only."""
        self.check_process()
        if not self.is_async:
            coroutine.close()
            raise RuntimeError("over a sync backend nothing can run beside the caller; use `run`")
        return asyncio.run_coroutine_threadsafe(coroutine, self._open_loop(coroutine))

    async def arun(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine for an async caller on any loop, without blocking that loop."""
        self.check_process()
        if not self.is_async:
            try:
                return await asyncio.to_thread(drive, coroutine)
            finally:
                if inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED:
                    coroutine.close()  # no thread has begun it
        loop = self._loop()
        if loop is None or loop is asyncio.get_running_loop():
            return await coroutine
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, loop))

    def check_running(self) -> None:
        """Refuse a call that would wait for ever, because the interpreter is taken down.

        Raises
        ------
        RuntimeError
            It is.
        """
        if interpreter.is_over():
            raise RuntimeError(_IS_OVER)

    def after_fork(self, *, once: bool = False) -> None:
        """Forget, in a child process, what belongs to the parent; the first call there does it too."""
        with self._fork_locks.setdefault(os.getpid(), threading.Lock()):
            if not once or self._process != os.getpid():
                self._on_fork()
                self._process = os.getpid()

    def check_process(self) -> None:
        """Call `on_fork`, once, if this is a child of the process that made the bridge."""
        if self._process != os.getpid():
            self.after_fork(once=True)

    def main_ends(self) -> None:
        """Keep calls on the backend's loop working though executors are closed."""
        loop = self._loop() if self.is_async and self._process == os.getpid() else None
        if loop is not None and not loop.is_closed():
            interpreter.without_executors(loop)

    def _loop(self) -> asyncio.AbstractEventLoop | None:
        loop: asyncio.AbstractEventLoop | None = getattr(self.backend, "loop", None)
        return loop

    def _other_loop(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.AbstractEventLoop:
        """Return the backend's loop, for a blocking caller that is not on it."""
        loop = self._open_loop(coroutine)
        if _is_running_here(loop):
            coroutine.close()
            raise RuntimeError(
                "a blocking call on the filesystem's own event loop would wait for itself, so it was not begun: "
                "await the method with an underscore, like _cat_file"
            )
        return loop

    def _open_loop(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.AbstractEventLoop:
        loop = self._loop()
        why = _IS_OVER if interpreter.is_over() else _IS_ASYNC if loop is None or loop.is_closed() else ""
        if loop is None or why:
            coroutine.close()
            raise RuntimeError(why)
        if interpreter.main_has_ended():  # the loop may be newer than that
            interpreter.without_executors(loop)
        return loop


def _is_running_here(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


def wait(future: concurrent.futures.Future[T]) -> T:
    """Wait for the result of a future in steps, so that Ctrl-C gets through."""
    while not future.done():
        try:
            return future.result(WAIT_POLL_S)
        except TimeoutError:  # of this wait; or the future's own outcome, and the future is done
            continue
    return future.result()


class _Call(Generic[T]):
    """A coroutine for another thread's loop, with a handle before it begins: Ctrl-C may come at any instruction."""

    def __init__(self, coroutine: Coroutine[Any, Any, T], *, is_lasting: bool) -> None:
        self.outcome: concurrent.futures.Future[T] = concurrent.futures.Future()
        self._coroutine = coroutine
        self._is_lasting = is_lasting
        self._task: asyncio.Task[Any] | None = None

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start the coroutine. Must run on its loop."""
        self._task = loop.create_task(self._run())

    async def _run(self) -> None:
        try:
            if self._is_lasting:
                be_lasting()
            self.outcome.set_result(await self._coroutine)
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
            self.outcome.set_exception(error)

    def cancel(self) -> None:
        """Stop the coroutine where it is. Must run on its loop."""
        if self._task is not None:
            self._task.cancel()
        if inspect.getcoroutinestate(self._coroutine) == inspect.CORO_CREATED:
            self._coroutine.close()  # a task that is cancelled before its first step never awaits it


def _interrupted(future: concurrent.futures.Future[Any], path: str) -> AppendInterrupted:
    """Return the error for a commit whose caller was interrupted. The commit itself runs to its end."""
    try:
        concurrent.futures.wait([future], INTERRUPT_WAIT_S_MAX)
    except KeyboardInterrupt:
        return interrupted(path, "unknown")  # a second Ctrl-C: the user does not want to wait
    if not future.done():
        return interrupted(path, "unknown")
    error = future.exception()
    if error is None:
        return interrupted(path, "committed")
    if isinstance(error, AppendInterrupted):
        return error
    # other errors may come from the work after a commit
    is_refusal = isinstance(error, RollingError | FileNotFoundError | FileExistsError | ValueError)
    is_refusal = is_refusal and not isinstance(error, AppendOutcomeUnknown | CorruptHeaderError)
    return interrupted(path, "not committed" if is_refusal else "unknown")


def _judged(interrupt: AppendInterrupted, commits: str | None) -> KeyboardInterrupt:
    """Return the core's verdict, for a caller that commits.

    For any other caller the verdict is on some internal commit.
    """
    return interrupt if commits is not None else KeyboardInterrupt()
