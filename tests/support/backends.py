"""Backends that wrap another one: `Counting` notes every call, `Scripted` also carries out the plans of a test.

`faults.Faulty` is the third: its calls fail as those of a store fail.
"""

import asyncio
import errno
import inspect
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from fsspec.asyn import get_loop
from fsspec.implementations.memory import MemoryFileSystem

from rollingfs.backend import verdicts
from rollingfs.backend.contract import Backend, Listing, Part
from rollingfs.backend.memory import MemoryBackend
from rollingfs.backend.wrapper import BackendWrapper
from rollingfs.format.names import PROBE_PREFIX

FINISH_S = 0.01
"""Time that a suspending backend takes to finish an upload: longer than it takes to begin the next."""

LOOKS = ("read", "read_if_changed", "read_range")
"""The verbs that read a file."""
Action = Callable[[], object]
Where = str | Callable[[str], bool]


def private_memory() -> MemoryBackend:
    """A memory backend whose files nobody else sees."""
    return MemoryBackend(MemoryFileSystem(global_store=False, skip_instance_cache=True))


def forget_verdicts() -> None:
    """Forget what this process knows of stores: the next write through a new client probes again."""
    verdicts._of_process.clear()
    verdicts._unsafe.clear()


def limit(backend: Backend, **abilities: Any) -> None:
    """Give a backend abilities that differ from its own."""
    backend.capability = replace(backend.capability, **abilities)


class Objects(MemoryBackend):
    """Files in memory without folders, as an object store has them; nobody else sees them."""

    capability = replace(MemoryBackend.capability, has_folders=False)

    def __init__(self) -> None:
        super().__init__(MemoryFileSystem(global_store=False, skip_instance_cache=True))

    def _make_folders(self, path: str) -> None: ...


def fail() -> None:
    """Fail as a broken connection: the caller does not know whether the request took effect."""
    raise OSError(errno.EIO, "the connection broke")


async def joined(backend: Backend, parts: Sequence[Part], target: str) -> None:
    """A new file of ranges of others, which the store joins; none after an error."""
    upload = await backend.open_write(target)
    try:
        for part in parts:
            await upload.copy(part)
        await upload.finish()
    finally:
        await upload.abort()


def raises(error: BaseException) -> Callable[..., NoReturn]:
    """An action that raises this error, whatever it is called with."""

    def action(*_: object, **__: object) -> NoReturn:
        raise error

    return action


class Shifted(BackendWrapper):
    """A store on which files look older than they are: seconds are added to its *now*. Their dates do not change."""

    def __init__(self, inner: Backend, shift_s: float = 0.0) -> None:
        super().__init__(inner)
        self.shift_s = shift_s

    async def call(self, verb: str, *args: Any) -> Any:
        found = await super().call(verb, *args)
        if isinstance(found, Listing) and found.now is not None:
            return replace(found, now=found.now + self.shift_s)
        return found + self.shift_s if verb == "now" else found


class Counting(Shifted):
    """Notes every call that passes through.

    Parameters
    ----------
    inner : Backend
        The backend that does the work.
    suspends : bool
        Whether every verb suspends, on fsspec's loop, as verbs of an object store do.
    abilities
        Abilities that differ from those of `inner`, such as ``can_join=False``.

    Attributes
    ----------
    calls : list of (str, str)
        Verb and path; for a delete the first path, for a join none.
    ranges : list of (str, int, int)
        Path, start and end of every `read_range`.
    moved : Counter
        Bytes that `read_range`, `write` and ``upload.write`` have moved, by verb.
    at_once, at_once_max : Counter
        Calls under way, by verb: now, and at most so far.
    """

    def __init__(self, inner: Backend, *, suspends: bool = False, **abilities: Any) -> None:
        super().__init__(inner)
        self.suspends = suspends
        if suspends:
            self.is_async = True
            self.loop: asyncio.AbstractEventLoop | None = get_loop()
        # every commit is one `replace`, as on an object store, unless a test says otherwise
        limit(self, **{"can_extend": False, **abilities})
        self._lock = threading.Lock()
        self.calls: list[tuple[str, str]] = []
        self.ranges: list[tuple[str, int, int]] = []
        self.moved: Counter[str] = Counter()
        self.at_once: Counter[str] = Counter()
        self.at_once_max: Counter[str] = Counter()

    async def store_name(self, path: str) -> str | None:
        """That of a server: its verdict holds for all tests."""
        return await self.inner.store_name(path) if self.inner.is_async else None

    def clear(self) -> None:
        """Forget the calls so far."""
        self.calls.clear()
        self.ranges.clear()
        self.at_once_max.clear()
        self.moved.clear()

    @property
    def verbs(self) -> list[str]:
        """The verbs of all calls, in their order."""
        return [verb for verb, _ in self.calls]

    @property
    def read_bytes(self) -> int:
        return self.moved["read_range"]

    def count(self, verb: str) -> int:
        return self.verbs.count(verb)

    async def call(self, verb: str, *args: Any) -> Any:
        with self._lock:
            self.calls.append((verb, path_of(args)))
            if verb == "read_range":
                self.ranges.append(args[:3])
            self.at_once[verb] += 1
            self.at_once_max[verb] = max(self.at_once_max[verb], self.at_once[verb])
        try:
            if self.suspends:
                assert self.loop is None or asyncio.get_running_loop() is self.loop
                await asyncio.sleep(FINISH_S if verb == "upload.finish" else 0)
            answer = await self.perform(verb, *args)
        finally:
            with self._lock:
                self.at_once[verb] -= 1
        with self._lock:
            if verb == "read_range":
                self.moved[verb] += len(answer)
            elif verb in ("write", "upload.write"):
                self.moved[verb] += sum(map(len, args[1] if verb == "write" else args[2:]))
        return answer

    async def perform(self, verb: str, *args: Any) -> Any:
        """Do one verb, after the call was noted."""
        return await super().call(verb, *args)


