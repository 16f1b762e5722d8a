"""Folders that several callers make, move or empty at once."""

import errno
from collections.abc import Callable
from pathlib import Path

import pytest
from fsspec.implementations.local import LocalFileSystem

from rollingfs import RollingFileSystem
from rollingfs.backend.contract import Backend
from rollingfs.backend.generic import GenericBackend
from rollingfs.backend.local.backend import LocalBackend
from rollingfs.folders.folders import keep
from rollingfs.folders.listing import find
from rollingfs.folders.moving import move
from rollingfs.runtime.concurrency import drive
from tests.support.backends import Objects, Scripted, private_memory, raises
from tests.support.life import CHUNKS, World


def test_makedirs_accepts_a_folder_that_another_caller_makes_meanwhile(tmp_path: Path) -> None:
    folder, backend = tmp_path / "folder", Scripted(LocalBackend(sync=False))
    backend.plan("is_folder", str(folder), after=folder.mkdir)
    RollingFileSystem(backend=backend, skip_instance_cache=True).makedirs(str(folder), exist_ok=True)
    assert folder.is_dir()


@pytest.mark.parametrize("is_all", [False, True])
def test_other_deletes_hinder_a_folder_move_only_when_complete(is_all: bool) -> None:
    store = private_memory()
    world, other = World(Scripted(store), CHUNKS), World(store)
    for name in ("gone", "kept", "moved"):
        world.create(f"/x/a/{name}", [name.encode()])

    def empty() -> None:
        other.delete("/x/a/gone")
        other.rename("/x/a/moved", "/x/moved")
        if is_all:
            other.delete("/x/a/kept")

    world.backend.plan("is_folder", "/x/b", before=empty, skips=1)
    moved = move(world.client, "/x/a", "/x/b", into=False)
    if is_all:
        with pytest.raises(FileNotFoundError, match="'/x/a'"):
            drive(moved)
    else:
        drive(moved)
        assert other.content("/x/b/kept") == b"kept"
    assert sorted(drive(find(other.client, "/x"))) == ["/x/b/kept", "/x/moved"][is_all:]


STORES: dict[str, Callable[[], Backend]] = {
    "memory": private_memory,
    "objects": Objects,
    "disk": lambda: LocalBackend(sync=False),
}


def clients(store: str, tmp_path: Path) -> tuple[str, Scripted, RollingFileSystem, RollingFileSystem]:
    """A folder, a backend, a client over it, and another client of the same store."""
    inner = STORES[store]()
    backend = Scripted(inner, has_folders=inner.capability.has_folders)
    fs, other = (RollingFileSystem(backend=one, skip_instance_cache=True) for one in (backend, inner))
    return str(tmp_path / "x") if store == "disk" else "/bucket/x", backend, fs, other


@pytest.mark.parametrize("store", STORES)
def test_rmdir_refuses_a_folder_that_gained_a_file(store: str, tmp_path: Path) -> None:
    path, backend, fs, other = clients(store, tmp_path)
    other.makedirs(path)
    drive(keep(other._client, path))
    backend.plan("remove_folder", path, before=lambda: other.pipe_file(f"{path}/new", b"new"))
    with pytest.raises(OSError, match="not empty") as refusal:
        fs.rmdir(path)
    assert refusal.value.errno == errno.ENOTEMPTY
    assert other.find(path) == [f"{path}/new"]
    other.rm(f"{path}/new")
    assert other.ls(path) == []
    fs.rmdir(path)
    assert not other.exists(path)


@pytest.mark.parametrize("store", STORES)
def test_exclusive_move_is_refused_by_any_file_of_name(store: str, tmp_path: Path) -> None:
    path, backend, fs, other = clients(store, tmp_path)
    for name in ("a", "b", "folder/x", "other/y"):
        other.pipe_file(f"{path}/{name}", name.encode())
    drive(backend.write(f"{path}/plain", [b"plain"]))
    before = {name: other.cat_file(name) for name in other.find(path)}
    for source, target in (("a", "b"), ("a", "plain"), ("folder", "b"), ("folder", "plain")):
        with pytest.raises(FileExistsError):
            fs.mv(f"{path}/{source}", f"{path}/{target}", overwrite=False)
    for source in ("a", "folder"):
        with pytest.raises(FileExistsError):  # not into it: the name itself
            fs.mv([f"{path}/{source}"], [f"{path}/other"], overwrite=False)
    assert {name: other.cat_file(name) for name in other.find(path)} == before
    assert not fs.info(f"{path}/a")["sealed"]
    fs.mv_file(f"{path}/a", f"{path}/other", overwrite=False)
    fs.mv(f"{path}/b", f"{path}/plain")
    assert [other.cat_file(f"{path}/{name}") for name in ("other/a", "plain")] == [b"a", b"b"]


