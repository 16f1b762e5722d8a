"""A store that fails as stores do: before, after, without an answer, late, by a false conflict; clients that crash.

Time is virtual: a pause costs none, and hours can pass within a call.
"""

from __future__ import annotations

import errno
import hashlib
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from rollingfs.backend.contract import Backend
from rollingfs.backend.memory import MemoryBackend
from rollingfs.backend.wrapper import BackendWrapper
from rollingfs.errors import ConflictError
from rollingfs.format.header import AGE_S_MAX, GRACE_S
from rollingfs.runtime.concurrency import drive
from rollingfs.write import ingest

CALL_S = 0.01
TIMEOUT_S = 1.0
"""How long a call takes while nothing works."""
NAPS_S = {"NAP": AGE_S_MAX + 1.0, "COMA": GRACE_S + AGE_S_MAX}
"""Longer than D, so that every upload under way has grown too old; longer than G, so that it may be collected."""


Draw = Callable[[str, Sequence[Any]], "Fault | None"]


class Crashed(BaseException):
    """The process that ran this client is gone."""


class Fault(Enum):
    """What becomes of one backend call."""

    BEFORE = "fails, nothing done"
    REFUSED = "refused by the store, nothing done"
    AFTER = "fails, and yet it is done"
    PARTLY = "fails after the first of several files"
    LOST = "no answer, and it is done"
    LATE = "no answer, and it is done later"
    CONFLICT = "a conflict with what the call itself has done"
    BUSY = "a conflict with nobody"
    NAP = "the machine sleeps for longer than D, then goes on"
    COMA = "the machine sleeps for longer than G, then goes on"
    CRASH_BEFORE = "the client is gone, nothing done"
    CRASH_AFTER = "the client is gone, it is done"


CRASHES = (Fault.CRASH_BEFORE, Fault.CRASH_AFTER)
CONDITIONAL = {"create", "replace", "delete_if"}
CHANGING = CONDITIONAL | {"write", "copy", "join", "delete", "upload.finish", "make_folder", "remove_folder"}


class VirtualTime:
    """Stands in for the module `time`: it passes when somebody sleeps or calls the store, and then at once."""

    def __init__(self) -> None:
        self.now_s = 1_800_000_000.0

    def time(self) -> float:
        return self.now_s

    monotonic = time

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


CLOCK = VirtualTime()


def hurry(patch: pytest.MonkeyPatch) -> None:
    """Let rollingfs live in virtual time, and take for large what is more than a few bytes."""
    patch.setattr(ingest, "SMALL_BYTES_MAX", 16)
    for name, module in list(sys.modules.items()):
        if name.startswith("rollingfs.") and getattr(module, "time", None) is time:
            patch.setattr(module, "time", CLOCK)


class Store(MemoryBackend):
    """Files in memory, dated in virtual time, and requests that are still on their way to it."""

    def __init__(self) -> None:
        super().__init__(MemoryFileSystem(global_store=False, skip_instance_cache=True))
        self.late: list[Callable[[], Awaitable[Any]]] = []

    def _put(self, path: str, content: bytes) -> str:
        token = super()._put(path, content)
        self.fs.store[path].modified = datetime.fromtimestamp(CLOCK.time(), UTC)
        return token

    def files(self) -> set[str]:
        """The paths of all files."""
        return set(self.fs.store)

    def snapshot(self) -> dict[str, bytes]:
        """All files with their content."""
        return {path: file.getvalue() for path, file in self.fs.store.items()}

    def land(self) -> None:
        """Let all requests that are on their way arrive; nobody hears the answers."""
        while self.late:
            try:
                drive(self.late.pop(0)())  # type: ignore[arg-type]
            except (OSError, ValueError) as error:
                answer = error  # as good as lost: it came too late
                assert answer is not None

    def lapse(self, seconds: float) -> None:
        """Let time pass. What was sent before arrives before, because G - D is longer than any request lives."""
        self.land()
        CLOCK.sleep(seconds)


class HashingStore(Store):
    """As S3 is: a token is a hash of the bytes, and dates are whole seconds."""

    date_step_s = 1.0

    def _put(self, path: str, content: bytes) -> str:
        super()._put(path, content)
        file = self.fs.store[path]
        file._rollingfs_generation = hashlib.md5(content).hexdigest()
        file.modified = file.modified.replace(microsecond=0)
        return f"{file._rollingfs_generation}-{len(content)}"


