"""A look that does not find a file that is there, at each call of verbs that merge, move, delete or collect.

On a disk by FUSE that happens next to a rename. No byte is lost or doubled, whatever state another client has left.
"""

import contextlib
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import pytest

from rollingfs.format.header import GRACE_S
from rollingfs.runtime.concurrency import drive
from rollingfs.segment.commit.recovery import MARK_AGE_S_MAX
from tests.segment.test_at_each_call import CUT, offload, rolled
from tests.support.examples import nightly
from tests.support.faults import CONDITIONAL, LOOKS, Crashed, DenyingStore, Fault
from tests.support.life import World
from tests.support.small import client, five

pytestmark = pytest.mark.usefixtures("hurried")
A = "/stream/a"
FOLDERS = "/stream", "/other"
"""Of the second segment: that of the first, and another."""
CALLS_MAX = 200
Act = Callable[[World, str], Any]
Content = dict[str, bytes]


def paths(b: str) -> tuple[str, ...]:
    return A, b, f"{b}2"


def concat(world: World, b: str) -> None:
    world.concat(A, [b])


def rename(world: World, b: str) -> None:
    world.rename(b, f"{b}2")


def over(world: World, b: str) -> None:
    world.rename(b, A)


def delete(world: World, b: str) -> None:
    world.delete(b)


def then_append(of_target: bool, world: World, b: str) -> None:
    """Settle a segment, which may find that the marks of others are over, and commit without their lines."""
    world.collect(A if of_target else b, GRACE_S)
    world.append(A, b"mo")


def two(store: DenyingStore, b: str) -> World:
    """Two segments of chunks."""
    world = five(store)
    world.create(b, [b"s" * 20, b"t" * 20])
    return world


@cache
def last_call(verbs: frozenset[str], of: str, act: Act, b: str) -> int:
    """Return the number of the last call of some verbs for a path that begins so."""
    two(store := DenyingStore(), b)
    act(world := client(store), b)
    return max(n for n, (verb, path) in enumerate(world.backend.trace) if verb in verbs and str(path).startswith(of))


def begin(call: Act, target: Callable[[str], str], fault: Fault, store: DenyingStore, b: str) -> None:
    """Break a verb off at its last commit to a target."""
    last = last_call(CONDITIONAL, f"{target(b)}$header", call, b)
    two(store, b)
    (world := client(store)).backend.prepare({last: fault})
    with pytest.raises(Crashed):
        call(world, b)
    store.lapse(MARK_AGE_S_MAX + 1)


def forgotten(store: DenyingStore, b: str) -> None:
    """The mover could delete the evidence, which it does at once with the burial, and could not bury the source."""
    begin(concat, lambda b: A, Fault.CRASH_AFTER, store, b)
    for file in store.files():
        if file.startswith(f"{A}$chunks/pin-"):
            del store.fs.store[file]


def joined(store: DenyingStore, b: str) -> None:
    concat(two(store, b), b)


States = dict[str, Callable[[DenyingStore, str], Any]]
STATES: States = {
    "marked": partial(begin, concat, lambda b: A, Fault.CRASH_BEFORE),
    "committed": partial(begin, concat, lambda b: A, Fault.CRASH_AFTER),
    "forgotten": forgotten,
    "two": two,
    "joined": joined,
    "marked to be renamed": partial(begin, rename, lambda b: f"{b}2", Fault.CRASH_BEFORE),
    "renamed": partial(begin, rename, lambda b: f"{b}2", Fault.CRASH_AFTER),
    "marked to replace": partial(begin, over, lambda b: A, Fault.CRASH_BEFORE),
    "buried": partial(begin, delete, lambda b: b, Fault.CRASH_AFTER),
}
ACTS: dict[str, Act] = {
    "settle the target and append": partial(then_append, True),
    "settle the source and append": partial(then_append, False),
    "concat": concat,
    "rename": rename,
    "rename over": over,
    "delete the source": delete,
    "delete the target": lambda world, b: world.delete(A),
    "collect the target": lambda world, b: world.collect(A, 0),
    "collect the source": lambda world, b: world.collect(b, 0),
    "append": lambda world, b: world.append(A, b"more" * 10),
    "append to the source": lambda world, b: world.append(b, b"mo"),
    "overwrite the source": lambda world, b: world.overwrite(b, b"new" * 40),
    "truncate": lambda world, b: world.truncate(A, 45),
    "erase": lambda world, b: world.erase(A, CUT),
    "consolidate": lambda world, b: world.consolidate(A),
    "offload": lambda world, b: offload(world),
    "roll": lambda world, b: rolled(world),
}


