"""The probe: it believes what it sees, refuses a store that would lose data, and leaves nothing behind."""

from __future__ import annotations

from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from rollingfs.backend.contract import Backend
from rollingfs.backend.generic import GenericBackend
from rollingfs.backend.memory import MemoryBackend
from rollingfs.backend.probe import Abilities, probe
from rollingfs.backend.wrapper import BackendWrapper
from rollingfs.errors import ConflictError, UnsafeBackendError
from rollingfs.testing import run
from tests.support.backends import Scripted

FOLDER = "/a/x$chunks"


@pytest.fixture
def fs() -> MemoryFileSystem:
    return MemoryFileSystem(global_store=False, skip_instance_cache=True)


def liar(fs: MemoryFileSystem, lie: str, verb: str) -> Scripted:
    """A store that does something else than it says, in one verb."""
    backend = Scripted(MemoryBackend(fs))
    inner = backend.inner

    async def overwrite(path: str, data: Any, *_: str) -> object:
        await inner.delete([path])
        return True if verb == "delete_if" else await inner.create(path, data)

    async def refuse_and_write(path: str, data: Any, *token: str) -> object:
        try:
            return await getattr(inner, verb)(path, data, *token)
        except (FileExistsError, ConflictError):
            await overwrite(path, data)
            raise

    async def refuse_and_delete(path: str, token: str) -> bool:
        await inner.delete([path])
        return False

    async def send_again(*args: Any) -> object:
        await getattr(inner, verb)(*args)
        return await getattr(inner, verb)(*args)  # refused because of what it wrote itself

    lies = {
        "ignores its condition": overwrite,
        "says no and writes": refuse_and_write,
        "says no and deletes": refuse_and_delete,
        "answer is lost": send_again,
    }
    backend.plan(verb, instead=lies[lie], times=1 if lie == "answer is lost" else None, probes=True)
    return backend


@pytest.mark.parametrize("make", [MemoryBackend, lambda fs: BackendWrapper(MemoryBackend(fs))])
def test_an_honest_store_passes_and_keeps_nothing(fs: MemoryFileSystem, make: Any) -> None:
    backend = make(fs)
    assert run(backend, probe(backend, FOLDER)) == Abilities(delete_if=True)
    assert fs.store == {}


@pytest.mark.parametrize("verb", ["create", "replace"])
@pytest.mark.parametrize("lie", ["ignores its condition", "says no and writes"])
def test_a_store_that_overwrites_is_refused_with_path_and_verb(fs: MemoryFileSystem, verb: str, lie: str) -> None:
    backend = liar(fs, lie, verb)
    with pytest.raises(UnsafeBackendError, match=f"^/a/x: .* not safe .*{verb} .* nothing was written"):
        run(backend, probe(backend, FOLDER))
    assert fs.store == {}


@pytest.mark.parametrize("lie", ["ignores its condition", "says no and deletes"])
def test_a_store_that_deletes_whatever_the_token_may_be_written_but_not_deleted_in(
    fs: MemoryFileSystem, lie: str
) -> None:
    backend = liar(fs, lie, "delete_if")
    assert run(backend, probe(backend, FOLDER)) == Abilities(delete_if=False)


@pytest.mark.parametrize("verb", ["create", "replace", "delete_if"])
def test_a_lost_answer_is_not_held_against_the_store(fs: MemoryFileSystem, verb: str) -> None:
    backend = liar(fs, "answer is lost", verb)
    assert run(backend, probe(backend, FOLDER)) == Abilities(delete_if=True)


def test_a_store_without_conditional_delete_is_not_asked_for_it(fs: MemoryFileSystem) -> None:
    backend: Backend = GenericBackend(fs, single_writer=True)
    assert run(backend, probe(backend, FOLDER)) == Abilities(delete_if=False)
