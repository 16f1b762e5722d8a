"""Processes that meet on a disk: races, readers that hold a header, kills. Wine runs it in `.ci/nightly windows`."""

import contextlib
import random
from pathlib import Path

import pytest

from rollingfs import RollingFileSystem, RollingPolicy
from tests.support.cli import running_program

pytestmark = [pytest.mark.slow, pytest.mark.nightly]
WRITERS, APPENDS, KILLS = 4, 200, 12
POLICIES = {"in place": RollingPolicy(), "replaces": RollingPolicy(inline_bytes=0)}
WRITER = """
import sys
from rollingfs import RollingFileSystem
who, count, path = sys.argv[1], int(sys.argv[2]), sys.argv[3]
fs = RollingFileSystem("file")
for number in range(count):
    line = f"{who} {number:05d}\\n"
    fs.append(path, line.encode())
    print(line, end="", flush=True)
"""
READER = """
import sys
from rollingfs import RollingFileSystem
fs, before, reads = RollingFileSystem("file"), b"", 0
with fs.open(sys.argv[1], "rb") as held:
    print("reads", flush=True)
    while before.count(b"\\n") < int(sys.argv[2]):
        now = fs.cat_file(sys.argv[1])
        assert now.startswith(before), (len(before), len(now))
        before, reads = now, reads + 1
print(reads)
"""


@pytest.mark.parametrize("way", POLICIES)
def test_four_processes_append_200_times_each(tmp_path: Path, way: str) -> None:
    fs, path = RollingFileSystem("file", skip_instance_cache=True), f"{tmp_path}/log"
    fs.create(path, POLICIES[way])
    with running_program(READER, path, WRITERS * APPENDS) as reader:
        assert reader.stdout.readline().strip() == b"reads"
        with contextlib.ExitStack() as stack:
            writers = [stack.enter_context(running_program(WRITER, who, APPENDS, path)) for who in range(WRITERS)]
            for writer in writers:
                _, said = writer.communicate()
                assert writer.returncode == 0, said
        _, said = reader.communicate()
        assert reader.returncode == 0, said
    wanted = [f"{who} {number:05d}" for who in range(WRITERS) for number in range(APPENDS)]
    lines = fs.cat_file(path).decode().splitlines()
    assert sorted(lines, key=lambda line: line[0]) == wanted, "all once, each writer's in its order"


@pytest.mark.parametrize("way", POLICIES)
def test_killed_writers_lose_nothing(tmp_path: Path, way: str) -> None:
    fs, path = RollingFileSystem("file", skip_instance_cache=True), f"{tmp_path}/log"
    fs.create(path, POLICIES[way])
    acknowledged, choice = set[str](), random.Random(7)
    for round_ in range(KILLS // WRITERS):
        with contextlib.ExitStack() as stack:
            names = [f"{round_}-{who}" for who in range(WRITERS)]
            writers = [stack.enter_context(running_program(WRITER, name, 10**6, path)) for name in names]
            for writer in writers:
                acknowledged.add(writer.stdout.readline().decode().strip())
            for writer in choice.sample(writers, len(writers)):
                writer.kill()
                # a line that the kill cut off is not acknowledged
                told = writer.communicate()[0].decode().splitlines(keepends=True)
                acknowledged |= {line.strip() for line in told if line.endswith("\n")}
    lines = fs.cat_file(path).decode().splitlines()
    assert (acknowledged - set(lines), len(lines) - len(set(lines))) == (set(), 0)
    fs.append(path, b"end\n")
    assert fs.cat_file(path).endswith(b"end\n")


def test_a_segment_moves_while_readers_hold_it(tmp_path: Path) -> None:
    fs = RollingFileSystem("file", skip_instance_cache=True)
    fs.pipe_file(f"{tmp_path}/old", b"one\n")
    with fs.open(f"{tmp_path}/old", "rb") as held, RollingFileSystem("file").open(f"{tmp_path}/old", "rb") as other:
        assert other.read(1) == b"o"
        fs.mv(f"{tmp_path}/old", f"{tmp_path}/new")
        fs.append(f"{tmp_path}/new", b"two\n")
        assert (held.read(), other.read()) == (b"one\n", b"ne\n")
    assert fs.cat_file(f"{tmp_path}/new") == b"one\ntwo\n"
    assert not fs.exists(f"{tmp_path}/old")
