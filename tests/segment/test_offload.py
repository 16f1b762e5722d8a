"""Offload and onload: the same bytes in another store, beside readers, collectors and other verbs.

`test_at_each_call.py` has crashes, faults and other clients at every call.

Rules of the protocol: P4.21 to P4.26.
"""

import contextlib
from collections.abc import Callable
from functools import partial

import pytest

from rollingfs.backend.tiers import TieredBackend, TierStore
from rollingfs.errors import BadOffsetError, ConflictError, CorruptChunkError, UnknownTierError
from rollingfs.folders.collect_tree import collect_tree
from rollingfs.format import names
from rollingfs.format.header import AGE_S_MAX, GRACE_S
from rollingfs.runtime.concurrency import drive
from rollingfs.segment.at import At
from rollingfs.segment.verbs import offload as offload_module
from rollingfs.segment.verbs.offload import Offloaded
from tests.support.faults import CLOCK, Store, TieredStore
from tests.support.life import World, pieces_of
from tests.support.small import SMALL, Failing, client, filled, is_whole

pytestmark = pytest.mark.usefixtures("hurried")
A, B = "/stream/a", "/other/b"
DATA = bytes(range(250)) * 2
LAG_S = 100.0
COLD = names.in_tier("cold", "")
MARK = names.in_tier("cold", names.TIER_MARK)


def fill(store: Store, count: int = 25) -> World:
    """Segment A of some chunks and a tail; B, in another folder, which is joined to A by nobody yet."""
    world = filled(store, pieces_of(DATA, [20] * count))
    world.create(B, [b"b" * 30] * 3, sealed=True)
    return world


@pytest.fixture
def world(store):
    return fill(store)


def offload(world: World, path: str = A, *, lag_s: float = LAG_S, **chosen: object) -> Offloaded:
    return world.offload(path, lag_s=lag_s, block_bytes=1, **chosen)


def collect_all(world: World, times: int = 1) -> None:
    """Collect all folders of these tests."""
    for _ in range(times):
        for folder in ("/stream", "/other", "/far"):
            with contextlib.suppress(FileNotFoundError):
                assert not drive(collect_tree(world.client, folder, grace_s=0)).failures


def tiers_of(world: World) -> list[str]:
    return [chunk.tier for chunk in world.chunks(A)]


def chunk_files(store: Store) -> tuple[set[str], set[str]]:
    """The chunks in the folder of A: those in the hot store, those in the tier."""
    hot, cold = names.chunks_folder(A) + "/", names.in_tier("cold", names.chunks_folder(A)) + "/"
    found = {file for file in store.files() if "/pin-" not in file and "/index-" not in file}
    return {file for file in found if file.startswith(hot)}, {file for file in found if file.startswith(cold)}


def test_overwritten_segment_is_meant_by_its_path_too(monkeypatch):
    for index in range(6):
        store = TieredStore()
        fill(store)
        world = client(store)
        world.backend.prepare(between={index: partial(client(store).overwrite, A, b"n" * 40)})
        offload(world)
        assert client(store).content(A) == b"n" * 40
        assert set(tiers_of(client(store))) == {"cold"}

    async def too_late(*_: object, **__: object) -> None:
        client(store).overwrite(A, b"n" * 40)
        raise FileNotFoundError

    monkeypatch.setattr(offload_module, "rewrite_all", too_late)
    with pytest.raises(ConflictError, match="replaced the segment 16 times"):
        offload(world)


# -- what moves, and what is read ----------------------------------------------------------------------------


def test_one_read_spans_tier_hot_store_and_tail(store, world):
    moved = offload(world, upto=300)
    assert (moved.chunks, moved.files, moved.bytes, moved.server_bytes) == (15, 15, 300, 300)
    world = client(store)
    assert tiers_of(world) == ["cold"] * 15 + [""] * 10
    view = drive(world.client.headers.view(A, fresh=True))
    for start, end in ((0, 504), (290, 310), (0, 20), (480, 504)):
        assert drive(world.client.fetcher.read(view, start, end)) == (DATA + b"tail")[start:end]
    assert is_whole(world)


@pytest.mark.parametrize("chosen", [{"upto": -1}, {"upto": 505}, {"after_bytes": -1}, {"after_age_s": -1.0}])
def test_invalid_numbers_are_refused_and_nothing_moves(world, chosen):
    with pytest.raises(BadOffsetError if "upto" in chosen else ValueError, match="nothing was moved"):
        offload(world, **chosen)
    with pytest.raises(ValueError, match="deletion_lag"):
        offload(world, lag_s=-1)
    assert not world.header(A).tiers


def test_shared_file_is_copied_once_deleted_by_collection(store):
    world = client(store)
    world.create(A, [b"a" * 20])
    for number in range(3):  # their tails become one file of the target
        world.create(f"/stream/s{number}", [b"0123456789"])
        world.append(f"/stream/s{number}", b"s" * 20)
    world.append(A, world.stage(A, b"staged" * 20))
    world.concat(A, [f"/stream/s{number}" for number in range(3)])
    before = world.content(A)
    files = {chunk.file for chunk in world.chunks(A)}
    assert offload(world).files == len(files)
    assert world.content(A) == before
    store.lapse(GRACE_S + LAG_S)
    collect_all(world, 2)
    assert not [file for file in store.files() if "$chunks/0" in file or "$chunks/stage-" in file]
    assert world.content(A) == before
    world.truncate(A, world.header(A).length)
    store.lapse(GRACE_S)
    collect_all(world, 2)
    assert [file for file in store.files() if file.startswith(COLD)] == [MARK]


