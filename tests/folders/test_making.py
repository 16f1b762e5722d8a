"""Folders that several callers make, move or empty at once."""

from pathlib import Path

import pytest

from rollingfs import RollingFileSystem
from rollingfs.backend.local.backend import LocalBackend
from rollingfs.folders.folders import Folders
from rollingfs.folders.listing import Listings
from rollingfs.runtime.concurrency import drive
from tests.support.backends import Scripted, private_memory
from tests.support.life import CHUNKS, World


def test_makedirs_accepts_a_folder_that_another_caller_makes_meanwhile(tmp_path: Path) -> None:
    folder, backend = tmp_path / "folder", Scripted(LocalBackend(sync=False))
    backend.plan("is_folder", str(folder), after=folder.mkdir)
    RollingFileSystem(backend=backend, skip_instance_cache=True).makedirs(str(folder), exist_ok=True)
    assert folder.is_dir()


@pytest.mark.parametrize("is_all", [False, True])
def test_what_others_delete_or_move_away_hinders_no_move_of_its_folder_unless_that_is_all(is_all: bool) -> None:
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
    move = Folders(world.client, Listings(world.client)).move("/x/a", "/x/b", into=False)
    if is_all:
        with pytest.raises(FileNotFoundError, match="'/x/a'"):
            drive(move)
    else:
        drive(move)
        assert other.content("/x/b/kept") == b"kept"
    assert sorted(drive(Listings(other.client).find("/x"))) == ["/x/b/kept", "/x/moved"][is_all:]
