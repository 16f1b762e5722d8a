"""The command `rollingfs` as an installation makes it, not as this process imports it."""

import importlib.metadata
import json
import os
import shutil
import subprocess
import sysconfig

import pytest

from tests.support.cli import done
from tests.support.servers import require

RUN_S_MAX = 120


@pytest.fixture(scope="module")
def script():
    """Path of the installed command."""
    if not importlib.metadata.entry_points(group="console_scripts", name="rollingfs"):
        require("rollingfs and its command are not installed (pip install -e '.[cli]')")
    found = shutil.which("rollingfs", path=sysconfig.get_path("scripts"))
    assert found is not None, "rollingfs is installed, but it brought no command"
    return found


def run(script, *words):
    # without the path of the sources: what was installed must find its modules by itself
    settings = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [script, *map(str, words)]
    return subprocess.run(command, env=settings, capture_output=True, text=True, timeout=RUN_S_MAX, check=False)


def test_the_installed_command_says_its_release(script):
    found = run(script, "--version")
    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout == f"rollingfs {importlib.metadata.version('rollingfs')}\n"


def test_the_installed_command_lists_segments_and_ends_with_its_exit_codes(script, tmp_path):
    done("append", tmp_path / "log", stdin=b"x" * 10)
    found = run(script, "ls", "--json", tmp_path)
    assert (found.returncode, found.stderr) == (0, "")
    assert [(entry["name"], entry["size"]) for entry in json.loads(found.stdout)] == [(f"{tmp_path}/log", 10)]
    missing = run(script, "ls", tmp_path / "nothing")
    assert (missing.returncode, missing.stdout) == (1, "")
    assert missing.stderr.startswith("rollingfs: ")
    assert run(script, "ls", "--no-such-option").returncode == 2
