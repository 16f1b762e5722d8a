"""The backend that counts what passes through; that it keeps the contract is in test_wrapper."""

from __future__ import annotations

import pytest

from rollingfs.backend.metered import MeteredBackend
from rollingfs.backend.wrapper import BackendWrapper
from rollingfs.errors import ConflictError
from rollingfs.runtime.meters import REQUEST, Meters
from rollingfs.testing import run
from tests.support.backends import private_memory
from tests.support.verbs import MISSING_IN_MEMORY, call_every_verb, forwarded_verbs


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
    call_every_verb(metered)
    found = counts(metered)
    uploads = {"upload.write", "upload.finish", "upload.abort"}
    assert found.keys() == forwarded_verbs() | uploads
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


def test_a_read_into_is_counted_as_a_range_and_an_answer_without_a_body_as_no_bytes(metered: MeteredBackend) -> None:
    token = run(metered, metered.create("/x$header", b"123"))
    assert run(metered, metered.read_into("/x$header", 0, memoryview(bytearray(3)))) == 3
    assert run(metered, metered.read_if_changed("/x$header", token)) is None
    found = counts(metered)
    assert (found["read_range"], found["read_if_changed"]) == ((1, 0, 0, 3), (1, 0, 0, 0))


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


def test_a_metered_backend_is_not_counted_twice() -> None:
    inner = BackendWrapper(private_memory())
    first = MeteredBackend(inner, Meters())
    second = MeteredBackend(first, Meters())
    assert second.inner is inner
    run(second, second.write("/x", [b"1"]))
    assert not counts(first)
    assert counts(second) == {"write": (1, 0, 0, 1)}
