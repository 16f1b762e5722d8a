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
PRELOADED = (
    "fsspec",
    "rollingfs.filesystem",
    "rollingfs.backend.s3",
    "rollingfs.backend.local",
    "numpy",
    "pyarrow.dataset",
    "pyarrow.fs",
    "pyarrow.parquet",
    "obstore",
    "deltalake",
)
"""Imported before anything is measured; what is not installed is left out."""
NO_RIG = Rig("", "", "", "")


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
    given: Mapping[str, Any] = {}
    if work.prepare is not None:
        say(f"{work.id}: preparing")
        status, found = _in_child(_Prepared(work.prepare), Job(rig, quick, rounds, {}))
        if status != "done":
            outcome.failed = dict.fromkeys(work.contestants, found)
            say(f"{work.id}: cannot be prepared:\n{found}")
            return outcome
        given = found
    for nth in range(rounds):
        contestants = list(work.contestants.items())
        first = nth % len(contestants)  # whoever comes first touches memory and disk that nobody has touched
        for name, contestant in contestants[first:] + contestants[:first]:
            if name in outcome.skipped or name in outcome.failed:
                continue
            status, found = _in_child(contestant, Job(rig, quick, nth, given))
            if status == "done":
                outcome.samples.setdefault(name, []).append(found)
                say(f"{work.id}: round {nth + 1}: {name}: {found.wall_s:.2f} s")
            elif status == "skipped":
                outcome.skipped[name] = found
                say(f"{work.id}: {name}: skipped: {found}")
            else:
                outcome.failed[name] = found
                say(f"{work.id}: {name}: failed:\n{found}")
    return outcome


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
        if not here.poll(ROUND_S_MAX):
            return "failed", f"no answer within {ROUND_S_MAX} s"
        answer: tuple[str, Any] = here.recv()
    except EOFError:
        return "failed", "its process ended without an answer"
    finally:
        process.join(10)
        if process.is_alive():
            process.kill()
            process.join()
    return answer


def _context() -> Any:
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(PRELOADED))
    return context


def _child(pipe: Any, contestant: Contestant | _Prepared, job: Job) -> None:
    try:
        if isinstance(contestant, _Prepared):
            pipe.send(("done", dict(contestant.prepare(job))))
            return
        contestant(job)
        pipe.send(("done", job.sample))
    except Skip as skip:
        pipe.send(("skipped", str(skip)))
    except Exception:  # noqa: BLE001 - it is printed by the parent, and the others go on
        pipe.send(("failed", traceback.format_exc()))