@pytest.mark.parametrize("more", [False, True], ids=["few files", "more files than one line each"])
def test_staged_and_foreign_files_stay_for_the_lag_too(store, more):
    world = fill(store, 25 if more else 5)
    world.append(A, world.stage(A, b"staged" * 20))
    world.concat(A, [B])
    before, content = store.files(), world.content(A)
    store.lapse(GRACE_S)
    offload(world)
    collect_all(world)
    kept = {file for file in before if "$chunks/stage-" in file or "/b$chunks/0" in file}
    assert len(kept) == 4
    assert kept <= store.files()
    store.lapse(LAG_S + 1)
    collect_all(world, 3)
    assert not kept & store.files()
    assert world.content(A) == content
    assert not [drop for drop in world.header(A).drops if drop.after_ms]


# -- other verbs ---------------------------------------------------------------------------------------------


def test_consolidation_joins_within_tiers_and_in_the_largest_store(store, world):
    offload(world, upto=240, lag_s=0)
    world.consolidate(A, grace_s=0)
    chunks = world.chunks(A)
    assert [(chunk.length, chunk.tier) for chunk in chunks] == [(200, "cold"), (200, ""), (100, "")]
    assert [bool(chunk.moved_ms) for chunk in chunks] == [True, False, False]
    assert world.content(A) == DATA + b"tail"
    assert is_whole(world)
    assert [len(files) for files in chunk_files(store)] == [2, 1]


def test_consolidation_leaves_chunks_of_unknown_tier_where_they_are(store, world):
    offload(world, upto=200)
    store.tiers = {}
    world = client(store)
    world.consolidate(A)
    assert tiers_of(world) == ["cold"] * 10 + [""] * 2


def test_stores_that_share_a_root_spare_each_others_chunks():
    cold = Store()

    def tiered() -> World:
        hot = Store()
        world = World(TieredBackend(hot, {"cold": TierStore(cold, "/archive")}), SMALL, CLOCK.time)
        world.create(A, pieces_of(DATA, [20] * 25))
        offload(world, lag_s=0)
        return world

    worlds = tiered(), tiered()
    CLOCK.sleep(GRACE_S)
    for world in worlds:
        world.collect(A)
        world.truncate(A, 300)
        world.collect(A)
    for world in worlds:
        assert world.content(A) == DATA[300:]
    assert len(cold.files() - {"/archive/$tier"}) == 20
    drive(collect_tree(At.of(cold), "/archive", grace_s=0))
    assert len({file for file in cold.files() if "/tier-" in file}) == 20, "a tier that is taken for a tree of segments"


# -- a tier that is not configured ---------------------------------------------------------------------------


UNKNOWN: dict[str, Callable[[World], object]] = {
    "read": lambda world: world.content(A),
    "verify": lambda world: is_whole(world),
    "offload": lambda world: offload(world),
    "onload": lambda world: world.onload(A, lag_s=LAG_S),
    "truncate": lambda world: world.truncate(A, 100),
    "delete": lambda world: world.delete(A),
    "overwrite": lambda world: world.overwrite(A, b"x"),
    "collect": lambda world: world.collect(A),
    "collect without deleting": lambda world: world.collect(A, dry_run=True),
}


@pytest.mark.parametrize("verb", UNKNOWN)
def test_unknown_alias_is_named_and_changes_nothing(store, world, verb):
    offload(world, upto=300)
    world.orphan(A)
    store.lapse(GRACE_S)
    before = store.snapshot()
    store.tiers = {}
    with pytest.raises(UnknownTierError, match=r"^/stream/a.*'cold' is not configured"):
        UNKNOWN[verb](client(store))
    store.lapse(1)
    assert store.snapshot() == before


def test_missing_tier_blocks_only_its_bytes(store, world):
    offload(world, upto=300)
    store.tiers = {}
    world = client(store)
    view = drive(world.client.headers.view(A, fresh=True))
    assert drive(world.client.fetcher.read(view, 300, 504)) == DATA[300:] + b"tail"
    good, bad = drive(world.client.fetcher.read_many([(view, 310, 320), (view, 290, 310)]))
    assert good == DATA[310:320]
    assert isinstance(bad, UnknownTierError)
    assert world.append(A, b"more") == 504


# -- a tier that fails ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("how", "said"), [("loses", "were gone 3 times"), ("damages", "differs from /stream/a")])
def test_tiers_lost_or_damaged_file_is_found_early(how, said):
    store = Failing()
    store.how = how
    world = fill(store)
    with pytest.raises(CorruptChunkError, match=said):
        offload(world, lag_s=0)
    assert set(tiers_of(world)) == {""}
    assert world.content(A) == DATA + b"tail"
    assert len(chunk_files(store)[0]) == 25
    assert chunk_files(store)[1] == set()


@pytest.mark.parametrize("content", [b"?" * 20, b"short"])
def test_a_chunk_that_is_damaged_is_not_moved(store, world, content):
    file = names.resolve(A, world.header(A).entries[3].file)
    store._put(file, content)
    with pytest.raises(CorruptChunkError, match=f"^{file.replace('$', '.')}.*damaged, so it was not moved"):
        offload(world)
    assert tiers_of(world) == ["cold"] * 3 + [""] + ["cold"] * 21, "the others are moved"
    assert len(chunk_files(store)[1]) == 24


# -- the marks of a tier -------------------------------------------------------------------------------------


def test_tier_line_precedes_files_and_is_renewed_when_old(store, world):
    offload(world, upto=100)
    verbs = [(verb, str(path)) for verb, path in world.backend.trace]
    first = next(index for index, (verb, _) in enumerate(verbs) if verb == "copy")
    assert ("replace", f"{A}$header") in verbs[:first]
    line = world.header(A).tiers[0]
    store.lapse(AGE_S_MAX + 1)
    offload(world)
    renewed = world.header(A).tiers[0]
    assert renewed.key == line.key
    assert renewed.at_ms > line.at_ms
