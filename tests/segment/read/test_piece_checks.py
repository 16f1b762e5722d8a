"""What reads verify: damage is found by every verb that reads all of a chunk, and carried into no copy.

Rules of the protocol: P7.23.
"""

import io
import pickle
import random
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from rollingfs import CorruptChunkError, RollingFileSystem, RollingPolicy
from rollingfs.format import names
from rollingfs.format.crc import combined, crc32c
from rollingfs.format.header import AGE_S_MAX, Chunk
from rollingfs.fs import cat_and_get
from rollingfs.segment.read import prefetch
from rollingfs.segment.read.piece_checks import PieceChecks
from rollingfs.segment.verbs.verify import damaged
from tests.support.backends import Counting, Scripted, private_memory
from tests.support.examples import examples, slowly
from tests.support.life import World
from tests.support.places import backend_of
from tests.support.schedules import beside

CHUNK_BYTES = 1000
CHUNKS = 4
DATA = bytes(random.Random(0).choices(b"abcdefgh\n", k=CHUNK_BYTES * CHUNKS + 30))
POLICY = RollingPolicy(max_bytes=CHUNK_BYTES, inline_bytes=100)


class Place:
    """A filesystem, a segment of several chunks and a tail, and a way to damage them."""

    def __init__(self, fs: RollingFileSystem, root: str) -> None:
        self.fs = fs
        self.root = root
        self.path = f"{root}/clicks"
        fs.create(self.path, POLICY)
        fs.append(self.path, DATA)
        assert len(fs.segment(self.path).chunks) == CHUNKS

    def run(self, coroutine: Any) -> Any:
        return self.fs._bridge.run(coroutine)

    def damage(self, index: int, at: int) -> str:
        """Flip a bit of a chunk file; returns its path, as errors name it."""
        entries = self.fs.segment(self.path)._snapshot.header.entries
        path = names.resolve(self.path, self.run(self.fs._client.pages.unfold(self.path, entries))[index].file)
        data = bytearray(self.run(self.fs._backend.read(path)).data)
        data[at] ^= 4
        self.run(self.fs._backend.delete([path]))
        self.run(self.fs._backend.write(path, [bytes(data)]))
        return path


@pytest.fixture(params=["memory", "local", "async", *slowly("s3")])
def place(request, tmp_path, limits, small_ranges):
    limits(prefetch, READ_BYTES_MIN=100, AHEAD_BYTES_MIN=1500)
    backend, root = backend_of(request.param, request, tmp_path)
    return Place(RollingFileSystem(backend=backend), root)


# -- every verb ------------------------------------------------------------------------------------------------


def by_read(place: Place, step: int = -1, **options: Any) -> bytes:
    with place.fs.open(place.path, **options) as file:
        return b"".join(iter(lambda: file.read(step), b""))


def by_read_at_in_any_order(place: Place) -> bytes:
    starts = list(range(0, len(DATA), 130))
    random.Random(1).shuffle(starts)
    with place.fs.open(place.path) as file:
        parts = {start: file.read_at(130, start) for start in starts}
    return b"".join(parts[start] for start in sorted(parts))


def by_cat_ranges(place: Place) -> bytes:
    starts = list(range(0, len(DATA), 250))
    ends = [start + 250 for start in starts]
    return b"".join(place.fs.cat_ranges([place.path] * len(starts), starts, ends, on_error="raise"))


def by_segment(place: Place) -> bytes:
    segment = place.fs.segment(place.path)
    return b"".join(segment.read(start, min(start + 170, len(DATA))) for start in range(0, len(DATA), 170))


def by_get_file(place: Place) -> bytes:
    target = io.BytesIO()
    place.fs.get_file(place.path, target)
    return target.getvalue()


VERBS: dict[str, Callable[[Place], bytes]] = {
    "read": by_read,
    "read in steps": lambda place: by_read(place, 90),
    "verify in steps": lambda place: by_read(place, 70, verify=True),
    "read_at in any order": by_read_at_in_any_order,
    "cat_file": lambda place: place.fs.cat_file(place.path),
    "cat_ranges": by_cat_ranges,
    "get_file": by_get_file,
    "segment.read": by_segment,
    "tail": lambda place: b"".join(place.fs.segment(place.path).tail(follow=False)),
}


@pytest.mark.parametrize("verb", VERBS)
def test_reader_of_a_whole_chunk_learns_its_damage(place, verb):
    assert VERBS[verb](place) == DATA
    for index, at in ((0, 0), (1, 555), (CHUNKS - 1, CHUNK_BYTES - 1)):
        good = place.damage(index, at)
        with pytest.raises(CorruptChunkError, match="fail the checksum") as caught:
            VERBS[verb](place)
        assert good in str(caught.value)
        place.damage(index, at)  # the bit is as it was
    assert VERBS[verb](place) == DATA


