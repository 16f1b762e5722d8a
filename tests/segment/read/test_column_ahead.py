"""Column chunks that are fetched ahead: right bytes in any order, each fetched once, never more than were read."""

import asyncio
import errno
import io
import random
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from rollingfs.fs.core import Tuning
from rollingfs.fs.read_file import ReadFile
from rollingfs.parquet_footer.chunks import chunk_spans
from rollingfs.parquet_footer.thrift import I64, LIST, STRUCT, MalformedFooterError, decode, encode
from rollingfs.policy import RollingPolicy
from rollingfs.segment.read import prefetch
from rollingfs.segment.read.prefetch import FOOTERS_MAX, MISSES_MAX, Ahead, ColumnPattern, Prefetch, pattern_of
from tests.support.backends import private_memory, raises
from tests.support.examples import examples
from tests.support.reading import World
from tests.support.schedules import beside, eventually
from tests.support.spark import parquet_file

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

COLUMNS, GROUPS = 6, 8
NAMES = [f"c{number}" for number in range(COLUMNS)]


def table(chance: random.Random, rows: int) -> Any:
    """Columns whose chunks have different sizes."""
    values = {name: [chance.random() for _ in range(rows)] for name in NAMES[1:]}
    return pa.table({"c0": [f"{chance.random()}"[: chance.randrange(3, 18)] for _ in range(rows)], **values})


DATA = parquet_file(table(random.Random(5), GROUPS * 500), row_group_size=500, use_dictionary=False)
FOOTER_BYTES = int.from_bytes(DATA[-8:-4], "little") + 8
SHIFT = 1000
"""Where the file begins in the segment."""


def spans(group: int, first: int, last: int | None = None) -> tuple[int, int]:
    """Where the chunks of some columns are, by Arrow."""
    columns = pq.read_metadata(io.BytesIO(DATA)).row_group(group)
    start, end = columns.column(first), columns.column(first if last is None else last)
    return SHIFT + start.data_page_offset, SHIFT + end.data_page_offset + end.total_compressed_size


class File:
    """`DATA`, what was fetched of it ahead and what by its reader itself."""

    def __init__(self, memory_bytes=1 << 30, ranges_max=100, *, is_known=True, footers=None, key=0):
        self.began: list[tuple[int, int]] = []
        self.own: list[tuple[int, int]] = []
        self.futures: dict[tuple[int, int], Future[bytes]] = {}
        row = Prefetch(self.begin, SHIFT, SHIFT + len(DATA), ranges_max, memory_bytes)
        self.ahead = Ahead(row, {} if footers is None else footers, key)
        if is_known:
            self.ahead.read(SHIFT + len(DATA) - 60_000, DATA[-60_000:])

    def begin(self, start: int, end: int, limit: int) -> Future[bytes]:
        self.began.append((start, end))
        future = self.futures[start, end] = Future()
        future.set_result(DATA[start - SHIFT : end - SHIFT])
        return future

    def read(self, start: int, end: int) -> bool:
        """Whether a read's bytes were fetched ahead."""
        found = self.ahead.take_columns(start, end)
        if found is None:
            self.own.append((start, end))
            self.ahead.read(start, DATA[start - SHIFT : end - SHIFT])
            return False
        assert found == DATA[start - SHIFT : end - SHIFT]
        return True

    @property
    def held(self) -> int:
        return sum(end - start for start, end in self.ahead._ahead)


def bytes_of(reads: list[tuple[int, int]]) -> int:
    return sum(end - start for start, end in reads)


# -- what is fetched -----------------------------------------------------------------------------------------


def test_the_pattern_is_that_of_arrow_s_metadata():
    pattern = pattern_of(DATA[-60_000:], SHIFT, len(DATA))
    chunks = [spans(group, column) for group in range(GROUPS) for column in range(COLUMNS)]
    assert pattern._chunks == chunks
    assert pattern._columns == COLUMNS


def test_columns_of_one_group_are_prefetched_for_the_next():
    file = File()
    hits = [file.read(*spans(group, column)) for group in range(GROUPS) for column in (1, 4)]
    assert hits == [False, False] + [True] * (2 * GROUPS - 2)
    assert sorted(file.began + file.own) == sorted(spans(group, column) for group in range(GROUPS) for column in (1, 4))


