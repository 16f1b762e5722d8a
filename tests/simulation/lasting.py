"""What lives longer than one operation: the rounds of one `rollingfs run`, and a follower.

What they remember must not make them miss anything.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar, cast
from unittest import mock

from rollingfs.fs import follower
from rollingfs.fs.follower import Follower
from rollingfs.policy import OffloadPolicy
from rollingfs.segment.at import At
from rollingfs.segment.files.rewrite_plan import Asked
from rollingfs.segment.verbs.change import seal
from rollingfs.segment.verbs.offload import check_may_move
from rollingfs.stream.blocks import POLL_S_MAX, Move
from rollingfs.stream.follow import Followed
from rollingfs.stream.ledger import Ledgers, check_policy, policies_of
from rollingfs.stream.upkeep import CONSOLIDATE, OFFLOAD, ROLL, Upkeep, Upkept, total
from tests.simulation.history import TOKENS, Doing, Violation, running, token_at, tokens_of
from tests.simulation.model import Call, by_steps
from tests.support.segment_verbs import append

if TYPE_CHECKING:
    from tests.simulation.world import World

T = TypeVar("T")

ROOTS = ("/top", "/other", "/aside")
EVENTS = 10
"""At the end: appends and pauses, between which one upkeep makes rounds, and one follower follows."""
PAUSE_S_MAX = 300.0
ROUNDS_MAX = 12
LOOK_S = 1.0
"""A round takes less, by the time of the world."""


class _Bridge:
    async def arun(self, call: Coroutine[Any, Any, T]) -> T:
        return await call


async def kept(upkeep: Upkeep, roots: tuple[str, ...] = ROOTS) -> Upkept:
    """A round of an upkeep."""
    results = []
    for root in roots:
        try:
            folders = await upkeep.folders(root)
        except FileNotFoundError:
            continue
        for folder in folders:
            results += await upkeep.keep(folder)
    return total(results)


class Following:
    """A follower of all, whose looks are parts of operations."""

    def __init__(self, client: At) -> None:
        below = SimpleNamespace(client=client, bridge=_Bridge(), strip=lambda path: path)
        with mock.patch.object(follower, "core", return_value=below):
            self.follower = Follower(ROOTS, fs=cast("Any", None))

    async def follow(self) -> None:
        """Look at all that is due."""
        one = self.follower
        if one._loop is None:
            one._prepare()
        await one._list()
        one._begin()
        tasks = list(one._busy.values())
        try:
            while one._busy:
                await asyncio.wait(list(one._busy.values()))
        except asyncio.CancelledError:
            for task in tasks:
                task.cancel()
            raise
        one._raise()


async def check_lasting(world: World) -> None:
    """An upkeep and a follower that have long lived leave nothing that new ones would do."""
    chance = random.Random(world.plan.seed ^ 0x1A57)
    running.set(Doing(0, Call(by_steps, "", is_step=lambda before, after: True), 0, world.history.now))
    client, writer = (world.client_on(world.store, world.store.clock) for _ in range(2))
    client = replace(client, offload_policy=chance.choice((None, OffloadPolicy("warm", after_age=100, block_bytes=60))))
    upkeep = Upkeep(client, readers_grace_s=0)
    if chance.random() < 0.5:
        await _check_upkeep(world, chance, upkeep, writer)
    else:
        await _check_follower(world, chance, client, writer)


async def _check_upkeep(world: World, chance: random.Random, upkeep: Upkeep, writer: At) -> None:
    first = world.tokens
    for number in range(EVENTS):
        await asyncio.sleep(chance.random() * PAUSE_S_MAX)
        await _append(world, chance, writer)
        for _ in range(ROUNDS_MAX):
            did = await kept(upkeep)
            world.counts["idle tails made a chunk"] += did.rolled
            if replace(did, failed={}, young=0).is_idle:  # at once, else more becomes due before the new one looks
                break
            await asyncio.sleep(chance.random())
        client = world.client_on(world.store, lambda: world.store.clock() - LOOK_S)  # what became due since waits
        client = replace(client, offload_policy=upkeep.client.offload_policy)
        anew = await kept(Upkeep(client, (ROLL, OFFLOAD, CONSOLIDATE), readers_grace_s=0))
        world.counts["rounds of a long life"] += 1
        if (anew.rolled, anew.offloaded.files, anew.consolidated.replaced) != (0, 0, 0):
            raise Violation(f"a new upkeep does what one of {number} rounds has not done: {anew} after {did}")
        _check_tails(world, first)


def _check_tails(world: World, first: int) -> None:
    """No tail is older than its policy allows; those with earlier tokens may have dates of wrong clocks."""
    for path, seg in world.history.state.items():
        header = world.witness.headers.get(path)
        if header is None or header.policy.max_age is None:
            continue
        tokens = [token_at(one.group()) for one in TOKENS.finditer(seg.data[len(seg.data) - len(header.tail) :])]
        age_s = world.store.clock() - min(map(world.history.written_s.__getitem__, tokens), default=float("inf"))
        if age_s > header.policy.max_age + 1 and min(tokens) >= first:
            raise Violation(f"{path}: its tail is {age_s} s old after a round of upkeep: {header.policy}")


async def _check_follower(world: World, chance: random.Random, client: At, writer: At) -> None:
    follower = Following(client).follower
    task = asyncio.ensure_future(follower._run())
    try:
        for number in range(EVENTS):
            await _append(world, chance, writer)
            await asyncio.sleep(chance.choice((1.0, PAUSE_S_MAX)) * chance.random())
            if number % 3:
                continue
            await asyncio.sleep(4 * POLL_S_MAX)
            await _check_followed(world, client)
    finally:
        follower.stop()
        await task


async def _check_followed(world: World, client: At) -> None:
    """No full or old block waits."""
    fresh = world.client_on(world.store, lambda: world.store.clock() - POLL_S_MAX)  # what is due now waits for a poll
    for path in world.history.state:
        check_may_move(path)
        header = (await fresh.headers.load(path)).header
        if header is None or header.deleted:
            continue
        ledger = await Ledgers(fresh).resolved(path.rpartition("/")[0])
        policies = policies_of(path, header, ledger, client.offload_policy)
        policy, asked = policies.offload, Asked.by(policies.offload)
        if policy is None or asked is None:
            continue
        try:
            check_policy(path, policies, ledger, "")
        except ValueError:  # the retention forbids it
            continue
        one = Followed(fresh, path, policy)
        now = await one.look()
        world.counts["looks at the work of a follower"] += 1
        if isinstance(now, Move):
            raise Violation(f"{path}: a follower has left {now}, {asked}, {one.status}")


async def _append(world: World, chance: random.Random, writer: At) -> None:
    state = world.history.state
    good = [path for path, seg in state.items() if not seg.sealed and seg.owner is None]
    for path in chance.sample(good, min(len(good), chance.randint(0, 2))):
        for _ in range(chance.choice((1, 1, 8))):
            count = chance.randint(1, 10)
            await append(writer, path, tokens_of(world.tokens, count))
            world.tokens += count
        if chance.random() < 0.1:
            await seal(writer, path)
