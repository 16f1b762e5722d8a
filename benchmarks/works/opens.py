"""P8, P12: opening, and what it costs to have the library."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time

from benchmarks.content import check, content
from benchmarks.stores import BUCKET, rolling, s3
from benchmarks.work import Goal, Job, Work, _reset_peak, figure, ratio

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

    for _ in range(warm):
        once(0)
    time.sleep(pause_s)
    job.each(once, 1)


def ours_first(job: Job) -> None:
    _first_byte(job, rolling(job), job.given["segment"])


def ours_again(job: Job) -> None:
    _first_byte(job, rolling(job, header_cache_s=60), job.given["segment"], warm=1)


def ours_later(job: Job) -> None:
    _first_byte(job, rolling(job, header_cache_s=CACHE_S), job.given["segment"], pause_s=2 * CACHE_S, warm=1)


def s3fs_first(job: Job) -> None:
    _first_byte(job, s3(job), job.given["plain"])


IMPORT = "import time; import {0}; began = time.perf_counter(); import {1}; print(time.perf_counter() - began)"


def _import(job: Job, before: str, module: str) -> None:
    code = IMPORT.format(before, module)
    with tempfile.TemporaryDirectory() as compiled:
        # compiled once, as installed packages are, whatever this environment says
        env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        command, env = [sys.executable, "-c", code], env | {"PYTHONPYCACHEPREFIX": compiled}
        subprocess.run(command, env=env, capture_output=True, check=True)
        with job.measured() as sample:
            for _ in range(job.pick(20, 5)):
                found = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
                sample.latencies_s.append(float(found.stdout))


def import_ours(job: Job) -> None:
    _import(job, "fsspec", "rollingfs")


def import_filesystem(job: Job) -> None:
    _import(job, "fsspec", "rollingfs.fs.filesystem")


def import_s3fs(job: Job) -> None:
    _import(job, "fsspec", "s3fs")


def many_opens(job: Job) -> None:
    fs, count = rolling(job), job.pick(10_000, 2_000)

    def once(_: int) -> None:
        fs.open(job.given["segment"], "rb").close()

    for number in range(500):
        once(number)
    before = _reset_peak()
    job.each(once, count)
    job.sample.extra["growth_bytes"] = _reset_peak() - before


WORKS = (
    Work(
        "P8",
        "open to the first byte",
        {
            "rollingfs, new filesystem": ours_first,
            "rollingfs, again": ours_again,
            "rollingfs, after the cache time": ours_later,
            "s3fs": s3fs_first,
        },
        (
            Goal("requests, new", figure("requests", "rollingfs, new filesystem"), at_most=2),
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
    Work(
        "P12",
        "imports; 10,000 opens of a sealed segment",
        {
            "import rollingfs": import_ours,
            "import rollingfs.fs.filesystem": import_filesystem,
            "import s3fs": import_s3fs,
            "rollingfs opens": many_opens,
        },
        (
            Goal("import rollingfs, ms", figure("unit_s", "import rollingfs", 1000), at_most=50),
            Goal("growth by opens, MiB", figure("growth_bytes", "rollingfs opens", 1 / 2**20), at_most=1),
        ),
        prepare,
        shown=("unit_s", "requests", "cpu_unit_s"),
    ),
)
