"""Rebuild: a segment of what a lost header left, which has the lost bytes or is not made."""

import contextlib
from dataclasses import replace
from functools import partial

import pytest

from rollingfs import RollingFileSystem
from rollingfs.errors import CorruptChunkError, CorruptHeaderError
from rollingfs.format import names
from rollingfs.format.header import GRACE_S
from rollingfs.format.side_files import parse_label
from rollingfs.runtime.concurrency import drive
from rollingfs.segment.files import rewrite_commits as swaps
from rollingfs.segment.files.rebuild_plan import OTHER, AmbiguousRebuildError, Gap
from rollingfs.segment.verbs.rebuild import OTHERS, Rebuilt, rebuild as rebuild_segment
from tests.support.faults import Crashed, Fault, Store, TieredStore
from tests.support.life import World
from tests.support.segment_verbs import append
from tests.support.small import DATA, Failing, client, five, is_whole, shrink_pages

pytestmark = pytest.mark.usefixtures("hurried")
A, NEW = "/stream/a", "/found/b"


class NoMetadata(Store):
    """A store as a disk is."""

    capability = replace(Store.capability, has_metadata=False)


@pytest.fixture
def world(store):
    return five(store)


def lose(store: Store) -> None:
    """Another program deletes the header."""
    del store.fs.store[names.header_path(A)]


def without_header(kind: type[Store] = Store) -> Store:
    store = kind()
    five(store)
    lose(store)
    return store


@pytest.fixture
def lost():
    """A store in which the segment has lost its header."""
    return without_header()


def rebuild(world: World, start: int = 0, **how: object) -> Rebuilt:
    return drive(rebuild_segment(world.client, A, NEW, start, **how))


def test_rebuild_returns_all_but_the_tail_per_dry_run(lost):
    before = lost.snapshot()
    said = rebuild(client(lost), dry_run=True)
    assert lost.snapshot() == before
    did = rebuild(client(lost))
    assert said == replace(did, is_dry_run=True)
    world = client(lost)
    assert (did.start, did.end, did.chunks, did.gaps, did.left) == (0, 100, 5, (), ())
    assert "the inline tail" in did.lost[0]
    assert world.content(NEW) == DATA
    assert is_whole(world, NEW)
    assert {path: data for path, data in lost.snapshot().items() if path in before} == before
    assert world.append(NEW, b"more") == 100
    world.truncate(NEW, 100)
    assert {path for path in lost.files() if path.startswith("/stream/")} == set(before)


def test_a_segment_that_began_later_keeps_its_offsets(store):
    five(store).truncate(A, 40)
    lose(store)
    with pytest.raises(FileNotFoundError, match="No chunk begins at offset 0; chunks begin at 40, 60, 80"):
        rebuild(client(store))
    rebuild(client(store), 40)
    header = client(store).header(NEW)
    assert (header.start, header.length) == (40, 100)
    assert client(store).content(NEW) == DATA[40:]


@pytest.mark.parametrize(("text", "error"), [(b"", FileNotFoundError), (b"rollingfs 1\nsegm", CorruptHeaderError)])
def test_an_empty_or_damaged_header_counts_as_lost(store, world, text, error):
    store._put(names.header_path(A), text)
    with pytest.raises(error):
        client(store).content(A)
    rebuild(client(store))
    assert client(store).content(NEW) == DATA


def test_existing_deleted_or_unknown_segments_are_refused(store, world):
    with pytest.raises(FileExistsError, match="has a header"):
        rebuild(world)
    with pytest.raises(ValueError, match="another name"):
        drive(rebuild_segment(world.client, A, A, 0))
    with pytest.raises(ValueError, match="at least 0"):
        rebuild(world, -1)
    world.delete(A)
    with pytest.raises(FileNotFoundError, match="deleted, not lost"):
        rebuild(world)
    with pytest.raises(FileNotFoundError, match="no chunks"):
        drive(rebuild_segment(world.client, "/stream/never", NEW, 0))
    assert not [file for file in store.files() if file.startswith("/found")]


@pytest.mark.parametrize("make", [lambda w: w.create(NEW), lambda w: w.write(NEW, b"plain")])
def test_nothing_is_made_over_what_is_there(lost, make):
    make(client(lost))
    before = lost.snapshot()
    with pytest.raises(FileExistsError):
        rebuild(client(lost))
    assert lost.snapshot() == before


def test_lost_chunk_is_a_gap_and_later_chunks_listed(store, world):
    del store.fs.store[names.resolve(A, world.header(A).entries[2].file)]
    lose(store)
    did = rebuild(client(store))
    assert (did.end, did.gaps, [one.start for one in did.left]) == (40, (Gap(40, 60),), [60, 80])
    assert client(store).content(NEW) == DATA[:40]


