"""Consolidation: the same bytes in fewer chunks, beside whatever else goes on."""

import math
import random
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings, strategies as st

from rollingfs import CorruptChunkError, RollingPolicy
from rollingfs.format import names
from rollingfs.format.header import Chunk, Header, Merge, Phase
from rollingfs.runtime.meters import Steps
from rollingfs.segment.files.rewrite_plan import PARTS_MAX, may_join, plan, size_of
from tests.support.backends import Scripted, private_memory
from tests.support.examples import examples
from tests.support.life import World, pieces_of

LOG = "/log"
SMALL = RollingPolicy(max_bytes=1000, inline_bytes=0)


@pytest.fixture(params=["join", "copy"])
def world(request):
    world = World(Scripted(private_memory(), can_join=request.param == "join"), SMALL)
    yield world
    assert not world.backend.plans, "what was to happen meanwhile did not"


def fill(world, count):
    chance = random.Random(count)
    world.create(LOG, [chance.randbytes(40) for _ in range(count)])


# -- the plan ------------------------------------------------------------------------------------------------


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(st.integers(1, 120), max_size=60), st.booleans(), st.booleans())
def test_plan_joins_neighbours_into_chunks_of_at_most_size(sizes, is_last, sealed):
    chunks, start = [], 0
    for size in sizes:
        chunks.append(Chunk(start, size, "x", None, 0))
        start += size
    position, runs = plan(chunks, 100, is_last=is_last, sealed=sealed)
    assert position == start or not is_last
    before = 0
    for run in runs:
        assert len(run) > 1
        assert sum(chunk.length for chunk in run) <= 100
        assert run == tuple(chunk for chunk in chunks if run[0].start <= chunk.start < run[-1].end)
        assert before <= run[0].start < run[-1].end <= position
        before = run[-1].end
    if sealed and is_last:
        assert len(chunks) - sum(len(run) - 1 for run in runs) <= 2 * start / 100 + 1


def test_large_chunk_is_not_copied_for_few_bytes():
    chunks = [Chunk(0, 900, "a", None, 0), Chunk(900, 10, "b", None, 0), Chunk(910, 10, "c", None, 0)]
    assert plan(chunks, 1000, is_last=True, sealed=False)[1] == [tuple(chunks[1:])]
    assert plan(chunks, 1000, is_last=True, sealed=True)[1] == [tuple(chunks)]


def test_run_has_no_more_parts_than_object_may_have():
    chunks = [Chunk(index, 1, "x", None, 0) for index in range(PARTS_MAX + 5)]
    _, runs = plan(chunks, 10**9, is_last=True, sealed=False)
    assert [len(run) for run in runs] == [PARTS_MAX, 5]
    assert plan(chunks, 10**9, is_last=False, sealed=False) == (PARTS_MAX, runs[:1])


# -- the bytes -----------------------------------------------------------------------------------------------


def test_small_chunks_become_few_with_same_bytes_and_checksums(world):
    fill(world, 300)
    content, version = world.content(LOG), world.header(LOG).version
    world.backend.clear()
    done = world.consolidate(LOG)  # it reads the new files back
    assert (done.replaced, done.written) == (300, 12)
    assert done.joined_bytes + done.copied_bytes == 12_000
    moved = (done.copied_bytes, world.backend.read_bytes, world.backend.moved["upload.write"])
    assert moved == ((0, 12_000, 0) if world.backend.capability.can_join else (12_000, 24_000, 12_000))
    assert world.content(LOG) == content
    assert world.header(LOG).chunk_count == 12
    assert world.header(LOG).version == version + 1
    assert [(row.state, row.crc32c is not None) for row in world.rows(LOG)] == [("ok", True)] * 12
    assert world.consolidate(LOG).written == 0


def test_what_is_done_twice_is_told_of_once():
    told = []
    steps = Steps(10, told.append)
    for count in (4, 0, 5, 4):
        steps.add(count)
    steps.reach(9)
    assert (told, steps.done) == ([4, 5, 1], 10)


# -- beside others -------------------------------------------------------------------------------------------


def test_runs_joined_by_others_are_left_alone(world):
    sizes = [40, 40, 910, 20, 30, 30]
    content = b"".join(bytes([number]) * size for number, size in enumerate(sizes))
    world.create(LOG, pieces_of(content, sizes))
    world.backend.plan("replace", before=lambda: World(world.backend.inner, SMALL, world.clock).consolidate(LOG))
    assert world.consolidate(LOG).written == 0
    assert world.header(LOG).chunk_count == 3
    assert world.content(LOG) == content


def test_a_segment_that_is_replaced_meanwhile_is_left_alone(world):
    fill(world, 30)
    world.backend.plan("replace", before=lambda: World(world.backend.inner, SMALL).overwrite(LOG, b"new" * 100))
    with pytest.raises(FileNotFoundError):
        world.consolidate(LOG, segment="11111111-1111-1111-1111-111111111111")
    world.consolidate(LOG)
    assert world.content(LOG) == b"new" * 100
    world.collect(LOG)
    assert len(world.files(LOG)) == 1


