"""Moves of a segment onto itself by another path, odd spellings of paths, plain files that are dated ahead."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from rollingfs import RollingFileSystem
from rollingfs.backend.contract_values import Capability
from rollingfs.errors import CommitTimeoutError
from rollingfs.format.header import Adopted
from rollingfs.runtime.concurrency import drive
from rollingfs.segment.commit.removals import check_passes

pytestmark = pytest.mark.skipif(os.name == "nt", reason="needs symbolic links")


@pytest.fixture
def fs(tmp_path: Path) -> RollingFileSystem:
    fs = RollingFileSystem("file", max_bytes=100, inline_bytes=10, skip_instance_cache=True)
    for name in ("y", "t"):
        fs.pipe_file(f"{tmp_path}/{name}", b"x" * 250)
    fs.seal(f"{tmp_path}/y")
    (tmp_path / "x").mkdir()
    (tmp_path / "x/link").symlink_to(tmp_path)
    return fs


def test_a_move_onto_itself_through_a_link_is_refused(fs, tmp_path):
    with pytest.raises(ValueError, match="same segment"):
        fs.mv(f"{tmp_path}/y", f"{tmp_path}/x/link/y")
    assert fs.cat_file(f"{tmp_path}/y") == b"x" * 250
    assert fs.info(f"{tmp_path}/y")["sealed"]


def test_one_source_by_two_paths_is_refused_and_stays(fs, tmp_path):
    with pytest.raises(ValueError, match="twice"):
        fs.concat(f"{tmp_path}/t", [f"{tmp_path}/y", f"{tmp_path}/x/../y"])
    with pytest.raises(ValueError, match="same segment"):
        fs.concat(f"{tmp_path}/t", [f"{tmp_path}/y", f"{tmp_path}/x/link/y"])
    assert (fs.cat_file(f"{tmp_path}/y"), fs.cat_file(f"{tmp_path}/t")) == (b"x" * 250, b"x" * 250)


def test_a_path_with_dots_means_the_resolved_path(fs, tmp_path):
    fs.mv(f"{tmp_path}/y", f"{tmp_path}/x/../y")
    fs.mv(f"{tmp_path}/y", f"{tmp_path}/x//./link/../z")  # the link's target lies in the folder above tmp_path
    above = tmp_path.parent
    try:
        assert fs.cat_file(f"{above}/z") == b"x" * 250
    finally:
        fs.rm(f"{above}/z")
    assert fs.find(f"{tmp_path}/x/../x/../t") == [f"{tmp_path}/x/../x/../t"]


def test_a_plain_file_dated_ahead_is_refused_without_wait():
    backend = SimpleNamespace(capability=Capability(date_step_s=1.0), now=mock.AsyncMock(return_value=1000.0))
    store: Any = SimpleNamespace(backend=backend, now_ms=lambda: 1_000_000)
    with pytest.raises(CommitTimeoutError, match="ahead of the store's clock"):
        drive(check_passes(store, "p", Adopted("token", 4_600_000), -1e9))
    assert drive(check_passes(store, "p", Adopted("token", 998_000), 1e18)) == 0.0
