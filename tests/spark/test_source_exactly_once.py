"""A streaming job that is killed again and again writes each row of its input once, and in order."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rollingfs import RollingFileSystem, RollingPolicy
from tests.support import spark as world
from tests.support.schedules import eventually
from tests.support.servers import new_bucket

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200)]

JOB = Path(__file__).with_name("exactly_once_job.py")
SEED = 20261121
KILLS = ["pause", "any", "any", "pause", "any", "any", "pause", "any"]
"""Three of them between the end of a batch's tasks and the commit of the header."""
ROUTED_KILLS = {"64KiB": ["between", "any", "pause", "between", "any"], "0": ["between", "pause", "any"]}
"""By the bytes of a message; some between the commits to two segments of the first batch of a run, one before them."""
DIGIT = (11, 1)
"""Which character of a line, from 1 on, names the segment of the line."""
ANY_S_MAX = 2.0
"""After the first batch of a run, a kill comes within so many seconds."""
SIGNS = ("pause", "between", "paused")
"""Files by which the test and the job speak."""
WAIT_S_MAX = 900
"""Maximum time to the next batch. At a load of thirty a session alone takes four minutes to start."""
END_S_MAX = 1800
"""Maximum time of the last run. On a machine with much else to do, a batch takes a minute."""
LINES_PER_KILL = 400
"""Some twenty batches: more than are written before the kill."""
POLICY = RollingPolicy(max_bytes=10_000, inline_bytes=1000)


class Job:
    """The job, its two segments, and the input as it grows."""

    def __init__(
        self, folder: Path, fs: RollingFileSystem, root: str = "", protocol: str = "file", **job: Mapping[str, Any]
    ) -> None:
        self.folder, self.fs = folder, fs
        root = root or str(folder)
        self.source, self.target = f"{root}/in/source", f"{root}/target"
        self.input = b""
        self.seen: tuple[int, int] | None = None
        fs.create(self.source, POLICY)
        urls = {"source": f"rolling+{protocol}://{root}/in", "target": f"rolling+{protocol}://{self.target}"}
        self.job: dict[str, Any] = {**urls, "options": {}, "target_options": {}, **job}
        self.source_options = {"maxBytesPerTrigger": "700", "partitionBytes": "300"}

    def grow(self) -> None:
        """More input, of lines that tell themselves apart; none ends where the append does."""
        count = self.input.count(b"\n")
        data = b"".join(b"line %06d %s\n" % (nth, b"x" * (nth % 50)) for nth in range(count, count + LINES_PER_KILL))
        self.input += data
        for start in range(0, len(data), 777):
            self.fs.append(self.source, data[start : start + 777])

    def trim(self) -> int:
        """Truncate the source to what a batch before the last one has written: no restart reads it again."""
        if not self.fs.exists(self.target):
            return 0
        target = self.fs.segment(self.target)
        [batch] = map(int, target.attrs.values())
        if self.seen is not None and batch > self.seen[0]:
            self.fs.truncate(self.source, self.seen[1])
        if self.seen is None or batch > self.seen[0]:
            self.seen = (batch, target.length)
        return self.fs.segment(self.source).start

    def run(self, mode: str) -> subprocess.Popen[bytes]:
        (self.folder / "job.json").write_text(json.dumps({**self.job, "source_options": self.source_options}))
        command = [sys.executable, str(JOB), str(self.folder), mode]
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(command, env=world.environment(), stdout=log, stderr=log, start_new_session=True)

    def written(self) -> int:
        """Bytes in the target, or in all segments below it."""
        return int(self.fs.du(self.target)) if self.fs.exists(self.target) else 0

    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")[-5000:]

    def run_and_kill(self, chooser: random.Random, how: str) -> None:
        """Run the job and kill it: in a pause, or at any moment after it wrote something."""
        self.grow()
        # where rows are routed, a pause comes in the first batch of a run, and else behind it
        before, is_early = self.written(), bool(self.job["target_options"]) and how != "any"
        if is_early:
            (self.folder / how).touch()
        process = self.run("forever")
        try:
            if not is_early:
                eventually(lambda: self.written() > before, WAIT_S_MAX, self.log, process)
            if how == "any":
                time.sleep(chooser.uniform(0, ANY_S_MAX))
            else:
                (self.folder / how).touch()
                eventually((self.folder / "paused").exists, WAIT_S_MAX, self.log, process)
        finally:
            kill_session(process)
            for name in SIGNS:
                (self.folder / name).unlink(missing_ok=True)

    def finish(self, **last: str) -> None:
        """Run the job to the end of its input, with some other options of the source."""
        self.grow()
        self.source_options |= last
        process = self.run("once")
        try:
            status = process.wait(END_S_MAX)
        finally:
            kill_session(process)
        assert status == 0, self.log()


def kill_session(process: subprocess.Popen[bytes]) -> None:
    """``kill -9`` for the job with all that it started: JVM, workers, the runners of source and sink."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == process.pid:
                    os.kill(int(entry.name), signal.SIGKILL)
    process.wait()


def check_exactly_once(job: Job) -> None:
    """Kill a job again and again; the last run goes to the end."""
    chooser = random.Random(SEED)
    trimmed = 0
    for how in KILLS:
        job.run_and_kill(chooser, how)
        trimmed = max(trimmed, job.trim())
    job.finish()
    assert job.fs.cat_file(job.target) == job.input
    assert 0 < trimmed == job.fs.segment(job.source).start


def on_disk() -> RollingFileSystem:
    world.require_java()
    return RollingFileSystem("file", sync=False, header_cache_s=0)


def test_job_killed_repeatedly_on_disk_writes_rows_once(tmp_path):
    check_exactly_once(Job(tmp_path, on_disk()))


@pytest.mark.s3
def test_job_killed_repeatedly_on_s3_writes_rows_once(tmp_path, minio):
    world.require_java()
    fs = RollingFileSystem("s3", minio, header_cache_s=0)
    check_exactly_once(Job(tmp_path, fs, new_bucket(minio), "s3", options={"storage_options": json.dumps(minio)}))


@pytest.mark.parametrize("message_bytes", list(ROUTED_KILLS))
def test_killed_routing_job_writes_rows_once_per_segment(tmp_path, message_bytes):
    target_options = {"segmentBy": "digit", "taskMessageBytes": message_bytes}
    job = Job(tmp_path, on_disk(), target_options=target_options, digit=DIGIT)
    job.source_options["maxBytesPerTrigger"] = "2000"
    chooser = random.Random(SEED)
    for how in ROUTED_KILLS[message_bytes]:
        job.run_and_kill(chooser, how)
    job.finish(maxBytesPerTrigger="1GB", partitionBytes="32MiB")
    expected: dict[str, bytes] = {}
    for line in job.input.splitlines(keepends=True):
        name = chr(line[DIGIT[0] - 1])
        expected[name] = expected.get(name, b"") + line
    assert {path.rpartition("/")[2]: job.fs.cat_file(path) for path in job.fs.find(job.target)} == expected
    assert len(expected) == 10
