"""I1: how many of the newest bytes the header should keep: the time and the price of appends by `inline_bytes`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from benchmarks.case import Case, Goal, Job, Medians
from benchmarks.clients import BUCKET, rolling
from benchmarks.content import check, content
from benchmarks.cost import MILLION, Way, appends_cost
from rollingfs.policy import INLINE_BYTES_DEFAULT
from rollingfs.show.readable import S3_EXPRESS, S3_STANDARD

SIZE = 4096
KIB = (16, 32, 64, 128, 256)
DEFAULT = f"{INLINE_BYTES_DEFAULT // 1024} KiB"
FULL = 4
"""Every inline tail becomes a chunk at least so many times: a part of this cycle would have headers of another size."""


def ours(job: Job, inline_bytes: int) -> None:
    fs, path = rolling(job, inline_bytes=inline_bytes), f"{BUCKET}/i1-{job.name}"
    fs.create(path)
    for number in range(cycle := max(KIB) * 1024 // SIZE + 1):
        fs.append(path, content(number * SIZE, SIZE))
    job.each(lambda number: fs.append(path, content((cycle + number) * SIZE, SIZE)), job.pick(FULL, 1) * cycle)
    check(rolling(job, direct=True).cat_file(path), 0)
    counted = job.sample
    way = Way.counted(counted.requests, counted.sent_bytes, counted.count)
    counted.extra = {
        "standard_usd": appends_cost(way, MILLION, S3_STANDARD),
        "express_usd": appends_cost(way, MILLION, S3_EXPRESS),
    }


def _over_least(figure: str) -> Callable[[Medians], float]:
    """The figure of the default over the least of all."""
    return lambda medians: medians[DEFAULT][figure] / min(medians[f"{kib} KiB"][figure] for kib in KIB)


CASES = (
    Case(
        "I1",
        "append of 4 KiB by inline_bytes; the price of a million",
        {f"{kib} KiB": partial(ours, inline_bytes=kib * 1024) for kib in KIB},
        (
            Goal("default's time / the shortest", _over_least("unit_s"), at_most=1.15),
            Goal("default's price / the lowest, S3 Standard", _over_least("standard_usd"), at_most=1.02),
            Goal("default's price / the lowest, S3 Express", _over_least("express_usd"), at_most=1.25),
        ),
        shown=("unit_s", "p99_s", "cpu_unit_s", "requests", "sent_unit_bytes", "standard_usd", "express_usd"),
    ),
)
