"""Where the tests of the filesystem, of handles and of open files work."""

from pathlib import Path

import pytest

from rollingfs import RollingFileSystem
from rollingfs.backend.local.backend import LocalBackend
from tests.support.backends import Scripted, private_memory
from tests.support.places import Place, new_place
from tests.support.reading import World, make_world
from tests.support.site import Site


@pytest.fixture(params=["memory", "local", "async"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Scripted, str]:
    """A backend of each kind, and an empty folder."""
    if request.param == "local":
        return Scripted(LocalBackend(sync=False)), str(tmp_path)
    return Scripted(private_memory(), suspends=request.param == "async"), ""


@pytest.fixture
def site(request: pytest.FixtureRequest, store: tuple[Scripted, str]) -> Site:
    """A path on each kind of backend, with the policy of the test module."""
    return Site(*store, request.module.POLICY)


@pytest.fixture
def fs() -> RollingFileSystem:
    """On the local disk; modules about other stores have their own."""
    return RollingFileSystem("file", sync=False)


@pytest.fixture(params=["memory", "file", "s3"])
def place(request: pytest.FixtureRequest) -> Place:
    return new_place(request.param, request, header_cache_s=0)


@pytest.fixture
def memory(request: pytest.FixtureRequest) -> Place:
    return new_place("memory", request, header_cache_s=0)


@pytest.fixture(params=["memory", "local", "async"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    return make_world(request.param, tmp_path)


@pytest.fixture
def over_async() -> World:
    return make_world("async")