def test_columns_that_are_read_together_are_fetched_together():
    file = File()
    assert [file.read(*spans(group, 1, 3)) for group in range(GROUPS)] == [False] + [True] * (GROUPS - 1)


def test_a_large_read_of_many_columns_promises_no_other(monkeypatch):
    monkeypatch.setattr(prefetch, "RUN_BYTES_MAX", spans(0, 3)[1] - spans(0, 1)[0] - 1)
    file = File()
    assert not any(file.read(*spans(group, 1, 3)) for group in range(GROUPS))
    assert not file.began


def test_nothing_before_first_group_that_was_read_is_fetched():
    file = File()
    for group in range(4, GROUPS):
        file.read(*spans(group, 2))
    assert min(file.began) == spans(5, 2)


@settings(max_examples=examples(200), deadline=None)
@given(
    reads=st.lists(st.tuples(st.integers(0, GROUPS - 1), st.integers(0, COLUMNS - 1), st.integers(0, 2)), max_size=60),
    memory_bytes=st.sampled_from([0, 10_000, 1 << 30]),
    ranges_max=st.integers(1, 20),
)
def test_all_reads_are_exact_and_memory_stays_bounded(reads, memory_bytes, ranges_max):
    file, sizes, taken = File(memory_bytes, ranges_max), [0], []
    for group, first, more in reads:
        start, end = spans(group, first, min(first + more, COLUMNS - 1))
        sizes.append(end - start)
        began = len(file.began)
        taken += [end - start] if file.read(start, end) else []
        assert file.held <= min(sum(sizes), memory_bytes)
        assert len(file.ahead._ahead) <= ranges_max
        wasted = bytes_of(file.began) - sum(taken) - file.held
        assert file.held + 2 * wasted <= sum(sizes) or len(file.began) == began
        assert len(file.began) - len(taken) <= len(sizes) - 1
        assert bytes_of(file.began) <= 2 * sum(sizes)


@pytest.mark.parametrize("reads_footer", [False, True], ids=["chunks alone", "the footer again"])
def test_reader_of_chunk_lookups_is_soon_left_alone(reads_footer):
    file, chance = File(), random.Random(1)
    file.ahead._pattern = ColumnPattern(
        [(number * 10, number * 10 + 10) for number in range(1000 * COLUMNS)], COLUMNS, SHIFT
    )
    for start in (SHIFT + chance.randrange(1000 * COLUMNS) * 10 for _ in range(100)):
        file.read(start, start + 10)
        if reads_footer:
            file.ahead.read(SHIFT + len(DATA) - 60_000, DATA[-60_000:])
    assert not file.ahead._ahead
    began = len(file.began)
    assert began <= 2 * MISSES_MAX
    for start in range(SHIFT, SHIFT + 100 * 10 * COLUMNS, 10 * COLUMNS):
        file.read(start, start + 10)
    assert len(file.began) == began


@pytest.mark.parametrize("columns", [1, 60])
def test_scan_of_many_chunks_looks_at_each_few_times(columns):
    class Done(set[int]):
        looks = 0

        def isdisjoint(self, other) -> bool:
            self.looks += 1
            return super().isdisjoint(other)

    file, chunks = File(ranges_max=10), [(number * 10, number * 10 + 10) for number in range(3600)]
    pattern = file.ahead._pattern = ColumnPattern(chunks, columns, SHIFT)
    done = pattern._done = Done()
    for start, end in chunks:
        file.read(SHIFT + start, SHIFT + end)
    assert done.looks < 100 * len(chunks)


def test_many_small_chunks_are_not_fetched_for_large_read(monkeypatch):
    monkeypatch.setattr(prefetch, "RUN_BYTES_MAX", 500)
    file = File()
    groups = range(0, 100 * 1001, 1001)
    file.ahead._pattern = ColumnPattern(
        [span for at in groups for span in ((at, at + 1), (at + 1, at + 1001))], 2, SHIFT
    )
    for start, end in ((0, 1), (1, 1001)):
        file.read(SHIFT + start, SHIFT + end)
    assert file.began == [(SHIFT + 1001, SHIFT + 1002), (SHIFT + 2002, SHIFT + 2003)]  # one for each read


