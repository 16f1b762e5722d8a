"""Many writers of one segment in virtual time: the real client code, on a store whose latencies come from a table.

Nothing waits. An event loop jumps from one timer to the next, and `time.monotonic` is its clock. Each writer is a
`At` of its own, as a process has it. With equal seeds two runs are equal to the last digit. At the end of each run
the history is checked: all appends are there once, whole, in an order that agrees with real time.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import heapq
import itertools
import random
import statistics
import time
import uuid
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

from rollingfs.backend.contract import Backend, Blob
from rollingfs.backend.wrapper import BackendWrapper
from rollingfs.errors import AppendOutcomeUnknown, BadOffsetError, CommitTimeoutError
from rollingfs.format import codec
from rollingfs.format.header import Header
from rollingfs.format.transitions import Guard
from rollingfs.runtime.concurrency import backoff_s
from rollingfs.runtime.interpreter import without_executors
from rollingfs.segment.at import At
from rollingfs.segment.commit import header_cache, turns as turns_module
from tests.support.backends import limit, private_memory
from tests.support.history import Call, check_history
from tests.support.segment_verbs import VERBS, append

PATH = "/segment"
EPOCH_S = 1_700_000_000.0
"""The wall clock, when virtual time begins."""
PUTS = ("create", "replace", "write", "put")
LISTS = ("list", "list_page")
NS = 10**9


@dataclass(frozen=True)
class Latencies:
    """A table of the times that one request takes, in milliseconds; the times to and fro are random."""

    way_ms: float
    """Each request needs this time to arrive; the store then decides."""
    jitter_ms: float = 2.0
    """The mean time that is added to it."""
    write_ms: float = 5.0
    """The mean time from the decision about a PUT to its answer."""
    read_ms: float = 2.0
    """That of a GET."""
    list_ms: float = 6.0
    """That of a LIST."""
    slow_share: float = 0.01
    """This share of the requests takes twice as long to arrive."""

    def to_s(self, chance: random.Random) -> float:
        way_ms = self.way_ms * (2 if chance.random() < self.slow_share else 1)
        return (way_ms + chance.gammavariate(2, self.jitter_ms / 2)) / 1000

    def fro_s(self, verb: str, chance: random.Random) -> float:
        mean_ms = self.list_ms if verb in LISTS else self.write_ms if verb in PUTS else self.read_ms
        return chance.gammavariate(2, mean_ms / 2) / 1000


NEAR, FAR = Latencies(12), Latencies(60)


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
    guarded: int = 0
    """So many of them, the last ones, append at the length that they have just seen, and try until it is so."""
    duration_s: float = 60.0
    """How long they append, in virtual time. Appends of the first tenth are not counted."""
    latencies: Latencies = NEAR

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
    errors: tuple[str, ...] = ()
    """What appends have raised."""

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
        return min(self.counts) / statistics.fmean(self.counts)

    @property
    def counts(self) -> list[int]:
        """The appends of each writer."""
        return [len(mine) for mine in self.latencies_s]


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop that never waits: its clock jumps to the next timer."""

    _scheduled: list[Any]
    _ready: deque[asyncio.Handle]

    def __init__(self) -> None:
        self.now_s = 1000.0
        super().__init__()
        without_executors(self)  # a thread would take its own time

    def time(self) -> float:
        return self.now_s

    def passes(self, seconds: float) -> bool:
        """Let time pass at once if nothing else would happen meanwhile."""
        timers, until_s = self._scheduled, self.now_s + seconds
        if self._ready or (timers and timers[0]._when <= until_s):
            return False
        self.now_s = until_s
        return True

    def _run_once(self) -> None:
        """A round of the loop, without a look at files: there are none."""
        timers, ready = self._scheduled, self._ready
        while timers and timers[0]._cancelled:
            heapq.heappop(timers)._scheduled = False
        if not ready:
            assert timers, "every task waits for another: nothing will ever happen"
            self.now_s = max(self.now_s, timers[0]._when)
        while timers and timers[0]._when <= self.now_s:
            timer = heapq.heappop(timers)
            timer._scheduled = False
            ready.append(timer)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:
                handle._run()


class Distant(BackendWrapper):
    """A store at a distance: a request arrives late, takes effect, and its answer arrives later."""

    def __init__(self, inner: Backend, latencies: Latencies, chance: random.Random) -> None:
        super().__init__(inner)
        self.is_async = True
        limit(self, has_folders=False, conflicts_are_final=False, can_extend=False)
        self.latencies, self.chance = latencies, chance
        self.count = 0
        self.dates_s: dict[str, float] = {}
        """When each file was written, in virtual time; one for all ways to the same store."""

    async def call(self, verb: str, *args: Any) -> Any:
        self.count += 1
        await asyncio.sleep(self.latencies.to_s(self.chance))
        now_s = EPOCH_S + time.monotonic()
        try:
            found = await super().call(verb, *args)
            if verb in PUTS:
                self.dates_s[args[0]] = now_s
            if isinstance(found, Blob):
                return replace(found, modified=self.dates_s[args[0]])
            return now_s if verb == "now" else found
        finally:
            await asyncio.sleep(self.latencies.fro_s(verb, self.chance))


