"""A killed job that routes its rows, or stages all of them, writes each row once."""

from __future__ import annotations

import random

import pytest

from tests.spark.test_source_exactly_once import SEED, Job, check_exactly_once, on_disk

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200)]

KILLS = {"64KiB": ["between", "any", "pause", "between", "any"], "0": ["between", "pause", "any"]}
"""By the bytes of a message; some between the commits to two segments of the first batch of a run, one before them."""
STAGED_KILLS = ["pause", "any", "pause"]
DIGIT = (11, 1)
"""Which character of a line, from 1 on, names the segment of the line."""


class RoutedJob(Job):
    """The job, whose target is a folder."""

    pauses_at_once = True


@pytest.mark.parametrize("message_bytes", list(KILLS))
def test_a_killed_job_that_routes_rows_writes_each_once_to_its_segment(tmp_path, message_bytes):
    target_options = {"segmentBy": "digit", "taskMessageBytes": message_bytes}
    job = RoutedJob(tmp_path, on_disk(), target_options=target_options, digit=DIGIT)
    job.source_options["maxBytesPerTrigger"] = "2000"
    chooser = random.Random(SEED)
    for how in KILLS[message_bytes]:
        job.run_and_kill(chooser, how)
    job.finish(maxBytesPerTrigger="1GB", partitionBytes="32MiB")
    expected: dict[str, bytes] = {}
    for line in job.input.splitlines(keepends=True):
        name = chr(line[DIGIT[0] - 1])
        expected[name] = expected.get(name, b"") + line
    assert {path.rpartition("/")[2]: job.fs.cat_file(path) for path in job.fs.find(job.target)} == expected
    assert len(expected) == 10


def test_a_killed_job_that_stages_its_rows_writes_each_once(tmp_path):
    job = Job(tmp_path, on_disk(), target_options={"taskMessageBytes": "0"})
    check_exactly_once(job, STAGED_KILLS, maxBytesPerTrigger="1MB", partitionBytes="10kB")
