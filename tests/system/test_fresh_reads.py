"""A read that begins after an append was acknowledged sees it, in whichever process, by default."""

from __future__ import annotations

import multiprocessing
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from rollingfs import RollingFileSystem, RollingPolicy
from tests.support.servers import new_bucket

LINES = 50
LINE = b"a line of a child process\n"


def _append(protocol: str, options: dict[str, Any], path: str) -> None:
    fs = RollingFileSystem(protocol, options)
    for _ in range(LINES):
        fs.append(path, LINE)


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


@pytest.fixture(params=["file", pytest.param("s3", marks=[pytest.mark.slow, pytest.mark.s3])])
def place(request: pytest.FixtureRequest, tmp_path: Any) -> tuple[str, dict[str, Any], str]:
    """A protocol, its options and a folder."""
    if request.param == "file":
        return "file", {}, str(tmp_path)
    options = request.getfixturevalue("seaweed")
    return "s3", options, f"{new_bucket(options)}/{uuid.uuid4().hex}"


def test_a_parent_sees_what_its_children_have_appended(place: tuple[str, dict[str, Any], str]) -> None:
    protocol, options, folder = place
    context = multiprocessing.get_context("spawn")
    fs = RollingFileSystem(protocol, options, skip_instance_cache=True)
    path = fs._strip(f"{folder}/log")
    fs.create(path, RollingPolicy(max_bytes=400, inline_bytes=100))
    handle = fs.segment(path)
    for name, look in LOOKS.items():
        assert look(fs, path) == 0, name
    children = [context.Process(target=_append, args=(protocol, options, path)) for _ in range(2)]
    for child in children:
        child.start()
    for child in children:
        child.join()
        assert child.exitcode == 0
    wanted = 2 * LINES * len(LINE)
    assert len(handle.read(0, wanted)) == wanted
    for name, look in LOOKS.items():
        assert look(fs, path) == wanted, name


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
