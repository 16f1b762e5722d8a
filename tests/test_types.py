"""Type checkers of users refuse what rollingfs refuses."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.servers import require_module

require_module("mypy")

PROGRAM = """
import io
from rollingfs import RollingFileSystem

fs = RollingFileSystem("memory")
fs.append("a", b"bytes")
fs.append("a", bytearray(b"bytes"))
fs.append("a", memoryview(b"bytes"))
fs.append("a", io.BytesIO(b"bytes"))
fs.append("a", [b"one", b"two"])
fs.append("a", fs.stage("a", b"bytes"))
offset: int = fs.append("a", (b"%d" % number for number in range(3)))
fs.append("a", 5)  # refused
fs.append("a", "text")  # refused
fs.append("a", ["text"])  # refused
fs.append(5, b"bytes")  # refused
fs.seal(None)  # refused
fs.create("a", policy={"max_bytes": 1})  # refused
"""


@pytest.mark.slow
def test_mypy_refuses_wrong_data_and_paths_only(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), str(program)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path, check=False).stdout
    refused = {int(line.split(":")[1]) for line in said.splitlines() if ": error:" in line}
    lines = PROGRAM.splitlines()
    assert refused == {number for number, line in enumerate(lines, 1) if line.endswith("# refused")}, said
