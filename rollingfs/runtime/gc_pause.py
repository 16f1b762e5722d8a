"""Puts garbage collection off while a call makes many objects that stay.

Each 700 new objects make Python look through the young ones, and every few thousand through all of them. A listing of
60,000 segments spent more than half of its CPU time on that, without a result.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from rollingfs.runtime.system import at_fork

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


at_fork(in_child=_after_fork_in_child)


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
