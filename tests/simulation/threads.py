"""The thread side without threads: each lock and each call of the store is a place where another thread may go on."""

import asyncio
import random
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")

SWITCH_S_MAX = 0.002
PAUSE_GROWTH = 1.3


class SimulatedLock:
    """A lock that goes to any of those who wait for it."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._is_held = False
        self._waiting: list[asyncio.Future[None]] = []

    async def run(self, call: Callable[[], Awaitable[T]]) -> T:
        await asyncio.sleep(self._chance.random() * SWITCH_S_MAX)
        while self._is_held:
            place = asyncio.get_running_loop().create_future()
            self._waiting.append(place)
            await place
        self._is_held = True
        try:
            return await call()
        finally:
            self._is_held = False
            if self._waiting:
                self._waiting.pop(self._chance.randrange(len(self._waiting))).set_result(None)


class SimulatedThreads:
    """Stands in for `SyncRuntime`: the coroutines of the thread side suspend where a thread would block."""

    is_async = False

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def lock(self, name: str) -> SimulatedLock:
        return SimulatedLock(self._chance)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def wait(self, gate: threading.Lock, seconds: float) -> None:
        loop, pause_s = asyncio.get_running_loop(), SWITCH_S_MAX
        until_s = loop.time() + seconds
        while not gate.acquire(blocking=False) and loop.time() < until_s:
            await asyncio.sleep(self._chance.random() * pause_s)
            pause_s *= PAUSE_GROWTH  # a look is cheap for a thread, and not here

    async def in_thread(self, call: Callable[[], T]) -> T:
        return call()

    async def gather(self, calls: Iterable[Callable[[], Awaitable[T]]], limit: int) -> list[T]:
        return [await call() for call in calls]

    async def shield(self, call: Coroutine[Any, Any, T]) -> T:
        return await call

    async def limit(self, call: Awaitable[T], seconds: float) -> T:
        return await call
