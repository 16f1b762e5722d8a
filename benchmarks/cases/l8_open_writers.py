"""L8: the memory of many files that are open for appending."""

from __future__ import annotations

from benchmarks.case import Case, Goal, Job, figure
from benchmarks.clients import BUCKET, rolling
from rollingfs.segment.write.budget import WRITE_MEMORY_BYTES_DEFAULT

FILE_BYTES = 2**20
WRITE_BYTES = 2**14
SMALL_BOUND_BYTES = 32 * 2**20
MIB = 2.0**-20


def _write(job: Job, **options: object) -> None:
    """As many open files, each with 1 MiB in small writes by turns, and none committed."""
    count = job.pick(1_000, 200)
    fs = rolling(job, **options)
    data = bytearray(WRITE_BYTES)  # which each file copies
    with job.measured(count) as sample:
        files = [fs.open(f"{BUCKET}/l6-{job.name}-{nth}", "ab") for nth in range(count)]
        for _ in range(FILE_BYTES // WRITE_BYTES):
            for file in files:
                file.write(data)
    sample.byte_count = count * FILE_BYTES
    sample.extra["counted_mib"] = fs._client.budget.used * MIB
    for file in files:
        file.discard()


def default(job: Job) -> None:
    _write(job)


def bounded(job: Job) -> None:
    _write(job, max_write_memory=SMALL_BOUND_BYTES)


CASES = (
    Case(
        "L8",
        "memory of 1,000 files open for appending, 1 MiB written to each",
        {"rollingfs, 256 MiB": default, "rollingfs, 32 MiB": bounded},
        (
            Goal(
                "counted MiB, 256 MiB",
                figure("counted_mib", "rollingfs, 256 MiB"),
                at_most=WRITE_MEMORY_BYTES_DEFAULT * MIB,
            ),
            Goal("MiB of the process, 256 MiB", figure("memory_bytes", "rollingfs, 256 MiB", MIB), at_most=320),
            Goal("MiB of the process, 32 MiB", figure("memory_bytes", "rollingfs, 32 MiB", MIB), at_most=96),
        ),
        shown=("wall_s", "requests", "cpu_s", "memory_bytes"),
    ),
)
