"""Upkeep of a segment, with a crash, a fault or another client at each of its calls: no byte is lost, and none is left.

A table of the verbs, a table of what others do meanwhile, and one end: a later run finishes what was begun, and then
there is nothing but what the segment names. The simulation meets all of that at random; here each call has its turn.
"""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from rollingfs.errors import CorruptChunkError, RollingError
from rollingfs.format import drops, names
from rollingfs.format.header import AGE_S_MAX, GRACE_S, Page
from rollingfs.format.transitions import Guard
from rollingfs.runtime.concurrency import drive
from rollingfs.segment.files.rewrite_plan import Asked, Chosen
from rollingfs.segment.verbs.change import acquire, roll
from tests.support.examples import MANY, slowly
from tests.support.faults import Crashed, Fault, Store, TieredStore
from tests.support.life import World
from tests.support.segment_verbs import append
from tests.support.small import DATA, TAIL, client, five, followed, holding, is_whole, settle

pytestmark = pytest.mark.usefixtures("hurried")
A = "/stream/a"
WHOLE = DATA + TAIL
CUT = 30
"""Where an erase cuts, within a chunk."""
NAMES = ("CRASH_AFTER", "LOST", "CRASH_BEFORE", "BEFORE", "AFTER", "LATE", "CONFLICT", "BUSY", "NAP", "COMA")
FAULTS = [Fault[name] for name in NAMES]
"""The first in the fast suite."""


def five_cold(store: Store) -> None:
    offload(five(store))


def offload(world: World, block_bytes: int = 1, lag_s: float = 0) -> Any:
    return world.offload(A, lag_s=lag_s, block_bytes=block_bytes)


def erase(world: World) -> Any:
    return world.erase(A, CUT)


def rolled(world: World) -> Any:
    return drive(roll(world.client, A))


def follow(world: World) -> Any:
    return settle(followed(world, A, Asked("cold", Chosen(), 0.0, 40, 100)))


def tiers(world: World) -> set[str]:
    return {chunk.tier for chunk in world.chunks(A)}


def is_erased(world: World) -> bool:
    """Whether each file of the segment is used whole, so that no erased byte is in it."""
    return not drops.to_rewrite(drops.parts(world.chunks(A), world.header(A).start))


@dataclass(frozen=True)
class Verb:
    act: Callable[[World], Any]
    is_done: Callable[[World], bool]
    fill: Callable[[Store], Any] = five
    cut: int = 0
    """Where it truncates."""


VERBS = {
    "offload": Verb(offload, lambda world: tiers(world) <= {"cold"}),
    "offload blocks": Verb(lambda world: offload(world, 60, 100.0), lambda world: tiers(world) <= {"cold"}),
    "onload": Verb(lambda world: world.onload(A), lambda world: tiers(world) <= {""}, five_cold),
    "consolidate": Verb(lambda world: world.consolidate(A), lambda world: world.header(A).chunk_count <= 3),
    "erase": Verb(erase, is_erased, cut=CUT),
    "erase in a tier": Verb(erase, is_erased, five_cold, CUT),
    "roll": Verb(rolled, lambda world: world.header(A).tail == b""),
    "follow": Verb(follow, lambda world: tiers(world) <= {"cold"} and not world.header(A).tail),
}


def _take_over(world: World) -> None:
    """Another owner takes the segment over, and appends behind what it finds."""
    held = drive(acquire(world.client, A, "the new owner"))
    drive(append(world.client, A, [b"mine" * 10], guard=Guard(epoch=held.epoch, expected_offset=len(WHOLE))))


Other = tuple[Callable[[World], object], bytes, int]
OTHERS: dict[str, Other] = {
    "append": (lambda world: world.append(A, b"more" * 10), WHOLE + b"more" * 10, 0),
    "truncate in a chunk": (lambda world: world.truncate(A, 45), WHOLE, 45),
    "append inline": (lambda world: world.append(A, b"more"), WHOLE + b"more", 0),
    "truncate in the tail": (lambda world: world.truncate(A, 102), WHOLE, 102),
    "truncate all": (lambda world: world.truncate(A, 104), WHOLE, 104),
    "concat": (lambda world: world.concat(A, [world.create("/stream/b", [b"s" * 20])]), WHOLE + b"s" * 20, 0),
    "consolidate": (lambda world: world.consolidate(A), WHOLE, 0),
    "offload": (offload, WHOLE, 0),
    "offload and onload": (lambda world: (offload(world), world.onload(A)), WHOLE, 0),
    "erase": (lambda world: world.erase(A, 45), WHOLE, 45),
    "roll": (rolled, WHOLE, 0),
    "collect": (lambda world: world.collect(A, GRACE_S), WHOLE, 0),
    "seal": (lambda world: world.seal(A), WHOLE, 0),
    "an owner takes over": (_take_over, WHOLE + b"mine" * 10, 0),
    "overwrite": (lambda world: world.overwrite(A, b"new" * 40), b"new" * 40, 0),
}
"""What another client does; all bytes of the segment after it, and where these begin."""


