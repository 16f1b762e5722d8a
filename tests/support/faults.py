"""A store whose calls fail before or after they take effect, get no answer or a false conflict, or take effect late.

Clients can crash. Time is virtual: a pause takes no time, and hours can pass within a call.
"""

import contextlib
import errno
import hashlib
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from enum import Enum
from types import MappingProxyType
from typing import Any, NoReturn

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from rollingfs.backend.contract import Backend
from rollingfs.backend.memory import MemoryBackend
from rollingfs.backend.wrapper import BackendWrapper
from rollingfs.errors import ConflictError, UnflushedError
from rollingfs.format.header import AGE_S_MAX, GRACE_S
from rollingfs.runtime.concurrency import drive
from rollingfs.segment.write import ingest
from tests.support.backends import limit

CALL_S = 0.01
TIMEOUT_S = 1.0
"""Time that a call takes while every call fails."""
NAPS_S = {"NAP": AGE_S_MAX + 1.0, "COMA": GRACE_S + AGE_S_MAX}
"""Longer than D: every upload under way is then too old. Longer than G: it may then be collected."""


class Crashed(BaseException):
    """The process that ran this client is gone."""


class Fault(Enum):
    """What becomes of one call."""

    BEFORE = "fails, nothing done"
    THROTTLED = "the store asks to slow down, nothing done"
    REFUSED = "refused by the store, nothing done"
    FULL = "the disk is full, nothing done"
    AFTER = "fails, and yet it is done"
    LOST = "no answer, and it is done"
    PARTLY = "fails after the first of several files"
    LATE = "no answer, and it is done later"
    HOURS = "no answer, and it is done hours later"
    DOUBLED = "done, and done once more later"
    CONFLICT = "a conflict with what the call itself has done"
    BUSY = "a conflict with nobody"
    DAMAGED = "the copy has other bytes"
    DENIED = "a look does not find a file, a folder or a listing that is there"
    MISSED = "a listing has no header and no pin, although they are there"
    UNFLUSHED = "a record is written, and its flush fails"
    TORN = "the process dies when half of a record is written"
    NAP = "the process sleeps for longer than D before the call"
    COMA = "the process sleeps for longer than G before the call"
    CRASH_BEFORE = "the process dies, nothing done"
    CRASH_AFTER = "the process dies, it is done"


REFUSALS = {
    Fault.BEFORE: errno.EIO,
    Fault.THROTTLED: errno.EBUSY,
    Fault.REFUSED: errno.EACCES,
    Fault.FULL: errno.ENOSPC,
}
CRASHES = (Fault.CRASH_BEFORE, Fault.CRASH_AFTER)
CONDITIONAL = frozenset({"create", "replace", "extend", "delete_if"})
LOOKS = frozenset({"read", "read_if_changed", "read_range", "read_into", "stat", "metadata", "is_folder", "list"})
CHANGING = CONDITIONAL | {"write", "put", "copy", "delete", "upload.finish", "make_folder", "remove_folder"}


class VirtualTime:
    """Stands in for the module `time`: a sleep and a call of the store advance it at once."""

    def __init__(self) -> None:
        self.now_s = 4_000_000_000.0

    def time(self) -> float:
        return self.now_s

    monotonic = time

    def time_ns(self) -> int:
        return int(self.now_s * 1e9)

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


CLOCK = VirtualTime()


def hurry(patch: pytest.MonkeyPatch) -> None:
    """Give rollingfs virtual time, and let more than a few bytes count as large."""
    patch.setattr(ingest, "SMALL_BYTES_MAX", 16)
    for name, module in list(sys.modules.items()):
        if name.startswith("rollingfs.") and getattr(module, "time", None) is time:
            patch.setattr(module, "time", CLOCK)


class Store(MemoryBackend):
    """Files in memory with virtual dates, and requests that are still on their way to the store."""

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
        """Let all requests that are on their way arrive; their answers are lost."""
        while self.late:
            with contextlib.suppress(OSError, ValueError):  # nobody waits for the answer any more
                drive(self.late.pop(0)())  # type: ignore[arg-type]

    def lapse(self, seconds: float) -> None:
        """Let time pass. Requests under way arrive first, because G - D is longer than any request lives."""
        self.land()
        CLOCK.sleep(seconds)


class TieredStore(Store):
    """A store with a tier on it; the files there have the paths by which the core knows them."""

    tiers = MappingProxyType({"cold": True})


class DenyingStore(TieredStore):
    """A tiered store for faults of looks: like a disk by FUSE, it may deny a file next to a rename."""

    def may_tear(self, path: str) -> bool:
        return True


class HashingStore(Store):
    """A store like S3: a token is a hash of the bytes, and dates are whole seconds."""

    capability = replace(Store.capability, date_step_s=1.0)

    def _put(self, path: str, content: bytes) -> str:
        super()._put(path, content)
        file = self.fs.store[path]
        file._rollingfs_generation = hashlib.md5(content).hexdigest()
        file.modified = file.modified.replace(microsecond=0)
        return f"{file._rollingfs_generation}-{len(content)}"


