"""Log records made while a segment's lock is held: their handlers run after its release.

A logging handler is the user's code. It may append through rollingfs, to the very segment whose commit is under way,
or wait for its own lock, which another thread holds that waits for ours. So no handler of a record of ours runs under
our lock. For what other libraries log there, a lock that is asked for twice by one thread is an error, not a deadlock.

No context manager: Ctrl-C may come between any two statements, and one that is written in Python may then stay entered.
"""

from __future__ import annotations

import logging
from contextvars import ContextVar
from typing import Protocol

LOGGER = logging.getLogger("rollingfs")


class Held(Protocol):
    """A lock that says whether the holder of a keeper holds it."""

    def is_held_by(self, keeper: Keeper) -> bool: ...


class Keeper:
    """Keeps back the records of one holder of locks."""

    def __init__(self) -> None:
        self._locks: set[Held] = set()
        self._records: list[logging.LogRecord] = []

    @property
    def is_holding(self) -> bool:
        """Whether a lock is held; a task that was started under it may live on after its release."""
        # asked of the locks themselves: Ctrl-C may have come before one was taken out of the set
        return any(lock.is_held_by(self) for lock in self._locks)

    def check(self, lock: Held, name: str) -> None:
        """Refuse a lock that this thread holds already.

        Raises
        ------
        RuntimeError
            It does.
        """
        if lock in self._locks and lock.is_held_by(self):
            raise RuntimeError(
                f"{name}: nothing was written, because this thread is in the midst of another commit to it, which has "
                "called back: a logging handler may not change the segment whose commit makes a library log"
            )

    def enter(self, lock: Held) -> None:
        """Keep records back from now on: the lock is about to be taken."""
        self._locks.add(lock)

    def leave(self, lock: Held) -> None:
        """Hand the records over, if this was the last lock to be released."""
        self._locks.discard(lock)
        if self._records and not self.is_holding:
            self._hand_over()

    def _hand_over(self) -> None:
        # a handler that commits has a keeper of its own, which must not go on with the rest: each would be called
        # within the one before
        records, self._records = self._records, []
        try:
            while records:
                LOGGER.handle(records.pop(0))
        finally:
            if records:
                self._records[:0] = records
                _keeper.set(self)

    def keep(self, record: logging.LogRecord) -> None:
        """Keep a record back."""
        self._records.append(record)

    def take_over(self, other: Keeper | None) -> None:
        """Take the records of one that Ctrl-C kept from handing them over."""
        if other is not None:
            self._records, other._records = other._records, []


_keeper: ContextVar[Keeper | None] = ContextVar("rollingfs_log_keeper", default=None)


def keeper() -> Keeper:
    """Of whoever calls: the one that keeps back already, or a new one."""
    known = _keeper.get()
    if known is not None and known.is_holding:
        return known
    new = Keeper()
    new.take_over(known)
    _keeper.set(new)
    return new


class _KeepBack(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        known = _keeper.get()
        if known is None or not known.is_holding:
            return True
        known.keep(record)
        return False


LOGGER.addFilter(_KeepBack())