class NoTurns(turns_module.Turns):
    """Plain compare-and-swap: after a lost race a random pause that grows, then another try."""

    def turn_wait_s(self, header: Header | None, *, fresh: bool, prompt: bool = False) -> float | None:
        return None

    def pause_s(self, header: Header | None, losses: int) -> float:
        return backoff_s(losses)


@contextlib.contextmanager
def virtual_time(seed: int) -> Iterator[VirtualLoop]:
    """A loop whose clock is `time.monotonic`, and chance that is the same in every run with this seed.

    So are the ids of writers and files: among equals, names decide.
    """
    loop, ids = VirtualLoop(), random.Random(seed)
    state = random.getstate()
    random.seed(seed)

    def next_id() -> uuid.UUID:
        return uuid.UUID(int=ids.getrandbits(128), version=4)

    parse = functools.lru_cache(maxsize=256)(codec.parse_file)  # pure: a header is parsed once for all its readers
    with (
        mock.patch.object(time, "monotonic", loop.time),
        mock.patch.object(uuid, "uuid4", next_id),
        mock.patch.object(header_cache, "parse_file", parse),
        contextlib.closing(loop),
    ):
        try:
            yield loop
        finally:
            random.setstate(state)


def simulate(load: Load, turns: type[Any] = turns_module.Turns, seed: int = 1) -> Figures:
    """Let the writers append; `turns` is the class by which they take turns."""
    with virtual_time(seed) as loop, mock.patch.object(turns_module, "Turns", turns):
        return loop.run_until_complete(_run(loop, load, random.Random(seed)))


async def _run(loop: VirtualLoop, load: Load, chance: random.Random) -> Figures:
    store = Distant(private_memory(), load.latencies, chance)
    clients = [At.of(store, clock=lambda: EPOCH_S + loop.time()) for _ in range(load.writers)]
    await VERBS["create"](clients[0], PATH, clients[0].inherited.default)
    for client in clients:
        await client.abilities(PATH)
    began_s, count = loop.time(), store.count
    until_s, counted_s = began_s + load.duration_s, began_s + load.duration_s / 10
    latencies_s: list[list[float]] = [[] for _ in clients]
    calls: list[Call] = []

    async def write(writer: int) -> None:
        numbers = itertools.count()
        is_guarded = writer >= load.writers - load.guarded
        await asyncio.sleep(load.next_pause_s(writer, chance))
        while loop.time() < until_s:
            at_s, is_done = loop.time(), False
            while not is_done:
                found = await _append(loop, clients[writer], writer, next(numbers), is_guarded)
                calls.append(found)
                is_done = found.told == "ok" or not is_guarded  # who starves has waited as long as the figures say
            if at_s >= counted_s:
                latencies_s[writer].append(loop.time() - at_s)
            await asyncio.sleep(load.next_pause_s(writer, chance))

    await asyncio.gather(*map(write, range(load.writers)))
    appends, requests = sum(call.told == "ok" for call in calls), store.count - count
    errors = tuple(call.why for call in calls if call.why)
    await _check(clients[0], calls)
    return Figures(tuple(map(tuple, latencies_s)), until_s - counted_s, requests / appends, errors)


async def _append(loop: VirtualLoop, client: At, writer: int, number: int, is_guarded: bool) -> Call:
    """One append, as its caller sees it."""
    began = round(loop.time() * NS)
    expected = None
    if is_guarded:
        header = (await client.headers.load(PATH)).header
        assert header is not None
        expected = header.length
    call = Call(str(writer), number, "append", began, expected=expected)
    told, why, offset = "ok", "", None
    try:
        offset = await append(client, PATH, _data(writer, number), guard=Guard(expected_offset=expected))
    except BadOffsetError:
        told = "failed"  # others were faster
    except CommitTimeoutError as error:
        told, why = "failed", repr(error)
    except AppendOutcomeUnknown as error:
        told, why = "unknown", repr(error)
    return replace(call, ended=round(loop.time() * NS), told=told, value=offset, why=why)


def _data(writer: object, number: int) -> bytes:
    return f"{writer} {number}\n".encode()


async def _check(client: At, calls: list[Call]) -> None:
    """Check what all writers were told against what is there."""
    view = await client.headers.view(PATH, fresh=True)
    data = bytes(await client.fetcher.read(view, 0, view.header.length))
    there, offset = [], 0
    for line in data.splitlines(keepends=True):
        writer, number = line.decode().split()
        there.append((offset, writer, int(number)))
        offset += len(line)
    assert data == b"".join(_data(writer, number) for _, writer, number in there), "bytes that nobody has appended"
    check_history(calls, there)
