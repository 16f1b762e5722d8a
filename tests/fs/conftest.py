"""Where the tests of the filesystem, of handles and of open files work."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rollingfs import RollingFileSystem
from rollingfs.backend.local.backend import LocalBackend
from tests.support.backends import Scripted, private_memory
from tests.support.places import new_folder
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


@dataclass
class Place:
    """A filesystem and an empty folder of it."""

    fs: RollingFileSystem
    root: str

    @property
    def has_folders(self) -> bool:
        return self.fs._backend.has_folders

    def file(self, name: str, data: bytes = b"x") -> str:
        """Write a segment."""
        self.fs.pipe_file(f"{self.root}/{name}", data)
        return f"{self.root}/{name}"

    def plain(self, name: str, data: bytes = b"x") -> str:
        """Write a plain file beside rollingfs."""
        self.fs._bridge.run(self.fs._backend.write(f"{self.root}/{name}", [data]))
        return f"{self.root}/{name}"

    def backend_files(self, folder: str) -> list[str]:
        return [entry.path for entry in self.fs._bridge.run(self.fs._backend.list(folder)).entries]

    def names(self, paths: Iterable[str]) -> list[str]:
        return [path.removeprefix(self.root) for path in paths]

    def found(self, **options: Any) -> list[str]:
        """The names of all files below the folder."""
        return self.names(self.fs.find(self.root, **options))


def new_place(kind: str, request: pytest.FixtureRequest, **options: Any) -> Place:
    folder = new_folder(kind, request)
    return Place(folder.open(**options), folder.path)


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
