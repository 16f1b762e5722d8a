"""Waits of the core's coroutines: they block over a sync backend, and await over an async backend.

The core is written once. Over a sync backend no coroutine ever suspends, so `drive` runs it to its end without
an event loop, in whatever thread calls; over an async backend it runs on the backend's loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from contextvars import ContextVar, copy_context
from typing import Any, TypeVar

T = TypeVar("T")

# -- log records under a lock: their handlers run after its release. A handler is the user's code. It may append
# through rollingfs to the very segment whose commit is under way, or wait for its own lock, while another thread holds
# that lock and waits for the segment's. Other libraries may log under the lock too: if their handler asks for the lock
# again, that is an error and no deadlock.

LOGGER = logging.getLogger("rollingfs")
LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)


class Keeper(set["Lock"]):
    """The locks that a thread or a task holds, or is about to take: from then on, it keeps back the log records.

    It is not a context manager: Ctrl-C may come between any two statements, and a context manager written in Python may
    then stay entered.
    """

    records: Sequence[logging.LogRecord] = ()

    @property
    def is_holding(self) -> bool:
        """Return whether this holder holds a lock now; a task that was started under a lock may outlive it."""
        # ask the locks themselves: Ctrl-C may have come before a released lock was taken out of the set
        return any(lock.lock.locked() and lock.holder is self for lock in self)

    def check(self, lock: Lock, name: str) -> None:
        """Refuse a lock that this thread already holds.

        Raises
        ------
        RuntimeError
            The thread holds it.
        """
        if lock in self and lock.lock.locked() and lock.holder is self:
            raise RuntimeError(
                f"{name}: nothing was written, because this thread is in the middle of another commit to it. A logging "
                "handler must not change the segment whose commit made a library log the record"
            )

    def leave(self, lock: Lock) -> None:
        """Hand the records over to their handlers, if this was the holder's last lock."""
        self.discard(lock)
        if self.records and not self.is_holding:
            self._hand_over()

    def _hand_over(self) -> None:
        # take the records away first: a handler that commits would otherwise hand over the rest within itself
        records, self.records = list(self.records), ()
        try:
            while records:
                LOGGER.handle(records.pop(0))
        finally:
            if records:
                self.records = (*records, *self.records)
                _keeper.set(self)


_keeper: ContextVar[Keeper | None] = ContextVar("rollingfs_log_keeper", default=None)


def keeper() -> Keeper:
    """Return the caller's keeper: the keeper of its lock, or a new keeper."""
    known = _keeper.get()
    if known and known.is_holding:
        return known
    new = Keeper()
    if known is not None and known.records:  # Ctrl-C interrupted it before it handed its records over
        new.records, known.records = known.records, ()
    _keeper.set(new)
    return new


def is_locked_here() -> bool:
    """Return whether this thread holds the lock of `logging` itself, as `dictConfig` does while it closes handlers.

    By a private name that Python 3.11 to 3.14 have; without it, no thread counts as holding the lock.
    """
    lock = getattr(logging, "_lock", None)
    return lock is not None and bool(lock._is_owned())


def let_others_log() -> None:
    """Let other threads log while this thread waits with the lock of `logging`.

    A logger takes that lock to find its level, and then remembers the answer. No thread can make a logger forget while
    this thread has the lock.
    """
    loggers = [one for one in logging.Logger.manager.loggerDict.values() if isinstance(one, logging.Logger)]
    for logger in (logging.root, *loggers):
        for level in LEVELS:
            logger.isEnabledFor(level)


def _is_free(record: logging.LogRecord) -> bool:
    """Keep back a record that is logged under a lock."""
    known = _keeper.get()
    if known is None or not known.is_holding:
        return True
    known.records = (*known.records, record)
    return False


LOGGER.addFilter(_is_free)


# -- waits -----------------------------------------------------------------------------------------------------

BACKOFF_S_MIN = 0.005
BACKOFF_S_MAX = 1.0


