"""P5: concat, which moves no bytes."""

from __future__ import annotations

from benchmarks.case import Case, Goal, Job, Lowered, figure, ratio
from benchmarks.clients import BUCKET, rolling, s3
from benchmarks.content import check, content

SOURCE_BYTES = 10 * 2**20


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
        fs.info(source)  # the client knows the headers, perhaps old ones
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


CASES = (
    Case(
        "P5",
        "concat of 100 sealed sources of 10 MiB",
        {"rollingfs concat": ours_concat, "UploadPartCopy": s3fs_merge},
        (
            Goal("requests a source", figure("requests", "rollingfs concat"), at_most=3.1),
            Goal(
                "UploadPartCopy / ours",
                ratio("wall_s", "UploadPartCopy", "rollingfs concat"),
                at_least=6,
                lowered=Lowered(
                    "≥ 20",
                    "2026-11-22",
                    "MinIO copies parts on its disk at the speed of memory; our requests alone take obstore 0.5 s",
                ),
            ),
        ),
    ),
)
