"""Erase: what a cut leaves of the bytes before it; `test_at_each_call.py` has crashes, faults and other clients.

Rules of the protocol: P9.11 to P9.20.
"""

from functools import partial

import pytest

from rollingfs.errors import BadOffsetError, CorruptChunkError, FencedError
from rollingfs.format import drops, names
from rollingfs.format.header import AGE_S_MAX, GRACE_S
from rollingfs.format.side_files import Pin, format_pin, pin_path
from rollingfs.format.transitions import Guard
from rollingfs.runtime.concurrency import drive
from rollingfs.segment.verbs import erase as erase_module
from rollingfs.segment.verbs.change import acquire
from rollingfs.segment.verbs.erase import HIDDEN, KEPT, PINNED, YOUNG, Erased
from tests.support.backends import limit
from tests.support.faults import CLOCK, Store, TieredStore
from tests.support.life import World, pieces_of
from tests.support.small import DATA, TAIL, Failing, client, five, holding, is_whole, shrink_pages

pytestmark = pytest.mark.usefixtures("hurried")
A = "/stream/a"
WHOLE = DATA + TAIL


@pytest.fixture
def world(store):
    return five(store)


def check_erased(store: Store, cut: int, expected: bytes) -> None:
    """No file has an erased byte; the segment has exactly the rest, in files that it uses whole."""
    world = client(store)
    assert world.content(A) == expected
    assert is_whole(world)
    assert not drops.to_rewrite(drops.parts(world.chunks(A), world.header(A).start))
    assert not holding(store, DATA[: min(cut, 100)])


# -- what goes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [0, 1, 20, 30, 60, 99, 100, 102, 104])
def test_no_file_has_a_byte_before_the_cut(store, cut):
    did = five(store).erase(A, cut)
    check_erased(store, cut, WHOLE[cut:])
    straddles = 0 < cut < 100 and cut % 20
    assert did == Erased(cut, cut, bool(straddles), 20 - cut % 20 if straddles else 0, (), {"": False})
    assert did.is_gone


def test_earlier_truncation_becomes_an_erase_by_smaller_offsets(store, world):
    world.truncate(A, 30)
    assert holding(store, DATA[20:30])
    did = world.erase(A, 0)
    assert (did.start, did.bytes, did.rewritten_files, did.rewritten_bytes) == (30, 0, 1, 10)
    check_erased(store, 30, WHOLE[30:])


@pytest.mark.parametrize("offset", [-1, 105])
def test_invalid_offset_is_refused_and_nothing_is_erased(store, world, offset):
    before = store.snapshot()
    with pytest.raises(BadOffsetError):
        world.erase(A, offset)
    assert store.snapshot() == before


def test_chunks_in_index_pages_are_written_anew(monkeypatch):
    shrink_pages(monkeypatch, chunks=2, loose_max=2)
    for cut in (10, 30, 50, 90):
        store = Store()
        world = five(store)
        assert len(world.header(A).entries) < 5
        world.erase(A, cut)
        check_erased(store, cut, WHOLE[cut:])
        store.lapse(GRACE_S)
        world.collect(A, None)
        assert world.content(A) == WHOLE[cut:]


# -- what is shared, and what is left --------------------------------------------------------------------------


def joined(store: Store) -> World:
    """A of 4 chunks, of which the last three came from two segments in other folders; the first of them was cut."""
    world = client(store)
    world.create(A, [DATA[:20]])
    world.create("/b/b", [b"\xff" * 10 + DATA[20:30], DATA[30:50]])
    world.truncate("/b/b", 10)
    world.create("/c/c", [DATA[50:100]])
    world.concat(A, ["/b/b", "/c/c"])
    world.append(A, TAIL)
    return world


def test_bytes_in_other_folders_are_named_until_old(store):
    world = joined(store)
    did = world.erase(A, 40)
    assert {(one.file.partition("$")[0], one.reason, one.held) for one in did.remains} == {("/b/b", YOUNG, True)}
    assert {one.file for one in did.remains} == holding(store, DATA[:40]) == holding(store, DATA[20:40])
    assert not did.is_gone
    store.lapse(max(one.until for one in did.remains) - CLOCK.time() + 1)
    again = world.erase(A, 40)
    assert (again.is_gone, again.remains) == (True, ())
    check_erased(store, 40, WHOLE[40:])
    assert not [file for file in store.files() if b"\xff" in store.snapshot()[file]], "the head of the source as well"