@pytest.mark.parametrize("verb", ["ls", "info", "isdir"])
@pytest.mark.parametrize("store", STORES)
def test_folder_whose_segments_come_and_go_stays(store: str, verb: str, tmp_path: Path) -> None:
    path, backend, fs, other = clients(store, tmp_path)
    other.pipe_file(f"{path}/a", b"a")

    def change(old: str, new: str) -> Callable[[], None]:
        def act() -> None:
            other.pipe_file(f"{path}/{new}", b"new")
            other.rm(f"{path}/{old}")

        return act

    looks = ("read", "read_if_changed")
    for old, new in ("ab", "bc"):
        backend.plan(looks, f"{path}/{old}$header", before=change(old, new))
    found = getattr(fs, verb)(path)
    if verb == "ls":
        listed = [] if store == "memory" else [f"{path}/a" if store == "disk" else f"{path}/c"]
        assert [one["name"] for one in found] == listed, "a disk's listing reads the headers; memory's folders stay"
    else:
        assert found is True or found["type"] == "directory"
    assert other.find(path) != []


def test_folder_move_ends_at_another_writers_file(tmp_path: Path) -> None:
    path, backend, fs, other = clients("memory", tmp_path)
    other.pipe({f"{path}/a/{name}": name.encode() for name in "xyz"})
    backend.plan("make_folder", f"{path}/b", after=lambda: other.pipe_file(f"{path}/b/y", b"new"))
    with pytest.raises(OSError, match=r"another writer has made .*y in it.*the rest at .*a"):
        fs.mv(f"{path}/a", f"{path}/b", overwrite=False)
    found = {other.cat_file(name) for name in other.find(path)}
    assert found == {b"x", b"y", b"z", b"new"}


@pytest.mark.parametrize("store", ["memory", "objects"])
def test_late_plain_file_refuses_an_exclusive_move(store: str, tmp_path: Path) -> None:
    path, backend, fs, other = clients(store, tmp_path)
    other.pipe_file(f"{path}/a", b"a")
    backend.plan("replace", f"{path}/a$header", before=lambda: drive(backend.inner.write(f"{path}/b", [b"plain"])))
    with pytest.raises(FileExistsError):
        fs.mv(f"{path}/a", f"{path}/b", overwrite=False)
    assert [other.cat_file(f"{path}/{name}") for name in "ab"] == [b"a", b"plain"]
    other.append(f"{path}/a", b"+")


@pytest.mark.parametrize("store", STORES)
def test_late_file_in_segments_folder_is_read_and_kept(store: str, tmp_path: Path) -> None:
    """As docs/guarantees.md says of the one race in which a segment hides a folder."""
    path, backend, fs, other = clients(store, tmp_path)
    backend.plan("create", f"{path}$header", before=lambda: other.pipe_file(f"{path}/new", b"new"))
    fs.pipe_file(path, b"segment")
    assert [other.cat_file(name) for name in (path, f"{path}/new")] == [b"segment", b"new"]
    assert other.ls(path, detail=False) == [path]
    fs.rm(path)
    assert other.find(path) == [f"{path}/new"]
    with pytest.raises(IsADirectoryError):
        fs.pipe_file(path, b"segment")


@pytest.mark.parametrize("refused", ["unlink", "open"])
def test_rm_goes_on_after_a_name_of_no_file(tmp_path: Path, refused: str) -> None:
    """As Windows has none for ``a:b``, and for ``nul``, which it does not even open."""
    (tmp_path / "x").mkdir()
    for name in ("odd", "first", "last"):
        (tmp_path / "x" / name).write_bytes(b"data")
    backend = Scripted(LocalBackend(sync=False))
    fs = RollingFileSystem(backend=backend, skip_instance_cache=True)
    fs.pipe_file(f"{tmp_path}/x/y/segment", b"data")
    error = OSError(errno.EILSEQ, "refused") if refused == "unlink" else FileNotFoundError(errno.ENOENT, "refused")
    backend.plan("delete_if", f"{tmp_path}/x/odd", before=raises(error), times=None)
    with pytest.raises(OSError, match=r"1 of 4 files are still there, as '.*/odd': this system refuses the name"):
        fs.rm(f"{tmp_path}/x", recursive=True)
    assert [path.name for path in tmp_path.rglob("*") if not path.name.startswith("$")] == ["x", "odd"]


def test_rm_leaves_a_hidden_plain_file_to_collection(tmp_path: Path) -> None:
    """Where no delete has a condition, as on a filesystem of fsspec."""
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "plain").write_bytes(b"plain" * 100_000)
    fs = RollingFileSystem(backend=GenericBackend(LocalFileSystem(), single_writer=True), skip_instance_cache=True)
    fs.append(f"{tmp_path}/x/plain", b" and more")
    fs.rm(f"{tmp_path}/x", recursive=True)
    assert not fs.exists(f"{tmp_path}/x")
