"""L4: following a segment."""

from __future__ import annotations

import threading
import time
from typing import Any

from benchmarks.case import Case, Goal, Job, figure
from benchmarks.clients import BUCKET, rolling

IDLE_S = 20
"""By then a tail has slowed down to its slowest poll."""
MINUTE_S = 60


def tail(job: Job) -> None:
    """Measure the delay between an append and its line, and the requests of an idle minute."""
    fs, path, count = rolling(job), f"{BUCKET}/life-{job.name}", job.pick(100, 20)
    fs.create(path)
    began: list[float] = []
    delays: list[float] = []

    def follow(follower: Any) -> None:
        for piece in follower:
            delays.extend(time.perf_counter() - began[len(delays)] for _ in range(len(piece)))

    thread = threading.Thread(target=follow, args=(rolling(job).segment(path).tail(),))
    thread.start()
    for _ in range(count):
        time.sleep(0.3)
        began.append(time.perf_counter())
        fs.append(path, b"x")
    time.sleep(IDLE_S)
    with job.measured() as sample:
        time.sleep(MINUTE_S / 2 if job.quick else MINUTE_S)
    if job.quick:
        sample.requests = {name: 2 * number for name, number in sample.requests.items()}
    fs.seal(path)
    thread.join()
    assert len(delays) == count
    sample.latencies_s = delays


CASES = (
    Case(
        "L4",
        "tail: delay of a line, and a minute of waiting",
        {"rollingfs tail": tail},
        (Goal("requests a minute", figure("requests", "rollingfs tail"), at_most=MINUTE_S / 2 + 1),),
        shown=("unit_s", "p99_s", "requests", "cpu_s"),
    ),
)
