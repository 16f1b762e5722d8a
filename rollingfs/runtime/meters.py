"""Counts of a client's calls: number, outcome, bytes and times; exact, and without a lock.

Every thread counts into its own tallies, and a reader adds them up. No statement that counts has a call in it,
so neither a signal nor garbage collection comes in between. No coroutine awaits between two of them, so coroutines of
one event loop, which share its thread, do not disturb each other. `Steps` counts the bytes of one call for its caller.
"""

from __future__ import annotations

import itertools
import threading
from collections import defaultdict, deque
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
LEFT_MAX = 64
"""Ended threads whose counts the next new thread adds up at once."""


def bounds_ns(index: int) -> tuple[int, int]:
    """Return the nanoseconds from which on and before which a bucket counts."""
    power, step = index >> STEP_BITS, index & (STEPS - 1)
    unit = 1 << max(0, power - STEP_BITS - 1)
    return (STEPS + step) * unit, (STEPS + step + 1) * unit


class Tally:
    """Counts of a thread for a kind of call, or the sum over threads."""

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

    def add(self, other: Tally) -> None:
        """Add what another tally has."""
        self.buckets = [mine + its for mine, its in zip(self.buckets, other.buckets, strict=True)]
        self.ns += other.ns
        self.bytes += other.bytes
        self.refusals += other.refusals
        self.errors += other.errors


Tallies = defaultdict[str, Tally]
"""The tallies of a thread, by name."""


class _Leaver:
    """Value that dies with its thread, and reports that."""

    def __init__(self, number: int, left: deque[int]) -> None:
        self._number = number
        self._left = left

    def __del__(self) -> None:
        self._left.append(self._number)


class Meters:
    """The tallies of a client, by name: `REQUEST` and a verb of the backend, or a name of this module."""

    def __init__(self) -> None:
        self.after_fork()

    def after_fork(self) -> None:
        """Reset counts and lock in a child process, which is another client."""
        self.since_s = time()
        self._mine = threading.local()
        self._numbers = itertools.count()
        self._threads: dict[int, Tallies] = {}
        self._left: deque[int] = deque()
        """Threads that have ended."""
        self._of_ended: Tallies = defaultdict(Tally)
        """Tallies of threads that count now."""
        self._lock = threading.RLock()  # a signal handler may ask while its thread has it
        self._is_clearing = False

    # -- counting ------------------------------------------------------------------------------------------

    def count(self, name: str, began_ns: int, size: int = 0) -> Tally:
        """Count a call that has ended, and its bytes; `began_ns` is `perf_counter_ns` before it."""
        ns = perf_counter_ns() - began_ns
        try:
            tally: Tally = self._mine.tallies[name]
        except AttributeError:
            tally = self._join()[name]
        if ns < NS_MIN:
            ns = NS_MIN
        power = ns.bit_length()
        index = (power << STEP_BITS) | ((ns >> (power - STEP_BITS - 1)) & (STEPS - 1))
        tally.buckets[index] += 1
        tally.ns += ns
        tally.bytes += size
        return tally

    def failed(self, name: str, began_ns: int, error: BaseException) -> None:
        """Count a call that has raised an error."""
        tally = self.count(name, began_ns)
        if isinstance(error, REFUSALS):
            tally.refusals += 1
        else:
            tally.errors += 1

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

    def _join(self) -> Tallies:
        """Return the tallies of a thread that counts for the first time."""
        number = next(self._numbers)
        tallies = self._threads[number] = defaultdict(Tally)
        self._mine.tallies, self._mine.leaver = tallies, _Leaver(number, self._left)
        if len(self._left) >= LEFT_MAX and self._lock.acquire(blocking=False):
            try:
                self._clear()
            finally:
                self._lock.release()
        return tallies

    # -- asking --------------------------------------------------------------------------------------------

    def total(self) -> dict[str, Tally]:
        """Return the sums over all threads, by name."""
        found: Tallies = defaultdict(Tally)
        with self._lock:
            self._clear()
            for tallies in (self._of_ended, *self._threads.copy().values()):
                _add(found, tallies)
        return dict(found)

    def _clear(self) -> None:
        """Add up what ended threads have left, so that it takes no room; the caller has the lock."""
        if self._is_clearing:
            return
        self._is_clearing = True
        try:
            while self._left:
                _add(self._of_ended, self._threads.pop(self._left.popleft()))
        finally:
            self._is_clearing = False


def _add(total: Tallies, tallies: Tallies) -> None:
    for name, tally in tallies.copy().items():
        total[name].add(tally)


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
