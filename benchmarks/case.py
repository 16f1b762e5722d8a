"""What a case is: a preparation, contestants that do the same work, goals that their medians must meet."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import resource
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks.cost import Way
from benchmarks.servers import Servers

CLEAR_REFS = "/proc/self/clear_refs"


class Skip(Exception):
    """Why a contestant does not take part."""


@dataclass(slots=True)
class Sample:
    """The cost of one round of one contestant."""

    wall_s: float = 0.0
    cpu_s: float = 0.0
    memory_bytes: int = 0
    """Peak of the resident memory, less what was resident when the clock started."""
    requests: dict[str, int] = field(default_factory=dict)
    """By operation."""
    sent_bytes: int = 0
    """The bodies that the server has received."""
    count: int = 1
    """How many times the unit of work was done."""
    byte_count: int = 0
    """How many bytes were read or written."""
    latencies_s: list[float] = field(default_factory=list)
    """Of each unit."""
    extra: dict[str, float] = field(default_factory=dict)
    """Further figures of the case."""

    def figures(self) -> dict[str, float]:
        """All numbers of which the report takes medians."""
        found = {
            "wall_s": self.wall_s,
            "cpu_s": self.cpu_s,
            "memory_bytes": float(self.memory_bytes),
            "paid_writes": Way.counted(self.requests, 0, self.count).writes,
            "paid_reads": Way.counted(self.requests, 0, self.count).reads,
            "sent_unit_bytes": self.sent_bytes / self.count,
            "requests": float(sum(self.requests.values())) / self.count,
            "unit_s": statistics.median(self.latencies_s) if self.latencies_s else self.wall_s / self.count,
            "cpu_unit_s": self.cpu_s / self.count,
            "rate_per_s": self.count / self.wall_s if self.wall_s else 0.0,
            "bytes_per_s": self.byte_count / self.wall_s if self.wall_s else 0.0,
        }
        if len(self.latencies_s) > 1:
            found["p99_s"] = statistics.quantiles(self.latencies_s, n=100, method="inclusive")[98]
        return found | self.extra

    def as_fields(self) -> dict[str, Any]:
        fields = asdict(self)
        del fields["latencies_s"]
        return fields | {"figures": self.figures()}


@dataclass(slots=True)
class Job:
    """One round of one contestant, in its own process."""

    servers: Servers
    quick: bool
    nth: int
    """The number of the round, from 0."""
    given: Mapping[str, Any]
    """What the preparation returned."""
    sample: Sample = field(default_factory=Sample)

    def pick(self, full: int, quick: int) -> int:
        """The size for this run: a real or a quick one."""
        return quick if self.quick else full

    @property
    def name(self) -> str:
        """A name that no other round of no other contestant uses."""
        return f"{os.getpid():07d}-{time.time_ns():x}"

    @contextlib.contextmanager
    def measured(self, count: int = 1) -> Iterator[Sample]:
        """Measure what the block of this context does."""
        before = self.servers.received() if self.servers.direct_url else None
        memory = reset_peak()
        cpu, began = _cpu_s(), time.perf_counter()
        yield self.sample
        self.sample.wall_s = time.perf_counter() - began
        self.sample.cpu_s = _cpu_s() - cpu
        self.sample.memory_bytes = max(0, _peak_bytes() - memory)
        self.sample.count = count
        if before is not None:
            after = self.servers.received()
            self.sample.requests = dict(after.requests - before.requests)
            self.sample.sent_bytes = after.byte_count - before.byte_count

    def each(self, call: Callable[[int], object], count: int) -> None:
        """Measure `count` calls one by one."""
        with self.measured(count) as sample:
            for number in range(count):
                began = time.perf_counter()
                call(number)
                sample.latencies_s.append(time.perf_counter() - began)


Contestant = Callable[[Job], object]
Medians = Mapping[str, Mapping[str, float]]
"""For each contestant, the median of each figure."""


@dataclass(frozen=True, slots=True)
class Lowered:
    """What a goal was before it was made easier."""

    bound: str
    on: str
    """The date, as in `2026-11-22`."""
    reason: str


@dataclass(frozen=True, slots=True)
class Goal:
    """A bound for a number made of the medians."""

    text: str
    value: Callable[[Medians], float]
    at_most: float | None = None
    at_least: float | None = None
    lowered: Lowered | None = None

    def is_met(self, value: float) -> bool:
        if self.at_most is not None:
            return value <= self.at_most
        assert self.at_least is not None
        return value >= self.at_least

    @property
    def bound(self) -> str:
        return f"≤ {self.at_most:g}" if self.at_most is not None else f"≥ {self.at_least:g}"


@dataclass(frozen=True, slots=True)
class Case:
    """Work that several contestants do."""

    id: str
    title: str
    contestants: Mapping[str, Contestant]
    goals: Sequence[Goal] = ()
    prepare: Callable[[Job], Mapping[str, Any]] | None = None
    """Runs once, in a process of its own, and returns `Job.given`."""
    host: Callable[[Job], contextlib.AbstractContextManager[Mapping[str, Any]]] | None = None
    """Replaces `prepare`: a context that yields `Job.given`, in one process with all contestants and rounds.

    For what starts slowly or gets faster with use, as a session of Spark does.
    """
    rounds_min: int = 1
    """Minimum number of rounds of a full run."""
    needs_servers: bool = True
    shown: Sequence[str] = ("wall_s", "requests", "cpu_s", "memory_bytes")
    """The figures of the table."""


def ratio(figure: str, one: str, other: str) -> Callable[[Medians], float]:
    """One contestant's figure over another's."""
    return lambda medians: medians[one][figure] / medians[other][figure]


def figure(name: str, contestant: str, scale: float = 1.0) -> Callable[[Medians], float]:
    """One contestant's figure."""
    return lambda medians: medians[contestant][name] * scale


# -- of this process -----------------------------------------------------------------------------------------


def _cpu_s() -> float:
    """Of this process, and of its children that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def reset_peak() -> int:
    """Set the peak of memory to what is used now; returns that."""
    gc.collect()  # else one of all that imports have made, 64 ms, comes in the first long scan of a process
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)  # what was freed before is not of this case
    try:
        with open(CLEAR_REFS, "w") as file:
            file.write("5")
    except OSError:
        return _peak_bytes()  # not on Linux: only memory beyond the highest peak so far is seen
    return _status_bytes("VmRSS")


def _peak_bytes() -> int:
    if os.path.exists(CLEAR_REFS):
        return _status_bytes("VmHWM")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _status_bytes(key: str) -> int:
    with open("/proc/self/status") as file:
        for line in file:
            if line.startswith(key + ":"):
                return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {key}")