def path_of(args: tuple[Any, ...]) -> str:
    """The path that a verb takes, or the first of several; empty if it takes neither."""
    first = args[0] if args else ""
    if isinstance(first, list | tuple) and first:
        first = first[0]
    return first if isinstance(first, str) else ""


@dataclass(eq=False)
class Plan:
    """What happens around certain calls. An action may be a coroutine function; the call then waits for it."""

    verbs: tuple[str, ...]
    path: Where
    """How the path ends, or a function that accepts paths."""
    when: Callable[..., bool] | None = None
    """Called with the arguments of the verb; tells whether the plan is for this call."""
    before: Action | None = None
    """Called before the verb. An error that it raises is the outcome of the call."""
    after: Action | None = None
    """Called after the verb, likewise."""
    instead: Callable[..., object] | None = None
    """Called with the arguments of the verb, in place of the verb."""
    answers: Callable[[Any], object] | None = None
    """Called with the answer; returns the one that the caller gets."""
    skips: int = 0
    """Number of such calls that pass first."""
    times: int | None = 1
    """Number of calls that then meet the plan, None for all."""
    probes: bool = False
    """Whether the plan is also for files of the probe."""

    def is_met(self, verb: str, args: tuple[Any, ...]) -> bool:
        path = path_of(args)
        if (self.verbs and verb not in self.verbs) or (not self.probes and f"/{PROBE_PREFIX}" in path):
            return False
        if self.when is not None and not self.when(*args):
            return False
        return path.endswith(self.path) if isinstance(self.path, str) else self.path(path)


class Scripted(Counting):
    """Carries out plans, in the order in which they were made; a call meets at most one."""

    def __init__(self, inner: Backend, *, conflicts_are_final: bool = False, **options: Any) -> None:
        # by default not final: an action may raise a conflict after the call
        super().__init__(inner, conflicts_are_final=conflicts_are_final, **options)
        self.plans: list[Plan] = []

    def plan(self, verb: str | tuple[str, ...] = (), path: Where = "", **how: Any) -> Plan:
        """Let something happen around calls of a verb, or of several, or of all (none); see `Plan`."""
        plan = Plan((verb,) if isinstance(verb, str) else verb, path, **how)
        self.plans.append(plan)
        return plan

    async def perform(self, verb: str, *args: Any) -> Any:
        plan = self._claim(verb, args)
        if plan is None:
            return await super().perform(verb, *args)
        if plan.before is not None:
            await _awaited(plan.before())
        if plan.instead is not None:
            answer = await _awaited(plan.instead(*args))
        else:
            answer = await super().perform(verb, *args)
        if plan.after is not None:
            await _awaited(plan.after())
        return answer if plan.answers is None else await _awaited(plan.answers(answer))

    def _claim(self, verb: str, args: tuple[Any, ...]) -> Plan | None:
        """The plan that this call meets; one that is used up goes."""
        with self._lock:
            plan = next((plan for plan in self.plans if plan.is_met(verb, args)), None)
            if plan is None:
                return None
            if plan.skips:
                plan.skips -= 1
                return None
            if plan.times is not None:
                plan.times -= 1
                if not plan.times:
                    self.plans.remove(plan)
            return plan


async def _awaited(answer: Any) -> Any:
    return await answer if inspect.isawaitable(answer) else answer
