"""L1, L2: consolidation of large and of small chunks."""

from __future__ import annotations

import asyncio
from typing import Any

import fsspec

from benchmarks.case import Case, Goal, Job, Lowered, figure, ratio
from benchmarks.clients import BUCKET, obs, rolling
from benchmarks.content import check, content

LARGE_BYTES = 8 * 2**20
SMALL_BYTES = 64 * 2**10
JOINED_BYTES = 64 * 2**20
"""The size of the chunks after consolidation."""
FETCHES = 32
"""Requests that both keep under way."""


def _consolidated(job: Job, count: int, size: int) -> None:
    """Consolidate a segment of `count` chunks of `size` bytes while a reader holds an old snapshot."""
    from tests.support.backends import Counting  # as in `servers`: most runs do without the tests

    path, total = f"{BUCKET}/life-{job.name}", count * size
    setup = rolling(job, direct=True, max_bytes=JOINED_BYTES, inline_bytes=0)
    setup.create(path)
    small = rolling(job, direct=True, max_bytes=size, inline_bytes=0)
    for start in range(0, total, JOINED_BYTES):  # the segment's own policy would not make chunks of this size
        data = content(start, min(JOINED_BYTES, total - start))
        small.overwrite(f"{path}-source", data)
        small.seal(f"{path}-source")
        setup.concat(path, [f"{path}-source"])
    backend = Counting(rolling(job)._backend)
    fs = fsspec.filesystem("rolling", backend=backend, skip_instance_cache=True)
    segment = fs.segment(path)
    assert len(segment.chunks) == count
    with setup.open(path, "rb") as reader:
        half = check(reader.read(total // 2), 0)
        before = backend.read_bytes, backend.moved["upload.write"]
        with job.measured(count):
            segment.consolidate()
        job.sample.extra["bytes_read"] = (backend.read_bytes - before[0]) / total
        job.sample.extra["bytes_written"] = (backend.moved["upload.write"] - before[1]) / total
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


def fetch_and_put(job: Job) -> None:
    """What a client cannot do without: the same chunks fetched, as many at once, and the joined bytes put."""
    count, store = job.pick(10_000, 400), obs(job)
    total, each = count * SMALL_BYTES, JOINED_BYTES // SMALL_BYTES
    names = [f"life-{job.name}/{number:05}" for number in range(count)]
    joined = [f"life-{job.name}/joined-{first:05}" for first in range(0, count, each)]

    async def prepare() -> None:
        import obstore

        direct, places = obs(job, direct=True), asyncio.Semaphore(FETCHES)

        async def put(number: int) -> None:
            async with places:
                data = content(number * SMALL_BYTES, SMALL_BYTES)
                await obstore.put_async(direct, names[number], data)

        await asyncio.gather(*map(put, range(count)))

    async def rewrite() -> None:
        import obstore

        places = asyncio.Semaphore(FETCHES)

        async def fetch(name: str) -> Any:
            async with places:
                return await (await obstore.get_async(store, name)).bytes_async()

        for target, first in zip(joined, range(0, count, each), strict=True):
            pieces = await asyncio.gather(*map(fetch, names[first : first + each]))
            await obstore.put_async(store, target, b"".join(map(bytes, pieces)))

    asyncio.run(prepare())
    with job.measured(count):
        asyncio.run(rewrite())
    import obstore

    assert sum(check(obstore.get(store, name).bytes(), JOINED_BYTES * at) for at, name in enumerate(joined)) == total
    obstore.delete(store, [*names, *joined])
    job.sample.byte_count = total


CASES = (
    Case(
        "L1",
        "consolidation of 200 chunks of 8 MiB",
        {"rollingfs consolidate": large},
        (
            Goal("bytes read here / bytes", figure("bytes_read", "rollingfs consolidate"), at_most=0),
            Goal("bytes written here / bytes", figure("bytes_written", "rollingfs consolidate"), at_most=0),
        ),
    ),
    Case(
        "L2",
        "consolidation of 10,000 chunks of 64 KiB",
        {"rollingfs consolidate": small, "obstore, fetch and put": fetch_and_put},
        (
            Goal(
                "bytes read here / bytes",
                figure("bytes_read", "rollingfs consolidate"),
                at_most=2,
                lowered=Lowered("≤ 1", "2026-11-23", "each new file is read back before the old chunks go"),
            ),
            Goal("bytes written here / bytes", figure("bytes_written", "rollingfs consolidate"), at_most=1),
            Goal(
                "time / fetch and put", ratio("wall_s", "rollingfs consolidate", "obstore, fetch and put"), at_most=1.5
            ),
            Goal("memory, MiB", figure("memory_bytes", "rollingfs consolidate", 2**-20), at_most=128),
        ),
    ),
)
