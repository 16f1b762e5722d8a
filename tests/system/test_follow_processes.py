"""A follower that is a process ends cleanly by a signal. What a killed one leaves is for `test_at_each_call`."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from rollingfs import RollingFileSystem
from tests.support.cli import COMMAND, environment

WAIT_S = 60.0
"""Only a broken test waits so long."""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_follower_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    path, tier = str(tmp_path / "s"), f"{tmp_path}/archive"
    fs = RollingFileSystem("file", max_bytes=500, inline_bytes=100, tiers={"cold": tier}, skip_instance_cache=True)
    fs.pipe_file(path, b"x" * 5000)
    words = [
        "--block",
        "1000",
        "--max-delay",
        "1h",
        "--json",
        "--lag",
        "0",
        "--option",
        f"tiers.cold.root={tier}",
        path,
    ]
    command = [*COMMAND, "offload", "--follow", *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
    assert process.stdout is not None
    assert any(json.loads(line)["cold_end"] >= 5000 for line in process.stdout)
    process.send_signal(number)
    _, complaints = process.communicate(timeout=WAIT_S)
    assert (process.returncode, complaints) == (0, b"")
    assert fs.cat_file(path) == b"x" * 5000
