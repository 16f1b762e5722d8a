"""Requests that are sent again, as long as a commit goes on; small files that are read again while they are replaced.

A store that writes in place may answer a read with a part of the new file, or with parts of both. A look on a disk by
FUSE may find no file while another is renamed over it. So a file that does not fit is read again before it is damaged.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import random
import time
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import TypeVar

from rollingfs.backend.contract import Backend, Blob
from rollingfs.backend.shared_errors import with_product
from rollingfs.errors import CorruptHeaderError
from rollingfs.runtime.concurrency import Runtime, until_s

T = TypeVar("T")

PATIENCE_S = 60.0
"""For a backend that no client calls."""
PAUSE_FIRST_S = 0.1
PAUSE_S_MAX = 5.0
PAUSE_DOUBLINGS_MAX = 16
TOLD_AFTER_S = 2.0
"""A request that has failed for this long is mentioned in the log."""

logger = logging.getLogger("rollingfs")

patience_s: ContextVar[float | None] = ContextVar("rollingfs_patience", default=None)
"""The patience of the client that calls a verb; None: `PATIENCE_S`."""


def wanted_s() -> float:
    """Return the patience of the caller of a verb, in seconds."""
    given_s = patience_s.get()
    return PATIENCE_S if given_s is None else given_s


async def patiently(request: Callable[[], Awaitable[T]], may_repeat: Callable[[BaseException], bool]) -> T:
    """Send a request; repeat it, with jitter, after each failure that may pass, until the patience is over."""
    limit_s, began_s, is_told = wanted_s(), time.monotonic(), False
    for attempt in itertools.count(1):
        try:
            return await request()
        except Exception as error:
            passed_s = time.monotonic() - began_s
            if passed_s >= limit_s or not may_repeat(error):
                raise
            if passed_s >= TOLD_AFTER_S and not is_told:
                is_told = True
                logger.warning("a store has failed for %.0f s, and is tried for %.0f s: %s", passed_s, limit_s, error)
        pause_s = random.uniform(0, min(PAUSE_S_MAX, PAUSE_FIRST_S * 2 ** min(attempt, PAUSE_DOUBLINGS_MAX)))
        await asyncio.sleep(min(pause_s, max(limit_s - passed_s, 0.0)))
    raise AssertionError("`count` has no end")


LOOK_PAUSE_FIRST_S = 0.01
LOOK_PAUSE_S_MAX = 0.16
SETTLED_S = 0.3
"""A file whose bytes and token are the same for this long is at rest: it is damaged, and not being written.

A file that no look finds for this long is gone.
"""


NAME_KEPT_S = 2.5
"""Longest time for which a mount may know the old file of a name: the kernel, and GlusterFS, keep it for a second."""


async def look_for(
    backend: Backend, runtime: Runtime, path: str, look: Callable[[], Awaitable[T | None]], for_s: float = SETTLED_S
) -> T | None:
    """Return the result of a look, made again for so long while it is None."""
    began_s = time.monotonic()
    for count in itertools.count():
        found = await look()
        if found is not None or not backend.may_tear(path) or time.monotonic() >= began_s + for_s:
            return found
        await runtime.sleep(min(LOOK_PAUSE_FIRST_S * 2.0**count, LOOK_PAUSE_S_MAX))
    raise AssertionError("`count` has no end")


async def read_fitting(
    backend: Backend, runtime: Runtime, path: str, parse: Callable[[Blob], T], blob: Blob | None = None
) -> T:
    """Return the parsed file, which is read again while it does not fit and changes.

    Parameters
    ----------
    blob
        The file as it was read already.

    Raises
    ------
    CorruptHeaderError
        It is malformed and at rest, or changes longer than a read is patient.
    FileNotFoundError
        It is gone.
    """
    blob = await backend.read(path) if blob is None else blob
    began_s = since_s = time.monotonic()
    for count in itertools.count():
        error = None
        try:
            found = parse(blob)
            if blob.data:
                return found
        except CorruptHeaderError as failed:
            error = failed
        now_s = time.monotonic()
        is_at_rest = not backend.may_tear(path) or now_s >= since_s + SETTLED_S
        if is_at_rest or (count and now_s >= min(began_s + wanted_s(), until_s() or math.inf)):
            if error is None:
                return found
            raise error if is_at_rest else await _torn(backend, path, error, now_s - began_s)
        await runtime.sleep(min(LOOK_PAUSE_FIRST_S * 2.0**count, LOOK_PAUSE_S_MAX))
        before, blob = blob, await backend.read(path)
        if (blob.token, blob.data) != (before.token, before.data):
            since_s = time.monotonic()
    raise AssertionError("`count` has no end")


async def _torn(backend: Backend, path: str, error: CorruptHeaderError, took_s: float) -> CorruptHeaderError:
    """Return the error for a file that never fitted, with the name of the store."""
    store = with_product(await backend.store_name(path) or backend.unstrip(backend.root(path)), backend.product(path))
    return CorruptHeaderError(
        f"{error}; each read in {took_s:.1f} s returned other bytes: the store {store} writes in place, or another "
        "program changes the file; this call wrote nothing; try again when fewer writers are at work, or use a "
        "store that replaces files whole (docs/stores.md)"
    )
