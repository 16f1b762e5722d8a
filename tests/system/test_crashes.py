"""A client crashes before or after each backend call of each operation; others then find the old or the new content.

The simulation's world holds what is visible, and what is left. Each scenario runs once without a fault, which tells the
number of its calls, and then once for each call and side, with a crash there.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import pytest

from rollingfs.backend.contract import Over
from rollingfs.format.transitions import Guard
from rollingfs.policy import RollingPolicy
from rollingfs.segment.at import At
from rollingfs.segment.verbs.append import stage as stage_segment
from rollingfs.segment.verbs.change import acquire as acquire_segment
from rollingfs.segment.verbs.collect import collect as collect_folder
from rollingfs.segment.verbs.concat import concat as concat_segment
from rollingfs.segment.verbs.rename import rename as rename_segment
from tests.simulation import model
from tests.simulation.draw import Handle, Op
from tests.simulation.history import TOKEN, Doing, tokens_of
from tests.simulation.model import ANYBODY, Call, Who
from tests.simulation.plan import PATHS, Plan
from tests.simulation.running import world_time
from tests.simulation.store import Disk, Store
from tests.simulation.world import World
from tests.support.examples import slowly, some
from tests.support.faults import CRASHES, Fault
from tests.support.segment_verbs import VERBS, append as append_segment
from tests.support.simulation import EPOCH_S

POLICY = RollingPolicy(max_bytes=5 * TOKEN, inline_bytes=3 * TOKEN)
A, B, C, D, F, NEW, _ = PATHS
MARK_OLD_S = 10.0
"""A client that meets a mark older than this resolves it."""


class Course(World):
    """A world of two clients, one step after another. At 0 crashes by plan."""

    faulty_shares = (0.0,)

    def __init__(self, store: type[Store], seed: int) -> None:
        super().__init__(Plan(seed, clients=2, paths=len(PATHS), steps=()))
        self.stores, self.policy = (store,), POLICY

    def data(self, count: int) -> bytes:
        """So many new tokens."""
        first, self.tokens = self.tokens, self.tokens + count
        return tokens_of(first, count)

    async def step(self, step: Step, index: int = 0) -> Doing:
        """Run an operation to its end."""
        number = self.new_number()
        doing = self.launch(number, step(self), index, random.Random(number))
        await asyncio.wait(list(self.doings))
        if self.failure is not None:
            raise self.failure
        return doing

    async def crashed(self, scenario: Scenario, planned: Sequence[Fault | None]) -> int:
        """Run a scenario, with these faults, and what others do then; returns the number of calls of its operation."""
        await self.begin()
        for wall in self.walls:  # a mark from a clock that is ahead takes most of a commit's time
            wall.offset_s, wall.drift = EPOCH_S, 1.0
        for step in scenario.before:
            assert (await self.step(step)).told == "ok"
        way, before = self.ways[0], self.ways[0].calls.total()
        way.planned[:] = planned
        doing = await self.step(scenario.op)
        assert doing.told == ("unknown" if way.is_dead else "ok"), doing
        way.planned.clear()
        await self.go_on()
        await self.end()
        return way.calls.total() - before

    async def go_on(self) -> None:
        """Let others use everything that is there, at once and later."""
        await asyncio.sleep(MARK_OLD_S)
        state = self.history.state
        for path, seg in sorted(state.items()):
            if seg.owner is not None:
                assert (await self.step(acquire(path), 1)).told == "ok"
                continue
            offset = min(seg.start + 6 * TOKEN, seg.length)
            assert (await self.step(truncate(path, offset), 1)).told == "ok"
            assert (await self.step(append(path, 2), 1)).told == ("error" if seg.sealed else "ok")
            assert (await self.step(seal(path), 1)).told == "ok"
        left = sorted(path for path, seg in self.history.state.items() if seg.owner is None)
        if len(left) > 1:
            assert (await self.step(rename(left[0], NEW), 1)).told == "ok"
            assert (await self.step(rename(NEW, left[0]), 1)).told == "ok"
            assert (await self.step(delete(left[-1]), 1)).told == "ok"


Step = Callable[[Course], Op]


@dataclass(frozen=True)
class Scenario:
    before: tuple[Step, ...]
    op: Step


def _op(verb: Callable[..., model.Next], path: str, *given: Any, **args: Any) -> Op:
    """A verb of segments that the model has by the same name."""
    return Op(Call(verb, path, args), lambda client: VERBS[verb.__name__](client, path, *given))


def create(path: str) -> Step:
    return lambda world: _op(model.create, path, POLICY)


def append(path: str, *counts: int) -> Step:
    def make(world: Course) -> Op:
        pieces = [world.data(count) for count in counts]
        return _append(path, pieces if len(pieces) > 1 else pieces[0], b"".join(pieces))

    return make


def append_owned(path: str) -> Step:
    def make(world: Course) -> Op:
        data, handle = world.data(11), world.handles[-1]
        return _append(path, data, data, Who(handle.owner), guard=Guard(epoch=handle.epoch))

    return make


def append_staged(path: str) -> Step:
    def make(world: Course) -> Op:
        receipts, pieces, _ = zip(*world.receipts, strict=True)
        return _append(path, list(receipts), b"".join(pieces))

    return make


def _append(path: str, given: Any, data: bytes, who: Who = ANYBODY, **how: Any) -> Op:
    call = Call(model.append, path, {"data": data, "attrs": {}, "who": who})
    return Op(call, lambda client: append_segment(client, path, given, **how))


def stage(path: str) -> Step:
    def make(world: Course) -> Op:
        data = world.data(10)
        return Op(
            Call(model.look, path),
            lambda client: stage_segment(client, path, data),
            lambda receipt, _: world.receipts.append((receipt, data, world.now_s)),
        )

    return make


def overwrite(path: str) -> Step:
    def make(world: Course) -> Op:
        data = world.data(14)
        return _op(model.overwrite, path, data, data=data, attrs={}, who=ANYBODY)

    return make


def seal(path: str) -> Step:
    return lambda world: _op(model.seal, path, who=ANYBODY)


def truncate(path: str, offset: int) -> Step:
    return lambda world: _op(model.truncate, path, offset, offset=offset, who=ANYBODY)


def delete(path: str) -> Step:
    return lambda world: _op(model.delete, path, who=ANYBODY)


def concat(path: str, *sources: str, create: bool = False) -> Step:
    attrs = {"k": "v"}
    call = Call(model.concat, path, {"sources": sources, "attrs": attrs, "who": ANYBODY, "create": create})
    return lambda world: Op(call, lambda client: concat_segment(client, path, sources, attrs=attrs, create=create))


def rename(path: str, target: str) -> Step:
    call = Call(model.rename, path, {"target": target})
    return lambda world: Op(call, lambda client: rename_segment(client, path, target))


def acquire(path: str) -> Step:
    return lambda world: Op(
        Call(model.acquire, path, {"owner": "me"}),
        lambda client: acquire_segment(client, path, "me"),
        lambda header, _: world.handles.append(Handle(path, "me", header.epoch)),
    )


def collect(path: str) -> Step:
    return lambda world: Op(Call(model.look, path), lambda client: collect_folder(client, path, grace_s=0))


def plain(path: str) -> Step:
    def make(world: Course) -> Op:
        data = world.data(7)

        async def start(client: At) -> None:
            world.store.put_whole(path, data, Over.ANYTHING)

        return Op(Call(model.drop_in, path, {"data": data}), start)

    return make


SOME = (create(A), append(A, 12), append(A, 2), append(A, 5))
MANY = (*SOME, *[append(A, 6)] * 4)
JOINED = (*SOME, truncate(A, 7 * TOKEN), create(B), append(B, 12), seal(B), concat(A, B))
SEALED = (*JOINED, seal(A), create(B), append(B, 2))

SCENARIOS = {
    "create": Scenario((), create(A)),
    "create over a tombstone": Scenario((*SOME, delete(A)), create(A)),
    "append to the tail": Scenario((create(A),), append(A, 1)),
    "append that rolls": Scenario(SOME, append(A, 10)),
    "append of a stream": Scenario(SOME, append(A, 10, 10, 3)),
    "append of staged chunks": Scenario((*SOME, stage(A), stage(A)), append_staged(A)),
    "append by an owner": Scenario((*SOME, acquire(A)), append_owned(A)),
    "append to a plain file": Scenario((plain(A),), append(A, 4)),
    "append that folds": Scenario(MANY, append(A, 40)),
    "overwrite": Scenario(SOME, overwrite(A)),
    "overwrite of index pages": Scenario(MANY, overwrite(A)),
    "overwrite of a plain file": Scenario((plain(A),), overwrite(A)),
    "seal": Scenario(SOME, seal(A)),
    "truncate": Scenario(SOME, truncate(A, 11 * TOKEN)),
    "truncate of index pages": Scenario(MANY, truncate(A, 33 * TOKEN)),
    "truncate of what lies elsewhere": Scenario(SEALED, truncate(A, 25 * TOKEN)),
    "acquire": Scenario(SOME, acquire(A)),
    "delete": Scenario(SOME, delete(A)),
    "delete of index pages": Scenario(MANY, delete(A)),
    "delete of a plain file": Scenario((plain(A),), delete(A)),
    "stage": Scenario(SOME, stage(A)),
    "concat": Scenario((*SEALED, create(C), append(C, 7), truncate(C, 2 * TOKEN), seal(C)), concat(B, A, C)),
    "concat of index pages": Scenario((*MANY, truncate(A, 8 * TOKEN), seal(A), create(D), append(D, 20)), concat(D, A)),
    "concat into a plain file": Scenario((*SEALED, plain(F)), concat(F, A)),
    "concat that makes its target": Scenario(SEALED, concat(F, A, create=True)),
    "concat that makes its target over a tombstone": Scenario(
        (*SEALED, create(C), delete(C)), concat(C, A, create=True)
    ),
    "rename": Scenario(SEALED, rename(A, F)),
    "rename over a segment": Scenario(SEALED, rename(A, B)),
    "rename over its chunks' folder": Scenario((*SOME, rename(A, C), create(A), append(A, 6)), rename(C, A)),
    "rename of a plain file": Scenario((plain(A),), rename(A, D)),
    "collect": Scenario((*SEALED, append(B, 8), delete(B), truncate(A, 20 * TOKEN)), collect(A)),
}


def run(scenario: Scenario, store: type[Store], seed: int, planned: Sequence[Fault | None] = ()) -> int:
    counts: list[int] = []

    async def course() -> None:
        counts.append(await Course(store, seed).crashed(scenario, planned))

    with world_time(seed) as simulate:
        simulate(course())
    return counts[0]


QUICK = ("append that rolls", "append to a plain file", "overwrite", "truncate of index pages", "delete", "collect")
QUICK += ("concat that makes its target", "rename over a segment")
"""A verb of each kind: the slow step has all scenarios."""


@pytest.mark.exhaustive
@pytest.mark.parametrize("store", [Store, *slowly(Disk)])
@pytest.mark.parametrize("name", [*QUICK, *slowly(*[name for name in SCENARIOS if name not in QUICK])])
def test_crash_at_any_call_leaves_old_or_new(name: str, store: type[Store]) -> None:
    count = run(SCENARIOS[name], store, seed=1)
    for index, fault in some(product(range(count), CRASHES)):
        run(SCENARIOS[name], store, index + 1, [None] * index + [fault])