def drive(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends, in a copy of the context: Ctrl-C may leave a deadline in it (`until_s`).

    Raises
    ------
    RuntimeError
        The coroutine suspended: a bug in a backend whose `is_async` is false.
    """
    try:
        copy_context().run(coroutine.send, None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    coroutine.close()
    raise RuntimeError("a coroutine over a sync backend suspended; this is a bug in the backend")


_until_s: ContextVar[float | None] = ContextVar("rollingfs_until", default=None)


def until_s() -> float | None:
    """Return the deadline of the call that runs in a `SyncRuntime`, by the monotonic clock; or None."""
    return _until_s.get()


_lasting: ContextVar[asyncio.Task[Any] | None] = ContextVar("rollingfs_lasting", default=None)


@contextlib.contextmanager
def within(seconds: float) -> Iterator[None]:
    """Set the deadline `until_s`, unless there is an earlier deadline."""
    end_s = time.monotonic() + seconds
    token = _until_s.set(min(end_s, until_s() or end_s))
    try:
        yield
    finally:
        _until_s.reset(token)


def be_lasting() -> None:
    """Promise that no caller cancels the running task: `AsyncRuntime.shield` starts no other task within it."""
    _lasting.set(asyncio.current_task())  # the task, not True: tasks that it starts inherit the variable


async def _lastingly(call: Coroutine[Any, Any, T]) -> T:
    be_lasting()
    return await call


def backoff_s(attempt: int) -> float:
    """Return a random pause before attempt 1, 2, …: exponential, with full jitter."""
    return random.uniform(0, min(BACKOFF_S_MAX, BACKOFF_S_MIN * 2.0 ** min(attempt, 16)))


class _ThreadLock:
    def __init__(self, name: str) -> None:
        self._name = name
        self.lock = threading.Lock()
        self.holder: Keeper | None = None
        """The keeper of its last holder."""

    async def run(self, call: Callable[[], Awaitable[T]]) -> T:
        logs = keeper()
        if logs:
            logs.check(self, self._name)
        try:
            logs.add(self)
            with self.lock:
                self.holder = logs
                return await call()
        finally:
            logs.leave(self)


class _TaskLock:
    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self.lock = asyncio.Lock()
        self.holder: Keeper | None = None

    async def run(self, call: Callable[[], Awaitable[T]]) -> T:
        logs = keeper()
        loop, before = asyncio.get_running_loop(), self._loop
        # the tasks of a closed loop never go on
        is_free = before is None or before.is_closed() or not (before.is_running() or self.lock.locked())
        if before is not loop and is_free:
            self._loop, self.lock = loop, asyncio.Lock()  # one that tasks have waited for stays with their loop
        try:
            logs.add(self)
            async with self.lock:
                self.holder = logs
                return await call()
        finally:
            logs.leave(self)


Lock = _ThreadLock | _TaskLock
"""A mutual exclusion of coroutines of the core: `run` awaits a call under it.

It is not a context manager: a context manager in Python keeps the lock if Ctrl-C comes at its end. Records that are
logged under the lock reach the handlers after its release.
"""


class SyncRuntime:
    """Threads that block."""

    is_async = False

    def lock(self, name: str) -> Lock:
        return _ThreadLock(name)

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    async def wait(self, gate: threading.Lock, seconds: float) -> None:
        gate.acquire(timeout=seconds)

    async def in_thread(self, call: Callable[[], T]) -> T:
        """Call a function here: the caller has this thread for itself."""
        return call()

    async def gather(self, calls: Iterable[Callable[[], Awaitable[T]]], limit: int) -> list[T]:
        """Call the functions in order."""
        return [await call() for call in calls]

    async def shield(self, call: Coroutine[Any, Any, T]) -> T:
        return await call

    async def limit(self, call: Awaitable[T], seconds: float) -> T:
        """Set the deadline `until_s`; a blocking call looks at it where it waits for other processes."""
        token = _until_s.set(time.monotonic() + seconds)
        try:
            return await call
        finally:
            _until_s.reset(token)


async def gather_limited(calls: Iterable[Callable[[], Awaitable[T]]], limit: int) -> list[T]:
    """Run calls on the running loop, at most `limit` at a time; the first error cancels the rest and is raised."""
    calls = list(calls)
    if len(calls) < 2:
        return [await call() for call in calls]  # as each range that is fetched ahead: a task would cost more
    places = asyncio.Semaphore(limit)

    async def one(call: Callable[[], Awaitable[T]]) -> T:
        async with places:
            return await call()

    tasks = [asyncio.ensure_future(one(call)) for call in calls]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


class AsyncRuntime:
    """Tasks on an event loop."""

    is_async = True

    def lock(self, name: str) -> Lock:
        return _TaskLock()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def wait(self, gate: threading.Lock, seconds: float) -> None:
        """Return at once, because tasks wait for locks."""

    async def in_thread(self, call: Callable[[], T]) -> T:
        """Call a function that may block in another thread; a caller that is cancelled waits for its end.

        A thread cannot be stopped, so a file that it uses must not be closed before.
        """
        calling = asyncio.ensure_future(asyncio.to_thread(call))
        try:
            return await asyncio.shield(calling)
        finally:
            while not calling.done():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait([calling])

    async def gather(self, calls: Iterable[Callable[[], Awaitable[T]]], limit: int) -> list[T]:
        return await gather_limited(calls, limit)

    async def shield(self, call: Coroutine[Any, Any, T]) -> T:
        """Run `call` to its end even if the caller is cancelled: a commit under way must reach its verdict."""
        if _lasting.get() is asyncio.current_task():
            return await call
        task = asyncio.ensure_future(_lastingly(call))
        # a cancelled caller never asks for the outcome, which asyncio would log as "never retrieved"
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(task)

    async def limit(self, call: Awaitable[T], seconds: float) -> T:
        async with asyncio.timeout(max(seconds, 0.001)):  # `wait_for` would start a task for each request
            return await call


Runtime = SyncRuntime | AsyncRuntime
"""The services that the core's coroutines use to wait."""
