"""Plain files that a header hides: no other file is taken for one, even with the same bytes.

The store of these tests behaves like S3: a token is a hash of the bytes, and dates are whole seconds.
"""

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from rollingfs.format import names
from rollingfs.runtime.concurrency import drive
from tests.support.backends import limit
from tests.support.faults import CLOCK, Faulty, HashingStore
from tests.support.life import CHUNKS, World

pytestmark = pytest.mark.usefixtures("hurried")
LOG, MOVED = "/folder/_SUCCESS", "/folder/moved"
DATA = b"as ever"
DAY_S = 86_400.0
CALLS_MAX = 60

Verb = Callable[[World], None]


def client(store: HashingStore) -> World:
    return World(Faulty(store), CHUNKS, CLOCK.time)


def adopted() -> HashingStore:
    """A store with a file that a segment has adopted."""
    store = HashingStore()
    put(store)
    client(store).seal(LOG)
    return store


def put(store: HashingStore, data: bytes = DATA) -> None:
    """Write the file as another tool does, over whatever is there."""
    CLOCK.sleep(1.0)
    drive(store.delete([LOG]))
    drive(store.write(LOG, [data]))


def raw(store: HashingStore) -> bytes | None:
    file = store.fs.store.get(LOG)
    return None if file is None else bytes(file.getvalue())


def rename(world: World) -> None:
    world.rename(LOG, MOVED)


def delete(world: World) -> None:
    world.delete(LOG)


def collect(world: World) -> None:
    world.collect(LOG)


def is_visible(store: HashingStore) -> bool:
    try:
        return client(store).content(LOG) == DATA
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("end", [rename, delete])
def test_equal_file_a_day_after_its_segment_is_kept(end: Verb) -> None:
    store = adopted()
    end(client(store))
    assert not is_visible(store)
    store.lapse(DAY_S)
    put(store)
    collect(client(store))
    assert is_visible(store)
    store.lapse(2 * DAY_S)
    collect(client(store))
    assert is_visible(store)
    client(store).seal(LOG)
    assert is_visible(store)


def test_equal_file_behind_a_live_segment_is_not_confused() -> None:
    store = adopted()
    store.lapse(DAY_S)
    put(store)
    collect(client(store))
    assert raw(store) == DATA
    rename(client(store))
    assert is_visible(store)


@pytest.mark.parametrize("end", [rename, delete])
def test_equal_file_right_after_its_segment_is_not_confused(end: Verb) -> None:
    """In the same second as the adopted file: the tombstone waits until that second is over."""
    store = HashingStore()
    CLOCK.now_s = float(int(CLOCK.now_s)) + 1
    drive(store.write(LOG, [DATA]))
    client(store).seal(LOG)
    end(client(store))
    drive(store.write(LOG, [DATA]))
    assert is_visible(store)
    collect(client(store))
    assert is_visible(store)


def test_adopted_file_goes_with_the_segment_by_collection() -> None:
    for verb in (rename, delete, collect):
        store = adopted()
        store.lapse(2 * DAY_S)
        verb(client(store))
        assert raw(store) is None


def filled(verb: Verb) -> tuple[HashingStore, World]:
    """A store with what a verb needs: an adopted file; for a collection, a tombstone that names one still there."""
    store = adopted()
    if verb is collect:
        held = client(store)
        limit(held.backend, can_delete_if=False)
        rename(held)
        assert raw(store) == DATA
    return store, client(store)


@pytest.mark.parametrize("verb", [rename, delete, collect])
def test_file_within_a_verb_is_lost_only_without_dates(verb: Verb) -> None:
    """At every call: what comes once there is no segment any more stays, but within one conditional delete."""
    calls: list[tuple[str, Any]] = []
    survived = 0
    for index in range(CALLS_MAX):
        CLOCK.sleep(-CLOCK.time() % 1)  # dates are whole seconds here: each round begins with one, so all are alike
        store, world = filled(verb)
        came_to_life = []

        def meanwhile(store: HashingStore = store, came_to_life: list[bool] = came_to_life) -> None:
            put(store)
            came_to_life.append(not drive(client(store).client.headers.load(LOG)).live)

        world.backend.prepare(between={index: meanwhile})
        with contextlib.suppress(FileNotFoundError):
            verb(world)
        if world.backend.between:
            break
        call = world.backend.trace[index]
        calls.append(call)
        if came_to_life == [True] and call != ("delete_if", LOG):
            assert is_visible(store), (index, call)
            survived += 1
    assert survived >= 1
    assert ("delete_if", LOG) in calls


def test_a_deleted_file_is_deleted_whatever_its_date() -> None:
    """A delete by name means whatever is there."""
    store = HashingStore()
    put(store)
    world = client(store)
    world.backend.prepare(between={0: lambda: put(store)})
    delete(world)
    assert raw(store) is None
    assert not client(store).files(LOG)
    assert names.header_path(LOG) not in store.files()
