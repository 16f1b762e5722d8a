"""One machine's way to the store: each call takes time, and may fail in every way in which stores and machines fail."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import errno
import math
import random
from collections import Counter
from enum import Enum
from typing import Any

from rollingfs.backend.wrapper import BackendWrapper
from rollingfs.errors import ConflictError, UnflushedError
from rollingfs.format.header import AGE_S_MAX, GRACE_S
from rollingfs.format.names import CHUNKS_SUFFIX, PROBE_PREFIX
from tests.simulation.store import Store

WAY_S_MAX = 0.02
LATE_S_MAX = GRACE_S - AGE_S_MAX - 60.0
"""The protocol assumes that no request lands later than G - D after it was sent."""
CONDITIONAL = frozenset({"create", "replace", "extend", "delete_if"})
WHOLE = frozenset({"remove_whole", "move_whole"})
CHANGING = CONDITIONAL | {"write", "put", "copy", "delete", "upload.finish"}


class Crashed(BaseException):
    """The process that made this call is gone."""


class Fault(Enum):
    """What becomes of one call."""

    BEFORE = "fails, nothing done"
    THROTTLED = "the store asks to slow down, nothing done"
    REFUSED = "refused by the store, nothing done"
    FULL = "the disk is full, nothing done"
    AFTER = "fails, and yet it is done"
    LOST = "no answer, and it is done"
    PARTLY = "fails after the first of several files"
    LATE = "no answer, and it is done within seconds"
    HOURS = "no answer, and it is done hours later"
    DOUBLED = "done, and done once more later"
    CONFLICT = "a conflict with what the call itself has done"
    BUSY = "a conflict with nobody"
    DAMAGED = "the copy has other bytes"
    UNFLUSHED = "a record is written, and its flush fails"
    TORN = "the process dies when half of a record is written"
    NAP = "the process sleeps for longer than D before the call"
    COMA = "the process sleeps for longer than G before the call"
    CRASH_BEFORE = "the process dies, nothing done"
    CRASH_AFTER = "the process dies, it is done"


SELDOM = (Fault.NAP, Fault.COMA, Fault.CRASH_BEFORE, Fault.CRASH_AFTER)
SELDOM_SHARE = 0.06
READING = (Fault.BEFORE, Fault.LOST, Fault.THROTTLED, Fault.REFUSED)
WRITING = (Fault.BEFORE, Fault.AFTER, Fault.AFTER, Fault.LOST, Fault.LOST, Fault.FULL, Fault.THROTTLED, Fault.REFUSED)
REMOTE = (Fault.LATE, Fault.LATE, Fault.HOURS, Fault.DOUBLED, Fault.DOUBLED)


def fault_of(chance: random.Random, verb: str, args: tuple[Any, ...], *, is_disk: bool) -> Fault:
    """A fault that a call of this verb can meet."""
    if chance.random() < SELDOM_SHARE:
        return chance.choice(SELDOM)
    if verb == "flush":
        return chance.choice((Fault.BEFORE, Fault.UNFLUSHED, Fault.UNFLUSHED))
    if verb in WHOLE:
        return chance.choice((Fault.BEFORE, Fault.REFUSED, *[Fault.PARTLY] * (len(args[0]) > 1)))
    if verb not in CHANGING:
        return chance.choice(READING)
    found = [*WRITING]
    if not is_disk:
        found += REMOTE
        if verb in CONDITIONAL - {"delete_if"}:
            found += [Fault.CONFLICT, Fault.CONFLICT, Fault.CONFLICT, Fault.BUSY]
    if verb == "extend":
        found += [Fault.UNFLUSHED, Fault.TORN] * 2
    if verb == "copy" and CHUNKS_SUFFIX in args[0]:  # an adoption trusts the store's copy
        found += [Fault.DAMAGED] * len(found)
    if verb == "delete" and len(args[0]) > 1:
        found += [Fault.PARTLY]
    return chance.choice(found)


class Way(BackendWrapper):
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
            fault = fault_of(chance, verb, args, is_disk=self.store.is_disk)
            self.met[fault] += 1
        way_s = chance.random() * WAY_S_MAX
        if fault in (Fault.NAP, Fault.COMA):
            way_s, fault = (AGE_S_MAX + 1.0 if fault is Fault.NAP else GRACE_S + AGE_S_MAX), None
        await asyncio.sleep(way_s)
        if self.is_dead:
            raise Crashed(verb)
        answer = await (super().call(verb, *args) if fault is None else self._fail(fault, verb, args, chance))
        if chance.random() < 0.4:
            await asyncio.sleep(chance.random() * WAY_S_MAX)
        if self.is_dead:
            raise Crashed(verb)
        return answer

    async def _fail(self, fault: Fault, verb: str, args: tuple[Any, ...], chance: random.Random) -> Any:
        what = f"injected into {verb} {str(args[:1])[:80]}: {fault.value}"
        self._fail_before(fault, verb, args, what)
        if fault in (Fault.LATE, Fault.HOURS):
            self._later(verb, args, chance.random() * (5.0 if fault is Fault.LATE else LATE_S_MAX))
            raise TimeoutError(what)
        if fault is Fault.TORN:
            path, data, token, *_ = args
            content = self.store.content(path)
            if content is not None and (await self.store.stat(path)).token == token:
                self.store._put(path, content + data[: chance.randrange(1, len(data))])
            self._die(what)
        if fault is Fault.PARTLY:
            args = (args[0][:1],)
        answer = None
        with contextlib.suppress(*([OSError] if fault in (Fault.LOST, Fault.CRASH_AFTER) else [])):
            answer = await super().call(verb, *args)
        if fault is Fault.LOST:
            raise TimeoutError(what)
        if fault is Fault.CRASH_AFTER:
            self._die(what)
        if fault is Fault.UNFLUSHED:
            raise UnflushedError(what)
        if fault is Fault.CONFLICT:
            raise FileExistsError(errno.EEXIST, what) if verb == "create" else ConflictError(what)
        if fault is Fault.DOUBLED:
            self._later(verb, args, chance.choice((0.0, 0.05, 5.0, LATE_S_MAX)) * chance.random())
            return answer
        if fault is Fault.DAMAGED:
            self._damage(args[1], chance)
            return answer
        raise OSError(errno.EIO, what)

    def _fail_before(self, fault: Fault, verb: str, args: tuple[Any, ...], what: str) -> None:
        """Raise the error of a fault after which nothing is done."""
        if fault is Fault.BEFORE:
            raise OSError(errno.EIO, what)
        if fault is Fault.THROTTLED:
            raise OSError(errno.EBUSY, what)
        if fault is Fault.REFUSED:
            self.refused_s = asyncio.get_running_loop().time()
            raise PermissionError(errno.EACCES, what)
        if fault is Fault.FULL:
            raise OSError(errno.ENOSPC, what)
        if fault is Fault.BUSY:
            raise FileExistsError(errno.EEXIST, what) if verb == "create" else ConflictError(what)
        if fault is Fault.CRASH_BEFORE:
            self._die(what)

    def die(self) -> None:
        """The process is gone."""
        self.is_dead, self.died_s = True, asyncio.get_running_loop().time()

    def was_dead(self, at_s: float) -> bool:
        """Whether the process was gone at a time."""
        return self.died_s < at_s

    def _die(self, what: str) -> None:
        self.die()
        raise Crashed(what)

    def _damage(self, path: str, chance: random.Random) -> None:
        content = self.store.content(path)
        if content:
            place = chance.randrange(len(content))
            flipped = bytes([content[place] ^ 1])
            self.store.put_silently(path, content[:place] + flipped + content[place + 1 :])

    def _later(self, verb: str, args: tuple[Any, ...], seconds: float) -> None:
        inner = super().call

        async def land() -> None:
            await asyncio.sleep(seconds)
            with contextlib.suppress(OSError, ValueError):  # nobody waits for its answer
                await inner(verb, *args)

        task = asyncio.ensure_future(land())
        self.late.add(task)
        task.add_done_callback(self.late.discard)
