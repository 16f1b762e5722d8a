"""The probe: it believes what it sees, refuses a store that would lose data, and leaves nothing behind."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from rollingfs.backend.contract import Backend
from rollingfs.backend.generic import GenericBackend
from rollingfs.backend.local.backend import LocalBackend
from rollingfs.backend.memory import MemoryBackend
from rollingfs.backend.probe import Abilities, probe
from rollingfs.backend.wrapper import BackendWrapper
from rollingfs.errors import ConflictError, UnsafeBackendError
from rollingfs.testing import run

FOLDER = "/a/x$chunks"


@pytest.fixture
def fs() -> MemoryFileSystem:
    return MemoryFileSystem(global_store=False, skip_instance_cache=True)


class Liar(BackendWrapper):
    """A store of which one verb does not do what it says."""

    def __init__(self, fs: MemoryFileSystem, lie: str) -> None:
        super().__init__(MemoryBackend(fs))
        self.lie = lie
        self.lost: set[str] = set()

    async def call(self, verb: str, *args: Any) -> Any:
        inner = self.inner
        if self.lie == f"{verb} ignores its condition":
            await inner.delete([args[0]])
            return True if verb == "delete_if" else await inner.create(args[0], args[1])
        if self.lie == f"{verb} says no and writes":
            try:
                return await super().call(verb, *args)
            except (FileExistsError, ConflictError):
                await inner.delete([args[0]])
                await inner.create(args[0], args[1])
                raise
        if self.lie == f"{verb} says no and deletes":
            await inner.delete([args[0]])
            return False
        result = await super().call(verb, *args)
        if self.lie == f"the answer of {verb} is lost" and verb not in self.lost:
            # the client repeats the request, and the store refuses because of the first
            self.lost.add(verb)
            return await super().call(verb, *args)
        return result


@pytest.mark.parametrize("make", [MemoryBackend, lambda fs: BackendWrapper(MemoryBackend(fs))])
def test_an_honest_store_passes_and_keeps_nothing(fs: MemoryFileSystem, make: Any) -> None:
    backend = make(fs)
    assert run(backend, probe(backend, FOLDER)) == Abilities(delete_if=True)
    assert fs.store == {}


def test_the_disk_passes_and_keeps_nothing(tmp_path: Path) -> None:
    backend = LocalBackend(sync=False)
    assert run(backend, probe(backend, f"{tmp_path}/x$chunks")) == Abilities(delete_if=True)
    assert os.listdir(tmp_path / "x$chunks") == []


@pytest.mark.parametrize("verb", ["create", "replace"])
@pytest.mark.parametrize("lie", ["ignores its condition", "says no and writes"])
def test_a_store_that_overwrites_is_refused_with_path_and_verb(fs: MemoryFileSystem, verb: str, lie: str) -> None:
    backend = Liar(fs, f"{verb} {lie}")
    with pytest.raises(UnsafeBackendError, match=f"^/a/x: .* not safe .*{verb} .* nothing was written"):
        run(backend, probe(backend, FOLDER))
    assert fs.store == {}


@pytest.mark.parametrize("lie", ["ignores its condition", "says no and deletes"])
def test_a_store_that_deletes_whatever_the_token_may_be_written_but_not_deleted_in(
    fs: MemoryFileSystem, lie: str
) -> None:
    backend = Liar(fs, f"delete_if {lie}")
    assert run(backend, probe(backend, FOLDER)) == Abilities(delete_if=False)


@pytest.mark.parametrize("verb", ["create", "replace", "delete_if"])
def test_a_lost_answer_is_not_held_against_the_store(fs: MemoryFileSystem, verb: str) -> None:
    backend = Liar(fs, f"the answer of {verb} is lost")
    assert run(backend, probe(backend, FOLDER)) == Abilities(delete_if=True)


def test_a_store_without_conditional_delete_is_not_asked_for_it(fs: MemoryFileSystem) -> None:
    backend: Backend = GenericBackend(fs, single_writer=True)
    assert run(backend, probe(backend, FOLDER)) == Abilities(delete_if=False)


def test_a_store_for_readers_is_refused_with_the_way_out(fs: MemoryFileSystem) -> None:
    backend = GenericBackend(fs)
    with pytest.raises(UnsafeBackendError, match="single_writer=True"):
        run(backend, probe(backend, FOLDER))
    assert fs.store == {}


def test_a_failure_is_no_verdict(fs: MemoryFileSystem) -> None:
    class Failing(BackendWrapper):
        async def call(self, verb: str, *args: Any) -> Any:
            if verb == "replace":
                raise OSError(5, "the network is down")
            return await super().call(verb, *args)

    backend = Failing(MemoryBackend(fs))
    with pytest.raises(OSError, match="network is down") as raised:
        run(backend, probe(backend, FOLDER))
    assert not isinstance(raised.value, UnsafeBackendError)
    assert fs.store == {}
