"""Runs works: every round of every contestant in a process of its own, contestants interleaved."""

from __future__ import annotations

import contextlib
import multiprocessing
import statistics
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.rig import Rig, open_rig
from benchmarks.stores import BUCKET, WARM
from benchmarks.work import Contestant, Job, Sample, Skip, Work

ROUND_S_MAX = 900
END_S_MAX = 10
HOST_END_S_MAX = 60
GONE = "its process ended without an answer"
PRELOADED = (
    "fsspec",
    "rollingfs.fs.filesystem",
    "rollingfs.backend.s3.backend",
    "rollingfs.backend.local.backend",
    "numpy",
    "pyarrow.dataset",
    "pyarrow.fs",
    "pyarrow.parquet",
    "obstore",
    "deltalake",
)
"""Imported before anything is measured; what is not installed is left out."""
NO_RIG = Rig("", "", "", "")
Ask = Callable[[Any, Job], tuple[str, Any]]
"""Runs a contestant somewhere: "done" with its sample, "skipped" or "failed" with the reason."""


@dataclass
class Outcome:
    """What a work gave."""

    work: Work
    samples: dict[str, list[Sample]] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def medians(self) -> dict[str, dict[str, float]]:
        """For each contestant the median of each figure over the rounds."""
        return {name: _medians(samples) for name, samples in self.samples.items() if samples}


def _medians(samples: Sequence[Sample]) -> dict[str, float]:
    rounds = [sample.figures() for sample in samples]
    return {key: statistics.median(each[key] for each in rounds if key in each) for key in rounds[0]}


def run(works: Sequence[Work], rounds: int, quick: bool, say: Callable[[str], None]) -> list[Outcome]:
    """Run works, `rounds` times each."""
    with _rig_for(works) as rig:
        return [_run_work(work, rig, rounds, quick, say) for work in works]


@contextlib.contextmanager
def _rig_for(works: Sequence[Work]) -> Iterator[Rig]:
    if not any(work.needs_rig for work in works):
        yield NO_RIG
        return
    with open_rig() as rig:
        _in_child(_make_bucket, Job(rig, quick=True, nth=0, given={}))
        yield rig


def _make_bucket(job: Job) -> None:
    import s3fs

    fs = s3fs.S3FileSystem(**job.rig.s3fs_options(direct=True))
    fs.mkdir(BUCKET)
    fs.pipe_file(WARM, b"warm")


def _run_work(work: Work, rig: Rig, rounds: int, quick: bool, say: Callable[[str], None]) -> Outcome:
    outcome = Outcome(work)
    rig = rig if work.needs_rig else NO_RIG
    rounds = rounds if quick else max(rounds, work.rounds_min)
    first = Job(rig, quick, rounds, {})
    with contextlib.ExitStack() as stack:
        ask: Ask = _in_child
        answer: tuple[str, Any] = "done", {}
        if work.prepare is not None or work.host is not None:
            say(f"{work.id}: preparing")
        if work.host is not None:
            answer, ask = stack.enter_context(_hosted(work.host, first))
        elif work.prepare is not None:
            answer = _in_child(_Prepared(work.prepare), first)
        status, found = answer
        if status == "skipped":
            outcome.skipped = dict.fromkeys(work.contestants, found)
            say(f"{work.id}: skipped: {found}")
        elif status != "done":
            outcome.failed = dict.fromkeys(work.contestants, found)
            say(f"{work.id}: cannot be prepared:\n{found}")
        else:
            for nth in range(rounds):
                _run_round(outcome, Job(rig, quick, nth, found), ask, say)
    return outcome


def _run_round(outcome: Outcome, job: Job, ask: Ask, say: Callable[[str], None]) -> None:
    work, nth = outcome.work, job.nth
    contestants = list(work.contestants.items())
    if work.host is None:
        first = nth % len(contestants)  # whoever comes first touches memory and disk that nobody has touched
        contestants = contestants[first:] + contestants[:first]
    elif nth % 2:
        contestants.reverse()  # of two neighbours, who are compared, the second finds what the first has left
    for name, contestant in contestants:
        if name in outcome.skipped or name in outcome.failed:
            continue
        status, found = ask(contestant, Job(job.rig, job.quick, nth, job.given))
        if status == "done":
            outcome.samples.setdefault(name, []).append(found)
            say(f"{work.id}: round {nth + 1}: {name}: {found.wall_s:.2f} s")
        elif status == "skipped":
            outcome.skipped[name] = found
            say(f"{work.id}: {name}: skipped: {found}")
        else:
            outcome.failed[name] = found
            say(f"{work.id}: {name}: failed:\n{found}")


# -- in a process of its own ---------------------------------------------------------------------------------


class _Prepared:
    """A preparation as a contestant: what it returns is what is kept."""

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
    """A process that lives until the end of the work: how its beginning went, and what runs contestants in it."""
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
        here.close()  # it is told so that this is the end
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
            return {}  # what it yields stays here: a session cannot be sent

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
    except Exception:  # noqa: BLE001 - it is printed by the parent, and the others go on
        return "failed", traceback.format_exc()
    return "done", job.sample
