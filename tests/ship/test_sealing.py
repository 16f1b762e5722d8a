"""`--seal-on-rotate` and `--delete-after`: no file is deleted before its lines are in a segment, sealed if asked."""

import contextlib
import gzip
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import invariant, rule, run_state_machine_as_test

from rollingfs import RollingFileSystem
from rollingfs.runtime.system import HAS_LEASES
from rollingfs.ship import Shipper, generations, lineage, route, sender, shipper as shipping
from tests.ship import test_rotations as rotations
from tests.support.cli import Run, done
from tests.support.examples import examples

pytestmark = pytest.mark.skipif(not HAS_LEASES, reason="only Linux has leases")
STEPS = ("rename", "unlink")
"""Calls that change names on the disk."""


class Dying:
    """Stands in for the module `os`: the process dies before or after one of its calls."""

    def __init__(self) -> None:
        self.plan: tuple[str, bool] | None = None
        """The call, and whether it takes place; the next death."""
        self.on_rename = lambda path: None
        """Called before a rename: a rotation."""

    def __getattr__(self, name: str):
        found = getattr(os, name)
        return found if name not in STEPS else lambda *paths: self._call(name, found, paths)

    def _call(self, name, found, paths):
        if name == "rename":
            rotate, self.on_rename = self.on_rename, lambda path: None
            rotate(Path(paths[0]))
        dies, takes_place = (True, self.plan[1]) if self.plan and self.plan[0] == name else (False, True)
        if takes_place:
            found(*paths)
        if dies:
            self.plan = None
            raise rotations.Killed


OS = Dying()


class Deleting(rotations.World):
    """A world whose shippers delete rotated files."""

    def texts(self) -> list[bytes]:
        fs = RollingFileSystem(backend=self.stores[0].inner, skip_instance_cache=True)
        if not self.options["seal_on_rotate"]:
            return [fs.cat_file(rotations.SEGMENT)] if fs.exists(rotations.SEGMENT) else []
        infos = fs.ls(rotations.SEGMENT) if fs.exists(rotations.SEGMENT) else []
        assert [one["sealed"] for one in infos[:-1]] == [True] * len(infos[:-1])
        return [fs.cat_file(one["name"]) for one in infos]

    def shipped(self) -> list[int]:
        return [int(line.split()[0]) for text in self.texts() for line in text.splitlines()]

    @rule(which=st.integers(0, 1), call=st.sampled_from(STEPS), takes_place=st.booleans())
    def die_on_the_disk(self, which: int, call: str, takes_place: bool) -> None:
        OS.plan = call, takes_place
        with contextlib.suppress(rotations.Killed):
            for _ in range(3):
                self.step(which)
        if OS.plan is None:
            self.end(which)
        OS.plan = None

    @rule(which=st.integers(0, 1))
    def rotate_while_it_deletes(self, which: int) -> None:
        """Another file gets the name just before the shipper acts on it."""

        def rotate(path: Path) -> None:
            path.rename(path.with_name(f"{path.name}.moved"))
            self.log.rename(path)

        # a log gets no name of a compressed file
        OS.on_rename = lambda path: rotate(path) if self.log.exists() and path.suffix != ".gz" else None
        self.step(which)
        OS.on_rename = lambda path: None

    @invariant()
    def nothing_is_lost(self) -> None:
        there = {number for path in self.folder.iterdir() if "app.log" in path.name for number in self.numbers(path)}
        missing = set(range(1, self.written + 1)) - self.lost - there - set(self.shipped())
        assert not missing, sorted(missing)


