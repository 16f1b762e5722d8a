"""L5, L6: appends while a follower moves the segment to a tier; a catch-up read from a tier."""

from __future__ import annotations

import contextlib
import multiprocessing
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.case import Case, Goal, Job, ratio
from benchmarks.clients import BUCKET, rolling
from benchmarks.content import check, content

APPEND_BYTES = 4096
BLOCK_BYTES = 1024 * 1024
"""Small, so that a follower moves blocks every few seconds rather than each 64 MiB."""
CHUNK_BYTES = 4 * 1024 * 1024
READ_BYTES_MAX = 32 * 1024 * 1024


def _tiered(job: Job, **options: Any) -> Any:
    return rolling(job, tiers={"cold": f"{BUCKET}/archive-{job.name}"}, **options)


def _follow(job: Job, name: str, path: str, began: Any, ended: Any, blocks: Any) -> None:
    """The process of the follower."""
    from rollingfs import Follower

    fs = rolling(job, tiers={"cold": f"{BUCKET}/archive-{name}"})
    ends = set()
    with Follower(path, "cold", BLOCK_BYTES, 8, fs=fs, on_change=lambda _, status: ends.add(status.cold_end)):
        began.set()
        ended.wait()
    blocks.put(len(ends) - 1)


@contextlib.contextmanager
def _followed(job: Job, path: str) -> Iterator[None]:
    """Let a follower in another process move the segment meanwhile."""
    context = multiprocessing.get_context("forkserver")
    began, ended, blocks = context.Event(), context.Event(), context.Queue()
    process = context.Process(target=_follow, args=(job, job.name, path, began, ended, blocks))
    process.start()
    began.wait()
    time.sleep(1)
    yield
    ended.set()
    job.sample.extra["blocks"] = float(blocks.get())
    process.join()
    assert job.quick or job.sample.extra["blocks"] >= 2, "the follower has moved nothing, so nothing was measured"


def _appended(job: Job, *, is_followed: bool) -> None:
    fs, path, data = _tiered(job), f"{BUCKET}/l5-{job.name}", content(0, APPEND_BYTES)
    fs.create(path)
    count = job.pick(1500, 100)
    with _followed(job, path) if is_followed else contextlib.nullcontext():
        job.each(lambda _: fs.append(path, data), count)
    assert fs.size(path) == count * APPEND_BYTES


def alone(job: Job) -> None:
    _appended(job, is_followed=False)


def followed(job: Job) -> None:
    _appended(job, is_followed=True)


def _read(job: Job, *, is_cold: bool) -> None:
    path, size = f"{BUCKET}/l6-{job.name}", job.pick(256, 16) * 1024 * 1024
    tiers = {"cold": f"{BUCKET}/archive-{job.name}"}
    setup = rolling(job, direct=True, tiers=tiers, max_bytes=CHUNK_BYTES)
    setup.pipe_file(path, content(0, size))
    if is_cold:
        assert setup.offload(path).bytes == size
    fs = rolling(job, tiers=tiers)
    with job.measured() as sample, fs.open(path) as file:
        position = 0
        while data := file.read(READ_BYTES_MAX):
            position += check(data, position)
    assert position == size
    sample.byte_count = size


def hot(job: Job) -> None:
    _read(job, is_cold=False)


def cold(job: Job) -> None:
    _read(job, is_cold=True)


FOLLOWED, ALONE = "4 KiB appended beside a follower", "4 KiB appended alone"
CASES = (
    Case(
        "L5",
        "appends while a follower moves blocks of 1 MiB to a tier",
        {ALONE: alone, FOLLOWED: followed},
        (
            Goal("median append, followed ÷ alone", ratio("unit_s", FOLLOWED, ALONE), at_most=1.1),
            Goal("all appends, followed ÷ alone", ratio("wall_s", FOLLOWED, ALONE), at_most=1.1),
        ),
        shown=("unit_s", "p99_s", "wall_s", "requests"),
    ),
    Case(
        "L6",
        "catch-up read of 256 MiB from a tier on the same store",
        {"hot": hot, "cold": cold},
        (Goal("bytes a second, cold ÷ hot", ratio("bytes_per_s", "cold", "hot"), at_least=0.9),),
        shown=("wall_s", "bytes_per_s", "requests", "cpu_s"),
    ),
)
