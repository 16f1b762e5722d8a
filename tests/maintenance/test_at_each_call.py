"""Upkeep of a segment, with a crash, a fault or another client at each of its calls: no byte is lost, and none is left.

A table of the verbs, a table of what others do meanwhile, and one end: a later run finishes what was begun, and then
there is nothing but what the segment names. The simulation meets all of that at random; here each call has its turn.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from rollingfs.errors import RollingError
from rollingfs.format import erasing, names
from rollingfs.format.header import GRACE_S, Page
from rollingfs.format.transitions import Guard
from rollingfs.maintenance.roll import Roller
from rollingfs.runtime.concurrency import drive
from rollingfs.stream.blocks import BlockRule
from tests.support.examples import MANY, slowly
from tests.support.faults import Crashed, Fault, Store, TieredStore
from tests.support.life import World, pieces_of
from tests.support.small import client, is_whole, settled

pytestmark = pytest.mark.usefixtures("hurried")
A = "/stream/a"
DATA = bytes(range(1, 101))
WHOLE = DATA + b"\xf0\xf1\xf2\xf3"
CUT = 30
"""Where an erase cuts, within a chunk."""
FAULTS = [getattr(Fault, name) for name in ("BEFORE", "AFTER", "LOST", "LATE", "CONFLICT", "BUSY", "NAP", "COMA")]


def fill(store: Store) -> None:
    """Five chunks of 20 bytes, each byte another, and a tail."""
    world = client(store)
    world.create(A, pieces_of(DATA, [20] * 5))
    world.append(A, WHOLE[100:])


def fill_cold(store: Store) -> None:
    fill(store)
    offload(client(store))


def offload(world: World, block_bytes: int = 1, lag_s: float = 0) -> Any:
    return world.offload(A, lag_s=lag_s, block_bytes=block_bytes)


def erase(world: World, offset: int = CUT) -> Any:
    return drive(world.client.eraser.erase(A, offset))


def roll(world: World) -> Any:
    return drive(Roller(world.client.commits).roll(A))


def follow(world: World) -> Any:
    return settled(world, A, BlockRule(block_bytes=40, max_delay_s=100))


def collect(world: World, grace_s: float = 0) -> None:
    drive(world.client.collector.collect(A, grace_s=grace_s))


def tiers(world: World) -> set[str]:
    return {chunk.tier for chunk in world.chunks(A)}


def is_erased(world: World) -> bool:
    """Whether each file of the segment is used whole, so that no erased byte is in it."""
    header = world.header(A)
    return not erasing.to_rewrite(erasing.parts(world.chunks(A), header.start))


@dataclass(frozen=True)
class Verb:
    act: Callable[[World], Any]
    is_done: Callable[[World], bool]
    fill: Callable[[Store], None] = fill
    cut: int = 0
    """Where it truncates."""


VERBS = {
    "offload": Verb(offload, lambda world: tiers(world) <= {"cold"}),
    "offload blocks": Verb(lambda world: offload(world, 60, 100.0), lambda world: tiers(world) <= {"cold"}),
    "onload": Verb(lambda world: world.onload(A), lambda world: tiers(world) <= {""}, fill_cold),
    "consolidate": Verb(lambda world: world.consolidate(A), lambda world: world.header(A).chunk_count <= 3),
    "erase": Verb(erase, is_erased, cut=CUT),
    "erase in a tier": Verb(erase, is_erased, fill_cold, CUT),
    "roll": Verb(roll, lambda world: world.header(A).tail == b""),
    "follow": Verb(follow, lambda world: tiers(world) <= {"cold"} and not world.header(A).tail),
}


def _concat(world: World) -> None:
    world.create("/stream/source", [b"s" * 20])
    world.seal("/stream/source")
    drive(world.client.concats.concat(A, ["/stream/source"]))


def _take_over(world: World) -> None:
    """Another owner takes the segment over, and appends behind what it finds."""
    held = drive(world.client.segments.acquire(A, "the new owner"))
    drive(world.client.segments.append(A, [b"mine" * 10], guard=Guard(epoch=held.epoch, expected_offset=len(WHOLE))))


Other = tuple[Callable[[World], object], bytes, int]
OTHERS: dict[str, Other] = {
    "append": (lambda world: world.append(A, b"more" * 10), WHOLE + b"more" * 10, 0),
    "truncate in a chunk": (lambda world: world.truncate(A, 45), WHOLE, 45),
    "append inline": (lambda world: world.append(A, b"more"), WHOLE + b"more", 0),
    "truncate in the tail": (lambda world: world.truncate(A, 102), WHOLE, 102),
    "truncate all": (lambda world: world.truncate(A, 104), WHOLE, 104),
    "concat": (_concat, WHOLE + b"s" * 20, 0),
    "consolidate": (lambda world: world.consolidate(A), WHOLE, 0),
    "offload": (offload, WHOLE, 0),
    "offload and onload": (lambda world: (offload(world), world.onload(A)), WHOLE, 0),
    "erase": (lambda world: erase(world, 45), WHOLE, 45),
    "roll": (roll, WHOLE, 0),
    "collect": (lambda world: collect(world, GRACE_S), WHOLE, 0),
    "seal": (lambda world: world.seal(A), WHOLE, 0),
    "an owner takes over": (_take_over, WHOLE + b"mine" * 10, 0),
    "overwrite": (lambda world: drive(world.client.segments.overwrite(A, [b"new" * 40])), b"new" * 40, 0),
}
"""What another client does; all bytes of the segment after it, and where these begin."""
FENCED = {("erase", "an owner takes over"), ("erase in a tier", "an owner takes over")}
NOT_SETTLED = {("follow", "offload and onload")}
"""What others bring back while it is followed is not moved again."""


def filled(verb: Verb) -> tuple[Store, World]:
    store = TieredStore()
    verb.fill(store)
    return store, client(store)


def calls_of(verb: Verb) -> Sequence[int]:
    """The calls of a verb and a few more; in CI every third."""
    _, world = filled(verb)
    verb.act(world)
    count = len(world.backend.trace)  # type: ignore[attr-defined]
    assert count >= 3
    return range(count + 3)[:: 1 if MANY else 3]


def holding(store: Store, secret: bytes) -> set[str]:
    """The files in which any of these bytes is; of those that a text may have, it leaves out the end of a line."""
    wanted = set(secret) - set(b"\n")
    files = {path: data for path, data in store.snapshot().items() if "/index-" not in path and "/pin-" not in path}
    return {path for path, data in files.items() if set(data) & wanted}


def check_end(store: Store, verb: Verb, expected: bytes, *, is_done: bool = True) -> None:
    """Any client finishes what was begun, from the header alone; then nothing is left but what the segment names."""
    for _ in range(2):  # an erase leaves what is young
        store.lapse(2 * GRACE_S)
        world = client(store)
        verb.act(world)
    assert world.content(A) == expected
    assert is_whole(world)
    assert verb.is_done(world) or not is_done
    for _ in range(2):
        store.lapse(2 * GRACE_S)
        collect(world)
    header = world.header(A)
    chunks = [one for one in world.chunks(A) if one.end > header.start]
    named = {names.locate(A, chunk.file, chunk.tier) for chunk in chunks}
    named |= {names.resolve(A, page.file) for page in header.entries if isinstance(page, Page)}
    folders = names.chunks_folder(A) + "/", names.in_tier("cold", names.chunks_folder(A)) + "/"
    assert {file for file in store.files() if file.startswith(folders) and "/pin-" not in file} == {
        file for file in named if file.startswith(folders)
    }
    if verb.cut:
        assert not holding(store, WHOLE[: verb.cut])


@pytest.mark.exhaustive
@pytest.mark.parametrize("crash", [Fault.CRASH_AFTER, *slowly(Fault.CRASH_BEFORE)])
@pytest.mark.parametrize("name", VERBS)
def test_after_a_crash_at_any_call_another_client_goes_on(name: str, crash: Fault) -> None:
    verb = VERBS[name]
    for index in calls_of(verb):
        store, broken = filled(verb)
        broken.backend.prepare({index: crash})  # type: ignore[attr-defined]
        with contextlib.suppress(Crashed):
            verb.act(broken)
        assert client(store).content(A) in (WHOLE, WHOLE[verb.cut :])
        check_end(store, verb, WHOLE[verb.cut :])


@pytest.mark.exhaustive
@pytest.mark.parametrize("fault", [Fault.LOST, *slowly(*[fault for fault in FAULTS if fault is not Fault.LOST])])
@pytest.mark.parametrize("name", VERBS)
def test_any_fault_of_any_call_loses_nothing_and_hides_nothing(name: str, fault: Fault) -> None:
    verb = VERBS[name]
    for index in calls_of(verb):
        store, world = filled(verb)
        world.backend.prepare({index: fault})  # type: ignore[attr-defined]
        did = None
        with contextlib.suppress(OSError):
            did = verb.act(world)
        assert client(store).content(A) in (WHOLE, WHOLE[verb.cut :])
        if did is not None and verb.cut:
            assert holding(store, WHOLE[: verb.cut]) <= {one.file for one in did.remains}, "what is left is said"
        store.land()
        check_end(store, verb, WHOLE[verb.cut :])


def cases() -> list[Any]:
    """Each verb beside each other: the first two in the fast suite."""
    pairs = [(name, other) for other in OTHERS for name in VERBS if (name, other) not in FENCED]
    pairs = [(name, other) for name, other in pairs if not (VERBS[name].cut and other == "overwrite")]
    quick = [pair for pair in pairs if pair[1] in list(OTHERS)[:2]]
    return [*quick, *(pytest.param(*pair, marks=pytest.mark.slow) for pair in pairs if pair not in quick)]


@pytest.mark.exhaustive
@pytest.mark.parametrize(("name", "other"), cases())
def test_another_client_between_any_two_calls_loses_nothing_and_brings_nothing_back(name: str, other: str) -> None:
    verb, (act, data, start) = VERBS[name], OTHERS[other]
    is_settled = (name, other) not in NOT_SETTLED
    met = 0
    for index in calls_of(verb):
        store, world = filled(verb)
        world.backend.prepare(between={index: lambda store=store: act(client(store))})  # type: ignore[attr-defined]
        with contextlib.suppress(FileNotFoundError, *([] if is_settled else [AssertionError])):
            verb.act(world)
        if world.backend.between:  # type: ignore[attr-defined]
            continue
        met += 1
        assert client(store).content(A) in (data[start:], data[max(start, verb.cut) :]), index
        check_end(store, verb, data[max(start, verb.cut) :], is_done=is_settled)
    assert met


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["erase", *slowly(*[name for name in VERBS if name != "erase"])])
def test_a_segment_that_is_deleted_at_any_call_stays_deleted_and_leaves_nothing(name: str) -> None:
    verb = VERBS[name]
    for index in calls_of(verb):
        store, world = filled(verb)
        delete = lambda store=store: drive(client(store).client.segments.delete(A))  # noqa: E731
        world.backend.prepare(between={index: delete})  # type: ignore[attr-defined]
        with contextlib.suppress(OSError, RollingError, AssertionError):
            verb.act(world)
        if world.backend.between:  # type: ignore[attr-defined]
            continue
        with pytest.raises(FileNotFoundError):
            client(store).content(A)
        for _ in range(2):
            store.lapse(2 * GRACE_S)
            with contextlib.suppress(FileNotFoundError):
                collect(client(store))
        assert store.files() <= {names.in_tier("cold", names.TIER_MARK)}
