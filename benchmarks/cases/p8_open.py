"""P8: from an open to the first byte."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from benchmarks.case import Case, Goal, Job, figure, ratio
from benchmarks.clients import BUCKET, rolling, s3
from benchmarks.content import check, content

SIZE = 2 * 2**20
CACHE_S = 0.2


def prepare(job: Job) -> dict[str, str]:
    fs, path = rolling(job, direct=True), f"{BUCKET}/p8-{job.name}"
    fs.overwrite(path, content(0, SIZE))
    fs.seal(path)
    s3(job, direct=True).pipe_file(f"{path}-plain", content(0, SIZE))
    return {"segment": path, "plain": f"{path}-plain"}


def _first_byte(job: Job, fs: object, path: str, pause_s: float = 0, warm: int = 0) -> None:
    def once(number: int) -> None:
        with fs.open(path, "rb") as file:  # type: ignore[attr-defined]
            assert check(file.read(1), 0) == 1

    content(0, 1)  # its making is no part of the case
    for _ in range(warm):
        once(0)
    time.sleep(pause_s)
    job.each(once, 1)


def ours_first(job: Job) -> None:
    _first_byte(job, rolling(job), job.given["segment"])


def _from_cold(job: Job, make: Callable[..., Any], path: str) -> None:
    def once(_: int) -> None:
        with make(job, warm=False).open(path, "rb") as file:
            assert check(file.read(1), 0) == 1

    content(0, 1)
    job.each(once, 1)


def ours_cold(job: Job) -> None:
    """With the making of the filesystem and its first connection; obstore is imported, too."""
    _from_cold(job, rolling, job.given["segment"])


def s3fs_cold(job: Job) -> None:
    _from_cold(job, s3, job.given["plain"])


def ours_again(job: Job) -> None:
    _first_byte(job, rolling(job, header_cache_s=60), job.given["segment"], warm=1)


def ours_later(job: Job) -> None:
    _first_byte(job, rolling(job, header_cache_s=CACHE_S), job.given["segment"], pause_s=2 * CACHE_S, warm=1)


def s3fs_first(job: Job) -> None:
    _first_byte(job, s3(job), job.given["plain"])


CASES = (
    Case(
        "P8",
        "open to the first byte",
        {
            "rollingfs, new filesystem": ours_first,
            "rollingfs, again": ours_again,
            "rollingfs, after the cache time": ours_later,
            "s3fs": s3fs_first,
            "rollingfs, not yet connected": ours_cold,
            "s3fs, not yet connected": s3fs_cold,
        },
        (
            Goal("requests, new", figure("requests", "rollingfs, new filesystem"), at_most=2),
            Goal("s3fs / new", ratio("wall_s", "s3fs", "rollingfs, new filesystem"), at_least=2),
            Goal(
                "s3fs / ours, not yet connected",
                ratio("wall_s", "s3fs, not yet connected", "rollingfs, not yet connected"),
                at_least=2,
            ),
            Goal("requests, again", figure("requests", "rollingfs, again"), at_most=1),
            Goal("requests, later", figure("requests", "rollingfs, after the cache time"), at_most=2),
            Goal(
                "later / again (one round trip)",
                ratio("wall_s", "rollingfs, after the cache time", "rollingfs, again"),
                at_most=1.5,
            ),
        ),
        prepare,
        shown=("wall_s", "requests", "cpu_s"),
    ),
)