def test_shared_file_is_rewritten_for_each_kept_entry(store):
    world = client(store)
    world.create(A, [DATA[:20]])
    sources = []
    for number in range(4):  # the tails of the first three become one file of the target
        begin = 20 + 20 * number
        source = world.create(f"/stream/s{number}", [DATA[begin : begin + 15]])
        world.append(source, DATA[begin + 15 : begin + 20])
        sources.append(source)
    world.concat(A, sources)
    shared = [chunk for chunk in world.chunks(A) if chunk.length < chunk.size]
    assert [chunk.start for chunk in shared] == [35, 55, 75]
    assert len({chunk.file for chunk in shared}) == 1
    store.lapse(GRACE_S)
    did = world.erase(A, 45)
    assert did.is_gone
    assert did.rewritten_files == 3, "the chunk at the cut, and the two parts of the shared file that stay"
    check_erased(store, 45, DATA[45:])


def test_young_staged_file_is_named_and_goes_later(store):
    world = client(store)
    world.create(A, [])
    world.append(A, world.stage(A, DATA))
    did = world.erase(A, 30)
    assert [(one.reason, one.held, one.size) for one in did.remains] == [(YOUNG, True, 100)]
    store.lapse(GRACE_S)
    assert world.erase(A, 30).is_gone
    check_erased(store, 30, DATA[30:])


def test_dead_clients_orphan_is_named_as_unknown_content(store, world):
    orphan = world.orphan(A, data=DATA[:5])
    did = world.erase(A, 30)
    assert [(one.file, one.reason, one.held) for one in did.remains] == [(orphan, YOUNG, False)]
    store.lapse(GRACE_S)
    assert world.erase(A, 30).is_gone
    assert orphan not in store.files()


def test_pin_of_an_absent_segment_keeps_and_names_files(store):
    world = joined(store)
    pin = Pin("c0ffee00-0000-4000-8000-000000000001", "/b/b", "/b/gone", "c0ffee00-0000-4000-8000-000000000002")
    store.lapse(1)
    world.write(pin_path("/b/b$chunks", pin.txn), format_pin(pin, "/b/b$chunks"))
    store.lapse(GRACE_S)
    did = world.erase(A, 40)
    assert {(one.file.partition("$")[0], one.reason) for one in did.remains} == {("/b/b", PINNED)}


@pytest.mark.parametrize("path", [A, "/old/name"])
def test_undeletable_plain_file_is_named_under_former_names(store, path):
    limit(store, can_delete_if=False)
    world = client(store)
    world.write(path, DATA)
    if path != A:
        world.rename(path, A)
        store.lapse(2 * GRACE_S)
    for _ in range(2):
        did = world.erase(A, 30)
        assert (path, HIDDEN, True) in {(one.file, one.reason, one.held) for one in did.remains}
        assert holding(store, DATA[:30]) <= {one.file for one in did.remains}
        assert not did.is_gone


def test_files_in_too_many_folders_are_removed_and_named(monkeypatch):
    monkeypatch.setattr(drops, "DROPS_MAX", 3)
    monkeypatch.setattr(erase_module, "DROPS_MAX", 3)
    for is_old in (True, False):
        store = Store()
        world = client(store)
        world.create(A, [])
        world.concat(A, [world.create(f"/x/{at}", [DATA[at : at + 20]]) for at in range(0, 100, 20)])
        if is_old:
            store.lapse(2 * GRACE_S)
        did = world.erase(A, 100)
        assert {one.file for one in did.remains} == holding(store, DATA)
        assert len(did.remains) == (0 if is_old else 5)
        assert did.is_gone == is_old


def moved(world: World) -> None:
    world.rename("/stream/old", A)


def concatenated(world: World) -> None:
    world.create(A)
    world.concat(A, ["/stream/old"])


