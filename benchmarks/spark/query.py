"""What the cases of Spark have in common: queries over segments and over plain files, in one session."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.case import Case, Goal, Job, ratio
from benchmarks.spark import data
from benchmarks.spark.session import measured, open_session

ROUNDS_MIN = 5
WARMUPS = 2
"""How often each contestant runs before the clock starts: Java gets faster with use."""
PATH, PLAIN = "rolling+file://", "file://"
TEXT_SUMS = ("count(*)", "sum(octet_length(value))")
SHOWN = ("wall_s", "bytes_per_s", "cpu_s")


@dataclass(frozen=True, slots=True)
class Query:
    """Reads everything and sums it up."""

    kind: str
    """The key of the expected sums and size in what the preparation returned."""
    load: Callable[[Any, Mapping[str, Any]], Any]
    """Makes a table, given the session and `Job.given`."""
    sums: Sequence[str]

    def __call__(self, job: Job) -> None:
        with measured(job):
            found = self.load(job.given["spark"], job.given).selectExpr(*self.sums).first()
        expected, job.sample.byte_count = job.given["expected"][self.kind]
        assert tuple(found) == tuple(expected), f"{self.kind}: {tuple(found)} instead of {tuple(expected)}"


@dataclass(frozen=True, slots=True)
class Files:
    """A folder of files, as Spark reads it."""

    scheme: str
    name: str
    kind: str
    schema: str | None = None

    def __call__(self, spark: Any, given: Mapping[str, Any]) -> Any:
        reader = spark.read.format(self.kind)
        reader = reader.schema(self.schema) if self.schema else reader
        return reader.load(f"{self.scheme}{given['folder']}/{self.name}")


def column_sums(count: int) -> tuple[str, ...]:
    return tuple(f"sum(c{number})" for number in range(count))


def times(sums: Sequence[float], copies: int = 1) -> tuple[float, ...]:
    """The sums of all files, given those of one block."""
    return tuple(copies * data.FILES * data.BLOCKS * one for one in sums)


@dataclass(frozen=True, slots=True)
class Host:
    """A session with what `prepare` made, in which each contestant has run before the clock starts."""

    contestants: Mapping[str, Any]
    prepare: Callable[[Job], Mapping[str, Any]]
    """Returns what the contestants must find, by kind."""
    warmups: int = WARMUPS

    @contextlib.contextmanager
    def __call__(self, job: Job) -> Iterator[Mapping[str, Any]]:
        with open_session() as (spark, folder):
            job.given = given = {"spark": spark, "folder": folder}
            given["expected"] = self.prepare(job)
            os.sync()  # what is written back later is not the contestants' cost
            for _ in range(0 if job.quick else self.warmups):
                for contestant in self.contestants.values():
                    contestant(Job(job.servers, job.quick, 0, given))
            yield given


def spark_case(
    id: str,
    title: str,
    contestants: Mapping[str, Callable[[Job], object]],
    goals: Sequence[Goal],
    prepare: Callable[[Job], Mapping[str, Any]],
    shown: Sequence[str] = SHOWN,
    *,
    rounds_min: int = ROUNDS_MIN,
    warmups: int = WARMUPS,
) -> Case:
    """A case whose contestants share one session of Spark, on the local disk."""
    host = Host(contestants, prepare, warmups)
    return Case(id, title, contestants, goals, host=host, rounds_min=rounds_min, needs_servers=False, shown=shown)


def slowdown(title: str, one: str, other: str, **bound: float) -> Goal:
    """A bound for the speed of `one` as a multiple of that of `other`."""
    return Goal(title, ratio("wall_s", other, one), **bound)
