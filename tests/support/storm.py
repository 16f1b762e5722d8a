"""Many writers of one segment on a failing store, in virtual time: who dies, loses answers, or is answered late.

Each storm is a seed. The real client runs, as in `tests/support/simulation.py`. Whatever happens, the history must be
linearizable, what was acknowledged is conserved, and nothing of a dead writer comes to life after a recovery.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any

from rollingfs.backend.contract import Backend
from rollingfs.client import Client
from rollingfs.errors import (
    AppendOutcomeUnknown,
    BadOffsetError,
    CommitTimeoutError,
    ConflictError,
    FencedError,
    RollingError,
    SegmentSealedError,
)
from rollingfs.format.names import PROBE_PREFIX
from rollingfs.format.transitions import Guard
from rollingfs.policy import RollingPolicy
from tests.support.backends import private_memory
from tests.support.faults import Crashed
from tests.support.history import FOREVER, Call, Setsum, check_conserved, check_history
from tests.support.simulation import EPOCH_S, NS, PATH, PUTS, Distant, Latencies, VirtualLoop, virtual_time

TIMEOUT_S = 4.0
"""Of a commit: short, so that some do not end in time."""
LATE_S = 0.4
"""The mean time by which a late request is late."""
SETTLE_S = 60.0
"""After the storm: all late requests have landed."""
POLICY = RollingPolicy(max_bytes=2_000, inline_bytes=500)
CHANGING = PUTS
DEFINITE = (BadOffsetError, FencedError, SegmentSealedError, CommitTimeoutError)


@dataclass(frozen=True)
class Weather:
    """What a storm is made of."""

    writers: int = 6
    shares: float = 0.8
    """The share of the writers that share commits."""
    fault_share: float = 0.04
    """Of all requests."""
    deaths: int = 4
    duration_s: float = 6.0
    guarded: int = 1
    owners: int = 1
    truncates: bool = True
    is_sealed: bool = True
    pause_s: float = 0.02
    way_ms: float = 12


class Windy(Distant):
    """One client's way to the store, until the client dies."""

    def __init__(self, inner: Backend, latencies: Latencies, chance: random.Random, fault_share: float) -> None:
        super().__init__(inner, latencies, chance)
        self.fault_share = fault_share
        self.is_dead = False
        self.met: Counter[str] = Counter()
        self._late: set[asyncio.Task[Any]] = set()

    async def call(self, verb: str, *args: Any) -> Any:
        if self.is_dead:
            raise Crashed(verb)
        try:
            return await self._met(verb, args)
        finally:
            if self.is_dead:  # it died while the request was on its way
                raise Crashed(verb)

    async def _met(self, verb: str, args: tuple[Any, ...]) -> Any:
        if f"/{PROBE_PREFIX}" in str(args[:1]) or self.chance.random() >= self.fault_share:
            return await super().call(verb, *args)
        fault = self.chance.choice(("before", "after", "late", "slow", "busy"))
        if verb not in CHANGING and fault in ("late", "busy"):
            fault = "slow"
        self.met[f"{verb} {fault}"] += 1
        if fault == "slow":
            await asyncio.sleep(self.chance.expovariate(1) * LATE_S)
            return await super().call(verb, *args)
        await asyncio.sleep(self.latencies.to_s(self.chance))
        if fault == "after":
            with contextlib.suppress(OSError):
                await super().call(verb, *args)
        elif fault == "late":
            self._late.add(asyncio.ensure_future(self._land(verb, args)))
        elif fault == "busy" and verb == "replace":
            raise ConflictError("injected: a conflict with nobody")
        raise OSError(errno.EIO, f"injected into {verb}: {fault}")

    async def _land(self, verb: str, args: tuple[Any, ...]) -> None:
        await asyncio.sleep(self.chance.expovariate(1) * LATE_S)
        with contextlib.suppress(OSError):
            await super().call(verb, *args)


@dataclass
class Writer:
    """A process."""

    name: str
    client: Client
    backend: Windy
    died: int = FOREVER
    """When, in virtual nanoseconds."""
    count: int = 0