@pytest.mark.parametrize("first", ["/stream/old", "/stream/first"])
@pytest.mark.parametrize("take", [moved, concatenated])
@pytest.mark.parametrize("days", [0, 3])
def test_former_names_kept_files_are_named_until_gone(store, take, days, first):
    world = client(store)
    world.create(first, pieces_of(DATA, [20] * 5))
    if first != "/stream/old":
        world.rename(first, "/stream/old")
    world.offload("/stream/old", lag_s=7 * 86400, block_bytes=1)
    take(world)
    store.lapse(days * 86400)
    world.collect(A, None)
    did = world.erase(A, 100)
    left = holding(store, DATA)
    assert any(file.startswith(f"{first}$chunks/") for file in left)
    assert len(left) == (5 if days else 10), "the tier's files are younger than the grace at first"
    assert left <= {one.file for one in did.remains}
    kept = [one for one in did.remains if one.reason == KEPT]
    assert [one.kept_by for one in kept] == ["/stream/old"] * 5
    assert not did.is_gone
    store.lapse(max(one.until for one in kept) - CLOCK.time() + 1)
    again = world.erase(A, 100)
    assert (again.is_gone, holding(store, DATA)) == (True, set()), again


@pytest.mark.parametrize("kept", [True, None])
def test_versioned_or_silent_store_is_never_called_clean(kept):
    class Versioned(Store):
        async def keeps_versions(self, path: str) -> bool | None:
            return kept

    did = five(Versioned()).erase(A, 30)
    assert did.versions == {"": kept}
    assert (did.remains, did.is_gone) == ((), False)


def test_a_damaged_file_is_refused_before_anything_is_erased(store, world):
    store._put(names.resolve(A, world.header(A).entries[1].file), b"?" * 20)
    before = world.header(A)
    with pytest.raises(CorruptChunkError):
        world.erase(A, 30)
    assert world.header(A) == before
    assert world.erase(A, 40).is_gone, "at the end of the damaged chunk nothing of it is needed"


def test_damaged_new_file_is_found_before_removal():
    store = Failing()
    world = five(store)
    store.where, store.how = "$chunks/00000000000000000030-", "damages"
    before = world.header(A)
    with pytest.raises(CorruptChunkError, match="nothing was erased"):
        world.erase(A, 30)
    assert world.header(A) == before
    assert world.content(A) == WHOLE


# -- what others do meanwhile --------------------------------------------------------------------------------


def test_index_page_taken_by_another_erase_is_tolerated(monkeypatch: pytest.MonkeyPatch) -> None:
    shrink_pages(monkeypatch, chunks=4, loose_max=2)
    for index in range(9):
        store = TieredStore()
        five(store)
        world = client(store)
        world.backend.prepare(between={index: partial(client(store).erase, A, 10)})
        world.erase(A, 30)
        check_erased(store, 30, WHOLE[30:])


def test_overwrite_within_an_erase_is_erased_with_tier_lines() -> None:
    """That line belongs to one incarnation."""
    for index in range(12):
        store = TieredStore()
        five(store).offload(A, block_bytes=1)
        store.lapse(AGE_S_MAX + 1)
        world = client(store)
        world.backend.prepare(between={index: partial(client(store).overwrite, A, WHOLE[::-1])})
        world.erase(A, 30)
        assert client(store).content(A) in (WHOLE[30:], WHOLE[::-1][30:], WHOLE[::-1])


# -- faces ---------------------------------------------------------------------------------------------------


def test_guarded_or_missing_erase_writes_nothing_at_any_offset(store, world):
    gone = Guard(segment=world.header(A).segment)
    world.overwrite(A, WHOLE)
    held = drive(acquire(world.client, A, "owner"))
    before = store.snapshot()
    for offset in (3, 700):
        with pytest.raises(FileNotFoundError, match="another has its name"):
            world.erase(A, offset, gone)
        with pytest.raises(FencedError):
            world.erase(A, offset)
    assert store.snapshot() == before
    assert world.erase(A, 30, Guard(epoch=held.epoch)).start == 30
