"""A read that begins after an append was acknowledged sees it, in whichever process, by default."""

from collections.abc import Callable
from typing import Any

import pytest

from rollingfs import RollingFileSystem

LOOKS: dict[str, Callable[[RollingFileSystem, str], int]] = {
    "cat_file": lambda fs, path: len(fs.cat_file(path)),
    "cat_ranges": lambda fs, path: sum(map(len, fs.cat_ranges([path], [0], [None], on_error="raise"))),
    "open": lambda fs, path: len(fs.open(path, "rb").read()),
    "readlines": lambda fs, path: sum(map(len, fs.open(path, "rb").readlines())),
    "size of a file": lambda fs, path: fs.open(path, "rb").size,
    "seek": lambda fs, path: fs.open(path, "rb").seek(0, 2),
    "info": lambda fs, path: fs.info(path)["size"],
    "size": lambda fs, path: fs.size(path),
    "ls": lambda fs, path: fs.ls(path.rpartition("/")[0])[0]["size"],
    "find": lambda fs, path: fs.find(path.rpartition("/")[0], detail=True)[path]["size"],
    "du": lambda fs, path: fs.du(path),
    "segment": lambda fs, path: fs.segment(path).size,
    "stream": lambda fs, path: fs.stream(path.rpartition("/")[0]).size(),
}


@pytest.mark.parametrize("name", LOOKS)
@pytest.mark.parametrize("target", ["memory", "file"])
def test_each_look_sees_what_another_client_has_appended_since(name: str, target: str, tmp_path: Any) -> None:
    mine, other = (RollingFileSystem(target, skip_instance_cache=True) for _ in range(2))
    path = mine._strip(f"{tmp_path}/log")
    mine.pipe_file(path, b"mine\n")
    assert LOOKS[name](mine, path) == 5
    other.append(path, b"the other's\n")
    assert LOOKS[name](mine, path) == 17
    other.truncate(path, 5)
    assert LOOKS[name](mine, path) == 12
    other.rm(path)
    with pytest.raises((FileNotFoundError, IndexError, KeyError)):
        raise FileNotFoundError if LOOKS[name](mine, path) == 0 else AssertionError(name)  # a sum of nothing is 0
    assert not mine.exists(path)
