"""Many writers of one segment in virtual time: the real client code, on a store whose latencies come from a table.

Nothing waits. An event loop jumps from one timer to the next, and `time.monotonic` is its clock. Each writer is a
`Client` of its own, as a process has it. With equal seeds two runs are equal to the last digit.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import random
import selectors
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

from rollingfs.backend.contract import Backend, Blob
from rollingfs.backend.wrapper import BackendWrapper
from rollingfs.client import Client
from rollingfs.commit import fairness, header_cache
from rollingfs.errors import CommitTimeoutError
from rollingfs.format import codec
from tests.support.backends import private_memory

PATH = "/segment"
DATA = b"0123456789"
EPOCH_S = 1_700_000_000.0
"""The wall clock, when virtual time begins."""


@dataclass(frozen=True)
class Latencies:
    """A table of the times that one request takes, in milliseconds; the times to and fro are random."""

    way_ms: float
    """Each request needs this time to arrive; the store then decides."""
    jitter_ms: float = 2.0
    """The mean time that is added to it."""
    write_ms: float = 5.0
    """The mean time from the decision about a write to its answer."""
    read_ms: float = 2.0
    slow_share: float = 0.01
    """This share of the requests takes twice as long to arrive."""

    def to_s(self, chance: random.Random) -> float:
        way_ms = self.way_ms * (2 if chance.random() < self.slow_share else 1)
        return (way_ms + chance.gammavariate(2, self.jitter_ms / 2)) / 1000

    def fro_s(self, verb: str, chance: random.Random) -> float:
        mean_ms = self.write_ms if verb in ("create", "replace") else self.read_ms
        return chance.gammavariate(2, mean_ms / 2) / 1000


@dataclass(frozen=True)
class Load:
    """What the writers do."""

    writers: int
    pause_s: float = 0.0
    """The mean pause of a writer between two appends; 0 if the writers saturate the segment."""
    is_fixed: bool = False
    """Whether all pauses are equal, rather than random (exponential)."""
    busy: int = 0
    """So many of the writers make no pause."""
    duration_s: float = 60.0
    """How long they append, in virtual time. Appends of the first tenth are not counted."""
    latencies: Latencies = Latencies(12)

    def next_pause_s(self, writer: int, chance: random.Random) -> float:
        if not self.pause_s or writer < self.busy:
            return 0.0
        return self.pause_s if self.is_fixed else chance.expovariate(1 / self.pause_s)


@dataclass(frozen=True)
class Figures:
    """What a run, or some writers of a run, show."""

    latencies_s: tuple[tuple[float, ...], ...]
    """Of every append, by writer."""
    seconds: float
    requests: float
    """For each append of the run."""

    def of(self, writers: slice) -> Figures:
        """Those of some writers."""
        return replace(self, latencies_s=self.latencies_s[writers])

    @property
    def every_s(self) -> list[float]:
        return [latency_s for mine in self.latencies_s for latency_s in mine]

    @property
    def rate_per_s(self) -> float:
        return len(self.every_s) / self.seconds

    @property
    def median_ms(self) -> float:
        return statistics.median(self.every_s) * 1000

    @property
    def p99_ms(self) -> float:
        return statistics.quantiles(self.every_s, n=100, method="inclusive")[98] * 1000

    @property
    def max_ms(self) -> float:
        return max(self.every_s) * 1000

    @property
    def least_share(self) -> float:
        """The appends of the writer that has the fewest, over the mean of all writers."""
        counts = [len(mine) for mine in self.latencies_s]
        return min(counts) / statistics.fmean(counts)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop that never waits: its clock jumps to the next timer."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        super().__init__(_NoSelector(self))

    def time(self) -> float:
        return self.now_s


class _NoSelector(selectors.SelectSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[Any]:
        assert timeout is not None, "every task waits for another: nothing will ever happen"
        self._loop.now_s += max(timeout, 0)
        return []


class Distant(BackendWrapper):
    """A store at a distance: a request arrives late, takes effect, and its answer arrives later."""

    def __init__(self, inner: Backend, latencies: Latencies, chance: random.Random) -> None:
        super().__init__(inner)
        self.is_async, self.has_folders, self.conflicts_are_final = True, False, False
        self.latencies, self.chance = latencies, chance
        self.count = 0
        self.dates_s: dict[str, float] = {}
        """When each file was written, in virtual time."""

    async def call(self, verb: str, *args: Any) -> Any:
        self.count += 1
        await asyncio.sleep(self.latencies.to_s(self.chance))
        now_s = EPOCH_S + time.monotonic()
        try:
            found = await super().call(verb, *args)
            if verb in ("create", "replace", "write", "put"):
                self.dates_s[args[0]] = now_s
            if isinstance(found, Blob):
                return replace(found, modified=self.dates_s[args[0]])
            return now_s if verb == "now" else found
        finally:
            await asyncio.sleep(self.latencies.fro_s(verb, self.chance))


@contextlib.contextmanager
def virtual_time(seed: int) -> Iterator[VirtualLoop]:
    """A loop whose clock is `time.monotonic`, and chance that is the same in every run with this seed."""
    loop = VirtualLoop()
    state = random.getstate()
    random.seed(seed)
    parse = functools.lru_cache(maxsize=256)(codec.parse_header)  # pure: a header is parsed once for all its readers
    with (
        mock.patch.object(time, "monotonic", loop.time),
        mock.patch.object(header_cache, "parse_header", parse),
        contextlib.closing(loop),
    ):
        try:
            yield loop
        finally:
            random.setstate(state)


def simulate(load: Load, turns: type[Any] = fairness.Turns, seed: int = 1) -> Figures:
    """Let the writers append; `turns` is the class by which they take turns."""
    with virtual_time(seed) as loop, mock.patch.object(fairness, "Turns", turns):
        return loop.run_until_complete(_run(loop, load, random.Random(seed)))


async def _run(loop: VirtualLoop, load: Load, chance: random.Random) -> Figures:
    store = Distant(private_memory(), load.latencies, chance)
    clients = [Client(store, clock=lambda: EPOCH_S + loop.time()) for _ in range(load.writers)]
    await clients[0].segments.create(PATH)
    for client in clients:
        await client.store.abilities(PATH)
    began_s, count = loop.time(), store.count
    until_s, counted_s = began_s + load.duration_s, began_s + load.duration_s / 10
    latencies_s: list[list[float]] = [[] for _ in clients]
    appends = 0

    async def write(writer: int) -> None:
        nonlocal appends
        await asyncio.sleep(load.next_pause_s(writer, chance))
        while loop.time() < until_s:
            at_s = loop.time()
            with contextlib.suppress(CommitTimeoutError):  # who starves has waited for as long as the figures say
                await clients[writer].segments.append(PATH, DATA)
            appends += 1
            if at_s >= counted_s:
                latencies_s[writer].append(loop.time() - at_s)
            await asyncio.sleep(load.next_pause_s(writer, chance))

    await asyncio.gather(*map(write, range(load.writers)))
    return Figures(tuple(map(tuple, latencies_s)), until_s - counted_s, (store.count - count) / appends)
