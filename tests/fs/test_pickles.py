"""Handles and streams go with pickles to other processes."""

from __future__ import annotations

import importlib.metadata
import pickle
from pathlib import Path

import pytest

import rollingfs


def test_a_handle_and_a_stream_go_on_where_they_are_unpickled(tmp_path: Path) -> None:
    fs = rollingfs.RollingFileSystem("file")
    fs.create(f"{tmp_path}/a")
    handle = fs.segment(f"{tmp_path}/a")
    handle.append(b"one")
    copy = pickle.loads(pickle.dumps(handle))
    assert (copy.length, copy.append(b"two", expected_offset=3)) == (3, 3)
    held = pickle.loads(pickle.dumps(handle.acquire("me")))
    held.append(b"!")
    with pytest.raises(rollingfs.FencedError):
        fs.append(f"{tmp_path}/a", b"?")
    held.release()
    fs.rm(f"{tmp_path}/a")
    fs.create(f"{tmp_path}/a")
    with pytest.raises(FileNotFoundError):
        copy.append(b"to another incarnation")
    stream = pickle.loads(pickle.dumps(fs.stream(str(tmp_path), on_error="raise")))
    assert (stream.path, stream.size()) == (str(tmp_path), 0)


def test_the_version_is_that_of_the_distribution() -> None:
    assert rollingfs.__version__ == importlib.metadata.version("rollingfs")
