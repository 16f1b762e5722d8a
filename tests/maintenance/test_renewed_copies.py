"""A copy that grows too old before its commit is copied again: the original goes only if that copy was read back."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import pytest

from rollingfs import RollingPolicy
from rollingfs.errors import CorruptChunkError
from rollingfs.format.header import AGE_S_MAX
from rollingfs.runtime.concurrency import drive
from tests.support.faults import CLOCK, Faulty, Store, hurry
from tests.support.life import World, pieces_of

A = "/stream/a"
DATA = bytes(range(1, 101))


class Careless(Store):
    """A store that damages what it copies, once it is `late`."""

    tiers = MappingProxyType({"cold": True})
    is_late = False

    async def copy(self, source: str, target: str, *more: Any) -> None:
        await super().copy(source, target, *more)
        if self.is_late:
            self._put(target, b"?" + self.fs.store[target].getvalue()[1:])


def client(store: Store) -> World:
    return World(Faulty(store), RollingPolicy(max_bytes=200, inline_bytes=10), CLOCK.time)


def made() -> Careless:
    store = Careless()
    client(store).create(A, pieces_of(DATA, [20] * 5))
    return store


VERBS: dict[str, Callable[[World], Any]] = {
    "offload": lambda world: world.offload(A),
    "consolidate": lambda world: world.consolidate(A, grace_s=0),
    "erase": lambda world: drive(world.client.eraser.erase(A, 30)),
}


@pytest.mark.parametrize("name", VERBS)
def test_no_original_goes_for_a_renewed_copy_that_the_store_has_damaged(name: str, monkeypatch):
    hurry(monkeypatch)
    verb = VERBS[name]
    probe = client(made())
    verb(probe)
    refused = 0
    for index in range(len(probe.backend.trace)):  # type: ignore[attr-defined]
        store = made()

        def sleep(store: Careless = store) -> None:
            store.lapse(AGE_S_MAX + 1)
            store.is_late = True

        world = client(store)
        world.backend.prepare(between={index: sleep})  # type: ignore[attr-defined]
        with contextlib.suppress(CorruptChunkError):
            verb(world)
            refused -= 1
        refused += 1
        fresh = client(store)
        header = fresh.header(A)
        assert fresh.content(A) == DATA[header.start :], index
        assert all(row.ok for row in fresh.rows(A)), index
    assert refused, "some naps make a renewed copy necessary"
