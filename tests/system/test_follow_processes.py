"""Followers that are processes: they end cleanly by a signal, and after kill -9 any other takes their place."""

import json
import os
import signal
from pathlib import Path

import pytest

from rollingfs import RollingFileSystem
from tests.support.cli import started

ROUNDS = 2
WAIT_S = 60.0
"""Only a broken test waits so long."""


class Process:
    """``rollingfs offload --follow`` of some segments."""

    def __init__(self, folder: Path, *paths: str, max_delay: str = "0.1s") -> None:
        words = ["--block", "1000", "--max-delay", max_delay, "--json", "--lag", "0", "--option"]
        words += [f"tiers.cold.root={folder}/archive", *paths]
        self._process = started("offload", "--follow", *words)

    def until(self, cold_end: int) -> None:
        """Wait until it says that a segment is in the tier up to an offset."""
        for line in self._process.stdout:
            found = json.loads(line)
            assert found["last_error"] is None
            if found["cold_end"] >= cold_end:
                return
        raise AssertionError(f"it ended: {self.end()}")

    def end(self, number: int | None = None) -> tuple[int, str]:
        """Send a signal and wait for the end; returns the exit code and what it complained of."""
        if number is not None:
            os.kill(self._process.pid, number)
        _, complaints = self._process.communicate(timeout=WAIT_S)
        return self._process.returncode, complaints.decode()


def filesystem(folder: Path) -> RollingFileSystem:
    tiers = {"cold": f"{folder}/archive"}
    return RollingFileSystem("file", max_bytes=500, inline_bytes=100, tiers=tiers, skip_instance_cache=True)


@pytest.mark.slow
def test_after_kill_9_another_follower_continues_from_headers(tmp_path):
    fs, path, expected = filesystem(tmp_path), str(tmp_path / "s"), b""
    fs.create(path)
    for number in range(ROUNDS):
        process = Process(tmp_path, path)
        for piece in range(8):
            data = b"%07d\n" % (100 * number + piece) * 30
            fs.append(path, data)
            expected += data
        process.until(len(expected) - 2000 + 300 * number)  # in the middle of its work
        assert process.end(signal.SIGKILL)[0] == -signal.SIGKILL
        assert fs.cat_file(path) == expected
    fs.seal(path)
    assert Process(tmp_path, path).end() == (0, "")
    assert fs.cat_file(path) == expected
    assert {chunk.tier for chunk in fs.segment(path).chunks} == {"cold"}
    assert all(row.ok for row in fs.segment(path).verify())


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_follower_cleanly(tmp_path, number):
    fs, path = filesystem(tmp_path), str(tmp_path / "s")
    fs.pipe_file(path, b"x" * 5000)
    process = Process(tmp_path, path, max_delay="1h")
    process.until(5000)
    assert process.end(number) == (0, "")
    assert fs.cat_file(path) == b"x" * 5000