class FaultyBackend(BackendWrapper):
    """One client's way to a store, on which calls fail.

    Subclasses draw the faults; they say how a process ends (`_die`), when late calls land (`_land_later`), and how a
    record is torn (`_tear`) or a copy damaged (`_damage`).
    """

    async def reach(self, verb: str, *args: Any) -> Any:
        """Make a call that meets no fault."""
        return await super().call(verb, *args)

    async def failed(self, fault: Fault, verb: str, args: Sequence[Any]) -> Any:
        """The answer of a call that meets a fault, or its error."""
        what = f"injected into {verb} {str(args[:1])[:80]}: {fault.value}"
        self._fail_before(fault, verb, what)
        if fault is Fault.DENIED:
            return False
        if fault is Fault.MISSED:
            listing = await self.reach(verb, *args)
            return replace(listing, entries=tuple(one for one in listing.entries if not _is_missed(one.path)))
        if fault in (Fault.LATE, Fault.HOURS):
            self._land_later(fault, verb, args)
            raise TimeoutError(what)
        if fault is Fault.TORN:
            await self._tear(args)
            self._die(what)
        if fault is Fault.PARTLY:
            args = (args[0][:1],)
        answer = None
        with contextlib.suppress(*([OSError] if fault in (Fault.LOST, Fault.CRASH_AFTER) else [])):
            answer = await self.reach(verb, *args)  # else an error is the call's own
        if fault is Fault.LOST:
            raise TimeoutError(what)
        if fault is Fault.CRASH_AFTER:
            self._die(what)
        if fault is Fault.UNFLUSHED:
            raise UnflushedError(what)
        if fault is Fault.CONFLICT:
            raise FileExistsError(errno.EEXIST, what) if verb == "create" else ConflictError(what)
        if fault is Fault.DOUBLED:
            self._land_later(fault, verb, args)
            return answer
        if fault is Fault.DAMAGED:
            self._damage(args[1])
            return answer
        assert fault in (Fault.AFTER, Fault.PARTLY), fault
        raise OSError(errno.EIO, what)

    def _fail_before(self, fault: Fault, verb: str, what: str) -> None:
        """Raise the error of a fault after which nothing is done."""
        if fault in REFUSALS:
            raise OSError(REFUSALS[fault], what)
        if fault is Fault.BUSY:
            raise FileExistsError(errno.EEXIST, what) if verb == "create" else ConflictError(what)
        if fault is Fault.CRASH_BEFORE:
            self._die(what)
        if fault is Fault.DENIED and verb != "is_folder":
            raise FileNotFoundError(errno.ENOENT, what)


def _is_missed(path: str) -> bool:
    return path.endswith("$header") or "/pin-" in path


class Faulty(FaultyBackend):
    """One client's way to a store, on which calls fail by plan, and the client can crash.

    Parameters
    ----------
    inner : Backend
        The backend that does the work. `Fault.LATE` and naps need a `Store`.

    Attributes
    ----------
    plan : dict
        Faults by the index of the call, counted from the last `prepare`.
    between : dict
        Actions of others, just before the call with this index.
    dead : bool
        Whether the client has crashed; its calls then reach the store no more.
    """

    def __init__(self, inner: Backend) -> None:
        super().__init__(inner)
        limit(self, conflicts_are_final=False)  # a conflict may answer a request that took effect
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
        """Set the faults of the next calls.

        Calls without a plan meet `always`; with `answers_reads`, only those that change something do.
        """
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
        always = None if self.answers_reads and verb not in CHANGING else self.always
        fault = self._possible(self.plan.pop(index, always), verb, args)
        if "/probe-" in str(args[:1]) and fault not in CRASHES:
            fault = None  # tests/backend/test_probe.py has the faults of the probe
        if fault is not None and fault.name in NAPS_S:
            self._store.lapse(NAPS_S[fault.name])
            self.met[fault] += 1
            fault = None
        if index in self.between:
            self.between.pop(index)()
        if fault is None:
            return await self.reach(verb, *args)
        self.met[fault] += 1
        return await self.failed(fault, verb, args)

    @property
    def _store(self) -> Store:
        assert isinstance(self.inner, Store)
        return self.inner

    @staticmethod
    def _possible(fault: Fault | None, verb: str, args: Sequence[Any]) -> Fault | None:
        """The fault itself, or the nearest one that this verb can meet."""
        if fault is Fault.PARTLY and (verb != "delete" or len(args[0]) < 2):
            return Fault.AFTER
        if fault in (Fault.CONFLICT, Fault.BUSY) and verb not in CONDITIONAL:
            return Fault.BEFORE
        if fault is Fault.BUSY and verb == "delete_if":
            return Fault.BEFORE
        if fault is Fault.CONFLICT and verb == "delete_if":
            return Fault.LOST  # a second request finds nothing, which is no conflict
        if fault is Fault.LATE and verb not in CHANGING:
            return Fault.LOST
        if (fault is Fault.DENIED and verb not in LOOKS) or (fault is Fault.MISSED and verb != "list"):
            return None
        return fault

    def _die(self, what: str) -> NoReturn:
        self.dead = True
        raise Crashed(what)

    def _land_later(self, fault: Fault, verb: str, args: Sequence[Any]) -> None:
        self._store.late.append(lambda: self.reach(verb, *args))
