"""The option `share_commits` reaches the client by every way in which options reach a filesystem."""

from __future__ import annotations

import pickle
from pathlib import Path

import fsspec
import pytest
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem

from rollingfs import RollingFileSystem
from rollingfs.logging import RollingHandler


def shares(fs: RollingFileSystem) -> bool:
    return fs._client.commits.share is not None


def test_it_is_off_unless_the_user_chooses_it() -> None:
    assert not shares(RollingFileSystem("memory"))
    assert shares(RollingFileSystem("memory", share_commits=True))


def test_it_passes_through_urls_and_pickles() -> None:
    fs, _ = fsspec.url_to_fs("rolling::memory://log", share_commits=True)
    assert shares(fs)
    assert shares(pickle.loads(pickle.dumps(fs)))
    nested, _ = fsspec.url_to_fs("rolling::memory://log", rolling={"share_commits": True})
    assert shares(nested)
    assert shares(RollingFileSystem.from_json(fs.to_json()))


def test_only_true_and_false_are_taken() -> None:
    with pytest.raises((TypeError, ValueError), match="share_commits"):
        RollingFileSystem("memory", share_commits="yes")


def test_the_logging_handler_takes_it() -> None:
    handler = RollingHandler("rolling::memory://handler/log", share_commits=True)
    assert shares(handler.fs)
    handler.close()
    with pytest.raises(ValueError, match="share_commits"):
        RollingHandler("/log", fs=RollingFileSystem("memory"), share_commits=True)


def test_a_disk_takes_it_and_does_nothing(tmp_path: Path) -> None:
    """So does a filesystem of fsspec that only one may write."""
    below = DirFileSystem(f"{tmp_path}/generic", LocalFileSystem(auto_mkdir=True))
    generic = RollingFileSystem(fs=below, share_commits=True, single_writer=True)
    for fs in (generic, RollingFileSystem("file", share_commits=True)):
        path = "log" if fs is generic else f"{tmp_path}/log"
        fs.create(path)
        assert [fs.append(path, b"abc") for _ in range(3)] == [0, 3, 6]
    headers = [file.read_bytes() for file in tmp_path.rglob("*$header")]
    assert len(headers) == 2
    assert not any(b"\nasks " in header for header in headers), "an ask is voided by any header without this line"
    assert not list(tmp_path.rglob("tmp-*"))
