"""Plain files that become segments while others delete them: a delete that succeeded is not undone.

Rules of the protocol: P10.9 to P10.15.
"""

import contextlib
import errno
import os
import time
import uuid
from functools import partial
from operator import methodcaller

import pytest

from rollingfs.backend.local import disk
from rollingfs.backend.local.backend import LocalBackend
from rollingfs.errors import AppendOutcomeUnknown
from rollingfs.format import names
from rollingfs.runtime.concurrency import drive
from rollingfs.segment.files.moves import mark_all, sources_of
from tests.support.backends import limit, raises
from tests.support.examples import some
from tests.support.faults import CLOCK, Fault, Faulty, Store
from tests.support.life import CHUNKS, World

pytestmark = pytest.mark.usefixtures("hurried")
LOG, MOVED = "/folder/log", "/folder/moved"
DATA = b"as another tool wrote it"
CALLS_MAX = 60


ADOPTING = {
    "append": methodcaller("append", LOG, b"+"),
    "seal": methodcaller("seal", LOG),
    "truncate": lambda world: world.truncate(LOG, min(3, len(world.content(LOG)))),
    "rename": methodcaller("rename", LOG, MOVED),
}
delete = methodcaller("delete", LOG)


def client(store, *, delete_if=True):
    backend = Faulty(store)
    limit(backend, can_delete_if=delete_if)
    return World(backend, CHUNKS, CLOCK.time)


def with_plain(data, graves=0, **options):
    """A store with a plain file, perhaps where a segment was deleted before, and a client of it."""
    store = Store()
    world = client(store, **options)
    for _ in range(graves):
        world.create(LOG)
        delete(world)
    drive(store.write(LOG, [data]))
    return store, world


def calls(verb, *setting):
    """The indexes of the calls that a verb makes."""
    _, world = with_plain(*setting)
    world.backend.prepare()
    verb(world)
    assert len(world.backend.trace) <= CALLS_MAX
    return range(len(world.backend.trace))


def is_there(store, path=LOG):
    try:
        client(store).content(path)
    except FileNotFoundError:
        return False
    return True


def crossed(outer, inner, index, data, graves, delete_if):
    """Do one thing at a call of another; the store, and whether the inner one succeeded (None: it was not reached)."""
    store, world = with_plain(data, graves, delete_if=delete_if)
    done = []

    def meanwhile():
        with contextlib.suppress(FileNotFoundError):
            inner(client(store, delete_if=delete_if))
            done.append(True)

    world.backend.prepare(between={index: meanwhile})
    with contextlib.suppress(FileNotFoundError):
        outer(world)
    return store, None if world.backend.between else bool(done)


@pytest.mark.exhaustive
@pytest.mark.parametrize("data", [DATA, b""], ids=["bytes", "empty"])
@pytest.mark.parametrize("graves", [0, 1])
@pytest.mark.parametrize("delete_if", [True, False])
@pytest.mark.parametrize("is_within", [False, True], ids=["a delete within", "within a delete"])
@pytest.mark.parametrize("verb", ADOPTING)
def test_a_delete_that_meets_an_adoption_is_not_undone(verb, is_within, delete_if, graves, data):
    outer, inner = (delete, ADOPTING[verb]) if is_within else (ADOPTING[verb], delete)
    for index in some(calls(outer, data, graves)):
        store, did = crossed(outer, inner, index, data, graves, delete_if)
        if did is None and not is_within:
            continue  # a store that deletes otherwise is asked for less
        is_moved = bool(did) if is_within else not did
        assert is_there(store, MOVED) == (verb == "rename" and is_moved), index
        assert not is_there(store), index


def test_deletes_error_after_the_removal_claims_no_unwritten_state():
    told = []
    for index in calls(delete, DATA, 1):
        store, world = with_plain(DATA, 1)
        world.backend.prepare({index: Fault.REFUSED})
        try:
            delete(world)
        except OSError as error:
            told.append((LOG in store.files(), isinstance(error, AppendOutcomeUnknown)))
    assert set(told) == {(True, False), (False, True)}


def test_file_deleted_within_an_adoption_stays_deleted():
    seal = ADOPTING["seal"]
    for index in calls(seal, DATA):
        store, did = crossed(seal, lambda world: (seal(world), delete(world)), index, DATA, 0, delete_if=False)
        assert not (did and is_there(store)), index


def test_adoption_within_a_delete_respects_an_unfinished_tombstone():
    def begun():
        store = Store()
        world = client(store)
        world.create(LOG, [b"x" * 10] * 4)
        world.consolidate(LOG)  # the old chunks stay for readers
        world.rename(LOG, "/logs/elsewhere")
        drive(store.write(LOG, [DATA]))
        return store, client(store)

    store, world = begun()
    assert world.header(LOG).drops
    world.backend.prepare()
    delete(world)
    for index in range(len(world.backend.trace)):
        store, world = begun()
        world.backend.prepare(between={index: partial(suppressed, ADOPTING["seal"], client(store))})
        delete(world)
        assert not is_there(store), index


def suppressed(verb, world):
    with contextlib.suppress(FileNotFoundError):
        verb(world)


# -- on a disk, where other programs open the old name ------------------------------------------------------------


erase = methodcaller("erase", LOG, 3)


def erase_and_mark(world):
    """A mover that has died has marked what was erased."""
    erase(world)
    at = world.client
    drive(mark_all(at, sources_of([LOG], MOVED, {}), str(uuid.uuid4()), at.commits.deadline_s(), sealed=False))


@pytest.mark.parametrize("count", [1, 17])  # the second is uploaded first: see `hurry`
@pytest.mark.parametrize("act", [erase, erase_and_mark])
def test_erase_with_adoption_and_deletion_makes_no_missing_file(count, act):
    for index in calls(lambda world: world.append(LOG, b"+" * count), DATA):
        store, world = with_plain(DATA)
        world.backend.prepare(between={index: partial(act, client(store))})
        world.append(LOG, b"+" * count)
        assert client(store).content(LOG).strip(b"+") == DATA[3:]


def on_disk():
    return World(LocalBackend(sync=False), CHUNKS, CLOCK.time)


def test_without_room_for_a_copy_the_file_stays(tmp_path, monkeypatch):
    old_file = f"{tmp_path}/log"
    (tmp_path / "log").write_bytes(DATA)
    os.utime(old_file, (time.time() - 86_400,) * 2)  # nobody has changed it for a day
    with monkeypatch.context() as patch:
        patch.setattr(disk, "copy_bytes", raises(OSError(errno.ENOSPC, "No space left on device")))
        with pytest.raises(OSError, match=f"nothing was written: No space left.*{old_file}") as caught:
            on_disk().append(old_file, b"+")
    assert caught.value.errno == errno.ENOSPC
    assert os.listdir(names.chunks_folder(old_file)) == []
    assert on_disk().content(old_file) == DATA
    on_disk().append(old_file, b"+")
    assert on_disk().content(old_file) == DATA + b"+"
