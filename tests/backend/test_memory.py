"""The memory backend: the contract, and the store that the backend shares with fsspec."""

import pickle
from collections.abc import Callable

import pytest
from fsspec import AbstractFileSystem
from fsspec.implementations.memory import MemoryFileSystem

from rollingfs.backend import memory
from rollingfs.backend.contract import Backend
from rollingfs.backend.memory import MemoryBackend
from rollingfs.testing import BackendContract
from tests.support.backends import private_memory
from tests.support.driven import Driven
from tests.support.forks import is_so_in_child, needs_fork
from tests.support.schedules import held_elsewhere


class OverFsspec(BackendContract):
    """The contract over files of a filesystem that no other test sees, by default in memory."""

    make_fs: Callable[[], AbstractFileSystem] = staticmethod(lambda: private_memory().fs)

    @pytest.fixture(autouse=True)
    def fs(self) -> AbstractFileSystem:
        self._fs = type(self).make_fs()
        return self._fs

    @pytest.fixture
    def folder(self) -> str:
        return "/folder"

    def raw_read(self, path: str) -> bytes:
        data: bytes = self._fs.cat_file(path)
        return data

    def raw_write(self, path: str, data: bytes) -> None:
        self._fs.makedirs(self._fs._parent(path), exist_ok=True)
        self._fs.pipe_file(path, data)

    def spawn_arguments(self) -> None:
        return None


class InPrivateMemory(OverFsspec):
    @pytest.fixture
    def memory(self, fs: MemoryFileSystem) -> MemoryBackend:
        return MemoryBackend(fs)


class TestMemoryBackend(InPrivateMemory):
    @pytest.fixture
    def backend(self, memory: MemoryBackend) -> Backend:
        return memory


@pytest.fixture
def backend() -> Driven:
    return Driven(MemoryBackend())


def test_a_pickled_private_store_keeps_its_tokens(root):
    backend = Driven(private_memory())
    token = backend.create(f"{root}/x$header", b"a")
    other = Driven(pickle.loads(pickle.dumps(backend.backend)))
    assert other.read(f"{root}/x$header").token == token
    other.replace(f"{root}/x$header", b"b", token)
    assert backend.read(f"{root}/x$header").data == b"a"


def test_what_fsspec_rewrites_or_appends_to_has_another_token(backend, root):
    path, store = f"{root}/plain", MemoryFileSystem()
    tokens = []
    for mode, data in (("wb", b"12"), ("wb", b"12"), ("ab", b"3"), ("ab", b"4")):
        with store.open(path, mode) as file:
            file.write(data)
        tokens.append(backend.stat(path).token)
    assert len(set(tokens)) == len(tokens)
    assert backend.read(path).data == b"1234"


def test_reading_does_not_disturb_fsspec_reader_of_same_file(backend, root):
    store = MemoryFileSystem()
    store.pipe_file(f"{root}/plain", b"0123456789")
    with store.open(f"{root}/plain") as file:
        assert file.read(3) == b"012"
        backend.read_range(f"{root}/plain", 7, 9)
        backend.read(f"{root}/plain")
        assert file.read(3) == b"345"


def test_a_file_is_not_a_parent(backend, root):
    backend.write(f"{root}/file", [b"x"])
    with pytest.raises(NotADirectoryError):
        backend.create(f"{root}/file/x$header", b"y")
    with pytest.raises(NotADirectoryError):
        backend.make_folder(f"{root}/file/folder")
    with pytest.raises(FileExistsError):
        backend.make_folder(f"{root}/file")


@needs_fork
def test_child_forked_under_another_threads_lock_is_not_stuck(backend, root):
    token = backend.create(f"{root}/x$header", b"a")
    with held_elsewhere(memory._lock):
        assert is_so_in_child(lambda: backend.replace(f"{root}/x$header", b"b", token) != token)
    assert backend.read(f"{root}/x$header").token == token
