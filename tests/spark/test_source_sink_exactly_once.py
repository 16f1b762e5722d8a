"""A killed job that routes its rows, or stages all of them, writes each row once."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path

import pytest

from rollingfs import RollingFileSystem
from tests.spark.test_source_exactly_once import (
    ANY_S_MAX,
    SEED,
    WAIT_S_MAX,
    Job,
    check_exactly_once,
    kill_session,
)
from tests.support import spark as world

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200)]

KILLS = {"64KiB": ["between", "any", "pause", "between", "any"], "0": ["between", "pause", "any"]}
"""By the bytes of a message; some between the commits to two segments of the first batch of a run, one before them."""
STAGED_KILLS = ["pause", "any", "pause"]
DIGIT = (11, 1)
"""Which character of a line, from 1 on, names the segment of the line."""
SIGNS = ("pause", "between", "paused")


class SinkJob(Job):
    """The job, with other options of the sink."""

    def __init__(self, folder: Path, trigger: str = "700", **sink: str) -> None:
        super().__init__(folder, RollingFileSystem("file", sync=False, header_cache_s=0), str(folder), "file", {})
        job = json.loads((folder / "job.json").read_text())
        job["source_options"]["maxBytesPerTrigger"] = trigger
        (folder / "job.json").write_text(json.dumps({**job, "target_options": sink, "digit": DIGIT}))


class RoutedJob(SinkJob):
    """The job, whose target is a folder."""

    def written(self) -> int:
        """Bytes in all segments below the target."""
        return int(self.fs.du(self.target)) if self.fs.exists(self.target) else 0

    def run_and_kill(self, chooser: random.Random, how: str) -> None:
        """Run the job and kill it: in a pause of its first batch, or at any moment after it wrote something."""
        self.grow()
        before = self.written()
        if how != "any":
            (self.folder / how).touch()
        process = self.run("forever")
        try:
            if how == "any":
                self.wait_until(lambda: self.written() > before, process)
                time.sleep(chooser.uniform(0, ANY_S_MAX))
            else:
                self.wait_until((self.folder / "paused").exists, process)
        finally:
            kill_session(process)
            for name in SIGNS:
                (self.folder / name).unlink(missing_ok=True)

    def finish(self) -> None:
        """Run the job to the end of its input, in few batches."""
        self.grow()
        job = json.loads((self.folder / "job.json").read_text())
        (self.folder / "job.json").write_text(json.dumps({**job, "source_options": {}}))
        process = self.run("once")
        try:
            status = process.wait(WAIT_S_MAX)
        finally:
            kill_session(process)
        assert status == 0, (self.folder / "log").read_text(errors="replace")[-5000:]


@pytest.mark.parametrize("message_bytes", list(KILLS))
def test_a_killed_job_that_routes_rows_writes_each_once_to_its_segment(tmp_path, message_bytes):
    world.require_java()
    job = RoutedJob(tmp_path, "2000", segmentBy="digit", taskMessageBytes=message_bytes)
    chooser = random.Random(SEED)
    for how in KILLS[message_bytes]:
        job.run_and_kill(chooser, how)
    job.finish()
    expected: dict[str, bytes] = {}
    for line in job.input.splitlines(keepends=True):
        name = chr(line[DIGIT[0] - 1])
        expected[name] = expected.get(name, b"") + line
    assert {path.rpartition("/")[2]: job.fs.cat_file(path) for path in job.fs.find(job.target)} == expected
    assert len(expected) == 10


def test_a_killed_job_that_stages_its_rows_writes_each_once(tmp_path):
    world.require_java()
    job = SinkJob(tmp_path, taskMessageBytes="0")
    check_exactly_once(job, STAGED_KILLS, maxBytesPerTrigger="1MB", partitionBytes="10kB")