def test_losing_orphan_follows_commits_and_must_be_excluded(lost):
    orphan = names.new_chunk_name(20)
    client(lost).orphan(A, orphan, b"other bytes of this!")
    said = rebuild(client(lost), dry_run=True)
    assert [piece.by for piece in said.pieces] == ["later"] * 4 + ["label"]
    assert not any(orphan in piece.file for piece in said.pieces)
    with pytest.raises(AmbiguousRebuildError, match=f"lies at offset 80, .*{orphan}"):
        rebuild(client(lost))
    with pytest.raises(ValueError, match=f"leave_out names '{orphan}x', which is no file"):
        rebuild(client(lost), leave_out=[orphan, f"{orphan}x"])
    rebuild(client(lost), leave_out=[orphan])
    assert client(lost).content(NEW) == DATA


def test_page_that_lists_dropped_files_says_where_they_lay(monkeypatch):
    monkeypatch.setattr(swaps, "DROP_LINES_MAX", 1)
    store = Store()
    world = five(store)
    world.truncate(A, 20)
    world.consolidate(A)
    assert any("/index-" in file for file in store.files())
    lose(store)
    with pytest.raises(FileNotFoundError, match="chunks begin at 20"):
        rebuild(client(store), 0)
    rebuild(client(store), 20)
    assert (client(store).header(NEW).start, client(store).content(NEW)) == (20, DATA[20:])


@pytest.mark.parametrize("kind", [Store, NoMetadata])
def test_index_pages_place_commits_other_folders_and_staged_files(monkeypatch, kind):
    shrink_pages(monkeypatch, chunks=2, loose_max=2)
    store = kind()
    world = client(store)
    world.create("/other/source", [DATA[20:40]])
    world.create(A, [DATA[:20]])
    staged = world.stage(A, DATA[40:60])
    # a lost race, after which the name of the loser's chunk says where the receipt lies
    world.backend.prepare(between={2: partial(client(store).concat, A, ["/other/source"])})
    drive(append(world.client, A, [staged, DATA[60:80]]))
    world.append(A, DATA[80:])
    assert world.header(A).loose_count <= 2
    lose(store)
    did = rebuild(client(store))
    assert did.by_page >= 60
    assert client(store).content(NEW) == DATA
    assert did.by_page + did.by_later + did.by_label + did.by_name == 100


def test_chunks_of_another_segment_are_excluded(store, world):
    world.concat(world.create("/far/target"), [A])
    lose(store)
    with pytest.raises(FileNotFoundError, match="No chunk begins"):
        rebuild(client(store))
    world.orphan(A, data=b"alone")
    did = rebuild(client(store))
    assert (did.end, {one.reason for one in did.left}) == (5, {f"{OTHERS}/far/target"})


def test_chunks_of_a_moving_segment_are_excluded():
    for index in range(4, 11):
        store = NoMetadata()
        five(store).truncate(A, 40)
        client(store).concat(client(store).create("/far/old"), [A])
        client(store).create(A, [b"*" * 40])
        lose(store)
        world = client(store)
        world.backend.prepare(between={index: partial(client(store).rename, "/far/old", "/far/new")})
        assert (did := rebuild(world)).end == 40, index
        assert {one.reason for one in did.left} <= {f"{OTHERS}/far/old", f"{OTHERS}/far/new"}


def test_changing_chunks_or_header_during_rebuild_is_an_error(store, world):
    lost, header = store.fs.store, store.fs.store.pop(names.header_path(A))
    for index, start in ((16, 0), (7, 20)):
        chunk = min(path for path in lost if path.startswith(f"{A}$chunks/0"))
        world.backend.prepare(between={index: partial(lost.pop, chunk)})
        with pytest.raises(FileNotFoundError, match="nothing was made"):
            rebuild(world, start)
    world.backend.prepare(between={5: partial(lost.__setitem__, names.header_path(A), header)})
    with pytest.raises(FileExistsError, match="has a header"):
        rebuild(world)


def test_copy_that_differs_is_never_part_of_new_segment():
    store = without_header(Failing)
    store.where, store.how = f"{NEW}$chunks/0", "damages"
    with pytest.raises(CorruptChunkError, match="nothing was made"):
        rebuild(client(store))
    assert not [file for file in store.files() if file.startswith("/found/") and "$chunks/probe" not in file]


@pytest.mark.parametrize("crash", [Fault.CRASH_AFTER, pytest.param(Fault.CRASH_BEFORE, marks=pytest.mark.slow)])
def test_second_rebuild_after_a_crash_finishes_or_finds_it(crash):
    probe = client(without_header())
    rebuild(probe)
    for index in range(len(probe.backend.trace)):
        store = without_header()
        old = store.snapshot()
        broken = client(store)
        broken.backend.prepare({index: crash})
        with contextlib.suppress(Crashed):
            rebuild(broken)
        with contextlib.suppress(FileExistsError):
            rebuild(client(store))
        world = client(store)
        assert world.content(NEW) == DATA
        store.lapse(GRACE_S)
        world.collect(NEW, None)
        assert world.content(NEW) == DATA
        assert len([file for file in store.files() if file.startswith(f"{NEW}$chunks/0")]) == 5
        assert old.items() <= store.snapshot().items()


