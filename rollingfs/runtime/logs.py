"""Log records made while a segment's lock is held: their handlers run after the release of the lock.

A logging handler is the user's code. It may append through rollingfs to the very segment whose commit is under way. Or
it may wait for its own lock, while another thread holds that lock and waits for the segment's. So no handler of a
rollingfs record runs under a segment's lock. Other libraries may log under the lock too: if their handler asks for the
lock again, that is an error and no deadlock.

`Keeper` is not a context manager: Ctrl-C may come between any two statements, and a context manager written in Python
may then stay entered.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any

LOGGER = logging.getLogger("rollingfs")
LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)


class Held:
    """A lock that knows the keeper of its last holder."""

    _lock: Any
    _holder: Keeper | None = None

    def is_held_by(self, keeper: Keeper) -> bool:
        """Return whether the holder with this keeper holds the lock."""
        return bool(self._lock.locked()) and self._holder is keeper


class Keeper(set[Held]):
    """The locks that a thread or a task holds, or is about to take: from then on, it keeps back the log records."""

    records: Sequence[logging.LogRecord] = ()

    @property
    def is_holding(self) -> bool:
        """Return whether this holder holds a lock now; a task that was started under a lock may outlive it."""
        # ask the locks themselves: Ctrl-C may have come before a released lock was taken out of the set
        return any(lock.is_held_by(self) for lock in self)

    def check(self, lock: Held, name: str) -> None:
        """Refuse a lock that this thread already holds.

        Raises
        ------
        RuntimeError
            The thread holds it.
        """
        if lock in self and lock.is_held_by(self):
            raise RuntimeError(
                f"{name}: nothing was written, because this thread is in the middle of another commit to it. A logging "
                "handler must not change the segment whose commit made a library log the record"
            )

    def leave(self, lock: Held) -> None:
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


class _KeepBack(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        known = _keeper.get()
        if known is None or not known.is_holding:
            return True
        known.records = (*known.records, record)
        return False


LOGGER.addFilter(_KeepBack())
