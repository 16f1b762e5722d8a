"""Empty folders on several kinds of store, for tests of what every store does alike."""

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rollingfs import RollingFileSystem
from rollingfs.backend.local.backend import LocalBackend
from tests.support.backends import Counting, private_memory
from tests.support.servers import new_bucket, shared_backend


@dataclass(frozen=True)
class Folder:
    """An empty folder."""

    protocol: str
    target: dict[str, Any]
    """Options of the store's own filesystem."""
    path: str

    def open(self, **options: Any) -> RollingFileSystem:
        """A filesystem of the store; a disk flushes nothing."""
        own = {"sync": False} if self.protocol == "file" else {}
        return RollingFileSystem(self.protocol, self.target, **own, **options)


@dataclass
class Place:
    """A filesystem and an empty folder of it."""

    fs: RollingFileSystem
    root: str

    @property
    def has_folders(self) -> bool:
        return self.fs._backend.capability.has_folders

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


def new_fs(**options: Any) -> RollingFileSystem:
    """A client of the disk that has seen nothing."""
    return RollingFileSystem("file", skip_instance_cache=True, **options)


def tiered(root: str, **options: Any) -> RollingFileSystem:
    """A client of memory with two tiers, which are of this folder alone, and a small policy."""
    tiers = {"cold": f"/archive{root}", "far": f"/far{root}"}
    options = {"max_bytes": 100, "inline_bytes": 10, "tiers": tiers, **options}
    return RollingFileSystem("memory", skip_instance_cache=True, **options)


def counted(fs: RollingFileSystem, name: str) -> int:
    """How many calls a client has counted under a name."""
    tally = fs._client.meters.total().get(name)
    return tally.count if tally is not None else 0


DATA = b"0123456789" * 30


def write(fs: RollingFileSystem, path: str, *, seal: bool = False) -> str:
    """By the policy of `tiered`, three chunks and a tail; its path."""
    fs.pipe_file(path, DATA)
    fs.append(path, b"tail")
    if seal:
        fs.seal(path)
    return path


def new_folder(kind: str, request: pytest.FixtureRequest) -> Folder:
    """A folder on ``memory``, ``file``, ``s3`` (SeaweedFS) or ``az`` (azurite)."""
    name = uuid.uuid4().hex
    if kind == "memory":
        return Folder(kind, {}, f"/{name}")
    if kind == "file":
        return Folder(kind, {}, f"{request.getfixturevalue('tmp_path_factory').mktemp('place').as_posix()}/{name}")
    server, root = {"s3": ("seaweed", "seaweed_bucket"), "az": ("azurite", "azure_container")}[kind]
    return Folder(kind, request.getfixturevalue(server), f"{request.getfixturevalue(root)}/{name}")


def backend_of(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Any, str]:
    """A backend of a kind, and a folder on it that nobody else uses."""
    if kind == "local":
        return LocalBackend(sync=False), str(tmp_path)
    if kind == "s3":
        seaweed = request.getfixturevalue("seaweed")
        return shared_backend(**seaweed), f"{new_bucket(seaweed)}/folder"
    memory = private_memory()
    return Counting(memory, suspends=True) if kind == "async" else memory, f"/{uuid.uuid4().hex}"


def new_place(kind: str, request: pytest.FixtureRequest, **options: Any) -> Place:
    folder = new_folder(kind, request)
    return Place(folder.open(**options), folder.path)
