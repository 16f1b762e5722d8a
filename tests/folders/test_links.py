"""Symbolic links on a disk: recursive verbs take them as what they are, and nothing is changed through one."""

import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rollingfs import RollingFileSystem
from rollingfs.backend.local import LocalBackend
from rollingfs.format.codec import format_header
from rollingfs.format.header import Header
from rollingfs.runtime.concurrency import drive

pytestmark = pytest.mark.skipif(os.name == "nt", reason="needs symbolic links")


def bytes_below(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def fs() -> RollingFileSystem:
    return RollingFileSystem("file", max_bytes=100, inline_bytes=10, skip_instance_cache=True)


@pytest.fixture
def victim(fs: RollingFileSystem, tmp_path: Path) -> Iterator[Path]:
    """A folder with garbage to which links lead; nothing in it changes."""
    for name in ("victim/v", "victim/sub/w", "a/s", "a/in/t"):
        fs.pipe_file(f"{tmp_path}/{name}", b"x" * 250)
    (tmp_path / "victim/plain").write_bytes(b"plain")
    (tmp_path / "victim/sub/w$header").unlink()  # so that its chunks are garbage
    (tmp_path / "a/link").symlink_to(tmp_path / "victim")
    (tmp_path / "a/in/nowhere").symlink_to("missing")
    before = bytes_below(tmp_path / "victim")
    yield tmp_path / "victim"
    assert bytes_below(tmp_path / "victim") == before


@pytest.mark.parametrize("name", ["a", "a/link"])
def test_recursive_delete_removes_links_and_spares_their_targets(fs, victim, tmp_path, name):
    fs.rm(f"{tmp_path}/{name}", recursive=True)
    assert not os.path.lexists(tmp_path / name)


def test_a_move_of_a_folder_moves_its_links(fs, victim, tmp_path):
    fs.mv(f"{tmp_path}/a", f"{tmp_path}/b", recursive=True)
    assert os.readlink(tmp_path / "b/link") == str(victim)
    assert os.readlink(tmp_path / "b/in/nowhere") == "missing"
    assert fs.cat_file(f"{tmp_path}/b/s") == b"x" * 250


CHANGES: dict[str, Callable[[RollingFileSystem, str], object]] = {
    "collect": lambda fs, path: fs.collect(path, grace=0),
    "truncate": lambda fs, path: fs.truncate(path, 200),
    "erase": lambda fs, path: fs.truncate(path, 205, erase=True),
    "append": lambda fs, path: fs.append(path, b"y" * 300),
    "delete": lambda fs, path: fs.rm(path),
    "rename": lambda fs, path: fs.mv(path, f"{path}2"),
}


LINKED = [(change, "$chunks") for change in CHANGES]
LINKED += [(change, "$header") for change in CHANGES if change not in ("collect", "erase")]


@pytest.mark.parametrize(("change", "linked"), LINKED)
def test_linked_header_or_chunk_folder_is_refused_untouched(fs, victim, tmp_path, change, linked):
    if linked == "$chunks":
        # an erase reads what it retains before it writes, so its chunks are those of the link; collection finds garbage
        shutil.copy(victim / "v$header" if change == "erase" else tmp_path / "a/s$header", tmp_path / "a/z$header")
    (tmp_path / f"a/z{linked}").symlink_to(f"{victim}/v{linked}")
    with pytest.raises(PermissionError, match="symbolic link"):
        CHANGES[change](fs, f"{tmp_path}/a/z")
    assert os.path.islink(tmp_path / f"a/z{linked}")


@pytest.mark.parametrize("verb", ["replace", "extend", "delete_if"])
def test_a_header_linked_under_its_lock_is_refused(tmp_path, verb):
    backend, path = LocalBackend(sync=False), f"{tmp_path}/s$header"
    token = drive(backend.create(path, format_header(Header(str(uuid.uuid4()), 1))))
    drive(backend.write(f"{tmp_path}/s$chunks/lock", [b""]))
    os.rename(path, tmp_path / "elsewhere")
    os.symlink(tmp_path / "elsewhere", path)
    arguments = (token,) if verb == "delete_if" else (b"new", token)
    with pytest.raises(PermissionError, match="symbolic link"):
        drive(getattr(backend, verb)(path, *arguments))
    assert os.path.islink(path)


def test_a_linked_lock_makes_no_file_elsewhere(fs, victim, tmp_path):
    lock = tmp_path / "a/s$chunks/lock"
    lock.unlink(missing_ok=True)
    lock.symlink_to(victim / "made")
    with pytest.raises(PermissionError, match="symbolic link"):
        fs.append(f"{tmp_path}/a/s", b"more")


def test_tree_collection_reports_linked_chunks_and_skips_link_targets(fs, victim, tmp_path):
    (tmp_path / "a/z$chunks").symlink_to(victim / "sub/w$chunks")
    found = fs.collect(f"{tmp_path}/a", recursive=True, grace=0)
    assert [failure.path for failure in found.failures] == [f"{tmp_path}/a/z$chunks"]


def test_move_with_linked_header_is_refused_before_anything_moves(fs, victim, tmp_path):
    (tmp_path / "a/z$header").symlink_to(victim / "v$header")
    with pytest.raises(PermissionError, match="symbolic link"):
        fs.mv(f"{tmp_path}/a", f"{tmp_path}/b", recursive=True)
    assert fs.cat_file(f"{tmp_path}/a/s") == b"x" * 250
    assert not (tmp_path / "b").exists()
