"""`rollingfs.core`: what programs on top of a filesystem build on."""

import asyncio

import fsspec
import pytest

import rollingfs
from rollingfs import RollingFileSystem
from tests.support.backends import Counting, private_memory
from tests.support.segment_verbs import append


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def fs(request: pytest.FixtureRequest) -> RollingFileSystem:
    backend = Counting(private_memory(), suspends=request.param)
    return RollingFileSystem(backend=backend, skip_instance_cache=True)


def test_its_coroutines_run_for_blocking_and_awaiting_callers(fs: RollingFileSystem) -> None:
    fs.create("/log")
    core = rollingfs.core(fs)
    assert core.is_async == core.backend.is_async
    load = core.client.headers.load
    loaded = core.run(load("/log"))
    assert loaded.header.length == 0
    assert asyncio.run(core.arun(load("/log"))).header == loaded.header
    assert core.run(append(core.client, "/log", b"abc"), commits="/log") == 0
    assert fs.cat_file("/log") == b"abc"


def test_paths_are_those_of_the_backend(fs: RollingFileSystem) -> None:
    core = rollingfs.core(fs)
    url = "rolling:///a/b/"
    assert core.strip(url) == core.to_write(url) == "/a/b"
    assert core.strip(["/a", "rolling:///b"]) == ["/a", "/b"]
    with pytest.raises(ValueError, match="not a name for a segment"):
        core.to_write("/a/$listing")
    with pytest.raises(ValueError, match="not a segment name"):
        core.to_write("/a$header")


def test_another_filesystem_has_none() -> None:
    with pytest.raises(TypeError, match="MemoryFileSystem is not a RollingFileSystem"):
        rollingfs.core(fsspec.filesystem("memory"))
