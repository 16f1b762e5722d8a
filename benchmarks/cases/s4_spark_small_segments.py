"""S4: Spark lists and reads thousands of small segments."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from benchmarks.case import Goal, Job, ratio
from benchmarks.spark.query import PATH, PLAIN, TEXT_SUMS, Files, Query, spark_case

SEGMENTS = 5_000
SEGMENTS_QUICK = 200
LINES = 40
INLINE_BYTES = 3_000
"""More than `LINES` lines, and less than twice as many."""

SMALL = {
    "rolling+file": Query("small", Files(PATH, "segments-small", "text"), TEXT_SUMS),
    "file": Query("small", Files(PLAIN, "plain-small", "text"), TEXT_SUMS),
}


def prepare_small(job: Job) -> Mapping[str, tuple[Sequence[float], int]]:
    """Make segments: half of them have a chunk and a line in the header, the others lie wholly in the header."""
    import fsspec

    from rollingfs.backend.local.backend import LocalBackend

    # not flushed: the disk would flush 5,000 files while the contestants run
    fs = fsspec.filesystem(
        "rolling", backend=LocalBackend(sync=False), inline_bytes=INLINE_BYTES, skip_instance_cache=True
    )
    folder = job.given["folder"]
    plain, segments = f"{folder}/plain-small", f"{folder}/segments-small"
    os.makedirs(plain)
    lines, texts = "".join(f"line {number:045d}\n" for number in range(LINES)), []
    for number in range(job.pick(SEGMENTS, SEGMENTS_QUICK)):
        name, last = f"{number:05d}.txt", f"{number}\n"
        many = lines * (1 + number % 2)
        fs.create(f"{segments}/{name}")
        fs.append(f"{segments}/{name}", many.encode())
        fs.append(f"{segments}/{name}", last.encode())
        with open(f"{plain}/{name}", "w") as file:
            file.write(many + last)
        texts.append(many + last)
    assert len(fs.segment(f"{segments}/00001.txt").chunks) == 1
    rows, size = sum(text.count("\n") for text in texts), sum(map(len, texts))
    return {"small": ((rows, size - rows), size)}


CASES = (
    spark_case(
        "S4",
        "Spark: 5,000 small segments, listed and read by the path",
        SMALL,
        (Goal("rolling+file / file", ratio("wall_s", "rolling+file", "file"), at_most=1.5),),
        prepare_small,
        shown=("wall_s", "cpu_s"),
    ),
)
