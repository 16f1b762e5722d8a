"""Copies on a disk: whole, young, and of nobody's half-written file."""

import os
import time
from pathlib import Path

import pytest

from rollingfs.backend.contract import Part
from rollingfs.backend.local import disk, system
from rollingfs.errors import ConflictError
from rollingfs.runtime.concurrency import drive
from tests.support.backends import joined, raises
from tests.support.forks import needs_posix
from tests.support.schedules import beside

HOUR_S = 3600


def _aged(path: Path, data: bytes, age_s: float) -> str:
    path.write_bytes(data)
    os.utime(path, (time.time() - age_s,) * 2)
    return str(path)


@pytest.mark.parametrize("age_s", [0, HOUR_S / 2, 48 * HOUR_S])
@pytest.mark.parametrize("mode", ["ab", "wb", "r+b"])
def test_copy_is_young_and_writes_to_original_spare_it(backend, tmp_path, age_s, mode):
    source = _aged(tmp_path / "plain", b"as adopted", age_s)
    target = f"{tmp_path}/plain$chunks/chunk"
    before = backend.stat(source)
    with open(source, "r+b") as held:  # by a program that goes on writing
        backend.copy(source, target, before.token)
        assert backend.stat(source) == before
        with open(source, mode) as file:
            file.write(b"by another program")
        held.write(b"and this")
    assert Path(target).read_bytes() == b"as adopted"
    assert os.stat(target).st_nlink == 1
    assert backend.now(target) - backend.stat(target).modified < 600  # else collection would take it


@needs_posix
def test_symbolic_link_is_copied_as_file_it_names(backend, tmp_path):
    _aged(tmp_path / "real", b"old", 2 * HOUR_S)
    (tmp_path / "plain").symlink_to("real")
    backend.copy(f"{tmp_path}/plain", f"{tmp_path}/plain$chunks/chunk")
    assert not os.path.islink(tmp_path / "plain$chunks/chunk")
    assert (tmp_path / "plain$chunks/chunk").read_bytes() == b"old"


def test_write_in_middle_of_copy_leaves_nothing(backend, tmp_path, monkeypatch):
    """In place, of the same length, and beyond what the token looks at."""
    source = _aged(tmp_path / "plain", bytes(100_000), 2 * HOUR_S)
    token = backend.stat(source).token

    def change(*_: int) -> None:
        with open(source, "r+b") as file:
            file.seek(1000)
            file.write(b"changed")

    beside(monkeypatch, disk, "copy_bytes", after=change)
    with pytest.raises(ConflictError):
        backend.copy(source, f"{tmp_path}/plain$chunks/chunk", token)
    assert os.listdir(tmp_path / "plain$chunks") == []


@pytest.mark.parametrize("machine_s", [0.0, 10.0**9, 10.0**10])
def test_copy_of_fresh_file_waits_until_dates_go_on(backend, tmp_path, monkeypatch, machine_s):
    slept: list[float] = []
    (tmp_path / "plain").write_bytes(b"just now")
    monkeypatch.setattr(time, "time", lambda: machine_s)
    monkeypatch.setattr(time, "sleep", slept.append)
    monkeypatch.setattr(disk, "DATE_TICK_S", 60.0)
    backend.copy(f"{tmp_path}/plain", f"{tmp_path}/plain$chunks/chunk")
    assert slept == [60.0]


def test_bytes_are_copied_where_the_kernel_cannot(backend, tmp_path, monkeypatch):
    data = os.urandom(2_500_000)
    (tmp_path / "plain").write_bytes(data)

    monkeypatch.setattr(system, "copy_in_kernel", raises(OSError(18, "Invalid cross-device link")))
    backend.copy(f"{tmp_path}/plain", f"{tmp_path}/copy")
    drive(joined(backend.backend, [Part(f"{tmp_path}/plain", 5, 2_000_000)], f"{tmp_path}/joined"))
    assert (tmp_path / "copy").read_bytes() == data
    assert (tmp_path / "joined").read_bytes() == data[5:2_000_000]
