"""L7: a listing of a folder of many segments, by a client that has seen none of them."""

from __future__ import annotations

import uuid
from functools import partial

from benchmarks.case import Case, Goal, Job, figure, ratio
from benchmarks.clients import BUCKET, rolling
from benchmarks.fabricate import AT_MS, at_once
from rollingfs import RollingPolicy
from rollingfs.format import names
from rollingfs.format.codec import format_header
from rollingfs.format.header import Header
from rollingfs.runtime.bridge import Bridge

FOLDER = f"{BUCKET}/l7"


def prepare(job: Job) -> dict[str, int]:
    """As many segments, of a few bytes each, by their headers alone; and the rows of the folder."""
    count = job.pick(50_000, 2_000)
    fs = rolling(job, direct=True)
    calls = [
        partial(fs._backend.create, names.header_path(f"{FOLDER}/{nth:06}"), header_bytes()) for nth in range(count)
    ]
    Bridge(fs._backend).run(at_once(calls))
    fs.ls(FOLDER)
    assert fs._client.headers.seen(names.listing_path(FOLDER)) is not None
    return {"count": count}


def header_bytes() -> bytes:
    header = Header(str(uuid.uuid4()), 1, policy=RollingPolicy(), tail=b"some bytes", tail_at_ms=AT_MS)
    return format_header(header)


def _list(job: Job, folder: str) -> None:
    fs = rolling(job)
    with job.measured() as sample:
        found = fs.ls(folder)
    sample.extra["segments"] = float(len(found))
    assert len(found) == job.given["count"]
    assert all(info["size"] == len(b"some bytes") for info in found)


def by_rows(job: Job) -> None:
    _list(job, FOLDER)


def by_headers(job: Job) -> None:
    """The first listing of all; it writes the rows as well."""
    rolling(job, direct=True).rm(names.listing_path(FOLDER))
    _list(job, FOLDER)


CASES = (
    Case(
        "L7",
        "listing of 50,000 segments by a new client",
        {"rollingfs, no rows yet": by_headers, "rollingfs, by rows": by_rows},
        (
            Goal("requests, by rows", figure("requests", "rollingfs, by rows"), at_most=110),
            Goal("time, no rows / rows", ratio("wall_s", "rollingfs, no rows yet", "rollingfs, by rows"), at_least=4),
        ),
        prepare,
        shown=("wall_s", "requests", "cpu_s", "memory_bytes"),
    ),
)