class Faulty(BackendWrapper):
    """The third of the backends for tests: one client's way to a store, on which calls fail and clients die.

    Parameters
    ----------
    inner : Backend
        The backend that does the work. `Fault.LATE` and naps need a `Store`.
    draw : callable, optional
        Called with verb and arguments: the fault of a call for which there is no plan.

    Attributes
    ----------
    plan : dict
        Faults by the index of the call, counted from the last `prepare`.
    between : dict
        What others do just before the call with this index.
    dead : bool
        Whether the client has crashed: then no call of it reaches the store any more.
    """

    def __init__(self, inner: Backend, draw: Draw | None = None) -> None:
        super().__init__(inner)
        self.draw = draw
        self.conflicts_are_final = False  # one may answer the very request that was done
        self.dead = False
        self.met: Counter[Fault] = Counter()
        self.prepare()

    def prepare(
        self,
        plan: Mapping[int, Fault] | None = None,
        between: Mapping[int, Callable[[], None]] | None = None,
        always: Fault | None = None,
        *,
        answers_reads: bool = False,
    ) -> None:
        """Set what the next calls meet; `always` is met by all (or all that change something) that `plan` leaves."""
        self.plan = dict(plan or {})
        self.between = dict(between or {})
        self.always = always
        self.answers_reads = answers_reads
        self.index = 0
        self.trace: list[tuple[str, Any]] = []

    async def call(self, verb: str, *args: Any) -> Any:
        if self.dead:
            raise Crashed(f"{verb} by a client that is gone")
        CLOCK.sleep(CALL_S if self.always is None else TIMEOUT_S)
        index, self.index = self.index, self.index + 1
        self.trace.append((verb, args[0] if args else None))
        fault = self.plan.pop(index, self._always(verb))
        if fault is None and self.draw is not None:
            fault = self.draw(verb, args)
        fault = self._possible(fault, verb, args)
        if "/probe-" in str(args[:1]) and fault not in CRASHES:
            fault = None  # what the probe makes of faults is tested beside it
        if fault is not None and fault.name in NAPS_S:
            self._store.lapse(NAPS_S[fault.name])
            self.met[fault] += 1
            fault = None
        if index in self.between:
            self.between.pop(index)()
        if fault is None:
            return await super().call(verb, *args)
        self.met[fault] += 1
        return await self._fail(fault, verb, args)

    @property
    def _store(self) -> Store:
        assert isinstance(self.inner, Store)
        return self.inner

    def _always(self, verb: str) -> Fault | None:
        return None if self.answers_reads and verb not in CHANGING else self.always

    @staticmethod
    def _possible(fault: Fault | None, verb: str, args: Sequence[Any]) -> Fault | None:
        """The nearest to a fault that can befall a verb."""
        if fault is Fault.PARTLY and (verb != "delete" or len(args[0]) < 2):
            return Fault.AFTER
        if fault in (Fault.CONFLICT, Fault.BUSY) and verb not in CONDITIONAL:
            return Fault.BEFORE
        if fault is Fault.BUSY and verb == "delete_if":
            return Fault.BEFORE
        if fault is Fault.CONFLICT and verb == "delete_if":
            return Fault.LOST  # sent again, it finds nothing, which is no conflict
        if fault is Fault.LATE and verb not in CHANGING:
            return Fault.LOST
        return fault

    async def _fail(self, fault: Fault, verb: str, args: Sequence[Any]) -> Any:
        what = f"injected into {verb} {str(args[:1])[:80]}: {fault.value}"
        if fault is Fault.BEFORE:
            raise OSError(errno.EIO, what)
        if fault is Fault.REFUSED:
            raise PermissionError(errno.EACCES, what)
        if fault is Fault.BUSY:
            raise FileExistsError(errno.EEXIST, what) if verb == "create" else ConflictError(what)
        if fault is Fault.CRASH_BEFORE:
            self.dead = True
            raise Crashed(what)
        if fault is Fault.LATE:
            self._store.late.append(lambda: super(Faulty, self).call(verb, *args))
            raise TimeoutError(what)
        if fault is Fault.PARTLY:
            args = [args[0][:1]]
        answer = None
        try:
            answer = await super().call(verb, *args)
        except OSError:
            if fault not in (Fault.LOST, Fault.CRASH_AFTER):
                raise  # of itself; otherwise nobody hears of it
        if fault is Fault.LOST:
            raise TimeoutError(what)
        if fault is Fault.CRASH_AFTER:
            self.dead = True
            raise Crashed(what)
        if fault is Fault.CONFLICT:
            raise FileExistsError(errno.EEXIST, what) if verb == "create" else ConflictError(what)
        assert fault in (Fault.AFTER, Fault.PARTLY), (fault, answer)
        raise OSError(errno.EIO, what)