def test_large_chunk_counts_as_requests_that_it_takes(monkeypatch):
    monkeypatch.setattr(prefetch, "PREFETCH_RANGE_BYTES", bytes_of([spans(1, 1)]) // 3)
    file, limits = File(ranges_max=5), []

    def begin(*span_and_limit: int) -> Future[bytes]:
        limits.append(span_and_limit[-1])
        return file.begin(*span_and_limit)

    file.ahead._row.begin = begin
    for group in range(GROUPS):
        file.read(*spans(group, 1))
        assert len(file.ahead._ahead) <= 1
    assert limits
    assert set(limits) == {4}


def test_after_too_many_misses_the_ranges_are_cancelled():
    file = File()
    pending: list[Future[bytes]] = []

    file.ahead._row.begin = lambda *_: pending.append(Future()) or pending[-1]
    file.ahead._misses = MISSES_MAX
    file.read(*spans(0, 1))
    assert not pending[0].cancelled()
    file.read(*spans(5, 1))
    assert all(future.cancelled() for future in pending)


def test_unfetchable_chunk_fails_only_the_read_that_needs_it():
    file = File()
    file.read(*spans(0, 1))
    file.futures[spans(1, 1)] = file.ahead._ahead[spans(1, 1)] = Future()
    file.futures[spans(1, 1)].set_exception(FileNotFoundError("gone"))
    with pytest.raises(FileNotFoundError, match="gone"):
        file.ahead.take_columns(*spans(1, 1))
    assert not file.ahead._ahead


# -- what is no Parquet file ---------------------------------------------------------------------------------


@settings(max_examples=examples(200), deadline=None)
@given(at=st.integers(1, 3000), value=st.binary(min_size=1, max_size=8), cut=st.integers(0, 60_000))
def test_damaged_footer_gives_no_pattern_or_one_within_file(at, value, cut):
    last = bytearray(DATA[-60_000:])
    last[-at : -at + len(value) or None] = value
    pattern = pattern_of(bytes(last[cut:]), 0, len(DATA))
    assert all(0 < start < end <= len(DATA) for start, end in pattern._chunks)


def footer_of(*groups: list[tuple[int, int]]) -> bytes:
    """A footer whose column chunks are said to lie somewhere."""
    named = [[{3: (STRUCT, {9: (I64, start), 7: (I64, end - start)})} for start, end in group] for group in groups]
    rows = [{1: (LIST, (STRUCT, columns)), 3: (I64, 1)} for columns in named]
    return encode({3: (I64, len(rows)), 4: (LIST, (STRUCT, rows))})


@pytest.mark.parametrize("first", [-100, -4, 1, 3])
def test_chunks_that_begin_before_file_s_data_are_none(first):
    assert chunk_spans(footer_of([(first, 50), (50, 90)]), 1000) == ([], 1)
    assert chunk_spans(footer_of([(4, 50), (50, 90)]), 1000) == ([(4, 50), (50, 90)], 2)


def test_too_large_number_is_refused_and_64_bits_accepted():
    table = {3: (I64, -(2**63)), 4: (I64, 2**63 - 1)}
    assert decode(encode(table)) == table
    with pytest.raises(MalformedFooterError, match="more than 64 bits"):
        decode(b"\x16" + b"\xff" * 60_000 + b"\0\0")


@pytest.mark.parametrize("key", [0, None])
def test_reopened_file_needs_no_footer_and_keyless_keeps_none(key):
    footers: dict[Any, bytes] = {}
    file = File(footers=footers, key=key)
    assert len(footers) == (key is not None)
    for one in (file, File(is_known=False, footers=footers)) if footers else (file,):
        assert [one.read(*spans(group, 1)) for group in range(GROUPS)] == [False] + [True] * (GROUPS - 1)


def test_only_the_last_footers_are_kept():
    footers: dict[Any, bytes] = {}
    for number in range(FOOTERS_MAX + 2):
        File(footers=footers, key=number)
    assert list(footers) == list(range(2, FOOTERS_MAX + 2))


def test_large_footer_is_decoded_only_after_some_reads(monkeypatch):
    monkeypatch.setattr(prefetch, "FOOTER_BYTES_PER_READ", FOOTER_BYTES // 3 + 1)
    file = File()
    assert [file.read(*spans(group, 1)) for group in range(GROUPS)] == [False] * 3 + [True] * (GROUPS - 3)
    assert not file.ahead._ahead


# -- through files -------------------------------------------------------------------------------------------


class Store(World):
    """A segment with `DATA`, over a backend that suspends."""

    def __init__(self):
        super().__init__(private_memory(), "", is_async=True)
        self.make(DATA, RollingPolicy(max_bytes=20_000, inline_bytes=0), step=20_000)

    def scan(self, columns: list[str], **options) -> int:
        """Read columns as pyarrow does; the number of bytes that were fetched of chunks."""
        self.backend.ranges.clear()
        with self.open(**options) as file:
            table = pq.ParquetFile(file, pre_buffer=True).read(columns=columns)
        assert table.equals(pq.read_table(io.BytesIO(DATA), columns=columns))
        return bytes_of(self.ranges())

    def read_chunk(self, file: ReadFile, group: int, column: int):
        """Read a chunk."""
        start, end = (offset - SHIFT for offset in spans(group, column))
        file.seek(start)
        assert file.read(end - start) == DATA[start:end]

    def opened(self) -> ReadFile:
        """The file, its footer read."""
        file = self.open()
        file.seek(len(DATA) - 60_000)
        file.read()
        return file


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.mark.parametrize("columns", [["c1", "c4"], ["c3"], NAMES])
def test_pyarrow_scan_has_equal_bytes_without_double_fetches(store, columns):
    assert store.scan(columns) <= store.scan(columns, tuning=Tuning(prefetch=False))


def test_joined_chunks_of_two_groups_cost_one_wrong_guess(store):
    columns = ["c0", "c1", "c5"]  # c5 and the next group's c0 and c1 come in one read
    assert store.scan(columns) <= store.scan(columns, tuning=Tuning(prefetch=False)) + bytes_of([spans(1, 0, 1)])


def test_verifying_or_plain_reading_files_fetch_no_columns_ahead(store):
    for options in ({"verify": True}, {"tuning": Tuning(prefetch=False)}):
        with store.open(**options) as file:
            assert file._buffer._ahead is None


@pytest.mark.parametrize("columns", [(1, 2), (0, 1, 4)])
def test_columns_read_one_by_one_are_no_sequence(store, columns, limits):
    limits(prefetch, AHEAD_BYTES_MIN=10_000, READ_BYTES_MIN=1000)
    with store.opened() as file:
        for group in range(GROUPS):
            for column in columns:
                store.read_chunk(file, group, column)
                assert file._buffer._ahead._row.ranges == [] or group == 0  # which shows nothing yet


def test_error_from_before_read_is_not_that_of_read(store):
    with store.opened() as file:
        store.backend.plan("read_range", before=raises(OSError(errno.EIO, "the store was down")), times=1)
        ahead = file._buffer._ahead
        ahead._fill(ahead._note(*(offset - SHIFT for offset in spans(0, 1))))
        [future] = ahead._ahead.values()
        assert isinstance(future.exception(60), OSError)
        store.read_chunk(file, 1, 1)


def test_thread_with_a_closed_file_is_told_and_stops(store):
    file, gate = store.opened(), asyncio.Event()
    store.read_chunk(file, 0, 1)
    ahead = file._buffer._ahead
    [(span, future)] = ahead._ahead.items()
    future.result(60)
    pending: Future[bytes] = Future()
    ahead._ahead[span] = pending
    with ThreadPoolExecutor(1) as threads:
        store.backend.plan("read_range", before=gate.wait, times=None)
        reading = threads.submit(store.read_chunk, file, 1, 1)
        eventually(lambda: span not in ahead._ahead)
        file.close()
        pending.cancel()
        with pytest.raises(ValueError, match="the file was closed while it was read"):
            reading.result(60)
        store.backend.loop.call_soon_threadsafe(gate.set)
    assert not ahead._ahead


def test_fetches_begun_after_another_threads_close_are_dropped(store, monkeypatch):
    file = store.opened()
    columns = file._buffer._ahead
    beside(monkeypatch, columns, "_fill", lambda _: file.close())
    store.read_chunk(file, 0, 1)
    assert file.closed
    assert columns._wasted == 1
    assert not columns._ahead
