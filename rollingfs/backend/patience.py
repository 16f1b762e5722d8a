"""Time for which a request that may be repeated is sent again: as long as a commit goes on."""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
import time
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import TypeVar

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
