"""Copies and conditional deletes of the local backend, beside programs that write to the same files."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from rollingfs.backend.contract import Part
from rollingfs.backend.local import disk
from rollingfs.backend.local.backend import LocalBackend
from rollingfs.errors import ConflictError
from rollingfs.testing import run
from tests.support.backends import joined, raises

HOUR_S = 3600


def _aged(path: Path, data: bytes, age_s: float) -> str:
    path.write_bytes(data)
    os.utime(path, (time.time() - age_s,) * 2)
    return str(path)


@pytest.mark.parametrize("age_s", [0, HOUR_S / 2, 48 * HOUR_S])
@pytest.mark.parametrize("mode", ["ab", "wb", "r+b"])
def test_a_copy_is_young_and_not_changed_by_who_writes_to_the_old_name(
    backend: LocalBackend, tmp_path: Path, age_s: float, mode: str
) -> None:
    source = _aged(tmp_path / "plain", b"as adopted", age_s)
    target = f"{tmp_path}/plain$chunks/chunk"
    before = run(backend, backend.stat(source))
    with open(source, "r+b") as held:  # by a program that goes on writing
        run(backend, backend.copy(source, target, before.token))
        assert run(backend, backend.stat(source)) == before
        with open(source, mode) as file:
            file.write(b"by another program")
        held.write(b"and this")
    assert Path(target).read_bytes() == b"as adopted"
    assert os.stat(target).st_nlink == 1
    info = run(backend, backend.stat(target))
    assert run(backend, backend.now(target)) - info.modified < 600  # else collection would take it


def test_a_symbolic_link_is_copied_as_the_file_it_names(backend: LocalBackend, tmp_path: Path) -> None:
    _aged(tmp_path / "real", b"old", 2 * HOUR_S)
    (tmp_path / "plain").symlink_to("real")
    run(backend, backend.copy(f"{tmp_path}/plain", f"{tmp_path}/plain$chunks/chunk"))
    assert not os.path.islink(tmp_path / "plain$chunks/chunk")
    assert (tmp_path / "plain$chunks/chunk").read_bytes() == b"old"


def test_a_write_in_the_middle_of_a_copy_leaves_nothing(
    backend: LocalBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In place, of the same length, and beyond what the token looks at."""
    source = _aged(tmp_path / "plain", bytes(100_000), 2 * HOUR_S)
    token = run(backend, backend.stat(source)).token
    real_copy = disk.copy_bytes

    def torn(origin: int, target: int, start: int, end: int) -> None:
        real_copy(origin, target, start, end // 2)
        with open(source, "r+b") as file:
            file.seek(1000)
            file.write(b"changed")
        real_copy(origin, target, end // 2, end)

    monkeypatch.setattr(disk, "copy_bytes", torn)
    with pytest.raises(ConflictError):
        run(backend, backend.copy(source, f"{tmp_path}/plain$chunks/chunk", token))
    assert os.listdir(tmp_path / "plain$chunks") == []


@pytest.mark.parametrize("machine_s", [0.0, 10.0**9, 10.0**10])
def test_a_copy_of_what_was_just_written_waits_for_the_dates_to_go_on_whatever_time_the_machine_has(
    backend: LocalBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine_s: float
) -> None:
    slept: list[float] = []
    (tmp_path / "plain").write_bytes(b"just now")
    monkeypatch.setattr(time, "time", lambda: machine_s)
    monkeypatch.setattr(time, "sleep", slept.append)
    monkeypatch.setattr(disk, "DATE_TICK_S", 60.0)
    run(backend, backend.copy(f"{tmp_path}/plain", f"{tmp_path}/plain$chunks/chunk"))
    assert slept == [60.0]


def test_bytes_are_copied_where_the_kernel_cannot(
    backend: LocalBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = os.urandom(2_500_000)
    (tmp_path / "plain").write_bytes(data)

    monkeypatch.setattr(os, "copy_file_range", raises(OSError(18, "Invalid cross-device link")), raising=False)
    run(backend, backend.copy(f"{tmp_path}/plain", f"{tmp_path}/copy"))
    run(backend, joined(backend, [Part(f"{tmp_path}/plain", 5, 2_000_000)], f"{tmp_path}/joined"))
    assert (tmp_path / "copy").read_bytes() == data
    assert (tmp_path / "joined").read_bytes() == data[5:2_000_000]


def test_a_plain_file_replaced_in_the_middle_of_delete_if_is_put_back(
    backend: LocalBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = tmp_path / "plain"
    plain.write_bytes(b"adopted")
    token = run(backend, backend.stat(str(plain))).token
    assert token is not None
    real_rename = os.rename

    def write_before(source: str, target: str, **place: Any) -> None:
        plain.write_bytes(b"written in between")
        real_rename(source, target, **place)

    monkeypatch.setattr(os, "rename", write_before)
    assert run(backend, backend.delete_if(str(plain), token)) is False
    assert plain.read_bytes() == b"written in between"
    assert os.listdir(tmp_path) == ["plain"]