def prepared(verb: Verb, store: Store | None = None) -> tuple[Any, World]:
    store = store or TieredStore()
    verb.fill(store)
    return store, client(store)


def calls_of(verb: Verb, step: int = 1 if MANY else 3) -> Sequence[int]:
    """The calls of a verb and a few more; in CI every third."""
    _, world = prepared(verb)
    verb.act(world)
    count = len(world.backend.trace)
    assert count >= 3
    return range(count + 3)[::step]


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
        world.collect(A)
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
@pytest.mark.parametrize("fault", [*FAULTS[:1], *slowly(*FAULTS[1:])])
@pytest.mark.parametrize("name", VERBS)
def test_fault_at_any_call_loses_and_hides_nothing(name: str, fault: Fault) -> None:
    verb = VERBS[name]
    for index in calls_of(verb):
        store, world = prepared(verb)
        world.backend.prepare({index: fault})
        did = None
        with contextlib.suppress(OSError, Crashed):
            did = verb.act(world)
        assert client(store).content(A) in (WHOLE, WHOLE[verb.cut :])
        if did is not None and verb.cut:
            assert holding(store, WHOLE[: verb.cut]) <= {one.file for one in did.remains}, "what is left is said"
        store.land()
        check_end(store, verb, WHOLE[verb.cut :])


def cases() -> list[Any]:
    """Each verb beside each other: beside appends in the fast suite, and the two kinds of erase beside a truncation."""
    uncut = ("an owner takes over", "overwrite")
    pairs = [(name, other) for other in OTHERS for name in VERBS if not (VERBS[name].cut and other in uncut)]
    quick = [pair for pair in pairs if pair[1] == "append" or (VERBS[pair[0]].cut and "in a chunk" in pair[1])]
    return [*quick, *(pytest.param(*pair, marks=pytest.mark.slow) for pair in pairs if pair not in quick)]


@pytest.mark.exhaustive
@pytest.mark.parametrize(("name", "other"), cases())
def test_other_client_between_calls_loses_and_restores_nothing(name: str, other: str) -> None:
    verb, (act, data, start) = VERBS[name], OTHERS[other]
    is_settled = (name, other) != ("follow", "offload and onload")  # what others bring back then is not moved again
    met = 0
    for index in calls_of(verb):
        store, world = prepared(verb)
        world.backend.prepare(between={index: partial(act, client(store))})
        with contextlib.suppress(FileNotFoundError, *([] if is_settled else [AssertionError])):
            verb.act(world)
        if world.backend.between:
            continue
        met += 1
        assert client(store).content(A) in (data[start:], data[max(start, verb.cut) :]), index
        check_end(store, verb, data[max(start, verb.cut) :], is_done=is_settled)
    assert met


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["erase", *slowly(*[name for name in VERBS if name != "erase"])])
def test_segment_deleted_at_any_call_leaves_nothing(name: str) -> None:
    verb = VERBS[name]
    for index in calls_of(verb):
        store, world = prepared(verb)
        world.backend.prepare(between={index: partial(client(store).delete, A)})
        with contextlib.suppress(OSError, RollingError, AssertionError):
            verb.act(world)
        if world.backend.between:
            continue
        with pytest.raises(FileNotFoundError):
            client(store).content(A)
        for _ in range(2):
            store.lapse(2 * GRACE_S)
            with contextlib.suppress(FileNotFoundError):
                client(store).collect(A)
        assert store.files() <= {names.in_tier("cold", names.TIER_MARK)}


class Damaging(TieredStore):
    """A store that damages what it copies, once it is late."""

    is_late = False

    def sleep(self) -> None:
        self.lapse(AGE_S_MAX + 1)
        self.is_late = True

    async def copy(self, source: str, target: str, *more: Any) -> None:
        await super().copy(source, target, *more)
        if self.is_late:
            self._put(target, b"?" + self.fs.store[target].getvalue()[1:])


@pytest.mark.parametrize("name", ["offload", "consolidate", "erase"])
def test_original_stays_when_its_renewed_copy_is_damaged(name: str) -> None:
    verb, refused = VERBS[name], 0
    for index in calls_of(verb, 1):
        store, world = prepared(verb, Damaging())
        world.backend.prepare(between={index: store.sleep})
        try:
            verb.act(world)
        except CorruptChunkError:
            refused += 1
        fresh = client(store)
        assert fresh.content(A) == WHOLE[fresh.header(A).start :], index
        assert is_whole(fresh), index
    assert refused, "some naps make a renewed copy necessary"
