"""The unit of docs/live_logs.md, as systemd checks it."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.servers import require

PAGE = Path(__file__).parents[2] / "docs" / "live_logs.md"


@pytest.mark.parametrize("mistake", ["", "TimeoutStopSec=9 lightyears"])
def test_systemd_accepts_the_unit_of_the_page(mistake: str, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        require("systemd-analyze is not installed (Debian's package systemd)")
    unit, text = tmp_path / "rollingfs-ship.service", PAGE.read_text().split("```ini\n")[1].split("```")[0]
    assert "ExecStart=/usr/local/bin/rollingfs ship " in text
    text = text.replace("/usr/local/bin/rollingfs", sys.executable)
    unit.write_text(text.replace("TimeoutStopSec=90", mistake) if mistake else text)
    command = ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, bool(done.stderr)) == (int(bool(mistake)), bool(mistake)), done.stderr
