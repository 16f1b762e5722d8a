"""Counts of a client's calls: number, outcome, bytes and times; exact.

A short lock guards the counts. `Steps` counts the bytes of one call for its caller.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from time import perf_counter_ns, time
from typing import TypeVar

from rollingfs.errors import ConflictError

T = TypeVar("T")

REQUEST = "request."
"""The prefix of a verb of the backend."""
APPEND, OVERWRITE, READ, COMMIT = "append", "overwrite", "read", "commit"
CONFLICT, UNKNOWN = "conflict", "unknown"
"""Outcomes of commits; these tallies have a count and no time."""

STEP_BITS = 2
STEPS = 1 << STEP_BITS
"""Buckets of times for each power of two; a bucket is 19 % to 25 % wide."""
NS_MIN = STEPS
BUCKETS = 64 * STEPS
REFUSALS = (FileNotFoundError, FileExistsError, ConflictError)
"""Refusals of a store: missing file or failed precondition."""


def bounds_ns(index: int) -> tuple[int, int]:
    """Return the nanoseconds from which on and before which a bucket counts."""
    power, step = index >> STEP_BITS, index & (STEPS - 1)
    unit = 1 << max(0, power - STEP_BITS - 1)
    return (STEPS + step) * unit, (STEPS + step + 1) * unit


class Tally:
    """Counts of a kind of call."""

    __slots__ = ("buckets", "bytes", "errors", "ns", "refusals")

    def __init__(self) -> None:
        self.buckets = [0] * BUCKETS
        """The number of calls by the time that they took; their sum is the number of all calls."""
        self.ns = 0
        """The sum of these times, in nanoseconds."""
        self.bytes = 0
        """Bytes that the calls took or returned."""
        self.refusals = 0
        """Calls that the store refused (`REFUSALS`)."""
        self.errors = 0
        """The calls that failed otherwise, or were broken off."""

    @property
    def count(self) -> int:
        return sum(self.buckets)

    def copy(self) -> Tally:
        """Return the counts as they are now."""
        found = Tally()
        found.buckets = self.buckets[:]
        found.ns, found.bytes, found.refusals, found.errors = self.ns, self.bytes, self.refusals, self.errors
        return found


class Meters:
    """The tallies of a client, by name: `REQUEST` and a verb of the backend, or a name of this module."""

    def __init__(self) -> None:
        self.after_fork()

    def after_fork(self) -> None:
        """Reset counts and lock in a child process, which is another client."""
        self.since_s = time()
        self._tallies: dict[str, Tally] = {}
        self._lock = threading.RLock()  # a signal handler may count, or ask, while its thread has it

    def count(self, name: str, began_ns: int, size: int = 0, *, refusals: int = 0, errors: int = 0) -> None:
        """Count a call that has ended, and its bytes; `began_ns` is `perf_counter_ns` before it."""
        ns = perf_counter_ns() - began_ns
        if ns < NS_MIN:
            ns = NS_MIN
        power = ns.bit_length()
        index = (power << STEP_BITS) | ((ns >> (power - STEP_BITS - 1)) & (STEPS - 1))
        with self._lock:
            tally = self._tallies.get(name) or self._tallies.setdefault(name, Tally())  # garbage collection may count
            tally.buckets[index] += 1
            tally.ns += ns
            tally.bytes += size
            tally.refusals += refusals
            tally.errors += errors

    def failed(self, name: str, began_ns: int, error: BaseException) -> None:
        """Count a call that has raised an error."""
        is_refused = isinstance(error, REFUSALS)
        self.count(name, began_ns, refusals=is_refused, errors=not is_refused)

    def note(self, name: str) -> None:
        """Count something that takes no time."""
        self.count(name, perf_counter_ns())

    async def measure(self, name: str, call: Awaitable[T], size: int = 0) -> T:
        """Await a call, and count it: with `size` bytes, if it returns."""
        began_ns = perf_counter_ns()
        try:
            found = await call
        except BaseException as error:
            self.failed(name, began_ns, error)
            raise
        self.count(name, began_ns, size)
        return found

    def total(self) -> dict[str, Tally]:
        """Return the counts so far, by name."""
        with self._lock:
            return {name: tally.copy() for name, tally in self._tallies.copy().items()}


Progress = Callable[[int], None]
"""Takes the number of bytes that were done since the last call, on the thread or loop of the core."""


class Steps:
    """Counts the bytes that are done. It reports each byte once, although some may be done twice.

    Parameters
    ----------
    total : int
        The number of all bytes.
    progress : Progress or None
        Takes each number of further bytes.
    """

    def __init__(self, total: int, progress: Progress | None) -> None:
        self.total = total
        self.done = 0
        self._progress = progress

    def add(self, count: int) -> None:
        """Count more bytes."""
        count = min(count, self.total - self.done)
        if count > 0:
            self.done += count
            if self._progress is not None:
                self._progress(count)

    def reach(self, done: int) -> None:
        """Count up to this number of bytes in all."""
        self.add(done - self.done)
