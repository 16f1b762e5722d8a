"""Writers on a store that lets two replaces win now and then, in virtual time: nothing is lost in silence.

Rules of the protocol: P14.15.
"""

import asyncio
import logging
import random
from typing import Any

import pytest

from rollingfs.errors import AppendOutcomeUnknown, ConflictError, LostCommitError, UnsafeBackendError
from rollingfs.segment.at import At
from tests.support.backends import private_memory
from tests.support.segment_verbs import VERBS
from tests.support.simulation import EPOCH_S, NEAR, PATH, Distant, virtual_time

WRITERS = 4
APPENDS = 60
LIES = 0.02
"""The share of the replaces that are carried out some time after their token was compared."""
LATE_S_MAX = 0.03
WARNING = "an older header was put in its place"


def seeds(count: int, many: int) -> list[Any]:
    """So many seeds in the fast suite, and the others in the slow one."""
    return [*range(count), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(count, many))]


class Lying(Distant):
    """A store that compares a token, and writes later whatever is there by then."""

    lies = 0.0

    def may_tear(self, path: str) -> bool:
        return True

    async def call(self, verb: str, *args: Any) -> Any:
        if verb != "replace" or self.chance.random() >= self.lies:
            return await super().call(verb, *args)
        path, data, token = args
        await asyncio.sleep(self.latencies.to_s(self.chance))
        if (await self.inner.read(path)).token != token:
            raise ConflictError("another was first")
        await asyncio.sleep(self.chance.random() * LATE_S_MAX)
        await self.inner.put(path, data)
        self.dates_s[path] = EPOCH_S
        written = (await self.inner.read(path)).token
        await asyncio.sleep(self.latencies.fro_s(verb, self.chance))
        return written


async def live(store: Lying, lies: float) -> tuple[list[set[bytes]], bytes, list[BaseException | None]]:
    """The acknowledged appends of each writer, what is there at the end, and the error that ended each writer."""
    clients = [At.of(store) for _ in range(WRITERS)]
    await VERBS["create"](clients[0], PATH, clients[0].inherited.default)
    for client in clients:
        await client.abilities(PATH)
    store.lies = lies

    async def write(writer: int) -> tuple[set[bytes], BaseException | None]:
        done: set[bytes] = set()
        try:
            for number in range(APPENDS):
                try:
                    await VERBS["append"](clients[writer], PATH, data := f"<{writer}:{number}>".encode())
                    done.add(data)
                except AppendOutcomeUnknown:
                    continue
                await asyncio.sleep(store.chance.random() * 0.2)
            await asyncio.sleep(10.0)
            await clients[writer].headers.load(PATH)
        except UnsafeBackendError as error:
            return done, error
        return done, None

    found = await asyncio.gather(*map(write, range(WRITERS)))
    view = await At.of(store).lookup.view(PATH, fresh=True)
    data = bytes(await At.of(store).fetcher.read(view, 0, view.length))
    return [done for done, _ in found], data, [error for _, error in found]


@pytest.mark.parametrize("seed", seeds(4, 60))
def test_each_writer_that_has_lost_an_append_is_told(seed, caplog):
    caplog.set_level(logging.WARNING, "rollingfs")
    with virtual_time(seed) as loop:
        store = Lying(private_memory(), NEAR, random.Random(seed))
        acknowledged, data, errors = loop.run_until_complete(live(store, LIES))
    lost = [sum(data.count(one) != 1 for one in done) for done in acknowledged]
    told = sum(isinstance(error, LostCommitError) for error in errors) + caplog.text.count(WARNING)
    for writer, error in enumerate(errors):
        assert not lost[writer] or error is not None or WARNING in caplog.text, (lost, errors)
    assert told >= sum(map(bool, lost))


@pytest.mark.parametrize("seed", seeds(2, 20))
def test_nobody_is_told_on_a_right_store(seed, caplog):
    with virtual_time(seed) as loop:
        store = Lying(private_memory(), NEAR, random.Random(seed))
        acknowledged, data, errors = loop.run_until_complete(live(store, 0.0))
    assert errors == [None] * WRITERS
    assert WARNING not in caplog.text
    assert all(data.count(one) == 1 for done in acknowledged for one in done)