def test_file_with_an_uncertain_place_must_be_excluded():
    for store in (without_header(), without_header(NoMetadata)):
        stage, before = names.new_staged_name(), names.new_chunk_name(10)
        others = {client(store).orphan(A, name, b"other") for name in (stage, before)}
        said = rebuild(client(store), dry_run=True)
        doubtful = [piece for piece in said.pieces if piece.rivals]
        assert [piece.start for piece in doubtful] == ([80] if store.capability.has_metadata else [0, 20, 40, 60, 80])
        assert set(doubtful[-1].rivals) == others
        with pytest.raises(AmbiguousRebuildError, match="nothing was made"):
            rebuild(client(store), leave_out=[stage])
        assert not [file for file in store.files() if file.startswith("/found/")]
        rebuild(client(store), leave_out=["stage-*", before])
        assert client(store).content(NEW) == DATA


@pytest.mark.parametrize("kind", [Store, NoMetadata])
def test_losing_bytes_never_replace_the_winners(kind):
    lost = 0
    for index in range(8):
        store = kind()
        world, other = client(store), client(store)
        world.create(A, [DATA[:20]])
        staged = world.stage(A, DATA[40:60])

        other.backend.prepare(between={index: partial(world.append, A, staged)})  # a file that nothing places
        other.append(A, DATA[20:40])
        content = world.content(A)
        lost += content == DATA[:20] + DATA[40:60] + DATA[20:40]
        lose(store)
        with contextlib.suppress(AmbiguousRebuildError):
            rebuild(client(store))
            found = client(store).content(NEW)
            assert found == content[: len(found)], index
    assert lost, "some races move the chunk on"


def test_filesystems_rebuild():
    fs = RollingFileSystem(backend=Store(), max_bytes=20, inline_bytes=0, header_cache_s=0)
    fs.pipe_file("/a", DATA)
    del fs._backend.fs.store["/a$header"]
    assert (fs.rebuild("/a", "/b", 0).end, fs.cat_file("/b")) == (100, DATA)
    with pytest.raises(TypeError, match="leave_out and incarnations take lists"):
        fs.rebuild("/a", "/c", 0, leave_out="x")


# -- metadata ------------------------------------------------------------------------------------------------


def test_metadata_tell_the_chunks_of_another_incarnation_apart(store):
    world = client(store)
    world.create(A, [DATA[:20]])
    old = {path: store.fs.store[path] for path in store.files() if "$chunks/0" in path}
    world.delete(A)
    store.lapse(2 * GRACE_S)
    world.collect(A, None)
    five(store)
    gone = world.header(A).segment
    store.fs.store |= old  # a backup tool brings them back
    lose(store)
    with pytest.raises(AmbiguousRebuildError, match="2 incarnations"):
        rebuild(client(store))
    with pytest.raises(ValueError, match="no file is of the incarnation none;"):
        rebuild(client(store), incarnations=[gone, "none"])
    did = rebuild(client(store), incarnations=[gone])
    assert OTHER in {one.reason for one in did.left}
    assert (did.by_later, did.by_label, did.by_name) == (80, 20, 0)
    assert [piece.by for piece in did.pieces] == ["later"] * 4 + ["label"]
    assert client(store).content(NEW) == DATA


def test_appends_label_chunks_and_an_overwrite_counts_from_zero(store):
    world = client(store)
    world.create(A, [DATA[:12], DATA[20:100] * 5])
    labels = [parse_label(drive(store.metadata(names.resolve(A, e.file)))) for e in world.header(A).entries]
    assert [label.offset for label in labels] == [entry.start for entry in world.header(A).entries]
    assert {label.incarnation for label in labels} == {world.header(A).segment}
    assert labels[0].crc32c == world.header(A).entries[0].crc32c
    assert labels[1].crc32c is None, "of a file that is written piece by piece it is not known before"
    world.overwrite(A, DATA * 5)
    entries = world.header(A).entries
    assert [names.offset_of(entry.file) for entry in entries] == [entry.start for entry in entries]
    for entry in entries:
        label = parse_label(drive(store.metadata(names.resolve(A, entry.file))))
        assert (label.offset, label.incarnation) == (entry.start, None), "no attempt knows the incarnation before"


def test_files_of_another_store_are_never_taken_in():
    store = TieredStore()
    five(store).offload(A)
    lose(store)
    last = max(file for file in store.files() if "$chunks/tier-" in file)
    key, offset = names.key_of(last.rpartition("/")[2]), "00000000000000000100"
    other = f"{last.rpartition('/')[0]}/tier-{'0' * len(key)}-{offset}-{'0' * 12}"
    drive(store.write(other, [b"?" * 20]))
    with pytest.raises(AmbiguousRebuildError, match="files of 2 keys"):
        rebuild(client(store))
    assert rebuild(client(store), leave_out=[other.rpartition("/")[2]]).end == 100
    assert client(store).content(NEW) == DATA
