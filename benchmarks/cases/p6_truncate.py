"""P6: truncate, which moves no bytes."""

from __future__ import annotations

from benchmarks.case import Case, Goal, Job, figure
from benchmarks.clients import BUCKET, rolling, s3
from benchmarks.fabricate import fabricate, page_counts
from rollingfs import RollingPolicy
from rollingfs.runtime.bridge import Bridge

CHUNK_BYTES = 40
DELETED_AT_ONCE = 1000


def _truncated(job: Job) -> int:
    return job.pick(10_000, 1_000)


def ours_truncate(job: Job) -> None:
    path, count = f"{BUCKET}/p6-{job.name}", _truncated(job)
    setup, policy = rolling(job, direct=True), RollingPolicy(CHUNK_BYTES, None, CHUNK_BYTES)
    backend = setup._backend
    Bridge(backend).run(fabricate(backend, [path], count + 10, policy, range(count + 10)))
    fs = rolling(job)
    fs.info(path)
    fs.touch(f"{path}-other")  # probes the store
    with job.measured():
        fs.truncate(path, count * CHUNK_BYTES)
    requests = job.sample.requests
    deletes = sum(number for name, number in requests.items() if "Delete" in name)
    files = count + len(page_counts(count + 10))
    job.sample.extra["excess_requests"] = requests["PutObject"] - 1 + max(0, deletes - -(-files // DELETED_AT_ONCE))
    assert fs.info(path, refresh=True)["size"] == 10 * CHUNK_BYTES
    left = len(s3(job, direct=True).ls(f"{path}$chunks", detail=False))
    assert left <= 10 + 128, f"{left} files left"


CASES = (
    Case(
        "P6",
        "10,000 chunks truncated away",
        {"rollingfs truncate": ours_truncate},
        (
            Goal(
                "writes beyond 1 commit + ⌈n/1000⌉ deletes", figure("excess_requests", "rollingfs truncate"), at_most=0
            ),
        ),
    ),
)
