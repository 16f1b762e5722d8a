"""L1, L2: consolidation of large and of small chunks."""

from __future__ import annotations

from typing import Any

import fsspec

from benchmarks.case import Case, Goal, Job, figure
from benchmarks.clients import BUCKET, rolling
from benchmarks.content import check, content
from rollingfs.backend.wrapper import BackendWrapper

LARGE_BYTES = 8 * 2**20
SMALL_BYTES = 64 * 2**10
JOINED_BYTES = 64 * 2**20
"""The size of the chunks after consolidation."""


class Counting(BackendWrapper):
    """Counts the bytes of chunks that pass through the client."""

    read_bytes = written_bytes = 0

    async def call(self, verb: str, *args: Any) -> Any:
        answer = await super().call(verb, *args)
        if verb == "read_range":
            self.read_bytes += len(answer)
        elif verb == "upload.write":
            self.written_bytes += len(args[2])
        return answer


def _consolidated(job: Job, count: int, size: int) -> None:
    """Consolidate a segment of `count` chunks of `size` bytes while a reader holds an old snapshot."""
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
    with setup.open(path, "rb") as reader, job.measured(count):
        half = check(reader.read(total // 2), 0)
        before = backend.read_bytes, backend.written_bytes
        segment.consolidate()
        job.sample.extra["bytes_read"] = (backend.read_bytes - before[0]) / total
        job.sample.extra["bytes_written"] = (backend.written_bytes - before[1]) / total
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
        {"rollingfs consolidate": small},
        (
            Goal("bytes read here / bytes", figure("bytes_read", "rollingfs consolidate"), at_most=1),
            Goal("bytes written here / bytes", figure("bytes_written", "rollingfs consolidate"), at_most=1),
        ),
    ),
)
