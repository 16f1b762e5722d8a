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
from rollingfs.runtime.meters import Meters
from rollingfs.testing import run
from tests.backend.test_memory import InPrivateMemory
from tests.support.backends import Scripted, Shifted, private_memory
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
