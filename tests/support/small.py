"""What tests of upkeep share: a small policy, a client on a store that fails by plan, a look at all checksums."""

from __future__ import annotations

from rollingfs import RollingPolicy
from rollingfs.maintenance.verify import Verifier
from rollingfs.runtime.concurrency import drive
from tests.support.faults import CLOCK, Faulty, Store
from tests.support.life import World

SMALL = RollingPolicy(max_bytes=200, inline_bytes=10)


def client(store: Store) -> World:
    """A new client, which has seen nothing."""
    return World(Faulty(store), SMALL, CLOCK.time)  # type: ignore[arg-type]


def is_whole(world: World, path: str = "/stream/a") -> bool:
    """Whether all bytes of a segment have the checksums that its map names."""
    return all(row.ok for row in drive(Verifier(world.client.fetcher).verify(path)))