@pytest.mark.parametrize("step", [90, 300, 1100])
def test_piece_that_completes_a_damaged_chunk_is_withheld(place, step):
    place.damage(1, 5)
    file, pieces = place.fs.open(place.path), []
    with pytest.raises(CorruptChunkError):
        pieces.extend(iter(lambda: file.read(step), b""))
    given = b"".join(pieces)
    assert CHUNK_BYTES - step <= len(given) < 2 * CHUNK_BYTES
    assert given[:CHUNK_BYTES] == DATA[: len(given)][:CHUNK_BYTES]
    for _ in range(2):
        with pytest.raises(CorruptChunkError):
            file.read_at(1, 2 * CHUNK_BYTES - 1)
    assert file.read_at(40, 2 * CHUNK_BYTES) == DATA[2 * CHUNK_BYTES : 2 * CHUNK_BYTES + 40]
    file.close()


def test_only_ranges_in_a_damaged_chunk_fail(place):
    place.damage(1, 5)
    starts = list(range(0, 3000, 500))
    answers = place.fs.cat_ranges([place.path] * len(starts), starts, [start + 500 for start in starts])
    assert [isinstance(answer, CorruptChunkError) for answer in answers] == [False, False, True, True, False, False]
    assert answers[4] == DATA[2000:2500]


@pytest.fixture
def seen():
    """A place whose backend notes what is read."""
    place = Place(RollingFileSystem(backend=Counting(private_memory())), "/folder")
    place.fs._backend.clear()
    return place


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb not in ("read_at in any order", "tail")])
def test_no_byte_is_read_twice_to_verify_it(seen, verb):
    assert VERBS[verb](seen) == DATA
    assert seen.fs._backend.read_bytes == CHUNKS * CHUNK_BYTES
    ranges = seen.fs._backend.ranges
    assert len({(path, start) for path, start, _ in ranges}) == len(ranges)


# -- verify=True -----------------------------------------------------------------------------------------------


def opened_to_verify(place: Place, start: int, end: int) -> bytes:
    with place.fs.open(place.path, verify=True) as file:
        file.seek(start)
        return file.read(end - start)


VERIFIED: dict[str, Callable[[Place, int, int], bytes]] = {
    "open": opened_to_verify,
    "cat_file": lambda place, start, end: place.fs.cat_file(place.path, start, end, verify=True),
    "cat_ranges": lambda place, start, end: place.fs.cat_ranges(
        [place.path], [start], [end], verify=True, on_error="raise"
    )[0],
    "segment.read": lambda place, start, end: place.fs.segment(place.path).read(start, end, verify=True),
}


@pytest.mark.parametrize("verb", VERIFIED)
def test_with_verify_part_of_damaged_chunk_is_not_given(place, verb):
    read = VERIFIED[verb]
    for start, end in ((1100, 1101), (990, 2010), (0, 1), (len(DATA) - 5, len(DATA)), (3999, 4005)):
        assert read(place, start, end) == DATA[start:end]
    bad = place.damage(1, 5)
    for start, end in ((1100, 1101), (990, 1001), (1999, 2001), (0, len(DATA))):
        with pytest.raises(CorruptChunkError) as caught:
            read(place, start, end)
        assert bad in str(caught.value)
    assert read(place, 10, 1000) == DATA[10:1000]
    assert read(place, 2000, 2001) == DATA[2000:2001]


def test_verified_ranges_share_the_rest_of_their_chunk(seen):
    starts, ends = [1100, 1300, 1250], [1200, 1400, 1350]  # the last two overlap
    found = seen.fs.cat_ranges([seen.path] * 3, starts, ends, verify=True)
    assert found == [DATA[start:end] for start, end in zip(starts, ends, strict=True)]
    assert seen.fs._backend.read_bytes == CHUNK_BYTES + 50


def test_oversized_chunk_is_verified_and_not_held(seen, monkeypatch):
    seen.damage(2, 999)
    with seen.fs.open(seen.path, verify=True) as file:
        monkeypatch.setattr("rollingfs.fs.core.Tuning.memory_bytes", 10)
        assert file.read(100) == DATA[:100]
        assert file._buffer.held(0) == 100
        with pytest.raises(CorruptChunkError):
            file.read_at(10, 2010)


