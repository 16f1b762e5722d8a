"""L3: collection."""

from __future__ import annotations

from benchmarks.case import Case, Goal, Job, figure
from benchmarks.clients import BUCKET, rolling, s3
from benchmarks.fabricate import fabricate
from rollingfs import RollingPolicy
from rollingfs.format import names
from rollingfs.runtime.bridge import Bridge

CHUNK_BYTES = 40


def collect(job: Job) -> None:
    path, count = f"{BUCKET}/life-{job.name}", job.pick(10_000, 2_000)
    setup, policy = rolling(job, direct=True), RollingPolicy(CHUNK_BYTES, None, CHUNK_BYTES)
    Bridge(setup._backend).run(fabricate(setup._backend, [path], count, policy, range(count)))
    s3(job, direct=True).rm_file(names.header_path(path))  # now nobody refers to the chunks
    fs = rolling(job)
    fs.touch(f"{path}-other")  # probes the store
    with job.measured(count):
        collected = fs.collect(path, grace=0)
    assert len([file for file in collected.files if "/index-" not in file]) == count


CASES = (
    Case(
        "L3",
        "collection of 10,000 chunks",
        {"rollingfs collect": collect},
        (Goal("requests a chunk", figure("requests", "rollingfs collect"), at_most=0.02),),
    ),
)
