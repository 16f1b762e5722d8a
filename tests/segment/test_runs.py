"""What upkeep joins, simulated over the life of a segment: how often bytes are written, how many chunks stay.

Rules of the protocol: P9.5 to P9.10.
"""

import math
from dataclasses import dataclass, replace

from hypothesis import given, settings, strategies as st

from rollingfs import RollingPolicy
from rollingfs.format.header import Chunk, Header, Merge, Phase
from rollingfs.segment.files.rewrite_plan import may_join, plan, size_of
from tests.support.examples import examples

KIB, MIB = 1024, 1024 * 1024
SMALL_MAX = 32
"""So many small neighbours never wait after a round, unless they are of very many sizes."""


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

    @property
    def small(self) -> int:
        """The longest stretch of neighbours that are small."""
        longest = count = 0
        for chunk in self.chunks:
            count = count + 1 if chunk.length < self.max_bytes / 4 else 0
            longest = max(longest, count)
        return longest


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


@settings(max_examples=examples(100), deadline=None)
@given(st.integers(64, 10**6), st.integers(1, 4_000), st.integers(1, 200), st.randoms())
def test_equal_chunks_never_exceed_the_number_that_waits(max_bytes, share, count, chance):
    life = Life(max_bytes, [], [])
    least = max(max_bytes // share, 1)
    for _ in range(count):
        life.add(min(chance.randint(least, 2 * least), max_bytes))
        life.keep()
        assert life.small < SMALL_MAX


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
