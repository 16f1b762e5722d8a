"""The wrapper keeps the contract of its inner backend and sees every verb; the meter counts what passes through."""

import pickle
from pathlib import Path
from typing import Any

import pytest

from rollingfs.backend.contract import VERBS, Backend
from rollingfs.backend.contract_values import PendingUpload
from rollingfs.backend.local.backend import LocalBackend
from rollingfs.backend.memory import MemoryBackend
from rollingfs.backend.wrapper import NOT_FORWARDED, BackendWrapper, MeteredBackend
from rollingfs.errors import ConflictError
from rollingfs.runtime.meters import REQUEST, Meters
from tests.backend.test_memory import InPrivateMemory
from tests.support.backends import Scripted, Shifted, limit, private_memory
from tests.support.driven import Driven


class TestWrappedBackend(InPrivateMemory):
    claims_atomicity = False  # the races are in the tests of the inner backend

    @pytest.fixture
    def backend(self, memory: MemoryBackend) -> Backend:
        return BackendWrapper(MeteredBackend(memory, Meters()))


MISSING_IN_MEMORY: dict[str, Any] = {
    "abort_upload": PendingUpload("/uploading", 0.0, "id"),
    "remove_whole": [("/x$header", "1")],
    "move_whole": [("/x$header", "1", "/y$header")],
}
"""What a store in memory has not, with what it takes: the verb raises."""
FORWARDED = set(VERBS) - NOT_FORWARDED
OF_UPLOADS = ("upload.write", "upload.finish", "upload.abort")


def call_every_verb(backend: Backend) -> None:
    """Call each verb of the contract once, and those of an upload, over a store in memory."""
    driven, header = Driven(backend), "/x$header"
    token = driven.create(header, b"1")
    token = driven.replace(header, memoryview(b"22"), token)
    token = driven.extend(header, b"", token) or token
    for verb in ("read", "stat", "is_folder", "now", "keeps_versions", "metadata", "take_turn", "flush"):
        getattr(driven, verb)(header)
    driven.read_if_changed(header, "another")
    driven.write("/chunk", [b"12", b"3"])
    driven.read_range("/chunk", 1, 3)
    driven.copy("/chunk", "/copy")
    driven.take_link("/copy")
    driven.respell("/copy", "/copy")
    driven.put("/ask", b"12")
    driven.delete_if(header, token)
    driven.delete(["/chunk"])
    driven.make_folder("/folder")
    assert driven.make_room("/x") is False
    for verb in ("list", "list_page", "list_uploads", "remove_folder"):
        getattr(driven, verb)("/folder")
    for verb, argument in MISSING_IN_MEMORY.items():
        with pytest.raises(NotImplementedError):
            getattr(driven, verb)(argument)
    upload = driven.open_write("/uploaded")
    upload.write(b"xyz")
    upload.finish()
    upload.abort()


def test_every_verb_of_the_contract_passes_through_the_hook() -> None:
    recorder = Scripted(private_memory())
    call_every_verb(recorder)
    assert {verb for verb, _ in recorder.calls} == FORWARDED.union(OF_UPLOADS)
    assert recorder.calls[-3:] == [(verb, "/uploaded") for verb in OF_UPLOADS]


def test_abilities_and_further_attributes_are_those_of_inner_backend() -> None:
    inner = LocalBackend(sync=False)
    limit(inner, requests_max=7)
    wrapper = BackendWrapper(inner)
    abilities = [name for name in vars(Backend) if name in Backend.__annotations__]
    assert {name: getattr(wrapper, name) for name in abilities} == {name: getattr(inner, name) for name in abilities}
    assert abilities == ["is_async", "capability", "tiers"]
    assert wrapper.sync is False
    with pytest.raises(AttributeError, match="nonsense"):
        _ = wrapper.nonsense


def test_a_wrapper_can_be_pickled(tmp_path: Path) -> None:
    wrapper = pickle.loads(pickle.dumps(Shifted(LocalBackend(sync=False), shift_s=3.0)))
    Driven(wrapper).create(f"{tmp_path}/x$header", b"1")
    assert (wrapper.shift_s, (tmp_path / "x$header").read_bytes()) == (3.0, b"1")


def test_names_and_forks_are_forwarded(monkeypatch: pytest.MonkeyPatch) -> None:
    inner, forks = private_memory(), []
    monkeypatch.setattr(inner, "after_fork", lambda: forks.append("inner"))
    wrapper = BackendWrapper(inner)
    wrapper.after_fork()
    assert forks == ["inner"]
    url = wrapper.unstrip("/x")
    assert (url, wrapper.strip(url), wrapper.root("/x")) == ("memory:///x", "/x", "memory")


@pytest.fixture
def metered() -> Driven:
    return Driven(MeteredBackend(private_memory(), Meters()))


def counts(metered: Driven) -> dict[str, tuple[int, int, int, int]]:
    """Calls, refusals, errors and bytes by verb."""
    return {
        name.removeprefix(REQUEST): (tally.count, tally.refusals, tally.errors, tally.bytes)
        for name, tally in metered.meters.total().items()
    }


def test_every_verb_is_counted_once_with_its_bytes(metered: Driven) -> None:
    call_every_verb(metered.backend)
    found = counts(metered)
    assert found.keys() == FORWARDED.union(OF_UPLOADS)
    sizes = {
        "create": 1,
        "replace": 2,
        "write": 3,
        "read": 2,
        "read_if_changed": 2,
        "read_range": 2,
        "put": 2,
        "upload.write": 3,
    }
    assert found == {verb: (1, 0, int(verb in MISSING_IN_MEMORY), sizes.get(verb, 0)) for verb in found}


def test_read_into_counts_a_range_and_bodiless_answers_nothing(metered: Driven) -> None:
    token = metered.create("/x$header", b"123")
    assert metered.read_into("/x$header", 0, memoryview(bytearray(3))) == 3
    assert metered.read_if_changed("/x$header", token) is None
    found = counts(metered)
    assert (found["read_range"], found["read_if_changed"]) == ((1, 0, 0, 3), (1, 0, 0, 0))


def test_refusals_are_no_errors_and_both_come_through(metered: Driven) -> None:
    metered.create("/x", b"1")
    for verb, *args in (
        *(("create", "/x", b"2"), ("replace", "/x", b"2", "token"), ("read", "/y"), ("read_range", "/y", 0, 1)),
        *(("read_into", "/y", 0, memoryview(bytearray(1))), ("read_if_changed", "/y", "token")),
    ):
        with pytest.raises((FileExistsError, FileNotFoundError, ConflictError)):
            getattr(metered, verb)(*args)
    found = counts(metered)
    assert found["create"] == (2, 1, 0, 1)
    assert found["read"] == found["read_if_changed"] == found["replace"] == (1, 1, 0, 0)
    assert found["read_range"] == (2, 2, 0, 0)


def test_a_metered_backend_is_not_counted_twice() -> None:
    inner = BackendWrapper(private_memory())
    first = MeteredBackend(inner, Meters())
    second = MeteredBackend(first, Meters())
    assert second.inner is inner
    Driven(second).write("/x", [b"1"])
    assert not counts(first)
    assert counts(second) == {"write": (1, 0, 0, 1)}