def test_a_plain_file_is_one_chunk_and_no_segment(world):
    assert world.consolidate(world.write("/plain", b"12345")).written == 0
    with pytest.raises(FileNotFoundError):
        world.consolidate("/plain", segment="11111111-1111-1111-1111-111111111111")


@pytest.mark.parametrize("damage", ["flip", "missing"])
def test_damage_stays_visible_and_other_runs_are_joined(world, damage):
    fill(world, 30)
    file = names.resolve(LOG, world.header(LOG).entries[7].file)
    store = world.backend.inner
    data = store.fs.cat_file(file)
    store.fs.rm_file(file)
    if damage == "flip":
        store.fs.pipe_file(file, bytes([data[0] ^ 1]) + data[1:])
    with pytest.raises(CorruptChunkError):
        world.consolidate(LOG)
    assert world.header(LOG).chunk_count == 26  # of two runs, that of the newest five chunks is joined
    assert [row.state for row in world.rows(LOG)].count("ok") == 25


def test_joined_chunk_has_its_newest_bytes_time(world):
    world.create(LOG)
    for _ in range(10):
        world.clock.now_s += 60
        world.append(LOG, b"x" * 50)
    world.consolidate(LOG)
    (entry,) = world.header(LOG).entries
    assert entry.at_ms == round(world.clock.now_s * 1000)


KIB, MIB = 1024, 1024 * 1024


@dataclass
class Life:
    """A segment's chunks, and how often the bytes of each were written anew."""

    max_bytes: int
    chunks: list[Chunk]
    times: list[int]
    rewritten: int = 0

    def add(self, size: int) -> None:
        self.chunks.append(Chunk(self.chunks[-1].end if self.chunks else 0, size, "x", 0, 0))
        self.times.append(0)

    def keep(self, *, sealed: bool = False) -> int:
        """A round of upkeep; returns the number of runs that it joins."""
        _, runs = plan(self.chunks, self.max_bytes, is_last=True, sealed=sealed, by_itself=True)
        for run in runs:
            first = self.chunks.index(run[0])
            last = first + len(run)
            assert tuple(self.chunks[first:last]) == run
            self.chunks[first:last] = [Chunk(run[0].start, size_of(run), "x", 0, 0)]
            self.times[first:last] = [max(self.times[first:last]) + 1]
            self.rewritten += size_of(run)
        return len(runs)


def times_max(max_bytes: int, least: int) -> int:
    """The bound that the protocol states, for chunks of at least so many bytes."""
    return math.ceil(round(math.log(max_bytes / least, 8), 9)) + 1


@settings(max_examples=examples(150), deadline=None)
@given(
    max_bytes=st.integers(1, 10**6),
    share=st.integers(1, 5_000),
    batches=st.lists(st.tuples(st.integers(1, 60), st.integers(0, 3), st.randoms()), max_size=25),
    sealed=st.booleans(),
)
def test_no_byte_is_written_more_often_than_protocol_says(max_bytes, share, batches, sealed):
    least = max(max_bytes // share, 1)
    life = Life(max_bytes, [], [])
    for count, spread, chance in batches:
        for _ in range(count):
            life.add(min(round(least * math.exp(chance.random() * spread)), max_bytes))
        while life.keep():
            assert max(life.times) <= times_max(max_bytes, least) - 1
    before = size_of(life.chunks)
    if sealed:
        life.keep(sealed=True)
        assert life.keep(sealed=True) == 0
        pairs = zip(life.chunks, life.chunks[1:], strict=False)
        assert all(one.length + other.length > max_bytes for one, other in pairs), "fewer chunks would have fitted"
    assert size_of(life.chunks) == before
    assert max(life.times, default=0) <= times_max(max_bytes, least)


def test_31_small_neighbours_wait_and_32_are_joined():
    for count, expected in ((31, 0), (32, 2)):
        life = Life(64 * MIB, [], [])
        for _ in range(count):
            life.add(MIB)
        assert life.keep() == expected
    assert [chunk.length for chunk in life.chunks] == [15 * MIB, 15 * MIB, MIB, MIB]


def test_large_chunks_and_those_in_tiers_part_neighbours():
    life = Life(64 * MIB, [], [])
    for number in range(60):
        life.add(20 * MIB if number == 30 else MIB)
    assert life.keep() == 0
    life.chunks = [replace(chunk, length=MIB, size=MIB, tier="cold" if chunk.start else "") for chunk in life.chunks]
    assert plan(life.chunks, 64 * MIB, is_last=True, sealed=True, by_itself=True)[1] == []


def test_header_alone_says_that_there_is_nothing_to_join():
    few = tuple(Chunk(index, 1, "x", 0, 0) for index in range(31))
    many = (*few, Chunk(31, 1, "x", 0, 0))
    assert may_join(Header("", 1, entries=many))
    assert not may_join(Header("", 1, entries=few))
    assert may_join(Header("", 1, entries=few, phase=Phase.SEALED))
    assert not may_join(Header("", 1, entries=few[:1], phase=Phase.SEALED))
    assert not may_join(Header("", 1, entries=many, policy=RollingPolicy(consolidate=False)))
    merge = Merge("", "t", "", Phase.SEALED, 0)
    assert not may_join(Header("", 1, entries=many, phase=Phase.MERGING, merge=merge))
