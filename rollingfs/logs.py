"""Log records made while a segment's lock is held: their handlers run after its release.

A logging handler is the user's code. It may append through rollingfs, to the very segment whose commit is under way,
or wait for its own lock, which another thread holds that waits for ours. So no handler of a record of ours runs under
our lock. For what other libraries log there, a lock that is asked for twice by one thread is an error, not a deadlock.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Protocol

LOGGER = logging.getLogger("rollingfs")


class Held(Protocol):
    """A lock of `threading` or of `asyncio`."""

    def locked(self) -> bool: ...


class _Kept:
    """The records of one holder of locks."""

    def __init__(self) -> None:
        self.locks: set[Held] = set()
        """Empty once they are released: a task that was started under them may live on."""
        self.records: list[logging.LogRecord] = []


_kept: ContextVar[_Kept | None] = ContextVar("rollingfs_kept_logs", default=None)


def _holder() -> _Kept | None:
    kept = _kept.get()
    # asked of the locks themselves: Ctrl-C may have come before one was taken out of the set
    return kept if kept is not None and any(lock.locked() for lock in kept.locks) else None


@contextlib.contextmanager
def kept_back(lock: Held, name: str) -> Iterator[None]:
    """Keep log records back until the end of the block, in which a lock is taken and released.

    Parameters
    ----------
    name
        What it protects.

    Raises
    ------
    RuntimeError
        The caller holds that lock.
    """
    outer = _holder()
    if outer is not None and lock in outer.locks:
        raise RuntimeError(
            f"{name}: nothing was written, because this thread is in the midst of another commit to it, which has "
            "called back: a logging handler may not change the segment whose commit makes a library log"
        )
    kept = outer or _Kept()
    try:
        kept.locks.add(lock)
        if outer is None:
            _kept.set(kept)
        yield
    finally:
        kept.locks.discard(lock)
        if outer is None:
            for record in kept.records:
                LOGGER.handle(record)


class _KeepBack(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        kept = _holder()
        if kept is None:
            return True
        kept.records.append(record)
        return False


LOGGER.addFilter(_KeepBack())
