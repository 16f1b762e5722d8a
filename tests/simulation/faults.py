"""One machine's way to the store: each call takes time, and may fail in every way in which stores and machines fail."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import math
import random
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from rollingfs.format.header import AGE_S_MAX, GRACE_S
from rollingfs.format.names import CHUNKS_SUFFIX, PROBE_PREFIX
from tests.simulation import model
from tests.simulation.history import running
from tests.simulation.store import Store
from tests.support.faults import CHANGING, CONDITIONAL, Crashed, Fault, FaultyBackend
from tests.support.simulation import VirtualLoop

if TYPE_CHECKING:
    from tests.simulation.lies import Lies

WAY_S_MAX = 0.02
LATE_S_MAX = GRACE_S - AGE_S_MAX - 60.0
"""The protocol assumes that no request lands later than G - D after it was sent."""
WHOLE = frozenset({"remove_whole", "move_whole"})
FOLDERS = frozenset({"make_folder", "remove_folder"})


SELDOM = (Fault.NAP, Fault.COMA, Fault.CRASH_BEFORE, Fault.CRASH_AFTER)
SELDOM_SHARE = 0.06
READING = (Fault.BEFORE, Fault.LOST, Fault.THROTTLED, Fault.REFUSED)
WRITING = (Fault.BEFORE, Fault.AFTER, Fault.AFTER, Fault.LOST, Fault.LOST, Fault.FULL, Fault.THROTTLED, Fault.REFUSED)
DENIED_SHARE = 0.8
"""Of the failed looks of a store that denies files."""
DENIABLE = frozenset({"read", "read_if_changed", "stat"})
SHOWING = frozenset({model.look, model.read, model.part, model.whole, model.copy, model.by_steps})
"""Operations that may show what a denied header hides."""
REMOTE = (Fault.LATE, Fault.LATE, Fault.HOURS, Fault.DOUBLED, Fault.DOUBLED)


def fault_of(chance: random.Random, verb: str, args: tuple[Any, ...], *, is_disk: bool) -> Fault:
    """A fault that a call of this verb can meet."""
    if chance.random() < SELDOM_SHARE:
        return chance.choice(SELDOM)
    if verb == "flush":
        return chance.choice((Fault.BEFORE, Fault.UNFLUSHED, Fault.UNFLUSHED))
    if verb in WHOLE:
        return chance.choice((Fault.BEFORE, Fault.REFUSED, *[Fault.PARTLY] * (len(args[0]) > 1)))
    if verb not in CHANGING - FOLDERS:
        return chance.choice(READING)
    found = [*WRITING]
    if not is_disk:
        found += REMOTE
        if verb in CONDITIONAL - {"delete_if"}:
            found += [Fault.CONFLICT, Fault.CONFLICT, Fault.CONFLICT, Fault.BUSY]
    if verb == "extend":
        found += [Fault.UNFLUSHED, Fault.TORN] * 4
    if verb == "copy" and CHUNKS_SUFFIX in args[0]:  # an adoption trusts the store's copy
        found += [Fault.DAMAGED] * len(found)
    if verb == "delete" and len(args[0]) > 1:
        found += [Fault.PARTLY] * 4
    return chance.choice(found)


async def _pass(seconds: float) -> None:
    """Let time pass, and others go on if there are any."""
    loop = asyncio.get_running_loop()
    if not (isinstance(loop, VirtualLoop) and loop.passes(seconds)):
        await asyncio.sleep(seconds)


class Way(FaultyBackend):
    """A machine's way to the store, until the process dies.

    Attributes
    ----------
    chances
        The chance of the operation that runs, and the share of its calls that fail.
    """

    chances: contextvars.ContextVar[tuple[random.Random, float]] = contextvars.ContextVar("chances")

    def __init__(self, store: Store, chance: random.Random, met: Counter[Fault], *, is_async: bool) -> None:
        super().__init__(store)
        self.is_async = is_async
        self.store, self.met, self._own = store, met, chance
        self.is_dead, self.died_s = False, math.inf
        self.refused_s = -math.inf
        """When the store has refused a call last."""
        self.calls: Counter[str] = Counter()
        self.pending = 0
        self.lies: Lies | None = None
        """If the store lets two win."""
        self.denials: random.Random | None = None
        """If a look may not find a file that is there."""
        self.planned: list[Fault | None] = []
        """The faults of the next calls, before any is drawn."""
        self.late: set[asyncio.Task[None]] = set()

    async def call(self, verb: str, *args: Any) -> Any:
        if self.is_dead:
            raise Crashed(verb)
        self.calls[verb] += 1
        self.pending += 1
        try:
            return await self._arrive(verb, args)
        finally:
            self.pending -= 1

    async def _arrive(self, verb: str, args: tuple[Any, ...]) -> Any:
        chance, share = self.chances.get((self._own, 0.0))
        fault = self.planned.pop(0) if self.planned else None
        if fault is None and share and chance.random() < share and f"/{PROBE_PREFIX}" not in str(args[:1]):
            fault = self._denied(fault_of(chance, verb, args, is_disk=self.store.is_disk), verb)
            self.met[fault] += 1
        way_s = chance.random() * WAY_S_MAX
        if fault in (Fault.NAP, Fault.COMA):
            way_s, fault = (AGE_S_MAX + 1.0 if fault is Fault.NAP else GRACE_S + AGE_S_MAX), None
        await _pass(way_s)
        if self.is_dead:
            raise Crashed(verb)
        if self.lies is not None and fault is None:
            self.lies.make_way(self, verb, args)
        answer = await (self.reach(verb, *args) if fault is None else self.failed(fault, verb, args))
        if chance.random() < 0.4:
            await _pass(chance.random() * WAY_S_MAX)
        if self.is_dead:
            raise Crashed(verb)
        return answer

    def _denied(self, fault: Fault, verb: str) -> Fault:
        """The fault itself, or a denial instead."""
        doing = running.get()
        if self.denials is None or fault not in READING or verb not in DENIABLE or doing is None:
            return fault
        if doing.is_of_face or doing.call.verb in SHOWING or self.denials.random() >= DENIED_SHARE:
            return fault
        doing.is_denied = True
        return Fault.DENIED

    def _fail_before(self, fault: Fault, verb: str, what: str) -> None:
        if fault is Fault.REFUSED:
            self.refused_s = asyncio.get_running_loop().time()
        super()._fail_before(fault, verb, what)

    def die(self) -> None:
        """The process is gone."""
        self.is_dead, self.died_s = True, asyncio.get_running_loop().time()

    def was_dead(self, at_s: float) -> bool:
        """Whether the process was gone at a time."""
        return self.died_s < at_s

    def _die(self, what: str) -> NoReturn:
        self.die()
        raise Crashed(what)

    @property
    def _chance(self) -> random.Random:
        return self.chances.get((self._own, 0.0))[0]

    async def _tear(self, args: Sequence[Any]) -> None:
        path, data, token, *_ = args
        content = self.store.content(path)
        if content is not None and (await self.store.stat(path)).token == token:
            self.store._put(path, content + data[: self._chance.randrange(1, len(data))])

    def _damage(self, path: str) -> None:
        content = self.store.content(path)
        if content:
            place = self._chance.randrange(len(content))
            flipped = bytes([content[place] ^ 1])
            self.store.put_silently(path, content[:place] + flipped + content[place + 1 :])

    def _land_later(self, fault: Fault, verb: str, args: Sequence[Any]) -> None:
        within_s = {Fault.LATE: 5.0, Fault.HOURS: LATE_S_MAX}.get(fault)
        if within_s is None:
            within_s = self._chance.choice((0.0, 0.05, 5.0, LATE_S_MAX))
        seconds = within_s * self._chance.random()

        async def land() -> None:
            await asyncio.sleep(seconds)
            with contextlib.suppress(OSError, ValueError):  # nobody waits for its answer
                await self.reach(verb, *args)

        task = asyncio.ensure_future(land())
        self.late.add(task)
        task.add_done_callback(self.late.discard)
