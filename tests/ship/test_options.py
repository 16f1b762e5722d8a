"""Options of `ship`: which files, where their lines go, and when."""

import platform
import threading
from pathlib import Path

import pytest

from rollingfs import RollingFileSystem
from rollingfs.ship import Shipper, lineage, route, sender, shipper as shipping
from tests.support.backends import Counting, Scripted, private_memory
from tests.support.cli import done
from tests.support.faults import VirtualTime

COMMITS = ("create", "replace", "extend")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> VirtualTime:
    clock = VirtualTime()
    for module in (lineage, route, sender, shipping):
        monkeypatch.setattr(module, "time", clock)
    return clock


@pytest.fixture
def fs() -> RollingFileSystem:
    return RollingFileSystem(backend=Counting(private_memory()), skip_instance_cache=True)


def write(log: Path, data: bytes) -> None:
    with log.open("ab") as file:
        file.write(data)


def test_each_line_of_all_logs_has_its_prefix(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(b"one\ntwo\n")
    (tmp_path / "b.log").write_bytes(b"three\n")
    (tmp_path / "b.log.1").write_bytes(b"zero\n")
    words = "--once", "--into", "--prefix", "{host} {file} {path}: ", f"{tmp_path}/*.log*", tmp_path / "segment"
    done("ship", *words)
    done("ship", *words)
    lines = RollingFileSystem("file").cat_file(f"{tmp_path}/segment").decode().splitlines()
    host = platform.node()
    assert [line for line in lines if " a.log " in line] == [
        f"{host} a.log {tmp_path}/a.log: {text}" for text in ("one", "two")
    ]
    assert [line for line in lines if " b.log " in line] == [
        f"{host} b.log {tmp_path}/b.log: {text}" for text in ("zero", "three")
    ]
    assert len(lines) == 4


def test_a_line_without_its_end_waits(tmp_path: Path, fs: RollingFileSystem, clock: VirtualTime) -> None:
    log, found = tmp_path / "app.log", []
    shipper = Shipper(fs, [str(log)], "/app", partial_after_s=30.0)
    write(log, b"one\ntwo")
    for seconds in (0, 29, 30):
        clock.sleep(seconds)
        shipper.step(flush=True)
        found.append(fs.cat_file("/app"))
    write(log, b" ends\n")
    shipper.once()
    assert found == [b"one\n", b"one\n", b"one\ntwo"]
    assert fs.cat_file("/app") == b"one\ntwo ends\n"


@pytest.mark.parametrize(
    ("commit_on", "steps"),
    [
        ("5s", [(b"a\n", 0, 0), (b"b\n", 4, 0), (b"", 1.5, 4)]),
        ("6 B", [(b"a\n", 9, 0), (b"b\n", 9, 0), (b"c\n", 0, 6)]),
        ("2 lines", [(b"a\n", 9, 0), (b"b", 9, 0), (b"\n", 0, 4)]),
        (("5s", "line"), [(b"a", 9, 0), (b"\n", 0, 2), (b"b\n", 0, 4)]),
    ],
)
def test_one_commit_has_what_waits(commit_on, steps, tmp_path: Path, fs: RollingFileSystem, clock) -> None:
    """Each step: bytes that a program writes, seconds that pass, bytes that are readable then."""
    log = tmp_path / "app.log"
    log.touch()
    shipper = Shipper(fs, [str(log)], "/app", commit_on=commit_on)
    shipper.step()  # the first commit has the position only
    for data, seconds, size in steps:
        write(log, data)
        shipper.step()
        clock.sleep(seconds)
        shipper.step()
        assert fs.size("/app") == size
    shipper.close()


def test_a_new_file_is_found_within_a_second(tmp_path: Path, fs: RollingFileSystem, clock: VirtualTime) -> None:
    shipper = Shipper(fs, [f"{tmp_path}/*.log"], "/logs")
    shipper.step()
    write(tmp_path / "new.log", b"one\n")
    clock.sleep(shipping.FIND_S)
    shipper.step()
    shipper.close()
    assert shipping.FIND_S + shipping.REST_S <= 1.0
    assert fs.cat_file("/logs/new.log") == b"one\n"


def test_a_file_that_rests_is_looked_at_seldom(tmp_path: Path, fs, clock: VirtualTime, monkeypatch) -> None:
    looks, look, log = [], lineage.Lineage.look, tmp_path / "app.log"
    monkeypatch.setattr(lineage.Lineage, "look", lambda self: (looks.append(1), look(self))[1])
    shipper = Shipper(fs, [str(log)], "/app", commit_on="1s")
    write(log, b"one\n")
    counts = []
    for data, steps in ((b"", 9), (b"", 100), (b"two\n", 1), (b"", 1)):
        looks.clear()
        write(log, data) if data else None
        for _ in range(steps):
            clock.sleep(1)
            shipper.step()
        counts.append(len(looks))
    assert counts[1] <= 100 / lineage.IDLE_S + 1
    assert counts[2:] == [1, 1]
    assert fs.cat_file("/app") == b"one\ntwo\n"


def test_a_line_is_as_old_as_the_look_before(tmp_path: Path, fs: RollingFileSystem, clock: VirtualTime) -> None:
    log = tmp_path / "app.log"
    write(log, b"one\n")
    shipper = Shipper(fs, [str(log)], "/app", commit_on="5s")
    shipper.step()
    write(log, b"two\n")
    clock.sleep(5)  # a step that waits for the store of another log
    shipper.step()
    assert fs.cat_file("/app") == b"one\ntwo\n"


def test_new_files_are_shipped_at_the_same_time(tmp_path: Path) -> None:
    for number in range(2 * shipping.STEPS_AT_ONCE):
        write(tmp_path / f"{number}.log", b"one\n")
    store, meeting = Scripted(private_memory()), threading.Barrier(shipping.STEPS_AT_ONCE)
    store.plan(("create",), ".log$header", times=None, before=lambda: meeting.wait(timeout=60))
    fs = RollingFileSystem(backend=store, skip_instance_cache=True)
    shipper = Shipper(fs, [f"{tmp_path}/*.log"], "/logs/")
    shipper.once()
    assert fs.du("/logs") == 2 * shipping.STEPS_AT_ONCE * 4
    assert (shipper.commits, shipper.bytes) == (2 * shipping.STEPS_AT_ONCE, 8 * shipping.STEPS_AT_ONCE)
