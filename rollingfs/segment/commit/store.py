"""The context of every operation: the backend, its caches, counts, clock and the way to wait."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TypeVar

from rollingfs.backend.contract import Backend
from rollingfs.backend.probe import Abilities
from rollingfs.backend.verdicts import Verdicts
from rollingfs.errors import FULL, TELLING, not_committed
from rollingfs.runtime.concurrency import Runtime
from rollingfs.runtime.meters import Meters
from rollingfs.runtime.system import Clock
from rollingfs.runtime.values import value_class
from rollingfs.segment.commit.header_cache import Headers
from rollingfs.segment.commit.index_pages import Pages
from rollingfs.segment.commit.turns import Slots

logger = logging.getLogger("rollingfs")
T = TypeVar("T")
RESERVES_MAX = 16
"""Reserves that a call gives up; what a call removes on its way may make a reserve again."""


@value_class
class Store:
    """The store that a client works on."""

    backend: Backend
    runtime: Runtime
    headers: Headers
    pages: Pages
    verdicts: Verdicts
    slots: Slots
    meters: Meters
    clock: Clock

    def now_ms(self) -> int:
        """Return the wall clock, milliseconds since 1970."""
        return round(self.clock() * 1000)

    async def now_s(self, path: str) -> float:
        """Return the time of all clients that work at `path`, in seconds since 1970: the store's, if it has a clock.

        Elsewhere (on a disk, in memory) it is the clock that the caller gave, or else the clock that dates files.
        """
        if not self.backend.capability.has_clock and self.clock is not time.time:
            return self.clock()
        return await self.backend.now(path) or self.clock()

    async def each(self, calls: Iterable[Callable[[], Awaitable[T]]]) -> list[T]:
        """Make calls of a few small requests, as many at once as the store takes.

        After an error no other call begins. The calls that have begun end before the error is raised: a commit must
        not take place after a caller has seen that it failed.
        """
        calls = list(calls)
        if len(calls) < 2 or not self.runtime.is_async:
            return [await call() for call in calls]
        errors: list[Exception] = []

        async def one(call: Callable[[], Awaitable[T]]) -> list[T]:
            if errors:
                return []
            try:
                return [await call()]
            except Exception as error:  # noqa: BLE001 - raised below
                errors.append(error)
                return []

        limit = self.backend.capability.small_requests_max or self.backend.capability.requests_max
        results = await self.runtime.gather([partial(one, call) for call in calls], limit)
        if errors:
            raise errors[0]
        return [result for found in results for result in found]

    async def with_room(self, path: str, call: Callable[[], Awaitable[T]]) -> T:
        """Make a call that frees space, and again once the store has given up what it keeps for the time it is full."""
        given_up = 0
        while True:
            try:
                return await call()
            except OSError as error:
                may_retry = error.errno in FULL and given_up < RESERVES_MAX
                if not may_retry or not await self.backend.make_room(path):
                    raise
                given_up += 1
                logger.info("%s: the store is full, and gives up a reserve: %s", path, error)

    async def abilities(self, path: str) -> Abilities:
        """Return the abilities of the store at a path: probed once for each root, before the first write.

        Raises
        ------
        UnsafeBackendError
            It cannot create or replace atomically.
        OSError
            It failed before it could be judged.
        """
        try:
            return await self.verdicts.abilities(path)
        except OSError as error:
            raise error if isinstance(error, TELLING) else not_committed(error, path) from error

    def after_fork(self) -> None:
        """Begin again in a child process, with own connections and unlocked caches."""
        self.backend.after_fork()
        self.headers.after_fork()
        self.pages.after_fork()
        self.verdicts.after_fork()
        self.slots.after_fork()
        self.meters.after_fork()
