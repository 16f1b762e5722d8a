"""Eight processes on one segment on Azure (azurite), and on Google (fake-gcs-server), where writers pace themselves.

What they do, and what is checked, is that of `tests/system/test_processes.py`.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.clouds import new_container, new_google_bucket
from tests.system.test_processes import FORK_WARNING, Target, append_from_all, spawn

CLOUDS: dict[str, tuple[str, Callable[[dict[str, Any]], str], int]] = {
    "azurite": ("az", new_container, 25),
    "fake_google": ("gs", new_google_bucket, 4),
}
"""The fixture of a cloud's options; the protocol of its target, what makes a container, and the records of a writer."""
FORKED_S_MAX = 30

pytestmark = [pytest.mark.clouds, pytest.mark.slow]


@pytest.fixture(params=CLOUDS)
def cloud(request: pytest.FixtureRequest) -> tuple[Target, int]:
    """A segment on each of the clouds."""
    protocol, new_place, count = CLOUDS[request.param]
    options: dict[str, Any] = request.getfixturevalue(request.param)
    return Target(protocol, options, f"{new_place(options)}/segment"), count


def test_eight_processes_append_each_record_once_and_in_order(cloud: tuple[Target, int], tmp_path: Path) -> None:
    target, count = cloud
    append_from_all(target, tmp_path, count)


def append_once(fs: Any, path: str, log: Path) -> None:
    try:
        log.write_text(str(fs.append(path, b"child")))
    except OSError as error:
        log.write_text(f"{type(error).__name__}: {error}")


def append_in_fork(target: Target, folder: Path) -> tuple[Any, str]:
    """Append, and once more in a forked child; the filesystem, and what the child says of its append."""
    fs = target.open()
    fs.create(target.path)
    fs.append(target.path, b"parent")
    child = spawn(multiprocessing.get_context("fork"), append_once, fs, target.path, folder / "said")
    child.join(FORKED_S_MAX)
    assert child.exitcode == 0
    return fs, (folder / "said").read_text()


@pytest.mark.filterwarnings(FORK_WARNING)
def test_a_forked_child_of_a_process_that_used_obstore_is_told_so(azurite: dict[str, Any], tmp_path: Path) -> None:
    target = Target("az", azurite, f"{new_container(azurite)}/segment")
    fs, said = append_in_fork(target, tmp_path)
    assert "spawn" in said
    assert fs.cat_file(target.path) == b"parent"


@pytest.mark.filterwarnings(FORK_WARNING)
def test_a_forked_child_writes_to_google(fake_google: dict[str, Any], tmp_path: Path) -> None:
    target = Target("gs", fake_google, f"{new_google_bucket(fake_google)}/segment")
    fs, said = append_in_fork(target, tmp_path)
    assert said == "6"
    assert fs.cat_file(target.path) == b"parentchild"
