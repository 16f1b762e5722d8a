"""What tests of upkeep share: a client on a store that fails by plan, a look at all checksums, a follower."""

import inspect
from collections.abc import Callable, Iterable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from rollingfs import OffloadPolicy, RollingPolicy
from rollingfs.format import names, placement
from rollingfs.runtime.concurrency import drive
from rollingfs.segment.at import At
from rollingfs.segment.files.rewrite_plan import Asked
from rollingfs.stream import stream_verbs
from rollingfs.stream.blocks import Move, OffloadStatus, Wait
from rollingfs.stream.follow import Followed
from rollingfs.stream.members import Members
from rollingfs.stream.upkeep import Upkeep, Upkept
from tests.support.faults import CLOCK, Faulty, Store, TieredStore
from tests.support.life import World, pieces_of

SMALL = RollingPolicy(max_bytes=200, inline_bytes=10)


def client(store: Store) -> World:
    """A new client, which has seen nothing."""
    return World(Faulty(store), SMALL, CLOCK.time)


def filled(store: Store, pieces: Iterable[bytes], tail: bytes = b"tail", path: str = "/stream/a") -> World:
    """A new client, which has made a segment of a chunk for each piece, and a tail."""
    world = client(store)
    world.append(world.create(path, pieces), tail)
    return world


DATA, TAIL = bytes(range(1, 101)), b"\xf0\xf1\xf2\xf3"


def five(store: Store) -> World:
    """A new client, which has made a segment of five chunks of 20 bytes, each byte another, and a tail."""
    return filled(store, pieces_of(DATA, [20] * 5), TAIL)


class Failing(TieredStore):
    """A store whose tier takes nothing, loses or damages what it takes, or takes long, while it is told so."""

    where = names.in_tier("cold", "")
    """Part of the paths that it does so with; the mark is only slow."""
    how = ""
    slow_s = 0.0
    seen: Callable[[], object] | None = None

    def _put(self, path: str, content: bytes) -> str:
        is_meant = self.where in path and (self.how == "slow" or not path.endswith(names.TIER_MARK))
        how = self.how if is_meant else ""
        if how == "fails":
            raise ConnectionError("the cold store is away")
        token = super()._put(path, b"?" + content[1:] if how == "damages" else content)
        if how == "loses":
            del self.fs.store[path]
        if how == "slow":
            CLOCK.sleep(self.slow_s)
            self.seen()
        return token


def holding(store: Store, secret: bytes) -> set[str]:
    """The files in which any of these bytes is; of headers, only the tail counts, and of pages and pins nothing.

    The ends of the lines of records, which stand between the bytes of a tail, do not count.
    """
    wanted = set(secret) - set(b"\n")
    files = {path: data for path, data in store.snapshot().items() if "/index-" not in path and "/pin-" not in path}
    files = {path: data for path, data in files.items() if not path.endswith(names.TIER_MARK)}
    contents = {path: data.partition(b"\n\n")[2] if path.endswith("$header") else data for path, data in files.items()}
    return {path for path, data in contents.items() if set(data) & wanted}


def shrink_pages(patch: pytest.MonkeyPatch, chunks: int = 3, loose_max: int = 4) -> None:
    """Fold sooner than the format demands, so that there are many index pages."""
    patch.setattr(placement, "PAGE_CHUNKS", chunks)
    patch.setattr(placement, "PAGES_JOINED", 3)
    patch.setattr(placement, "LARGE_PAGE_CHUNKS", 9)
    patch.setattr(placement, "plan_fold", partial(placement.plan_fold, loose_max=loose_max))


def verbs(client: World | At, folder: str = "/root") -> Any:
    """Those of the stream of a folder, as methods."""
    members = Members(client if isinstance(client, At) else client.client, folder)
    found = {name: verb for name, verb in vars(stream_verbs).items() if inspect.iscoroutinefunction(verb)}
    return SimpleNamespace(**{name: partial(verb, members) for name, verb in found.items()}, members=members)


def a_round(upkeep: Upkeep, root: str = "/root") -> list[Upkept]:
    """What a round of upkeep does, folder by folder."""
    return [did for folder in drive(upkeep.folders(root)) for did in drive(upkeep.keep(folder))]


def is_whole(world: World, path: str = "/stream/a") -> bool:
    """Whether all bytes of a segment have the checksums that its map names."""
    return all(row.ok for row in world.rows(path))


def followed(world: World, path: str, rule: Asked, lag_s: float = 0.0) -> Followed:
    """A segment that is followed."""
    chosen = rule.chosen
    policy = OffloadPolicy(rule.tier, chosen.after_bytes, chosen.after_age_s, lag_s, rule.block_bytes, rule.max_delay_s)
    return Followed(world.client, path, policy)


def step(one: Followed) -> Wait:
    """What a follower does between two pauses."""
    now: Wait | Move = Wait(0.0)
    try:
        now = drive(one.look())
        return drive(one.move(now)) if isinstance(now, Move) else now
    except Exception as error:  # noqa: BLE001 - as a follower
        return one.failed(error, is_move=isinstance(now, Move))


def settle(one: Followed, steps: int = 60) -> OffloadStatus:
    """Follow until all lies in the tier."""
    for _ in range(steps):
        now = step(one)
        if now.pause_s and not one.status.lag_bytes and one.status.last_error is None:
            return one.status
        CLOCK.sleep(min(now.pause_s, one.poll_s_max))
    raise AssertionError(f"not settled: {one.status}")
