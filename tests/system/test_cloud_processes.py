"""A forked child of a process that used a cloud: by obstore it is told so, by gcsfs it writes."""

import multiprocessing
from pathlib import Path
from typing import Any

import pytest

from tests.support.clouds import new_container, new_google_bucket
from tests.support.places import Folder
from tests.system.test_processes import FORK_WARNING, client_of, join, spawn

pytestmark = [pytest.mark.clouds, pytest.mark.slow]


def append_once(fs: Any, path: str, log: Path) -> None:
    try:
        log.write_text(str(fs.append(path, b"child")))
    except OSError as error:
        log.write_text(f"{type(error).__name__}: {error}")


def append_in_fork(target: Folder, folder: Path) -> tuple[Any, str]:
    """Append, and once more in a forked child; the filesystem, and what the child says of its append."""
    fs = client_of(target)
    fs.create(target.path)
    fs.append(target.path, b"parent")
    child = spawn(multiprocessing.get_context("fork"), append_once, fs, target.path, folder / "said")
    join([child])
    return fs, (folder / "said").read_text()


@pytest.mark.filterwarnings(FORK_WARNING)
def test_forked_child_after_obstore_gets_an_error(azurite: dict[str, Any], tmp_path: Path) -> None:
    target = Folder("az", azurite, f"{new_container(azurite)}/segment")
    fs, said = append_in_fork(target, tmp_path)
    assert "spawn" in said
    assert fs.cat_file(target.path) == b"parent"


@pytest.mark.filterwarnings(FORK_WARNING)
def test_a_forked_child_writes_to_google(fake_google: dict[str, Any], tmp_path: Path) -> None:
    target = Folder("gs", fake_google, f"{new_google_bucket(fake_google)}/segment")
    fs, said = append_in_fork(target, tmp_path)
    assert said == "6"
    assert fs.cat_file(target.path) == b"parentchild"
