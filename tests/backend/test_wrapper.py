"""The wrapper keeps the contract of its inner backend, and sees every verb."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from rollingfs.backend.contract import Backend
from rollingfs.backend.local.backend import LocalBackend
from rollingfs.backend.memory import MemoryBackend
from rollingfs.backend.metered import MeteredBackend
from rollingfs.backend.wrapper import BackendWrapper
from rollingfs.errors import ConflictError
from rollingfs.runtime.meters import Meters
from rollingfs.testing import run
from tests.backend.test_memory import InPrivateMemory
from tests.support.backends import Scripted, Shifted, private_memory, raises
from tests.support.verbs import call_every_verb, forwarded_verbs


class TestWrappedBackend(InPrivateMemory):
    claims_atomicity = False  # the races are in the tests of the inner backend

    @pytest.fixture
    def backend(self, memory: MemoryBackend) -> Backend:
        return BackendWrapper(MeteredBackend(memory, Meters()))


@pytest.fixture
def recorder() -> Scripted:
    return Scripted(private_memory())


def test_every_verb_of_the_contract_passes_through_the_hook(recorder: Scripted) -> None:
    call_every_verb(recorder)
    assert {verb for verb, _ in recorder.calls} == forwarded_verbs() | {"upload.write", "upload.finish", "upload.abort"}
    assert recorder.calls[-3:] == [(f"upload.{verb}", "/uploaded") for verb in ("write", "finish", "abort")]


def test_a_fault_before_a_verb_prevents_it_and_one_after_it_does_not(recorder: Scripted) -> None:
    recorder.plan("create", before=raises(OSError("before create")))
    with pytest.raises(OSError, match="before create"):
        run(recorder, recorder.create("/x$header", b"1"))
    recorder.plan("create", after=raises(OSError("after create")))
    recorder.plan("upload.finish", after=raises(OSError("after upload.finish")))
    with pytest.raises(OSError, match="after create"):
        run(recorder, recorder.create("/x$header", b"2"))
    upload = run(recorder, recorder.open_write("/uploaded"))
    with pytest.raises(OSError, match=r"after upload\.finish"):
        run(recorder, upload.finish())
    assert run(recorder, recorder.read("/x$header")).data == b"2"
    assert run(recorder, recorder.read("/uploaded")).data == b""


def test_errors_of_the_inner_backend_come_through(recorder: Scripted) -> None:
    with pytest.raises(ConflictError):
        run(recorder, recorder.replace("/x$header", b"1", "token"))


def test_a_shifted_clock_makes_files_older_and_keeps_their_dates(recorder: Scripted) -> None:
    run(recorder, recorder.write("/folder/chunk", [b"x"]))
    before = run(recorder, recorder.stat("/folder/chunk")).modified
    recorder.shift_s = 1_000_000.0
    listing = run(recorder, recorder.list("/folder"))
    assert listing.entries[0].modified == before
    assert 999_000 < listing.now - before < 1_001_000
    assert 999_000 < run(recorder, recorder.now("/folder")) - before < 1_001_000


def test_abilities_and_further_attributes_are_those_of_the_inner_backend() -> None:
    inner = LocalBackend(sync=False)
    inner.requests_max = 7
    wrapper = BackendWrapper(inner)
    abilities = [name for name in vars(Backend) if name in Backend.__annotations__]
    assert {name: getattr(wrapper, name) for name in abilities} == {name: getattr(inner, name) for name in abilities}
    assert len(abilities) == 23
    assert wrapper.sync is False
    with pytest.raises(AttributeError, match="nonsense"):
        _ = wrapper.nonsense


def test_a_wrapper_can_be_pickled(tmp_path: Path) -> None:
    wrapper = pickle.loads(pickle.dumps(Shifted(LocalBackend(sync=False), shift_s=3.0)))
    run(wrapper, wrapper.create(f"{tmp_path}/x$header", b"1"))
    assert (wrapper.shift_s, (tmp_path / "x$header").read_bytes()) == (3.0, b"1")


def test_names_and_forks_are_forwarded() -> None:
    class Forked(MemoryBackend):
        forks = 0

        def after_fork(self) -> None:
            self.forks += 1

    inner = Forked()
    wrapper = BackendWrapper(inner)
    wrapper.after_fork()
    assert inner.forks == 1
    url = wrapper.unstrip("/x")
    assert (url, wrapper.strip(url), wrapper.root("/x")) == ("memory:///x", "/x", "memory")
