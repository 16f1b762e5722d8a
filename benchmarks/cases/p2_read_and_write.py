"""P2, P2b: a large file read, and written, from front to back."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.case import Case, Goal, Job, figure, ratio
from benchmarks.clients import BUCKET, arrow, obs, rolling, s3
from benchmarks.content import ContentFile, check, content

MIB = 2**20
COLD_BYTES = 256 * MIB
READ_BYTES = 8 * MIB
OBSTORE_RANGE_BYTES = 8 * MIB
OBSTORE_RANGES = 16
S3FS_PART_BYTES = 32 * MIB


def size_of(job: Job) -> int:
    return job.pick(1024, 128) * MIB


def prepare(job: Job) -> dict[str, str]:
    size = size_of(job)
    fs, plain = rolling(job, direct=True), s3(job, direct=True)
    fs.overwrite(f"{BUCKET}/large", ContentFile(size))
    with plain.open(f"{BUCKET}/large-plain", "wb", block_size=S3FS_PART_BYTES) as file:
        source = ContentFile(size)
        while data := source.read(S3FS_PART_BYTES):
            file.write(data)
    return {"segment": f"{BUCKET}/large", "plain": f"{BUCKET}/large-plain"}


def prepare_cold(job: Job) -> dict[str, str]:
    fs, plain = rolling(job, direct=True), s3(job, direct=True)
    fs.overwrite(f"{BUCKET}/cold", ContentFile(COLD_BYTES))
    plain.pipe_file(f"{BUCKET}/cold-plain", ContentFile(COLD_BYTES).read())
    return {"segment": f"{BUCKET}/cold", "plain": f"{BUCKET}/cold-plain"}


def ours_cold(job: Job) -> None:
    """Nothing is connected and no header is known but what one small read has left."""
    fs = rolling(job)
    with job.measured(), fs.open(job.given["segment"], "rb") as file:
        _read_file(job, file)
    assert job.sample.byte_count == COLD_BYTES


def obstore_cold(job: Job) -> None:
    store = obs(job)
    name = job.given["plain"].removeprefix(f"{BUCKET}/")
    with job.measured() as sample:
        sample.byte_count = asyncio.run(_obstore_ranges(store, name, COLD_BYTES))
    assert job.sample.byte_count == COLD_BYTES


def _read_file(job: Job, file: Any) -> None:
    at = 0
    while data := file.read(READ_BYTES):
        at += check(data, at)
    job.sample.byte_count = at


def _all(job: Job) -> None:
    assert job.sample.byte_count == size_of(job)


def ours_open(job: Job) -> None:
    fs = rolling(job)
    with job.measured(), fs.open(job.given["segment"], "rb") as file:
        _read_file(job, file)
    _all(job)


def _read_whole(job: Job, read: Callable[[], Any]) -> None:
    with job.measured() as sample:
        found = read()
    sample.byte_count = sum(check(data, start) for start, data in found)
    sample.memory_bytes -= sample.byte_count
    _all(job)


def ours_cat_file(job: Job) -> None:
    fs = rolling(job)
    _read_whole(job, lambda: [(0, fs.cat_file(job.given["segment"]))])


def obstore_ranges(job: Job) -> None:
    store = obs(job)
    name = job.given["plain"].removeprefix(f"{BUCKET}/")
    with job.measured() as sample:
        sample.byte_count = asyncio.run(_obstore_ranges(store, name, size_of(job)))
    _all(job)


async def _obstore_ranges(store: Any, name: str, size: int) -> int:
    """Request several ranges at once and take them in order, as a sequential reader in bounded memory would."""
    import obstore

    starts = iter(range(0, size, OBSTORE_RANGE_BYTES))

    def begin(start: int) -> asyncio.Future[Any]:
        call = obstore.get_range_async(store, name, start=start, end=min(start + OBSTORE_RANGE_BYTES, size))
        return asyncio.ensure_future(call)

    waiting = [begin(start) for _, start in zip(range(OBSTORE_RANGES), starts, strict=False)]
    at = 0
    while waiting:
        at += check(await waiting.pop(0), at)
        if (start := next(starts, None)) is not None:
            waiting.append(begin(start))
    return at


def obstore_whole(job: Job) -> None:
    store, size = obs(job), size_of(job)
    name = job.given["plain"].removeprefix(f"{BUCKET}/")
    _read_whole(job, lambda: asyncio.run(_obstore_whole(store, name, size)))


async def _obstore_whole(store: Any, name: str, size: int) -> list[tuple[int, Any]]:
    """Request all ranges at once, without joining them to one object as `cat_file` does."""
    import obstore

    gate = asyncio.Semaphore(2 * OBSTORE_RANGES)

    async def read(start: int) -> tuple[int, Any]:
        async with gate:
            end = min(start + OBSTORE_RANGE_BYTES, size)
            return start, await obstore.get_range_async(store, name, start=start, end=end)

    return await asyncio.gather(*map(read, range(0, size, OBSTORE_RANGE_BYTES)))


def s3fs_open(job: Job) -> None:
    fs = s3(job)
    with job.measured(), fs.open(job.given["plain"], "rb") as file:
        _read_file(job, file)
    _all(job)


def s3fs_cat_file(job: Job) -> None:
    fs = s3(job)
    _read_whole(job, lambda: [(0, fs.cat_file(job.given["plain"]))])


def arrow_stream(job: Job) -> None:
    fs = arrow(job)
    with job.measured(), fs.open_input_stream(job.given["plain"], buffer_size=READ_BYTES) as file:
        _read_file(job, file)
    _all(job)


# -- writing -------------------------------------------------------------------------------------------------


def _write(job: Job, fs: Any, path: str, block_size: int | None = None) -> None:
    options = {} if block_size is None else {"block_size": block_size}
    size = size_of(job)
    pieces = [content(start, READ_BYTES) for start in range(0, 4 * READ_BYTES, READ_BYTES)]
    with job.measured() as sample:
        with fs.open(path, "wb", **options) as file:
            for start in range(0, size, READ_BYTES):
                file.write(pieces[start // READ_BYTES % len(pieces)])
        sample.byte_count = size
    _check_written(job, partial(fs.cat_file, path))
    fs.rm(path)


def _check_written(job: Job, read: Callable[..., Any]) -> None:
    for start in range(0, size_of(job), 16 * READ_BYTES):  # a sample of what `_write` wrote
        piece = start // READ_BYTES % 4 * READ_BYTES
        data = read(start=start, end=start + READ_BYTES)
        assert check(data, piece) == READ_BYTES


def _local_file(job: Job, folder: str) -> str:
    path = os.path.join(folder, "source")
    with open(path, "wb") as file:
        for start in range(0, size_of(job), READ_BYTES):
            file.write(content(start // READ_BYTES % 4 * READ_BYTES, READ_BYTES))
    return path


def _put(job: Job, put: Callable[[str], object]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        source = _local_file(job, folder)
        with job.measured() as sample:
            put(source)
            sample.byte_count = size_of(job)


def ours_write(job: Job) -> None:
    _write(job, rolling(job), f"{BUCKET}/p2b-{job.name}")


def ours_put_file(job: Job) -> None:
    fs, path = rolling(job), f"{BUCKET}/p2b-{job.name}"
    _put(job, lambda source: fs.put_file(source, path))
    _check_written(job, partial(fs.cat_file, path))
    fs.rm(path)


def s3fs_write(job: Job) -> None:
    _write(job, s3(job), f"{BUCKET}/p2b-{job.name}", S3FS_PART_BYTES)


def s3fs_put_file(job: Job) -> None:
    fs, path = s3(job), f"{BUCKET}/p2b-{job.name}"
    _put(job, lambda source: fs.put_file(source, path, chunksize=S3FS_PART_BYTES, max_concurrency=8))
    _check_written(job, partial(fs.cat_file, path))
    fs.rm(path)


def obstore_put(job: Job) -> None:
    import pathlib

    store, name = obs(job), f"p2b-{job.name}"
    import obstore

    _put(job, lambda source: obstore.put(store, name, pathlib.Path(source), chunk_size=16 * MIB, max_concurrency=12))
    _check_written(job, lambda start, end: obstore.get_range(store, name, start=start, end=end))
    obstore.delete(store, name)


def _best(figure_name: str, *contestants: str) -> Callable[[Any], float]:
    return lambda medians: max(medians[name][figure_name] for name in contestants if name in medians)


def _share(one: str, *others: str) -> Callable[[Any], float]:
    best = _best("bytes_per_s", *others)
    return lambda medians: medians[one]["bytes_per_s"] / best(medians)


_TO_MIB = 1 / MIB
SHOWN = ("bytes_per_s", "wall_s", "requests", "cpu_s", "memory_bytes")

CASES = (
    Case(
        "P2",
        "1 GiB read from front to back",
        {
            "rollingfs open": ours_open,
            "rollingfs cat_file": ours_cat_file,
            "obstore ranges": obstore_ranges,
            "obstore ranges, whole": obstore_whole,
            "s3fs open": s3fs_open,
            "s3fs cat_file": s3fs_cat_file,
            "pyarrow stream": arrow_stream,
        },
        (
            Goal("open / obstore ranges", ratio("bytes_per_s", "rollingfs open", "obstore ranges"), at_least=1),
            Goal(
                "cat_file / obstore", ratio("bytes_per_s", "rollingfs cat_file", "obstore ranges, whole"), at_least=0.95
            ),
            Goal("open / s3fs open", ratio("bytes_per_s", "rollingfs open", "s3fs open"), at_least=9),
            Goal("open, memory MiB", figure("memory_bytes", "rollingfs open", _TO_MIB), at_most=128),
        ),
        prepare,
        shown=SHOWN,
    ),
    Case(
        "P2c",
        "256 MiB read from front to back by a new client",
        {"rollingfs open": ours_cold, "obstore ranges": obstore_cold},
        (
            Goal("open / obstore ranges", ratio("bytes_per_s", "rollingfs open", "obstore ranges"), at_least=0.95),
            Goal("open, memory MiB", figure("memory_bytes", "rollingfs open", _TO_MIB), at_most=128),
        ),
        prepare_cold,
        shown=SHOWN,
    ),
    Case(
        "P2b",
        "1 GiB written",
        {
            "rollingfs open": ours_write,
            "rollingfs put_file": ours_put_file,
            "s3fs open": s3fs_write,
            "s3fs put_file": s3fs_put_file,
            "obstore put": obstore_put,
        },
        (
            Goal("open / best", _share("rollingfs open", "s3fs open", "s3fs put_file", "obstore put"), at_least=0.95),
            Goal(
                "put_file / best",
                _share("rollingfs put_file", "s3fs open", "s3fs put_file", "obstore put"),
                at_least=0.95,
            ),
            Goal("open, memory MiB", figure("memory_bytes", "rollingfs open", _TO_MIB), at_most=256),
            Goal("put_file, memory MiB", figure("memory_bytes", "rollingfs put_file", _TO_MIB), at_most=256),
        ),
        shown=SHOWN,
    ),
)