def test_cut_first_chunk_is_verified_before_get(place, tmp_path):
    target = tmp_path / "got"
    place.fs.truncate(place.path, 150)
    place.damage(0, 900)
    place.fs.get_file(place.path, str(target))
    assert len(target.read_bytes()) == len(DATA) - 150
    with pytest.raises(CorruptChunkError):
        place.fs.get_file(place.path, str(target), verify=True)
    assert not target.exists()


def test_verify_is_refused_where_it_would_do_nothing(seen):
    with pytest.raises(ValueError, match="for reading"):
        seen.fs.open(seen.path, "ab", verify=True)
    with pytest.raises(ValueError, match="leave out verify=True"):
        seen.fs.open(seen.path, follow=True, verify=True)


def test_a_file_that_verifies_is_unpickled_as_one(tmp_path):
    place = Place(RollingFileSystem("file", sync=False), str(tmp_path))
    place.damage(0, 999)
    with place.fs.open(place.path, verify=True) as file:
        again = pickle.loads(pickle.dumps(file))
    with again, pytest.raises(CorruptChunkError):
        again.read(1)


# -- the checksums of pieces -----------------------------------------------------------------------------------

SIZE = 60
PIECES = st.lists(st.tuples(st.integers(0, SIZE - 1), st.integers(1, SIZE)), max_size=30)


@settings(max_examples=examples(300), deadline=None)
@given(pieces=PIECES, flipped=st.none() | st.integers(0, SIZE - 1), is_view=st.booleans())
def test_pieces_in_any_order_reveal_damage_when_complete(pieces, flipped, is_view):
    good = bytes(random.Random(2).randbytes(SIZE))
    found = bytearray(good)
    if flipped is not None:
        found[flipped] ^= 1
    chunk = Chunk(0, SIZE, "x", crc32c(good), 0)
    checks, covered = PieceChecks(), set()
    for start, size in pieces:
        data = bytes(found[start : start + size])
        checks.add("x", chunk, start, memoryview(bytearray(data)) if is_view else data)
        covered |= set(range(start, start + len(data)))
        is_whole = len(covered) == SIZE
        assert checks.damaged == (frozenset({"x"}) if is_whole and flipped is not None else frozenset())
        if is_whole:
            return
        if covered:
            [(path, _, gaps)] = checks.missing()
            assert (path, {at for gap in gaps for at in range(*gap)}) == ("x", set(range(SIZE)) - covered)


SUMS, SIZES = st.integers(0, 2**32 - 1), st.integers(0, 2**61)


@settings(max_examples=examples(30), deadline=None)
@given(first=SUMS, second=SUMS, third=SUMS, size=SIZES, last=SIZES)
def test_checksums_of_any_sizes_join_in_any_order(first, second, third, size, last):
    by_pairs = combined(combined(first, second, size), third, last)
    assert by_pairs == combined(first, combined(second, third, last), size + last)


def test_checksum_of_large_file_follows_from_its_parts():
    data = random.Random(4).randbytes(3_000_001)
    assert combined(crc32c(data[:5]), crc32c(data[5:]), len(data) - 5) == crc32c(data)


def test_reader_remembers_limited_runs_and_forgets_the_oldest():
    checks = PieceChecks(runs_max=4)
    chunk = Chunk(0, 100, "x", 0, 0)
    for file in "abc":
        for start in (10, 30):
            checks.add(file, chunk, start, b"12345")
    assert [path for path, _, _ in checks.missing()] == ["b", "c"]
    checks.add("b", chunk, 15, b"12345")
    checks.add("d", chunk, 15, b"12345")
    assert [path for path, _, _ in checks.missing()] == ["b", "d"]


def test_chunks_without_a_checksum_are_passed_over():
    checks = PieceChecks()
    checks.add("x", Chunk(0, 5, "x", None, 0), 0, b"12345")
    assert (checks.damaged, checks.missing()) == (frozenset(), [])


# -- copies ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("start", "index", "at"), [(0, 2, 700), (150, 0, 900), (150, 0, 10)])
def test_a_copy_of_damaged_bytes_fails_and_leaves_nothing(place, start, index, at):
    fs, target = place.fs, f"{place.root}/copy"
    fs.truncate(place.path, start)
    fs.cp_file(place.path, target)
    assert fs.cat_file(target) == DATA[start:]
    fs.rm(target)
    bad = place.damage(index, at)  # also where truncation cuts it: the rest may be what is damaged, or else not
    for copy in (fs.cp_file, fs.copy):
        with pytest.raises(CorruptChunkError) as caught:
            copy(place.path, target)
        assert bad in str(caught.value)
        assert not fs.exists(target)
        try:
            left = place.run(fs._backend.list(names.chunks_folder(target))).entries
        except FileNotFoundError:
            left = ()
        assert [entry.path for entry in left if not entry.path.endswith("/lock")] == []


