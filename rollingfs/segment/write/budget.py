"""The memory that all open writers and appends of a client hold together: counted, and bounded.

1. A caller that wants to hold more bytes asks for room. While there is room, it gets room at once.
2. At the bound, the first caller makes the file with the most pending bytes, perhaps its own, write them as a chunk.
   The others write their own as chunks, and wait after it.
3. If all bytes are on their way already, it waits until some have arrived.
4. A part is reserved for a caller without bytes. So some caller always goes on.

A short `bytes` that is appended does not count: its caller holds it already.
"""

from __future__ import annotations

import abc
import logging
import threading
import time
import weakref
from collections import deque
from collections.abc import Awaitable, Callable

from rollingfs.policy import parse_bytes
from rollingfs.runtime.concurrency import Runtime

logger = logging.getLogger("rollingfs")

PART_BYTES = 4 * 1024 * 1024
"""Maximum bytes of a request for room; the same number is reserved for a caller without bytes."""
WRITE_MEMORY_BYTES_MIN = 2 * PART_BYTES
WRITE_MEMORY_BYTES_DEFAULT = 256 * 1024 * 1024
STEP_S = 0.005
"""A pause between two looks for room."""
PATIENCE_S = 30.0
"""Longest wait for room. Then a caller exceeds the bound, because the others may wait for its bytes."""


def check_write_memory(given: int | str) -> int:
    """Return the bound that a user asks for, in bytes.

    Raises
    ------
    ValueError
        It is too little, or no number of bytes.
    """
    size = parse_bytes(given)
    if size < WRITE_MEMORY_BYTES_MIN:
        raise ValueError(f"max_write_memory is {given!r}: it must be at least {WRITE_MEMORY_BYTES_MIN} bytes")
    return size


class Spillable(abc.ABC):
    """An open file, whose pending bytes another writer may write as a chunk while its owner does not use it."""

    @property
    @abc.abstractmethod
    def held_bytes(self) -> int:
        """Bytes that it holds in memory."""

    @abc.abstractmethod
    async def spill_if_idle(self) -> bool:
        """Write the pending bytes as a chunk; False if its owner is using it. Its owner hears of errors."""


class Share:
    """The bytes that a writer holds. They go back to the budget when the share is collected."""

    __slots__ = ("__weakref__", "_budget", "count", "freed")

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self.freed = budget.freed
        """The budget of the process in which it was made."""
        self.count = 0

    def try_take(self, size: int) -> bool:
        """Hold more bytes, if there is room and no waiter."""
        return self._budget.grant(self, size, is_first=False)

    async def take(self, size: int, spill: Callable[[], Awaitable[None]]) -> None:
        """Hold more bytes, at most `PART_BYTES`, once there is room.

        Parameters
        ----------
        spill
            Writes all that this writer holds as a chunk, and gives it back.
        """
        if not self.try_take(size):
            await self._budget.wait(self, size, spill)

    def set(self, count: int) -> None:
        """Set the number of bytes that are held now."""
        self._budget.change(self, count)

    def close(self) -> None:
        """Release all bytes."""
        self.set(0)

    def __del__(self) -> None:
        if self.count:
            self.freed.append(self.count)  # no lock: garbage collection may come while this thread holds it


class Budget:
    """The bound of a client, and how much of it each caller holds.

    Parameters
    ----------
    bytes_max
        The most that all hold together.
    """

    def __init__(self, runtime: Runtime, bytes_max: int = WRITE_MEMORY_BYTES_DEFAULT) -> None:
        self.bytes_max = bytes_max
        self._runtime = runtime
        self.after_fork()

    def after_fork(self) -> None:
        """Reset waiters, lock and files in a child process."""
        self.used = 0
        self.freed: deque[int] = deque()
        """Bytes of shares that were collected."""
        self._waiting: deque[object] = deque()
        self._extra: weakref.ref[Share] | None = None
        """The share that has the reserved part."""
        self._files: weakref.WeakSet[Spillable] = weakref.WeakSet()
        self._lock = threading.RLock()

    def share(self) -> Share:
        """Return the share of another writer."""
        return Share(self)

    def add(self, file: Spillable) -> None:
        """Take note of an open file, whose bytes may be written before it is closed."""
        with self._lock:
            self._files.add(file)

    def change(self, share: Share, count: int) -> None:
        """Set what a share holds."""
        with self._lock:
            if share.freed is self.freed:
                self.used += count - share.count
            share.count = count

    def grant(self, share: Share, size: int, *, is_first: bool) -> bool:
        """Let a share hold more, if there is room."""
        with self._lock:
            while self.freed:
                self.used -= self.freed.popleft()
            if self._waiting and not is_first:
                return False
            if self.used - self._extra_bytes() + size > self.bytes_max - PART_BYTES:
                return False
            self.change(share, share.count + size)
            return True

    def _extra_bytes(self) -> int:
        """Return the bytes of the reserved part that are in use."""
        holder = self._extra() if self._extra is not None else None
        return min(holder.count, PART_BYTES) if holder is not None else 0

    def _grant_extra(self, share: Share, size: int) -> bool:
        """Give the reserved part to an empty share."""
        with self._lock:
            if share.count or self._extra_bytes():
                return False
            self._extra = weakref.ref(share)
            self.change(share, size)
            return True

    async def wait(self, share: Share, size: int, spill: Callable[[], Awaitable[None]]) -> None:
        """Wait for room, and make some."""
        ticket = object()
        try:
            self._waiting.append(ticket)
            if self._waiting[0] is not ticket:
                await spill()  # a caller that waits behind another holds nothing that the other could wait for
            began_s = time.monotonic()
            while True:
                if self._waiting[0] is ticket:
                    if self.grant(share, size, is_first=True):
                        return
                    if await self._spill_largest(share.count, spill):
                        continue
                    if self._grant_extra(share, size):
                        return
                    if time.monotonic() - began_s > PATIENCE_S:
                        text = "all %d bytes of max_write_memory wait for something: one writer goes on with %d more"
                        logger.warning(text, self.bytes_max, size)
                        self.change(share, share.count + size)
                        return
                await self._runtime.sleep(STEP_S)
        finally:
            # without the lock: Ctrl-C while this waits for it would leave the ticket, and nobody behind it would go on
            if ticket in self._waiting:
                self._waiting.remove(ticket)

    async def _spill_largest(self, own: int, spill: Callable[[], Awaitable[None]]) -> bool:
        """Have the largest pending bytes written; return False if no pending bytes can be written now."""
        with self._lock:
            files = [(file.held_bytes, file) for file in self._files]
        for held, file in sorted(files, key=lambda one: one[0], reverse=True):
            if held <= own or not held:
                break
            # to its end, whatever becomes of the caller: these are the bytes of another
            if await self._runtime.shield(file.spill_if_idle()):
                return True
        if own:
            await spill()
        return bool(own)
