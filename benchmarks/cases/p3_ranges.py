"""P3: many small ranges of a large file, at random."""

from __future__ import annotations

import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from benchmarks.case import Case, Goal, Job, ratio
from benchmarks.cases.p2_read_and_write import prepare, size_of
from benchmarks.clients import BUCKET, obs, rolling, s3
from benchmarks.content import check

RANGE_BYTES = 64 * 1024
RANGES = 100
THREADS = 8


def _starts(job: Job) -> list[int]:
    chance = random.Random(job.nth)
    return [chance.randrange(size_of(job) - RANGE_BYTES) for _ in range(RANGES)]


def _check(job: Job, starts: Sequence[int], found: Sequence[object]) -> None:
    assert len(found) == len(starts)
    for start, data in zip(starts, found, strict=True):
        assert check(data, start) == RANGE_BYTES
    job.sample.byte_count = RANGES * RANGE_BYTES


def ours_cat_ranges(job: Job) -> None:
    fs, starts, path = rolling(job), _starts(job), job.given["segment"]
    fs.info(path)
    with job.measured():
        found = fs.cat_ranges([path] * RANGES, starts, [start + RANGE_BYTES for start in starts], on_error="raise")
    _check(job, starts, found)


def ours_threads(job: Job) -> None:
    fs, starts = rolling(job), _starts(job)
    with fs.open(job.given["segment"], "rb") as file, ThreadPoolExecutor(THREADS) as pool:
        with job.measured():
            found = list(pool.map(lambda start: file.read_at(RANGE_BYTES, start), starts))
        _check(job, starts, found)


def s3fs_cat_ranges(job: Job) -> None:
    fs, starts, path = s3(job), _starts(job), job.given["plain"]
    with job.measured():
        found = fs.cat_ranges([path] * RANGES, starts, [start + RANGE_BYTES for start in starts], on_error="raise")
    _check(job, starts, found)


def s3fs_threads(job: Job) -> None:
    """Each thread has its own file, because a shared file has one position."""
    fs, starts, path = s3(job), _starts(job), job.given["plain"]
    files = [fs.open(path, "rb", cache_type="none") for _ in range(THREADS)]

    def read(nth: int) -> list[tuple[int, bytes]]:
        found = []
        for start in starts[nth::THREADS]:
            files[nth].seek(start)
            found.append((start, files[nth].read(RANGE_BYTES)))
        return found

    with ThreadPoolExecutor(THREADS) as pool, job.measured():
        found = dict(pair for pairs in pool.map(read, range(THREADS)) for pair in pairs)
    _check(job, starts, [found[start] for start in starts])


def obstore_get_ranges(job: Job) -> None:
    import obstore

    store, starts, name = obs(job), _starts(job), job.given["plain"].removeprefix(f"{BUCKET}/")
    with job.measured():
        found = obstore.get_ranges(store, name, starts=starts, lengths=[RANGE_BYTES] * RANGES, coalesce=0)
    _check(job, starts, found)


CASES = (
    Case(
        "P3",
        "100 random ranges of 64 KiB",
        {
            "rollingfs cat_ranges": ours_cat_ranges,
            "rollingfs, 1 file, 8 threads": ours_threads,
            "s3fs cat_ranges": s3fs_cat_ranges,
            "s3fs, 8 files, 8 threads": s3fs_threads,
            "obstore get_ranges": obstore_get_ranges,
        },
        (
            Goal("cat_ranges / s3fs", ratio("bytes_per_s", "rollingfs cat_ranges", "s3fs cat_ranges"), at_least=0.95),
            Goal(
                "8 threads / s3fs",
                ratio("bytes_per_s", "rollingfs, 1 file, 8 threads", "s3fs cat_ranges"),
                at_least=0.95,
            ),
            Goal(
                "cat_ranges / obstore",
                ratio("bytes_per_s", "rollingfs cat_ranges", "obstore get_ranges"),
                at_least=1.15,
            ),
        ),
        prepare,
    ),
)
