"""Prefetching: right bytes in any order, each fetched once by readers that go forwards, bounded memory."""

import concurrent.futures

import pytest
from hypothesis import example, given, settings, strategies as st

from rollingfs.segment.read import prefetch
from rollingfs.segment.read.prefetch import Prefetch, range_bytes
from tests.support.examples import examples

MIB = 2**20
DATA = bytes(number * 7 % 251 for number in range(20_000))


class File:
    """A file of `DATA`, and what was fetched of it: ahead, and by its reader itself."""

    def __init__(self, memory_bytes: int = 4000, ranges_max: int = 8) -> None:
        self.ahead: list[tuple[int, int]] = []
        self.own: list[tuple[int, int]] = []
        self.futures: list[concurrent.futures.Future[bytes]] = []
        self.buffer = 0, b""
        self.prefetch = Prefetch(self.begin, 0, len(DATA), ranges_max, memory_bytes)

    def begin(self, start: int, end: int) -> concurrent.futures.Future[bytes]:
        self.ahead.append((start, end))
        self.futures.append(concurrent.futures.Future())
        self.futures[-1].set_result(DATA[start:end])
        return self.futures[-1]

    def read(self, start: int, end: int) -> bytes:
        """Everything that is asked for, by as many takes as that needs, out of a buffer as that of `ReadFile`."""
        parts = []
        while start < end:
            first, data = self.buffer
            if not first <= start < first + len(data):
                found = self.prefetch.take(start, end)
                if found is None:
                    self.own.append((start, end))
                    self.prefetch.read(start, end)
                    found = start, DATA[start:end]
                first, data = self.buffer = found
                assert first <= start < first + len(data)
                assert data == DATA[first : first + len(data)]
            parts.append(data[start - first : end - first])
            start += len(parts[-1])
        return b"".join(parts)

    @property
    def fetched(self) -> int:
        return sum(end - start for start, end in self.ahead + self.own)

    @property
    def held(self) -> int:
        return sum(each.end - each.start for each in self.prefetch.ranges)


@pytest.fixture(autouse=True)
def small(limits):
    limits(prefetch, PREFETCH_RANGE_BYTES=500, READ_BYTES_MIN=100, READ_BYTES_MAX=500, AHEAD_BYTES_MIN=400)


@settings(max_examples=examples(300), deadline=None)
@given(
    reads=st.lists(st.tuples(st.integers(0, 19_999), st.integers(1, 3000), st.booleans()), max_size=25),
    memory_bytes=st.sampled_from([300, 2000, 100_000]),
    ranges_max=st.integers(1, 8),
)
@example(reads=[(0, 1, False), (0, 126, True), (254, 149, False)], memory_bytes=300, ranges_max=3)
def test_all_reads_are_exact_and_memory_is_limited(reads, memory_bytes, ranges_max):
    file, place = File(memory_bytes, ranges_max), 0
    for start, size, follows in reads:
        start = place if follows else start
        end = min(start + size, len(DATA))
        assert file.read(start, end) == DATA[start:end]
        assert file.held <= max(memory_bytes, prefetch.AHEAD_BYTES_MIN)
        assert len(file.prefetch.ranges) <= ranges_max
        place = end


@pytest.mark.parametrize("size", [1, 60, 100, 333, 500, 501, 1259, 3000])
def test_file_read_from_front_to_back_is_fetched_once(size):
    file = File()
    for start in range(0, len(DATA), size):
        assert file.read(start, min(start + size, len(DATA))) == DATA[start : start + size]
    assert file.fetched == len(DATA)
    assert file.own == [(0, size)]  # the first read tells nothing yet


def test_reads_slightly_out_of_order_are_fetched_once():
    file = File(memory_bytes=6000)
    for number in (0, 1, 2, 4, 3, 5, 7, 6, 8, 9, 11, 10):
        start = number * 1251
        assert file.read(start, start + 1251) == DATA[start : start + 1251]
    assert len(file.own) == 1
    assert file.fetched <= 12 * 1251 + 6000


def test_random_reads_fetch_nothing_ahead():
    file = File()
    for start in (5000, 100, 12_000, 700, 15_000):
        file.read(start, start + 100)
    assert file.ahead == []


@pytest.mark.parametrize(("start", "size", "ahead"), [(0, 99, 0), (0, 100, 4), (0, 500, 4), (0, 501, 0), (50, 500, 0)])
def test_first_read_is_followed_if_large_and_at_start(start, size, ahead):
    file = File(memory_bytes=10_000)
    file.read(start, start + size)
    assert file.own == [(start, start + size)]
    assert len(file.ahead) == ahead
    assert file.fetched - size <= max(prefetch.AHEAD_BYTES_MIN, prefetch.AHEAD_FACTOR * size)


def test_skipped_bytes_lose_their_place():
    file = File(memory_bytes=4000)
    for start in range(0, 2000, 500):
        file.read(start, start + 500)
    for start in range(3500, 16_000, 500):
        file.read(start, start + 500)
    assert all(each.start >= 15_000 for each in file.prefetch.ranges)


def test_far_seek_or_failed_range_cancels_everything():
    file = File()
    file.read(0, 500)
    file.read(500, 1000)
    assert file.held > 0
    file.read(18_000, 18_100)
    assert file.held == 0
    failing: concurrent.futures.Future[bytes] = concurrent.futures.Future()
    failing.set_exception(OSError("the store is away"))
    file.prefetch.begin = lambda start, end: failing
    with pytest.raises(OSError, match="the store is away"):
        file.read(18_100, 18_200)
    assert file.held == 0


def test_prefetch_grows_with_sequential_reads_up_to_memory():
    file, held = File(memory_bytes=6000, ranges_max=100), []
    for start in range(0, 6000, 500):
        file.read(start, start + 500)
        held.append(file.held)
    assert held[0] < held[1] < held[-1] == 6000


def test_ranges_have_size_of_reads_if_that_is_sensible(monkeypatch):
    monkeypatch.undo()
    assert range_bytes(2 * MIB, 128 * MIB, 128 * MIB) == 2 * MIB
    assert range_bytes(8 * MIB, 128 * MIB, 128 * MIB) == 4 * MIB
    assert range_bytes(25 * MIB, 128 * MIB, 128 * MIB) == 4 * MIB
    assert range_bytes(100, 4 * MIB, 128 * MIB) == MIB
    assert range_bytes(100, 128 * MIB, 128 * MIB) == 4 * MIB
    assert range_bytes(8 * MIB, 128 * MIB, MIB) == MIB // 2