QUICK = [
    ("committed", "settle the target and append", "/stream", Fault.DENIED),
    ("forgotten", "settle the source and append", "/other", Fault.DENIED),
]


def cases() -> list[Any]:
    """All states, verbs, folders and faults."""
    faults = (Fault.DENIED, Fault.MISSED)
    found = [(state, act, folder, fault) for state in STATES for act in ACTS for folder in FOLDERS for fault in faults]
    return [*QUICK, *nightly(*[case for case in found if case not in QUICK])]


def contents(store: DenyingStore, b: str) -> Content:
    """The bytes of all segments: a segment that is there is whole."""
    found = {}
    for path in paths(b):
        header = drive(client(store).client.headers.load(path)).header
        if header is not None and not header.deleted:
            found[path] = client(store).content(path)
    return found


def ends(store: DenyingStore, b: str) -> list[Content]:
    """The bytes of all segments at once, and after each was collected."""
    store.land()
    found = [contents(store, b)]
    for _ in range(2):
        store.lapse(2 * GRACE_S)
        for path in paths(b):
            with contextlib.suppress(FileNotFoundError):
                client(store).collect(path)
    return [*found, contents(store, b)]


def tried(state: str, act: Act, b: str, plan: dict[int, Fault]) -> tuple[list[Content], World]:
    """Return what a verb has left that met faults, and its client."""
    STATES[state](store := DenyingStore(), b)
    (world := client(store)).backend.prepare(plan)
    with contextlib.suppress(OSError, AssertionError):
        act(world, b)
    return ends(store, b), world


@pytest.mark.parametrize(("state", "name", "folder", "fault"), cases())
def test_one_look_shows_no_absence(state: str, name: str, folder: str, fault: Fault) -> None:
    b, act = f"{folder}/b", ACTS[name]
    STATES[state](store := DenyingStore(), b)
    good, world = tried(state, act, b, {})
    allowed = ends(store, b) + good
    looks = LOOKS if fault is Fault.DENIED else {"list"}
    for call in [n for n, (verb, _) in enumerate(world.backend.trace) if verb in looks]:
        found, world = tried(state, act, b, {call: fault})
        assert found[-1] in allowed, world.backend.trace[call]


@pytest.mark.parametrize("folder", ["/other", *nightly("/stream")])
@pytest.mark.parametrize("name", ["append to the source", *nightly(*list(ACTS)[:4])])
def test_a_slow_mover_wins_or_loses(name: str, folder: str) -> None:
    """The other takes it for dead; if it undoes the mark without a line in the target, the bytes are doubled."""
    b, act = f"{folder}/b", ACTS[name]
    put = last_call(frozenset({"put"}), b, concat, b)
    for call in range(CALLS_MAX):
        two(store := DenyingStore(), b)
        (other := client(store)).backend.prepare({call: Fault.DENIED})

        def come(store: DenyingStore = store, other: World = other) -> None:
            store.lapse(MARK_AGE_S_MAX + 1)
            with contextlib.suppress(OSError):
                act(other, b)

        (mover := client(store)).backend.prepare(between={put: come})
        with contextlib.suppress(OSError):
            concat(mover, b)
        found = ends(store, b)[-1]
        assert sum(data.count(b"s" * 20 + b"t" * 20) for data in found.values()) == 1, other.backend.trace[call]
        if len(other.backend.trace) <= call:
            return
    raise AssertionError("the verb has an end")


def test_a_burial_looks_again() -> None:
    STATES["committed"](store := DenyingStore(), b := "/stream/b")
    merge = client(store).header(b).merge
    assert merge is not None
    (world := client(store)).backend.prepare({0: Fault.DENIED})
    drive(world.client.commits.merges.finish(b, merge.txn))
    assert client(store).header(b).merged == merge.txn