def made_anew(fs: RollingFileSystem, path: str) -> None:
    """Another segment takes the name when the tombstone has gone: its versions begin anew, and come to the same."""
    store = fs._backend.fs
    for file in store.find("/"):
        store.rm_file(file)
    fs.append(Place(fs, "/folder").path, b"more")


@pytest.mark.parametrize("act", [lambda fs, path: fs.truncate(path, 1000), made_anew], ids=["truncated", "made anew"])
def test_a_copy_of_what_changes_meanwhile_is_begun_again(seen, monkeypatch, act):
    monkeypatch.setattr(cat_and_get, "PIECE_BYTES", CHUNKS * CHUNK_BYTES + 1)
    seen.fs.truncate(seen.path, 150)
    other = RollingFileSystem(backend=seen.fs._backend.inner)
    beside(monkeypatch, seen.fs._client.fetcher, "complete", lambda *_: act(other, seen.path), once=True)
    seen.fs.copy("/folder", "/copies", recursive=True)
    assert seen.fs.cat_file("/copies/clicks") == other.cat_file(seen.path)


@pytest.mark.parametrize("piece_bytes", [500, 10000])
def test_a_copy_beside_an_erase_misses_no_chunk(piece_bytes, monkeypatch):
    """The erase deletes a chunk of which the copy has read a part; the newest header names another, or neither."""
    monkeypatch.setitem(cat_and_get.pieces.__kwdefaults__, "piece_bytes", piece_bytes)
    for index in range(6):
        place = Place(RollingFileSystem(backend=private_memory()), "/folder")
        place.fs.truncate(place.path, 150)
        store = Scripted(place.fs._backend)
        store.plan(before=partial(place.fs.truncate, place.path, 1100, erase=True), skips=index)
        copier = RollingFileSystem(backend=store)
        copier.cp_file(place.path, "/copies/clicks")
        assert copier.cat_file("/copies/clicks") in (DATA[150:], DATA[1100:])


LOG = "/log"
SMALL = RollingPolicy(max_bytes=1000, inline_bytes=0)


@pytest.fixture(params=["join", "copy"])
def world(request):
    return World(Counting(private_memory(), can_join=request.param == "join"), SMALL)


def flip(world: World, index: int, at: int) -> str:
    file = names.resolve(LOG, world.header(LOG).entries[index].file)
    data = bytearray(world.backend.fs.cat_file(file))
    data[at] ^= 1
    world.backend.fs.pipe_file(file, bytes(data))
    return file


@pytest.mark.parametrize("at", [0, 39])
def test_partly_used_chunk_is_verified_before_joins(world, at):
    """Its part has no checksum of its own: that of the joined chunk would cover up what is damaged."""
    world.create(LOG, [bytes([number]) * 40 for number in range(10)])
    world.truncate(LOG, 10)
    bad = flip(world, 0, at)
    with pytest.raises(CorruptChunkError) as caught:
        world.consolidate(LOG)
    assert bad in str(caught.value)
    assert world.header(LOG).chunk_count == 10
    flip(world, 0, at)
    content = world.content(LOG)
    assert world.consolidate(LOG).written == 1
    assert world.content(LOG) == content
    assert [(row.state, row.crc32c) for row in world.rows(LOG)] == [("ok", crc32c(content))]


@pytest.mark.parametrize("how", ["concat", "rename"])
def test_damage_stays_visible_where_chunks_move(how):
    world = World(private_memory(), SMALL)
    world.create(LOG, [bytes([number]) * 40 for number in range(5)])
    world.seal(LOG)
    flip(world, 3, 3)
    if how == "concat":
        world.create("/target")
        world.concat("/target", [LOG])
    else:
        world.rename(LOG, "/target")
    assert [row.state for row in damaged(world.rows("/target"))] == ["corrupt"]


@pytest.mark.parametrize("copies", [True, False])
def test_old_staged_chunk_keeps_its_checksum_when_copied(copies):
    store = Counting(private_memory(), can_join=False, can_copy=copies)
    world = World(store, SMALL)
    world.create(LOG)
    staged = world.stage(LOG, b"x" * 40)
    [stored] = staged.chunks
    store.shift_s = AGE_S_MAX + 10
    world.clock.now_s += AGE_S_MAX + 10
    world.append(LOG, staged)
    [row] = world.rows(LOG)
    assert (row.file != stored.path, row.state, row.crc32c) == (True, "ok", crc32c(b"x" * 40))
