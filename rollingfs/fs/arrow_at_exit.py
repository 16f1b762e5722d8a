"""Bytes and files that Arrow holds: the end of a program waits a moment until Arrow has given them back.

Threads of Arrow that give a Python object back while the interpreter ends abort the process (exit code 134,
apache/arrow#34314). They do so just after a read has returned, so a short program that reads Parquet aborted often.
"""

from __future__ import annotations

import atexit
import time
import weakref
from typing import Any

WAIT_S_MIN = 0.01
"""Lets threads of Arrow, which wait for Python's lock, go first."""
WAIT_S_MAX = 0.25
"""The program itself holds the memory that Arrow still has then, as for a table of an Arrow file."""
WAIT_STEP_S = 0.001

_lent: dict[int, weakref.ref[Any]] = {}
_was_used = False


def lent(data: bytes, file: object) -> memoryview:
    """The data of a file, for Arrow, which may give both back late."""
    global _was_used
    _was_used = True
    view = memoryview(data)
    for thing in (view, file):
        key = id(thing)
        _lent[key] = weakref.ref(thing, lambda _, key=key: _lent.pop(key, None))  # type: ignore[misc]  # key is an int
    return view


@atexit.register
def _at_end() -> None:
    if not _was_used:
        return
    began_s = time.monotonic()
    time.sleep(WAIT_S_MIN)
    while _lent and time.monotonic() - began_s < WAIT_S_MAX:
        time.sleep(WAIT_STEP_S)
