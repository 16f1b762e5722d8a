"""P5, P6: concat and truncate, which move no bytes."""

from __future__ import annotations

from benchmarks.content import check, content
from benchmarks.fabricate import fabricate, page_counts
from benchmarks.stores import BUCKET, rolling, s3
from benchmarks.work import Goal, Job, Work, figure, ratio
from rollingfs import RollingPolicy
from rollingfs.runtime.bridge import Bridge

SOURCE_BYTES = 10 * 2**20
CHUNK_BYTES = 40
DELETED_AT_ONCE = 1000


def _sources(job: Job) -> int:
    return job.pick(100, 10)


def ours_concat(job: Job) -> None:
    folder, count = f"{BUCKET}/p5-{job.name}", _sources(job)
    setup = rolling(job, direct=True)
    sources = [f"{folder}/{number:03}" for number in range(count)]
    for number, source in enumerate(sources):
        setup.overwrite(source, content(number * SOURCE_BYTES, SOURCE_BYTES))
        setup.seal(source)
    fs = rolling(job)
    fs.create(f"{folder}/all")
    for source in sources:
        fs.info(source)  # this client has had their headers, however long ago
    with job.measured(count):
        fs.concat(f"{folder}/all", sources)
    job.sample.byte_count = count * SOURCE_BYTES
    moved = [name for name in job.sample.requests if "Copy" in name or "Part" in name]
    assert not moved, moved
    with setup.open(f"{folder}/all", "rb") as file:
        assert sum(check(file.read(SOURCE_BYTES), number * SOURCE_BYTES) for number in range(count)) == file.size
    setup.rm(f"{folder}/all")


def s3fs_merge(job: Job) -> None:
    """UploadPartCopy of each, all at once."""
    folder, count = f"{BUCKET}/p5-{job.name}", _sources(job)
    setup = s3(job, direct=True)
    sources = [f"{folder}/{number:03}" for number in range(count)]
    for number, source in enumerate(sources):
        setup.pipe_file(source, content(number * SOURCE_BYTES, SOURCE_BYTES))
    fs = s3(job)
    with job.measured(count):
        fs.merge(f"{folder}/all", sources)
    job.sample.byte_count = count * SOURCE_BYTES
    assert check(setup.cat_file(f"{folder}/all"), 0) == count * SOURCE_BYTES
    setup.rm(folder, recursive=True)


def _truncated(job: Job) -> int:
    return job.pick(10_000, 1_000)


def ours_truncate(job: Job) -> None:
    path, count = f"{BUCKET}/p6-{job.name}", _truncated(job)
    setup, policy = rolling(job, direct=True), RollingPolicy(CHUNK_BYTES, None, CHUNK_BYTES)
    backend = setup._backend
    Bridge(backend).run(fabricate(backend, [path], count + 10, policy, range(count + 10)))
    fs = rolling(job)
    fs.info(path)
    fs.touch(f"{path}-other")  # the store is probed by then
    with job.measured():
        fs.truncate(path, count * CHUNK_BYTES)
    requests = job.sample.requests
    deletes = sum(number for name, number in requests.items() if "Delete" in name)
    files = count + len(page_counts(count + 10))
    job.sample.extra["excess_requests"] = requests["PutObject"] - 1 + max(0, deletes - -(-files // DELETED_AT_ONCE))
    assert fs.info(path, refresh=True)["size"] == 10 * CHUNK_BYTES
    left = len(s3(job, direct=True).ls(f"{path}$chunks", detail=False))
    assert left <= 10 + 128, f"{left} files left"


WORKS = (
    Work(
        "P5",
        "concat of 100 sealed sources of 10 MiB",
        {"rollingfs concat": ours_concat, "UploadPartCopy": s3fs_merge},
        (
            Goal("requests a source", figure("requests", "rollingfs concat"), at_most=4.1),
            Goal("UploadPartCopy / ours", ratio("wall_s", "UploadPartCopy", "rollingfs concat"), at_least=20),
        ),
    ),
    Work(
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
