"""Runs cases. Contestants take turns; each round of each contestant has a process of its own."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import statistics
import traceback
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.case import Case, Contestant, Job, Sample, Skip
from benchmarks.clients import BUCKET, STORE_VARIABLE, WARM, s3
from benchmarks.servers import LATENCY_MS, Servers, open_servers

ROUND_S_MAX = 900
END_S_MAX = 10
HOST_END_S_MAX = 60
GONE = "its process ended without an answer"
PRELOADED = (
    "fsspec",
    "rollingfs.fs.filesystem",
    "rollingfs.backend.objects.s3.backend",
    "rollingfs.backend.local.backend",
    "numpy",
    "pyarrow.dataset",
    "pyarrow.fs",
    "pyarrow.parquet",
    "deltalake",
)
"""Modules that are imported before anything is measured, if they are installed.

Not obstore: S3 goes through s3fs in a process that is forked from one that has imported obstore.
"""
NO_SERVERS = Servers("", "", "", "")
Ask = Callable[[Any, Job], tuple[str, Any]]
"""Runs a contestant in some process; returns "done" and its sample, or "skipped" or "failed" and the reason."""


@dataclass
class Outcome:
    """The samples of a case, and the contestants that have none."""

    case: Case
    samples: dict[str, list[Sample]] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def medians(self) -> dict[str, dict[str, float]]:
        """The median of each figure over the rounds, by contestant; and the 99th percentile of all rounds together."""
        return {name: _medians(samples) | _pooled(samples) for name, samples in self.samples.items() if samples}


def _medians(samples: Sequence[Sample]) -> dict[str, float]:
    rounds = [sample.figures() for sample in samples]
    return {key: statistics.median(each[key] for each in rounds if key in each) for key in rounds[0]}


def _pooled(samples: Sequence[Sample]) -> dict[str, float]:
    """Of a round of some hundred latencies, the 99th percentile is luck."""
    latencies_s = [latency_s for sample in samples for latency_s in sample.latencies_s]
    if len(latencies_s) < 2:
        return {}
    return {"p99_pooled_s": statistics.quantiles(latencies_s, n=100, method="inclusive")[98]}


def run(
    cases: Sequence[Case],
    rounds: int,
    quick: bool,
    say: Callable[[str], None],
    latency_ms: int = LATENCY_MS,
    store: str | None = None,
) -> list[Outcome]:
    """Run cases, `rounds` times each, on a store with this latency, or below the URL `store`."""
    with _folder_of(store) if store else _servers_for(cases, latency_ms) as servers:
        return [_run_case(case, servers, rounds, quick, say) for case in cases]


@contextlib.contextmanager
def _servers_for(cases: Sequence[Case], latency_ms: int) -> Iterator[Servers]:
    if not any(case.needs_servers for case in cases):
        yield NO_SERVERS
        return
    with open_servers(latency_ms) as servers:
        _in_child(_make_bucket, Job(servers, quick=True, nth=0, given={}))
        yield servers


@contextlib.contextmanager
def _folder_of(url: str) -> Iterator[Servers]:
    """A new folder of a store whose address and credentials the environment says; it is deleted at the end."""
    os.environ[STORE_VARIABLE] = f"{url.removeprefix('s3://').strip('/')}/rollingfs-bench-{uuid.uuid4().hex[:12]}"
    job = Job(NO_SERVERS, quick=True, nth=0, given={})
    try:
        status, found = _in_child(_warm_up, job)
        if status != "done":
            raise RuntimeError(f"{url} cannot be written to:\n{found}")
        yield NO_SERVERS
    finally:
        _in_child(_clear, job)
        del os.environ[STORE_VARIABLE]


def _warm_up(job: Job) -> None:
    s3(job, warm=False).pipe_file(WARM, b"warm")


def _clear(job: Job) -> None:
    s3(job, warm=False).rm(BUCKET, recursive=True)


def _make_bucket(job: Job) -> None:
    import s3fs

    fs = s3fs.S3FileSystem(**job.servers.s3fs_options(direct=True))
    fs.mkdir(BUCKET)
    fs.pipe_file(WARM, b"warm")


def _run_case(case: Case, servers: Servers, rounds: int, quick: bool, say: Callable[[str], None]) -> Outcome:
    outcome = Outcome(case)
    servers = servers if case.needs_servers else NO_SERVERS
    rounds = rounds if quick else max(rounds, case.rounds_min)
    first = Job(servers, quick, rounds, {})
    with contextlib.ExitStack() as stack:
        ask: Ask = _in_child
        answer: tuple[str, Any] = "done", {}
        if case.prepare is not None or case.host is not None:
            say(f"{case.id}: preparing")
        if case.host is not None:
            answer, ask = stack.enter_context(_hosted(case.host, first))
        elif case.prepare is not None:
            answer = _in_child(_Prepared(case.prepare), first)
        status, found = answer
        if status == "skipped":
            outcome.skipped = dict.fromkeys(case.contestants, found)
            say(f"{case.id}: skipped: {found}")
        elif status != "done":
            outcome.failed = dict.fromkeys(case.contestants, found)
            say(f"{case.id}: cannot be prepared:\n{found}")
        else:
            for nth in range(rounds):
                _run_round(outcome, Job(servers, quick, nth, found), ask, say)
    return outcome


def _run_round(outcome: Outcome, job: Job, ask: Ask, say: Callable[[str], None]) -> None:
    case, nth = outcome.case, job.nth
    contestants = list(case.contestants.items())
    if case.host is None:
        first = nth % len(contestants)  # the first one touches memory and disk that nobody has touched
        contestants = contestants[first:] + contestants[:first]
    elif nth % 2:
        contestants.reverse()  # goals compare neighbours, and the second one finds what the first has left
    for name, contestant in contestants:
        if name in outcome.skipped or name in outcome.failed:
            continue
        status, found = ask(contestant, Job(job.servers, job.quick, nth, job.given))
        if status == "done":
            outcome.samples.setdefault(name, []).append(found)
            say(f"{case.id}: round {nth + 1}: {name}: {found.wall_s:.2f} s")
        elif status == "skipped":
            outcome.skipped[name] = found
            say(f"{case.id}: {name}: skipped: {found}")
        else:
            outcome.failed[name] = found
            say(f"{case.id}: {name}: failed:\n{found}")


# -- in a process of its own ---------------------------------------------------------------------------------


class _Prepared:
    """A preparation, told from a contestant: its return value is the answer."""

    def __init__(self, prepare: Callable[[Job], Mapping[str, Any]]) -> None:
        self.prepare = prepare


def _in_child(contestant: Contestant | _Prepared, job: Job) -> tuple[str, Any]:
    context = _context()
    here, there = context.Pipe()
    process = context.Process(target=_child, args=(there, contestant, job))
    process.start()
    there.close()
    try:
        return _answer(here)
    finally:
        _end(process, END_S_MAX)


@contextlib.contextmanager
def _hosted(host: Callable[[Job], Any], job: Job) -> Iterator[tuple[tuple[str, Any], Ask]]:
    """Start a process that lives until the case ends; yields how its start went, and what runs contestants in it."""
    context = _context()
    here, there = context.Pipe()
    process = context.Process(target=_host, args=(there, host, job))
    process.start()
    there.close()

    def ask(contestant: Contestant | _Prepared, job: Job) -> tuple[str, Any]:
        try:
            here.send((contestant, job))
        except BrokenPipeError:
            return "failed", GONE
        return _answer(here)

    try:
        yield _answer(here), ask
    finally:
        here.close()  # tells the process to end
        _end(process, HOST_END_S_MAX)


def _answer(pipe: Any) -> tuple[str, Any]:
    try:
        if not pipe.poll(ROUND_S_MAX):
            return "failed", f"no answer within {ROUND_S_MAX} s"
        answer: tuple[str, Any] = pipe.recv()
    except EOFError:
        return "failed", GONE
    return answer


def _end(process: Any, wait_s: float) -> None:
    process.join(wait_s)
    if process.is_alive():
        process.kill()
        process.join()


def _context() -> Any:
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(PRELOADED))
    return context


def _child(pipe: Any, contestant: Contestant | _Prepared, job: Job) -> None:
    pipe.send(_tried(contestant, job))


def _host(pipe: Any, host: Callable[[Job], Any], job: Job) -> None:
    with contextlib.ExitStack() as stack:
        given: dict[str, Any] = {}

        def prepare(job: Job) -> Mapping[str, Any]:
            given.update(stack.enter_context(host(job)))
            return {}  # what the host yields stays in this process: a session cannot be sent

        pipe.send(_tried(_Prepared(prepare), job))
        while True:
            try:
                contestant, job = pipe.recv()
            except EOFError:
                return
            job.given = given
            pipe.send(_tried(contestant, job))


def _tried(contestant: Contestant | _Prepared, job: Job) -> tuple[str, Any]:
    try:
        if isinstance(contestant, _Prepared):
            return "done", dict(contestant.prepare(job))
        contestant(job)
    except Skip as skip:
        return "skipped", str(skip)
    except Exception:  # noqa: BLE001 - the parent prints it and goes on with the others
        return "failed", traceback.format_exc()
    return "done", job.sample
