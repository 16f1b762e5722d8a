"""L1 to L4: consolidation, collection, and following a segment."""

from __future__ import annotations

import threading
import time
from typing import Any

import fsspec

from benchmarks.content import check, content
from benchmarks.fabricate import fabricate
from benchmarks.stores import BUCKET, rolling, s3
from benchmarks.work import Goal, Job, Work, figure
from rollingfs import RollingPolicy
from rollingfs.format import names
from rollingfs.runtime.bridge import Bridge

LARGE_BYTES = 8 * 2**20
SMALL_BYTES = 64 * 2**10
JOINED_BYTES = 64 * 2**20
"""The size of chunks afterwards."""
GARBAGE_BYTES = 40
IDLE_S = 20
"""A tail has slowed down to its slowest poll by then."""
MINUTE_S = 60


def _consolidated(job: Job, count: int, size: int) -> None:
    """A segment of `count` chunks of `size` bytes becomes one of large chunks, while an old snapshot is read."""
    from tests.support.backends import Counting  # as in `rig`: most runs do without the tests

    path, total = f"{BUCKET}/life-{job.name}", count * size
    setup = rolling(job, direct=True, max_bytes=JOINED_BYTES, inline_bytes=0)
    setup.create(path)
    small = rolling(job, direct=True, max_bytes=size, inline_bytes=0)
    for start in range(0, total, JOINED_BYTES):  # chunks of a size that the segment's own policy would not make
        data = content(start, min(JOINED_BYTES, total - start))
        small.overwrite(f"{path}-source", data)
        small.seal(f"{path}-source")
        setup.concat(path, [f"{path}-source"])
    backend = Counting(rolling(job)._backend)
    fs = fsspec.filesystem("rolling", backend=backend, skip_instance_cache=True)
    segment = fs.segment(path)
    assert len(segment.chunks) == count
    with setup.open(path, "rb") as reader, job.measured(count):
        half = check(reader.read(total // 2), 0)
        before = backend.read_bytes, backend.uploaded_bytes
        segment.consolidate()
        job.sample.extra["bytes_read"] = (backend.read_bytes - before[0]) / total
        job.sample.extra["bytes_written"] = (backend.uploaded_bytes - before[1]) / total
        assert half + check(reader.read(), half) == total
    job.sample.byte_count = total
    assert len(segment.chunks) == -(-total // JOINED_BYTES)
    assert check(setup.cat_file(path), 0) == total
    setup.rm(path)
    setup.collect(f"{path}-source", grace=0)


def large(job: Job) -> None:
    _consolidated(job, job.pick(200, 16), LARGE_BYTES)


def small(job: Job) -> None:
    _consolidated(job, job.pick(10_000, 400), SMALL_BYTES)


def collect(job: Job) -> None:
    path, count = f"{BUCKET}/life-{job.name}", job.pick(10_000, 2_000)
    setup, policy = rolling(job, direct=True), RollingPolicy(GARBAGE_BYTES, None, GARBAGE_BYTES)
    Bridge(setup._backend).run(fabricate(setup._backend, [path], count, policy, range(count)))
    s3(job, direct=True).rm_file(names.header_path(path))  # nobody refers to the chunks any more
    fs = rolling(job)
    fs.touch(f"{path}-other")  # the store is probed by then
    with job.measured(count):
        collected = fs.collect(path, grace=0)
    assert len([file for file in collected.files if "/index-" not in file]) == count


def tail(job: Job) -> None:
    """How long after an append was acknowledged its line comes, and what it costs to wait for one."""
    fs, path, count = rolling(job), f"{BUCKET}/life-{job.name}", job.pick(100, 20)
    fs.create(path)
    began: list[float] = []
    delays: list[float] = []

    def follow(follower: Any) -> None:
        for piece in follower:
            delays.extend(time.perf_counter() - began[len(delays)] for _ in range(len(piece)))

    thread = threading.Thread(target=follow, args=(rolling(job).segment(path).tail(),))
    thread.start()
    for _ in range(count):
        time.sleep(0.3)
        began.append(time.perf_counter())
        fs.append(path, b"x")
    time.sleep(IDLE_S)
    with job.measured() as sample:
        time.sleep(MINUTE_S / 2 if job.quick else MINUTE_S)
    if job.quick:
        sample.requests = {name: 2 * number for name, number in sample.requests.items()}
    fs.seal(path)
    thread.join()
    assert len(delays) == count
    sample.latencies_s = delays


WORKS = (
    Work(
        "L1",
        "consolidation of 200 chunks of 8 MiB",
        {"rollingfs consolidate": large},
        (
            Goal("bytes read here / bytes", figure("bytes_read", "rollingfs consolidate"), at_most=0),
            Goal("bytes written here / bytes", figure("bytes_written", "rollingfs consolidate"), at_most=0),
        ),
    ),
    Work(
        "L2",
        "consolidation of 10,000 chunks of 64 KiB",
        {"rollingfs consolidate": small},
        (
            Goal("bytes read here / bytes", figure("bytes_read", "rollingfs consolidate"), at_most=1),
            Goal("bytes written here / bytes", figure("bytes_written", "rollingfs consolidate"), at_most=1),
        ),
    ),
    Work(
        "L3",
        "collection of 10,000 chunks",
        {"rollingfs collect": collect},
        (Goal("requests a chunk", figure("requests", "rollingfs collect"), at_most=0.02),),
    ),
    Work(
        "L4",
        "tail: delay of a line, and a minute of waiting",
        {"rollingfs tail": tail},
        (Goal("requests a minute", figure("requests", "rollingfs tail"), at_most=MINUTE_S / 2 + 1),),
        shown=("unit_s", "p99_s", "requests", "cpu_s"),
    ),
)