@pytest.mark.parametrize("seals", [False, True])
def test_no_file_is_deleted_before_it_is_shipped(seals: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (generations, lineage, sender, route, shipping):
        monkeypatch.setattr(module, "time", rotations.CLOCK, raising=False)
    monkeypatch.setattr(route, "os", OS)
    monkeypatch.setattr(Deleting, "options", {"seal_on_rotate": seals, "delete_after": True})
    run_state_machine_as_test(
        Deleting, settings=settings(max_examples=examples(60), stateful_step_count=20, deadline=None)
    )


@pytest.fixture
def soon(monkeypatch):
    monkeypatch.setattr(lineage, "LEAVE_S", 0.0)


def ship(folder: Path, said: list[str], **options: Any) -> RollingFileSystem:
    fs = RollingFileSystem("file")
    Shipper(fs, [str(folder / "app.log")], f"{folder}/to/", say=said.append, delete_after=True, **options).once()
    return fs


@pytest.mark.parametrize("late", [b"", b"late\n"])
@pytest.mark.parametrize("ending", ["", ".gz"])
def test_a_file_that_is_open_for_writing_stays(ending: str, late: bytes, tmp_path: Path, soon: None) -> None:
    log, old, said = tmp_path / "app.log", tmp_path / "app.log.1", []
    with log.open("ab", buffering=0) as writer:
        writer.write(b"one\n")
        log.rename(old)
        log.write_bytes(b"two\n")
        fs = ship(tmp_path, said, seal_on_rotate=True)
        assert old.exists()
        writer.write(late)
    if ending:
        Path(f"{old}.gz").write_bytes(gzip.compress(old.read_bytes()))
        old.unlink()
    ship(tmp_path, said, seal_on_rotate=True)  # another process
    assert fs.cat_file(f"{tmp_path}/to/app.log/00000001") == b"one\n"
    assert fs.cat_file(f"{tmp_path}/to/app.log/00000002") == b"two\n"
    assert [fs.info(f"{tmp_path}/to/app.log/0000000{number}")["sealed"] for number in (1, 2)] == [True, False]
    assert [path.name for path in tmp_path.glob("app.log.*")] == ([f"app.log.1{ending}"] if late else [])
    assert [line for line in said if f"app.log.1{ending}: not deleted: it has bytes that came after" in line] == said
    assert len(said) == bool(late)
    assert log.read_bytes() == b"two\n"


def test_a_file_that_is_alike_stays(tmp_path: Path, soon: None, monkeypatch) -> None:
    """The rotated file has the bytes of the file before the position, and is the file of the position."""
    text = b"tick\n" * 1000
    for name in ("app.log.2", "app.log.1", "app.log"):
        (tmp_path / name).write_bytes(text)
    monkeypatch.setattr(lineage, "COMMIT_BYTES_MAX", len(text) // 2)
    names: list[list[str]] = []
    fs = RollingFileSystem("file")
    shipper = Shipper(fs, [str(tmp_path / "app.log")], f"{tmp_path}/to", delete_after=True)
    for _ in range(6):
        shipper.step(flush=True)
        shipper._delete()
        names.append(sorted(path.name for path in tmp_path.glob("app.log*")))
    shipper.close()
    assert names[1] == ["app.log", "app.log.1", "app.log.2"]
    assert names[2] == ["app.log", "app.log.1"]
    assert names[-1] == ["app.log"]
    assert fs.cat_file(f"{tmp_path}/to") == 3 * text


def test_two_shippers_begin_the_next_segment_once(tmp_path: Path, soon: None) -> None:
    log, fs = tmp_path / "app.log", RollingFileSystem("file")
    one, two = (Shipper(fs, [str(log)], f"{tmp_path}/to", seal_on_rotate=True) for _ in range(2))
    log.write_bytes(b"one\n")
    for shipper in (one, two):
        shipper.step(flush=True)
    log.rename(tmp_path / "app.log.1")
    log.write_bytes(b"two\n")
    for shipper in (one, two, two, one, one):  # `one` seals, `two` appends, then `one` tries to
        shipper.step(flush=True)
    one.close()
    two.close()
    assert [fs.cat_file(path) for path in fs.ls(f"{tmp_path}/to", detail=False)] == [b"one\n", b"two\n"]


def test_a_rotation_within_a_deletion_loses_no_file(tmp_path: Path, soon: None, monkeypatch) -> None:
    log, old, fs = tmp_path / "app.log", tmp_path / "app.log.1", RollingFileSystem("file")
    old.write_bytes(b"one\n")
    log.write_bytes(b"two\n")

    def rotate(path: Path) -> None:
        os.rename(path, tmp_path / "app.log.2")
        with log.open("ab") as file:
            file.write(b"three\n")
        os.rename(log, path)

    monkeypatch.setattr(route, "os", OS)
    OS.on_rename = rotate
    ship(tmp_path, [])
    ship(tmp_path, [])
    assert fs.cat_file(f"{tmp_path}/to/app.log") == b"one\ntwo\nthree\n"


def test_a_disk_without_leases_keeps_its_files(tmp_path: Path, soon: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(fd: int) -> bool:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(route, "lease", refuse)
    (tmp_path / "app.log.1").write_bytes(b"one\n")
    (tmp_path / "app.log").write_bytes(b"two\n")
    said: list[str] = []
    ship(tmp_path, said)
    assert (tmp_path / "app.log.1").exists()
    assert said == [f"{tmp_path}/app.log.1: not deleted: Invalid argument"]


def test_the_command_seals_and_deletes(tmp_path: Path) -> None:
    log, old = tmp_path / "app.log", tmp_path / "app.log.1"
    for path, text in ((old, b"one\n"), (log, b"two\n")):
        path.write_bytes(text)
        os.utime(path, (1e9, 1e9))
    done("ship", "--once", "--seal-on-rotate", "--delete-after", log, tmp_path / "to")
    fs = RollingFileSystem("file")
    assert [fs.cat_file(one) for one in fs.ls(f"{tmp_path}/to", detail=False)] == [b"one\n", b"two\n"]
    assert not old.exists()
    fs.pipe_file(f"{tmp_path}/one", b"")
    refused = Run("ship", "--once", "--seal-on-rotate", log, tmp_path / "one")
    assert (refused.code, "one: It is a segment, and sealing on rotation needs a folder" in refused.err) == (1, True)
    assert not fs.isdir(f"{tmp_path}/one")
    with pytest.raises(ValueError, match="seal"):
        Shipper(fs, [str(log)], str(tmp_path / "to"), into=True, seal_on_rotate=True)


def test_a_file_set_aside_keeps_its_place(tmp_path: Path, soon: None) -> None:
    """A shipper died before it deleted the file, and later rotations have given its number to another."""
    names = f"{generations.ASIDE}{'0' * 32}-app.log.1", "app.log.3", "app.log.2", "app.log.1", "app.log"
    for number, name in enumerate(names):
        (tmp_path / name).write_bytes(b"%d\n" % number)
        os.utime(tmp_path / name, (1e9 + number, 1e9 + number))
    fs = RollingFileSystem("file")
    Shipper(fs, [str(tmp_path / "app.log")], f"{tmp_path}/all").once()
    assert fs.cat_file(f"{tmp_path}/all") == b"0\n1\n2\n3\n4\n"