@dataclass
class Storm:
    """One run."""

    loop: VirtualLoop
    weather: Weather
    chance: random.Random
    store: Backend = field(default_factory=private_memory)
    calls: list[Call] = field(default_factory=list)
    writers: dict[str, Writer] = field(default_factory=dict)
    dates_s: dict[str, float] = field(default_factory=dict)
    kept: bytearray = field(default_factory=bytearray)
    """All bytes that a truncate was to cut off, at their offsets."""
    is_over: bool = False

    @property
    def now(self) -> int:
        return round(self.loop.time() * NS)

    def writer(self, kind: str, fault_share: float | None = None) -> Writer:
        """A new process."""
        share = self.weather.fault_share if fault_share is None else fault_share
        backend = Windy(self.store, Latencies(self.weather.way_ms), self.chance, share)
        backend.dates_s = self.dates_s
        shares = kind == "append" and self.chance.random() < self.weather.shares
        options: dict[str, Any] = {"share_commits": True} if shares else {}
        client = Client(
            backend,
            POLICY,
            commit_timeout_s=TIMEOUT_S,
            clock=lambda: EPOCH_S + self.loop.time(),
            **options,
        )
        name = f"{kind}{len(self.writers)}"
        found = self.writers[name] = Writer(name, client, backend)
        return found

    # -- what processes do --------------------------------------------------------------------------------------

    async def call(self, writer: Writer, kind: str, do: Callable[[bytes], Awaitable[Any]], **fields: Any) -> Call:
        """Make a call, and note what its caller was told."""
        number, writer.count = writer.count, writer.count + 1
        nth = len(self.calls)
        call = Call(writer.name, number, kind, self.now, **fields)
        self.calls.append(call)  # as of a caller who dies within it
        told, why, value = "ok", "", None
        try:
            value = await do(record(writer.name, number))
        except AppendOutcomeUnknown as error:
            told, why = "unknown", repr(error)
        except (*DEFINITE, OSError) as error:
            if isinstance(error, RollingError) and not isinstance(error, DEFINITE):
                raise
            told, why = "failed", type(error).__name__
        if writer.backend.is_dead:
            raise Crashed(writer.name)  # nobody was told anything
        place = value if isinstance(value, int) else None
        self.calls[nth] = replace(call, ended=self.now, told=told, why=why, value=place)
        return self.calls[nth]

    async def append(self, writer: Writer) -> None:
        while not self.is_over:
            done = await self.call(writer, "append", lambda data: writer.client.segments.append(PATH, data))
            if done.why == "SegmentSealedError":
                return
            await asyncio.sleep(self.chance.expovariate(1) * self.weather.pause_s)

    async def guard(self, writer: Writer) -> None:
        while not self.is_over:
            try:
                header = (await writer.client.headers.load(PATH)).header
            except (OSError, TimeoutError):
                continue
            assert header is not None
            await self.guarded(writer, Guard(expected_offset=header.length))
            await asyncio.sleep(self.chance.expovariate(1) * self.weather.pause_s * 5)

    async def guarded(self, writer: Writer, guard: Guard) -> Call:
        """An append that is a recovery: before it began, it saw who was dead."""
        return await self.call(
            writer,
            "append",
            lambda data: writer.client.segments.append(PATH, data, guard=guard),
            expected=guard.expected_offset,
        )

    async def own(self, writer: Writer) -> None:
        """Become the owner, append twice, let go."""
        while not (self.is_over or writer.backend.is_dead):
            await asyncio.sleep(self.chance.expovariate(1))
            try:
                header = await writer.client.segments.acquire(PATH, writer.name)
            except OSError:
                continue
            for _ in range(2):
                await self.guarded(writer, Guard(epoch=header.epoch))
            with contextlib.suppress(OSError):
                await writer.client.segments.release(PATH, Guard(epoch=header.epoch))

    async def truncate(self, writer: Writer) -> None:
        """Keep the bytes, then cut them off."""
        while not (self.is_over or writer.backend.is_dead):
            await asyncio.sleep(self.chance.expovariate(1))
            with contextlib.suppress(OSError):
                start, data = await content(writer.client)
                self.kept[start : start + len(data)] = data
                await writer.client.segments.truncate(PATH, start + len(data) // 2)

    # -- the run ------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        first = self.writer("first", 0.0)
        await first.client.segments.create(PATH)
        roles = {"guard": self.weather.guarded, "own": self.weather.owners, "truncate": int(self.weather.truncates)}
        tasks = [self._live("append") for _ in range(self.weather.writers)]
        tasks += [self._live(role) for role, count in roles.items() for _ in range(count)]
        killing = asyncio.ensure_future(self._kill(tasks))
        await asyncio.sleep(self.weather.duration_s)
        await killing
        await self._free(first)
        if self.weather.is_sealed:
            await self.call(first, "seal", lambda _: first.client.segments.seal(PATH))
        self.is_over = True
        for task in tasks:
            with contextlib.suppress(Crashed):
                await task
        await asyncio.sleep(SETTLE_S)
        await self.check(first.client)

    def _live(self, role: str) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.ensure_future(getattr(self, role)(self.writer(role)))
        return task

    async def _kill(self, tasks: list[asyncio.Task[None]]) -> None:
        """Let some die at any moment, each replaced by another."""
        for _ in range(self.weather.deaths):
            await asyncio.sleep(self.chance.random() * self.weather.duration_s / self.weather.deaths)
            living = [one for one in self.writers.values() if one.died == FOREVER and not one.name.startswith("first")]
            victim = self.chance.choice(living)
            victim.backend.is_dead, victim.died = True, self.now
            tasks.append(self._live(victim.name.rstrip("0123456789")))

    async def _free(self, writer: Writer) -> None:
        """Nobody holds the segment any more: a dead owner may have."""
        self.is_over = True  # no owner comes after this
        while True:
            header = await writer.client.segments.acquire(PATH, "nobody")
            with contextlib.suppress(FencedError):  # an owner was under way: it fences us, and lets go by itself
                await writer.client.segments.release(PATH, Guard(epoch=header.epoch))
                break
        self.is_over = not self.weather.is_sealed

    # -- the end ------------------------------------------------------------------------------------------------

    async def check(self, client: Client) -> None:
        """Check what all were told against what is there."""
        start, live = await content(client)
        gone = bytes(self.kept[:start])
        assert len(gone) == start, "more was truncated than anybody cut off"
        there, offset = [], 0
        for line in (gone + live).splitlines(keepends=True):
            name, number, *_ = line.decode().split()
            assert line == record(name, int(number)), f"a torn record at {offset}: {line!r}"
            there.append((offset, name, int(number)))
            offset += len(line)
        check_history(self.calls, there)
        names = {(name, number) for _, name, number in there}
        appends = [call for call in self.calls if call.kind == "append"]
        acked = Setsum.of(record(*call.name) for call in appends if call.told == "ok")
        unknown = Setsum.of(record(*call.name) for call in appends if call.told == "unknown" and call.name in names)
        check_conserved(acked, unknown, Setsum.of((gone + live).splitlines(keepends=True)), Setsum())
        self._check_recoveries(appends, there)

    def _check_recoveries(self, appends: list[Call], there: list[tuple[int, str, int]]) -> None:
        """After a guarded append, or one of an owner, nothing of those comes to life who were dead before it began."""
        places = {(name, number): offset for offset, name, number in there}
        recoveries = [call for call in appends if call.told == "ok" and call.writer.startswith(("guard", "own"))]
        for call in appends:
            died, place = self.writers[call.writer].died, places.get(call.name)
            if place is None or died == FOREVER or call.told != "unknown":
                continue
            for recovery in recoveries:
                assert recovery.value is not None
                is_ghost = recovery.began > died and place > recovery.value
                assert not is_ghost, f"{call} came to life after {recovery}, its writer had died at {died}"


def record(name: str, number: int) -> bytes:
    """Lines of several lengths."""
    return f"{name} {number} {'x' * (hash((len(name), number)) % 90)}\n".encode()


async def content(client: Client) -> tuple[int, bytes]:
    """The start, and all retained bytes."""
    view = await client.lookup.view(PATH, fresh=True)
    start, end = view.header.start, view.header.length
    return start, bytes(await client.fetcher.read(view, start, end))


def rage(seed: int, weather: Weather) -> Storm:
    """Run one storm and check it."""
    with virtual_time(seed) as loop:
        storm = Storm(loop, weather, random.Random(seed))
        try:
            loop.run_until_complete(storm.run())
        except BaseException as error:
            error.add_note(f"in the storm of seed {seed}: {weather}")
            raise
        return storm
