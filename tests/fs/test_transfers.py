"""Copies of several files at once: how many are under way, what an error does, what the callback hears."""

import asyncio
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fsspec.callbacks import Callback

from rollingfs import RollingFileSystem
from rollingfs.fs import cat_and_get
from tests.fs.test_faces import Kept
from tests.support.backends import Scripted, private_memory, raises


@pytest.fixture(params=["sync", "async"])
def fs(request: pytest.FixtureRequest) -> Any:
    """A filesystem with three files in a folder, over a backend of either kind."""
    backend = Scripted(private_memory(), suspends=True) if request.param == "async" else private_memory()
    found = RollingFileSystem(backend=backend, skip_instance_cache=True)
    found.pipe({f"/from/{name}": name.encode() for name in "abc"})
    return found


def names(fs: RollingFileSystem, folder: str) -> list[str]:
    return [path.removeprefix(f"{folder}/") for path in fs.find(folder)]


@pytest.mark.parametrize("on_error", [None, "raise"])
def test_copy_raises_error_of_missing_file_or_ignores_it(fs: RollingFileSystem, on_error: str | None) -> None:
    sources, targets = ["/from/none", "/from/b"], ["/to/none", "/to/b"]
    with pytest.raises(FileNotFoundError):
        fs.copy(sources, targets, on_error=on_error)
    fs.copy(sources, targets, on_error="ignore")
    assert names(fs, "/to") == ["b"]


def test_awaited_forms_take_arguments_in_order_of_fsspec(fs: RollingFileSystem, tmp_path: Path) -> None:
    for name in ("x", "y"):
        (tmp_path / name).write_bytes(b"")
    callback = Kept()

    async def transfer() -> None:
        await fs._copy("/from", "/copy", True, "raise", 1)
        await fs._put(str(tmp_path), "/put", True, callback, 2, 1)

    asyncio.run(transfer())
    assert (names(fs, "/copy"), names(fs, "/put")) == (["a", "b", "c"], ["x", "y"])
    assert len(callback.children) == 2


def test_the_callback_hears_of_every_file(fs: RollingFileSystem, tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    for verb, args in ((fs.get, ("/from/*", f"{tmp_path}/deep/")), (fs.put, (f"{tmp_path}/deep", "/put"))):
        callback = Kept()
        verb(*args, recursive=True, callback=callback)
        assert (callback.size, callback.value, len(callback.children)) == (3, 3, 3)
    assert names(fs, "/put") == ["a", "b", "c"]


@pytest.mark.parametrize(("batch_size", "at_once"), [(1, 1), (2, 2), (-1, 3), (None, 3)])
def test_not_more_files_than_batch_size_are_under_way(batch_size: int | None, at_once: int) -> None:
    backend = Scripted(private_memory(), suspends=True)
    fs = RollingFileSystem(backend=backend, skip_instance_cache=True)
    fs.pipe({f"/from/{name}": b"x" for name in "abc"})
    backend.at_once_max.clear()
    fs.copy("/from/*", "/to/", batch_size=batch_size)
    assert names(fs, "/to") == ["a", "b", "c"]
    assert max(backend.at_once_max.values()) == at_once


def test_target_list_must_equal_the_patterns_matches_in_length(fs: RollingFileSystem) -> None:
    with pytest.raises(ValueError, match="3 sources and 2 targets: give as many targets as sources"):
        fs.copy("/from/*", ["/to/a", "/to/b"])
    assert not fs.exists("/to")


class Asking(io.BytesIO):
    """A file that asks the filesystem itself whenever it gets bytes."""

    fs: RollingFileSystem

    def write(self, data: Any, /) -> int:
        assert self.fs.exists("/from/a")
        return super().write(data)


def test_the_loop_runs_while_a_file_is_written(fs: RollingFileSystem) -> None:
    file = Asking()
    file.fs = fs
    fs.get_file("/from/a", file)
    assert file.getvalue() == b"a"


def test_a_local_file_that_cannot_be_opened_stays(
    fs: RollingFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kept").write_bytes(b"kept")

    monkeypatch.setattr(cat_and_get, "open", raises(PermissionError()), raising=False)
    with pytest.raises(PermissionError):
        fs.get_file("/from/a", f"{tmp_path}/kept")
    assert (tmp_path / "kept").read_bytes() == b"kept"


@pytest.mark.parametrize("there", [False, True])
def test_get_names_a_local_file_when_it_is_whole(fs: RollingFileSystem, tmp_path: Path, there: bool) -> None:
    """The simplecache of fsspec takes a file that it finds for whole: a second process, or the next after a kill."""
    if there:
        (tmp_path / "kept").write_bytes(b"kept")
    found: list[list[str]] = []

    class Looking(Callback):
        def relative_update(self, inc: int = 1) -> None:
            found.append([path.name for path in tmp_path.iterdir()])

    fs.get_file("/from/a", f"{tmp_path}/kept", callback=Looking())
    assert [("kept" in names) for names in found] == [there]
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("kept", b"a")]


def test_missing_file_leaves_nothing_on_the_disk(fs: RollingFileSystem, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        fs.get("/from/none", f"{tmp_path}/new/")
    assert list(tmp_path.iterdir()) == []


COMMITTING: dict[str, Callable[[RollingFileSystem, str], object]] = {
    "cp_file": lambda fs, to: fs.cp_file("/from/a", to),
    "copy": lambda fs, to: fs.copy("/from/a", to),
    "mv": lambda fs, to: fs.mv("/from/a", to),
    "export": lambda fs, to: fs.export("/from/a", to),
    "roll": lambda fs, to: fs.roll("/from/a"),
    "concat": lambda fs, to: (fs.seal("/from/a"), fs.create(to), fs.concat(to, ["/from/a"])),
    "truncate": lambda fs, to: fs.truncate("/from/a", 1),
    "append": lambda fs, to: fs.append("/from/a", b"", expected_offset=4),
}
"""Verbs that commit what is at ``/from/a``, there or elsewhere, by way of what the client knows of its header."""


@pytest.mark.parametrize("verb", COMMITTING)
@pytest.mark.parametrize("change", ["append", "overwrite"])
def test_verb_that_commits_asks_store_also_within_cache_time(verb: str, change: str, fs: Any) -> None:
    mine = RollingFileSystem(backend=fs._backend, header_cache_s=1000, skip_instance_cache=True)
    assert mine.cat_file("/from/a") == b"a"
    if change == "append":
        fs.append("/from/a", b"new")
    else:
        fs.overwrite("/from/a", b"anew")
    COMMITTING[verb](mine, "/to/a")
    found = next(name for name in ("/to/a", "/from/a") if fs.exists(name))
    assert fs.cat_file(found) == (b"new" if verb == "truncate" else b"anew")
    assert verb != "roll" or not fs.segment(found)._snapshot.header.tail


def test_target_that_became_a_folder_is_recognised_in_time(fs: Any) -> None:
    mine = RollingFileSystem(backend=fs._backend, header_cache_s=1000, skip_instance_cache=True)
    for verb in (mine.mv, mine.copy):
        fs.pipe_file("/to", b"old")
        assert mine.cat_file("/to") == b"old"
        fs.rm("/to")
        fs.pipe_file("/to/there", b"")
        verb("/from/a", "/to")
        assert names(fs, "/to") == ["a", "there"]
        fs.mv("/to/a", "/from/a")
        fs.rm("/to", recursive=True)
