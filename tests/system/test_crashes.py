"""A client crashes before or after each backend call of each operation; others then find the old or the new content.

1. Each scenario runs once without a fault, which tells at which call the new content appears.
2. It then runs once for each call and side, with a crash there.
3. Clients that were there before go on working, and collection of all folders leaves only files that are needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from rollingfs.policy import RollingPolicy
from tests.simulation.world import shrink_pages
from tests.support import model
from tests.support.examples import some
from tests.support.faults import CRASHES, Fault, hurry
from tests.support.model import ANYBODY, Call, Who
from tests.support.world import NEW, PATHS, Handle, Op, World

POLICY = RollingPolicy(max_bytes=5, inline_bytes=3)
A, B, C, D, F = PATHS
MARK_OLD_S = 10.0
"""A client that meets a mark older than this resolves it."""


def changing(verb: Callable[..., model.Next], path: str, **args: object) -> Call:
    return Call(verb, path, {"born": 1, "policy": POLICY, **args})


def create(path: str) -> Op:
    return Op(Call(model.create, path, {"born": 1, "policy": POLICY}), lambda client: client.segments.create(path))


def append(path: str, data: bytes) -> Op:
    call = changing(model.append, path, data=data, attrs={}, who=ANYBODY)
    return Op(call, lambda client: client.segments.append(path, data))


def append_stream(path: str, *pieces: bytes) -> Op:
    call = changing(model.append, path, data=b"".join(pieces), attrs={}, who=ANYBODY)
    return Op(call, lambda client: client.segments.append(path, iter(pieces)))


def overwrite(path: str, data: bytes) -> Op:
    call = changing(model.overwrite, path, data=data, attrs={}, who=ANYBODY)
    return Op(call, lambda client: client.segments.overwrite(path, data))


def seal(path: str) -> Op:
    return Op(changing(model.seal, path, who=ANYBODY), lambda client: client.segments.seal(path))


def truncate(path: str, offset: int) -> Op:
    call = changing(model.truncate, path, offset=offset, who=ANYBODY)
    return Op(call, lambda client: client.segments.truncate(path, offset))


def delete(path: str) -> Op:
    return Op(Call(model.delete, path, {"who": ANYBODY}), lambda client: client.segments.delete(path))


def concat(path: str, *sources: str) -> Op:
    call = changing(model.concat, path, sources=sources, attrs={"k": "v"}, who=ANYBODY)
    return Op(call, lambda client: client.concats.concat(path, sources, attrs={"k": "v"}))


def rename(path: str, target: str) -> Op:
    return Op(changing(model.rename, path, target=target), lambda client: client.concats.rename(path, target))


def acquire(path: str) -> Op:
    call = changing(model.acquire, path, owner="me")
    return Op(call, lambda client: client.segments.acquire(path, "me"))


def collect(path: str) -> Op:
    return Op(Call(model.look, path, {}), lambda client: client.collector.collect(path, grace_s=0))


def stage(path: str, data: bytes) -> Op:
    return Op(Call(model.look, path, {}), lambda client: client.segments.stage(path, data))


def plain(path: str, data: bytes) -> Callable[[World], Op]:
    def make(world: World) -> Op:
        return Op(Call(model.drop_in, path, {"data": data}), lambda client: world.store.write(path, [data]))

    return make


def append_staged(path: str) -> Callable[[World], Op]:
    def make(world: World) -> Op:
        first, second = (world.step(stage(path, data)).value for data in (b"staged one", b"staged two"))
        call = changing(model.append, path, data=b"staged onestaged two", attrs={}, who=ANYBODY)
        return Op(call, lambda client: client.segments.append(path, [first, second]))

    return make


def append_owned(path: str) -> Callable[[World], Op]:
    def make(world: World) -> Op:
        handle = Handle(path, "me", world.step(acquire(path)).value.epoch)
        call = changing(model.append, path, data=b"by the owner", attrs={}, who=Who("me"))
        return Op(call, lambda client: client.segments.append(path, b"by the owner", guard=handle.guard))

    return make


Step = Op | Callable[[World], Op]


@dataclass(frozen=True)
class Scenario:
    before: tuple[Step, ...]
    op: Step


SOME = (create(A), append(A, b"0123456789ab"), append(A, b"cd"), append(A, b"efghi"))
MANY = (*SOME, *(append(A, b"%d, %d, " % (index, index)) for index in range(4)))
SEALED = (
    *SOME,
    truncate(A, 7),
    create(B),
    append(B, b"=" * 12),
    seal(B),
    concat(A, B),
    seal(A),
    create(B),
    append(B, b"bb"),
)

SCENARIOS = {
    "create": Scenario((), create(A)),
    "create over a tombstone": Scenario((*SOME, delete(A)), create(A)),
    "append to the tail": Scenario((create(A),), append(A, b"x")),
    "append that rolls": Scenario(SOME, append(A, b"0123456789")),
    "append of a stream": Scenario(SOME, append_stream(A, b"0123456789", b"0123456789", b"xyz")),
    "append of staged chunks": Scenario(SOME, append_staged(A)),
    "append by an owner": Scenario(SOME, append_owned(A)),
    "append to a plain file": Scenario((plain(A, b"0123456"),), append(A, b"more")),
    "append that folds": Scenario(MANY, append(A, b"0123456789" * 4)),
    "overwrite": Scenario(SOME, overwrite(A, b"something else")),
    "overwrite of index pages": Scenario(MANY, overwrite(A, b"something else")),
    "overwrite of a plain file": Scenario((plain(A, b"0123456"),), overwrite(A, b"something else")),
    "seal": Scenario(SOME, seal(A)),
    "truncate": Scenario(SOME, truncate(A, 11)),
    "truncate of index pages": Scenario(MANY, truncate(A, 33)),
    "truncate of what lies elsewhere": Scenario(SEALED, truncate(A, 25)),
    "acquire": Scenario(SOME, acquire(A)),
    "delete": Scenario(SOME, delete(A)),
    "delete of index pages": Scenario(MANY, delete(A)),
    "delete of a plain file": Scenario((plain(A, b"0123456"),), delete(A)),
    "stage": Scenario(SOME, stage(A, b"0123456789")),
    "concat": Scenario((*SEALED, create(C), append(C, b"ccccccc"), truncate(C, 2), seal(C)), concat(B, A, C)),
    "concat of index pages": Scenario((*MANY, truncate(A, 8), seal(A), create(D), append(D, b"d" * 20)), concat(D, A)),
    "concat into a plain file": Scenario((*SEALED, plain(F, b"0123456")), concat(F, A)),
    "rename": Scenario(SEALED, rename(A, F)),
    "rename over a segment": Scenario(SEALED, rename(A, B)),
    "rename over its chunks' folder": Scenario((*SOME, rename(A, C), create(A), append(A, b"aaaaaa")), rename(C, A)),
    "rename of a plain file": Scenario((plain(A, b"0123456"),), rename(A, D)),
    "collect": Scenario((*SEALED, append(B, b"bbbbbbbb"), delete(B), truncate(A, 20)), collect(A)),
}


@pytest.fixture(autouse=True)
def _virtual_time(monkeypatch: pytest.MonkeyPatch) -> None:
    hurry(monkeypatch)
    shrink_pages(monkeypatch)


def prepared(scenario: Scenario) -> tuple[World, Op]:
    """The world before the operation; client 0 prepared it and will do the operation."""
    world = World(POLICY, clients=2)
    for step in scenario.before:
        assert _do(world, step).kind == "ok"
    return world, scenario.op if isinstance(scenario.op, Op) else scenario.op(world)


def _do(world: World, step: Step, index: int = 0) -> model.Outcome:
    return world.step(step if isinstance(step, Op) else step(world), index)


def observed(world: World) -> dict[str, model.Seg | None]:
    return {path: world.observe(path) for path in PATHS}


def calls(scenario: Scenario) -> tuple[int, int]:
    """The number of backend calls of an operation, and the index of the call after which its effect is visible."""
    world, op = prepared(scenario)
    old = observed(world)
    seen: list[bool] = []
    watch = dict.fromkeys(range(200), lambda: seen.append(observed(world) != old))
    backend = world.backend(0)
    backend.prepare(between=watch)
    world.run(op, 0)
    assert observed(world) != old or op.call.verb is model.look
    return len(seen), seen.index(True) - 1 if True in seen else len(seen) - 1


def crash_points(count: int) -> Iterator[tuple[int, Fault]]:
    for index in range(count):
        yield from ((index, fault) for fault in CRASHES)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_crash_at_any_call_leaves_the_old_or_the_new_and_others_go_on(name: str) -> None:
    scenario = SCENARIOS[name]
    count, appears = calls(scenario)
    for index, fault in some(crash_points(count)):
        world, op = prepared(scenario)
        old = observed(world)
        outcome = world.step(op, 0, {index: fault})
        assert outcome.kind == "unknown", (index, fault, outcome, count, appears, world.backend(0).trace)
        took_place = index > appears or (index == appears and fault is Fault.CRASH_AFTER)
        assert (observed(world) == old) != took_place or op.call.verb is model.look, (index, fault)
        go_on(world)
        world.finish()


def go_on(world: World) -> None:
    """Let others use everything that is there, at once and later."""
    world.store.lapse(MARK_OLD_S)
    for path in PATHS:
        seg = world.observe(path)
        if seg is not None and seg.owner is not None:
            assert world.step(acquire(path), 1).kind == "ok"
            continue
        if seg is None:
            continue
        assert world.step(truncate(path, min(seg.start + 6, seg.length)), 1).kind == "ok"
        assert world.step(append(path, b"and more"), 1).kind == ("error" if seg.sealed else "ok")
        assert world.step(seal(path), 1).kind == "ok"
    left = [path for path in PATHS if world.observe(path) is not None and path not in world.owned()]
    if len(left) > 1:
        assert world.step(rename(left[0], NEW), 1).kind == "ok"
        assert world.step(rename(NEW, left[0]), 1).kind == "ok"
        assert world.step(delete(left[-1]), 1).kind == "ok"
