"""L9: a stream of 60,000 segments by a client that has seen none of them; a round of upkeep over 10,000 idle ones."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from benchmarks.case import Case, Goal, Job, Lowered, Medians, figure
from benchmarks.cases.l7_list import header_bytes
from benchmarks.clients import BUCKET, obs, rolling
from benchmarks.fabricate import at_once
from rollingfs import RetentionPolicy
from rollingfs.format import names
from rollingfs.runtime.bridge import Bridge
from rollingfs.stream.cut import StreamCut
from rollingfs.stream.ledger import Ledgers
from rollingfs.stream.ledger_codec import Ledger
from rollingfs.stream.upkeep import Upkeep, Upkept

FOLDER = f"{BUCKET}/l9"
IDLE = f"{BUCKET}/l9idle"
TEN_BYTES = len(b"some bytes")


def prepare(job: Job) -> dict[str, int]:
    """Both folders, by the headers of their segments alone; and the rows of the stream."""
    counts = {"count": job.pick(60_000, 2_000), "idle": job.pick(10_000, 500)}
    fs = rolling(job, direct=True)
    for folder, count in ((FOLDER, counts["count"]), (IDLE, counts["idle"])):
        paths = [names.header_path(f"{folder}/{nth:06}") for nth in range(count)]
        Bridge(fs._backend).run(at_once(partial(fs._backend.create, path, header_bytes()) for path in paths))
    fs.ls(FOLDER)
    fs.stream(FOLDER).retention = RetentionPolicy(keep_age="7d", keep_bytes="1TB", every=0)
    return counts


def cut(job: Job) -> None:
    stream = rolling(job).stream(FOLDER)
    with job.measured() as sample:
        found = stream.cut()
    sample.extra["segments"] = float(len(found))
    assert set(found.values()) == {TEN_BYTES}
    assert len(found) == job.given["count"]


def status(job: Job) -> None:
    stream = rolling(job).stream(FOLDER)
    with job.measured():
        found = stream.infos()
    assert sum(info["size"] for info in found.values()) == TEN_BYTES * job.given["count"]


def retention(older: int, job: Job) -> None:
    """A run that takes a cut, where the ledger has older ones, each of which names all segments."""
    other = rolling(job, direct=True)
    other.stream(FOLDER).retain()

    def change(ledger: Ledger) -> Ledger:
        last = ledger.cuts[-1]
        return replace(ledger, cuts=tuple(_before(last, nth) for nth in range(older, 0, -1)))

    Bridge(other._backend).run(Ledgers(other._client).update(FOLDER, change))
    fs = rolling(job)
    fs.pipe_file(f"{BUCKET}/other", b"")  # the first write of a process tries what the store can do
    stream = fs.stream(FOLDER)
    with job.measured() as sample:
        found = stream.retain()
    assert not found.failed
    sample.extra["cuts"] = float(len(stream.cuts()))
    assert len(stream.cuts()) == older + 1


def _before(cut: StreamCut, nth: int) -> StreamCut:
    """A cut from before another one; none has the offsets of its neighbours, or retention would drop it."""
    offsets = {name: offset - nth for name, offset in cut.items()}
    return StreamCut(offsets, cut.at - nth, cut.size - nth * len(cut), cut.incarnations)


def listing(job: Job) -> None:
    """What the store needs for the names alone: the part of the others that is requests."""
    store = obs(job)
    with job.measured():
        count = sum(map(len, store.list("l9/")))
    assert count >= job.given["count"]


def idle_round(job: Job) -> None:
    """The second round of a process; the first one looks at each segment."""
    fs = rolling(job)
    upkeep = Upkeep(fs._client)
    _round(fs, upkeep)
    with job.measured():
        results = _round(fs, upkeep)
    assert len(results) == job.given["idle"]
    assert all(one.is_idle for one in results)


def _round(fs: Any, upkeep: Upkeep) -> list[Upkept]:
    bridge = Bridge(fs._backend)
    folders = bridge.run(upkeep.folders(IDLE))
    return [one for folder in folders for one in bridge.run(upkeep.keep(folder))]


def _beyond(contestant: str) -> Goal:
    def seconds(medians: Medians) -> float:
        return medians[contestant]["wall_s"] - medians[LISTING]["wall_s"]

    return Goal(f"seconds beyond the listing, {contestant}", seconds, at_most=2)


LISTING = "obstore, the listing alone"
BY_ROWS = {
    "cut": cut,
    "status": status,
    "retention": partial(retention, 0),
    "retention, one older cut": partial(retention, 1),
    "retention, two older cuts": partial(retention, 2),
}
IDLE_ROUND = "round over 10,000 idle ones"

CASES = (
    Case(
        "L9",
        "a stream of 60,000 segments by a new client",
        {LISTING: listing, **BY_ROWS, IDLE_ROUND: idle_round},
        (
            *(Goal(f"requests, {name}", figure("requests", name), at_most=100) for name in BY_ROWS),
            *map(_beyond, BY_ROWS),
            Goal(
                "requests of an idle round",
                figure("requests", IDLE_ROUND),
                at_most=13,
                lowered=Lowered(
                    "≤ 12",
                    "2026-11-26",
                    "eleven list 10,000 keys; one looks whether the folder is a segment, one reads the policy above it",
                ),
            ),
        ),
        prepare,
        shown=("wall_s", "requests", "cpu_s", "memory_bytes"),
    ),
)
