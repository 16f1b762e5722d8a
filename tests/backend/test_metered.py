"""The backend that counts keeps the contract of the one below it, and counts what passes through."""

from __future__ import annotations

import inspect
import uuid

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from rollingfs.backend.contract import Backend, Part
from rollingfs.backend.local.backend import LocalBackend
from rollingfs.backend.memory import MemoryBackend
from rollingfs.backend.metered import MeteredBackend
from rollingfs.backend.values import PendingUpload
from rollingfs.backend.wrapper import BackendWrapper
from rollingfs.errors import ConflictError
from rollingfs.runtime.meters import REQUEST, Meters
from rollingfs.testing import BackendContract, run
from tests.support.backends import private_memory


class TestMeteredBackend(BackendContract):
    claims_atomicity = False  # the races are in the tests of the inner backend

    @pytest.fixture
    def backend(self) -> Backend:
        self._fs = MemoryFileSystem(global_store=False, skip_instance_cache=True)
        return MeteredBackend(MemoryBackend(self._fs), Meters())

    @pytest.fixture
    def folder(self) -> str:
        return f"/{uuid.uuid4().hex}"

    def raw_read(self, path: str) -> bytes:
        data: bytes = self._fs.cat_file(path)
        return data

    def raw_write(self, path: str, data: bytes) -> None:
        self._fs.pipe_file(path, data)

    def spawn_arguments(self) -> None:
        return None


@pytest.fixture
def metered() -> MeteredBackend:
    return MeteredBackend(private_memory(), Meters())


def counts(metered: MeteredBackend) -> dict[str, tuple[int, int, int, int]]:
    """Calls, refusals, errors and bytes by verb."""
    return {
        name.removeprefix(REQUEST): (tally.count, tally.refusals, tally.errors, tally.bytes)
        for name, tally in metered.meters.total().items()
    }


def test_every_verb_is_counted_once_with_its_bytes(metered: MeteredBackend) -> None:
    token = run(metered, metered.create("/x$header", b"1"))
    token = run(metered, metered.replace("/x$header", memoryview(b"22"), token))
    run(metered, metered.write("/chunk", [b"12", b"3"]))
    for coroutine in (
        metered.read("/x$header"),
        metered.read_if_changed("/x$header", token),
        metered.read_if_changed("/x$header", "another"),
        metered.read_range("/chunk", 1, 3),
        metered.read_into("/chunk", 0, memoryview(bytearray(3))),
        metered.stat("/x$header"),
        metered.is_folder("/x"),
        metered.now("/x$header"),
        metered.flush("/x$header"),
        metered.put("/ask", b"12"),
        metered.copy("/chunk", "/copy"),
        metered.join([Part("/chunk", 0, 1)], "/joined"),
        metered.delete_if("/x$header", token),
        metered.delete(["/chunk"]),
        metered.make_folder("/folder"),
        metered.list("/folder"),
        metered.list_page("/folder"),
        metered.list_prefix("/folder", "ask"),
        metered.metadata("/copy"),
        metered.keeps_versions("/copy"),
        metered.remove_folder("/folder"),
        metered.list_uploads("/folder"),
    ):
        run(metered, coroutine)
    with pytest.raises(NotImplementedError):
        run(metered, metered.abort_upload(PendingUpload("/uploading", 0.0, "id")))
    upload = run(metered, metered.open_write("/uploaded"))
    run(metered, upload.write(b"xyz"))
    run(metered, upload.finish())
    run(metered, upload.abort())
    found = counts(metered)
    verbs = {name for name, member in vars(Backend).items() if inspect.iscoroutinefunction(member)}
    uploads = {"upload.write", "upload.finish", "upload.abort"}
    assert found.keys() == verbs - {"store_name", "read_into"} | uploads  # `read_into` is a `read_range`
    sizes = {
        "create": 1,
        "replace": 2,
        "write": 3,
        "read": 2,
        "read_if_changed": 2,
        "read_range": 5,
        "put": 2,
        "upload.write": 3,
    }
    twice = {"read_if_changed", "read_range"}
    assert found.pop("abort_upload") == (1, 0, 1, 0)
    assert found == {verb: (1 + (verb in twice), 0, 0, sizes.get(verb, 0)) for verb in found}


def test_refusals_are_no_errors_and_both_come_through(metered: MeteredBackend) -> None:
    run(metered, metered.create("/x", b"1"))
    for coroutine in (metered.create("/x", b"2"), metered.read("/y"), metered.read_range("/y", 0, 1)):
        with pytest.raises((FileExistsError, FileNotFoundError)):
            run(metered, coroutine)
    with pytest.raises(FileNotFoundError):
        run(metered, metered.read_into("/y", 0, memoryview(bytearray(1))))
    with pytest.raises(FileNotFoundError):
        run(metered, metered.read_if_changed("/y", "token"))
    with pytest.raises(ConflictError):
        run(metered, metered.replace("/x", b"2", "token"))
    found = counts(metered)
    assert found["create"] == (2, 1, 0, 1)
    assert found["read"] == found["read_if_changed"] == found["replace"] == (1, 1, 0, 0)
    assert found["read_range"] == (2, 2, 0, 0)


def test_abilities_are_those_of_the_inner_backend_also_if_they_change() -> None:
    inner = LocalBackend(sync=False)
    metered = MeteredBackend(inner, Meters())
    abilities = list(Backend.__annotations__)
    assert {name: getattr(metered, name) for name in abilities} == {name: getattr(inner, name) for name in abilities}
    inner.requests_max = 7
    assert metered.requests_max == 7
    assert metered.sync is False


def test_a_metered_backend_is_not_counted_twice() -> None:
    inner = BackendWrapper(private_memory())
    first = MeteredBackend(inner, Meters())
    second = MeteredBackend(first, Meters())
    assert second.inner is inner
    run(second, second.write("/x", [b"1"]))
    assert not counts(first)
    assert counts(second) == {"write": (1, 0, 0, 1)}
