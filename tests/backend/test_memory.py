"""The memory backend: the contract, and the store that the backend shares with fsspec."""

from __future__ import annotations

import os
import pickle
import uuid
from collections.abc import Iterator

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from rollingfs.backend import memory
from rollingfs.backend.contract import Backend
from rollingfs.backend.memory import MemoryBackend
from rollingfs.errors import ConflictError
from rollingfs.testing import BackendContract, run
from tests.support.backends import private_memory
from tests.support.schedules import held_elsewhere


@pytest.fixture
def store() -> MemoryFileSystem:
    fs = fsspec.filesystem("memory")
    assert isinstance(fs, MemoryFileSystem)
    return fs


@pytest.fixture
def folder(store: MemoryFileSystem) -> Iterator[str]:
    name = f"/{uuid.uuid4().hex}"
    yield name
    for path in [path for path in store.store if path.startswith(name)]:
        del store.store[path]
    store.pseudo_dirs[:] = [path for path in store.pseudo_dirs if not path.startswith(name)]


class InPrivateMemory(BackendContract):
    """The contract over files in memory that no other test sees."""

    @pytest.fixture(autouse=True)
    def memory(self) -> MemoryBackend:
        self._memory = private_memory()
        return self._memory

    @pytest.fixture
    def folder(self) -> str:
        return "/folder"

    def raw_read(self, path: str) -> bytes:
        data: bytes = self._memory.fs.cat_file(path)
        return data

    def raw_write(self, path: str, data: bytes) -> None:
        self._memory.fs.pipe_file(path, data)

    def spawn_arguments(self) -> None:
        return None


class TestMemoryBackend(InPrivateMemory):
    @pytest.fixture
    def backend(self, memory: MemoryBackend) -> Backend:
        return memory


@pytest.fixture
def backend() -> MemoryBackend:
    return MemoryBackend()


def test_backends_over_one_store_share_tokens(folder: str) -> None:
    first, second = MemoryBackend(), MemoryBackend(MemoryFileSystem())
    token = run(first, first.create(f"{folder}/x$header", b"a"))
    new = run(second, second.replace(f"{folder}/x$header", b"b", token))
    with pytest.raises(ConflictError):
        run(first, first.replace(f"{folder}/x$header", b"c", token))
    assert run(first, first.read(f"{folder}/x$header")).token == new


def test_a_pickled_private_store_keeps_its_tokens(folder: str) -> None:
    fs = MemoryFileSystem(global_store=False, skip_instance_cache=True)
    backend = MemoryBackend(fs)
    token = run(backend, backend.create(f"{folder}/x$header", b"a"))
    other = pickle.loads(pickle.dumps(backend))
    assert run(other, other.read(f"{folder}/x$header")).token == token
    run(other, other.replace(f"{folder}/x$header", b"b", token))
    assert run(backend, backend.read(f"{folder}/x$header")).data == b"a"


def test_what_fsspec_rewrites_or_appends_to_has_another_token(
    backend: MemoryBackend, store: MemoryFileSystem, folder: str
) -> None:
    path = f"{folder}/plain"
    tokens = []
    for mode, data in (("wb", b"12"), ("wb", b"12"), ("ab", b"3"), ("ab", b"4")):
        with store.open(path, mode) as file:
            file.write(data)
        tokens.append(run(backend, backend.stat(path)).token)
    assert len(set(tokens)) == len(tokens)
    assert run(backend, backend.read(path)).data == b"1234"


def test_reading_does_not_disturb_an_fsspec_reader_of_the_same_file(
    backend: MemoryBackend, store: MemoryFileSystem, folder: str
) -> None:
    store.pipe_file(f"{folder}/plain", b"0123456789")
    with store.open(f"{folder}/plain") as file:
        assert file.read(3) == b"012"
        run(backend, backend.read_range(f"{folder}/plain", 7, 9))
        run(backend, backend.read(f"{folder}/plain"))
        assert file.read(3) == b"345"


def test_a_file_is_not_a_parent(backend: MemoryBackend, folder: str) -> None:
    run(backend, backend.write(f"{folder}/file", [b"x"]))
    with pytest.raises(NotADirectoryError):
        run(backend, backend.create(f"{folder}/file/x$header", b"y"))
    with pytest.raises(NotADirectoryError):
        run(backend, backend.make_folder(f"{folder}/file/folder"))
    with pytest.raises(FileExistsError):
        run(backend, backend.make_folder(f"{folder}/file"))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_forked_while_another_thread_holds_the_lock_is_not_stuck(backend: MemoryBackend, folder: str) -> None:
    token = run(backend, backend.create(f"{folder}/x$header", b"a"))
    with held_elsewhere(memory._lock):
        child = os.fork()
        if child == 0:
            new = run(backend, backend.replace(f"{folder}/x$header", b"b", token))
            os._exit(0 if new != token else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert run(backend, backend.read(f"{folder}/x$header")).token == token
