"""How much reading asks of the store: few requests, no more at once than may be, little memory."""

import asyncio
import os
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, strategies as st

from rollingfs import RollingPolicy
from rollingfs.fs import read_buffer
from rollingfs.fs.core import Tuning
from rollingfs.segment.read import prefetch, ranges
from rollingfs.segment.read.read_job import even
from tests.support.reading import letters, make_world
from tests.support.schedules import eventually

MIB = 2**20


def test_random_reads_ask_for_exactly_their_bytes(world):
    data = letters(MIB)
    world.put(world.path, data)
    with world.open() as file:
        for at, size in ((700_000, 10), (5_000, 100_000), (300_000, 1)):
            file.seek(at)
            assert file.read(size) == data[at : at + size]
    assert world.ranges() == [(700_000, 700_010), (5_000, 105_000), (300_000, 300_001)]


def test_small_reads_that_follow_each_other_share_requests(world):
    data = b"".join(b"%063d\n" % number for number in range(MIB // 64))
    world.put(world.path, data)
    with world.open() as file:
        assert b"".join(iter(lambda: file.read(1000), b"")) == data
    asked = world.ranges()
    assert len(asked) <= 8
    assert sum(last - first for first, last in asked) == MIB
    world.backend.clear()
    with world.open() as file:
        assert sum(1 for _ in file) == len(data.splitlines())
    assert len(world.ranges()) <= 8


def test_sequential_read_fills_its_window_and_close_cancels_it(over_async, monkeypatch):
    world, full = over_async, over_async.backend.capability.requests_max
    for module in (prefetch, read_buffer):
        monkeypatch.setattr(module, "PREFETCH_RANGE_BYTES", 1000)
    data = letters(100_000)
    world.put(world.path, data)
    with world.open() as file, ThreadPoolExecutor(1) as threads:
        assert file.read(10) == data[:10]
        assert world.ranges() == [(0, 10)]
        gate = asyncio.Event()
        world.backend.plan("read_range", before=gate.wait, times=None)
        second = threads.submit(file.read, 10)
        eventually(lambda: world.backend.at_once["read_range"] == full)
        world.backend.loop.call_soon_threadsafe(gate.set)
        assert second.result() == data[10:20]
        assert file.read(50_000) == data[20:50_020]
        assert world.backend.at_once_max["read_range"] <= full
        assert max(last for _, last in world.ranges()) <= 50_020 + 1000 * (full + 1)
        ahead = file._buffer._ahead._row.ranges
        eventually(lambda: all(each.data.done() for each in ahead))  # those not begun yet, too
        world.backend.plans.clear()
        never = asyncio.Event()
        world.backend.plan("read_range", before=never.wait, times=None)
        assert file.read(5000) == data[50_020:55_020]
        eventually(lambda: world.backend.at_once["read_range"] > 0)
    eventually(lambda: world.backend.at_once["read_range"] == 0)
    assert not never.is_set()


def test_file_without_prefetch_requests_only_its_reads(over_async):
    world, data = over_async, letters(100_000)
    world.put(world.path, data)
    with world.open(tuning=Tuning(prefetch=False)) as file:
        assert [file.read(100) for _ in range(10)] == [data[at : at + 100] for at in range(0, 1000, 100)]
    assert world.ranges() == [(at, at + 100) for at in range(0, 1000, 100)]


@pytest.mark.parametrize("tuning", [Tuning(max_concurrency=2), Tuning(prefetch=False)])
def test_requests_under_way_stay_below_file_and_call_limits(over_async, monkeypatch, tuning):
    if not tuning.prefetch:
        monkeypatch.setattr(ranges, "UNDER_WAY_BYTES_MAX", 5 * MIB)
    world, data = over_async, os.urandom(16 * MIB)
    world.put(world.path, data)
    with world.open(tuning=tuning) as file:
        assert file.read() == data
        assert file.read_at(8 * MIB, 5) == data[5 : 8 * MIB + 5]
    assert world.backend.at_once_max["read_range"] == 2


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"max_concurrency": 0}, "max_concurrency is 0: it must be a number of requests, 1 to 1024"),
        ({"max_concurrency": True}, "max_concurrency is True"),
        ({"max_concurrency": "8"}, "max_concurrency is '8'"),
        ({"prefetch": 8}, "prefetch is 8: it must be true or false"),
        ({"max_memory": "1KiB"}, "max_memory is 1024: it must be at least 1048576 bytes"),
    ],
)
def test_a_tuning_out_of_range_is_refused(given, said):
    with pytest.raises(ValueError, match=said):
        Tuning(**given)


@given(start=st.integers(0, 100), size=st.integers(0, 10_000), range_bytes=st.integers(1, 3000))
def test_read_is_cut_into_few_nearly_equal_ranges(start, size, range_bytes):
    parts = list(even(start, start + size, range_bytes))
    assert len(parts) == -(-size // range_bytes)
    assert [byte for first, last in parts for byte in range(first, last)] == list(range(start, start + size))
    sizes = {last - first for first, last in parts}
    assert not sizes or (max(sizes) <= range_bytes and max(sizes) - min(sizes) <= 1 and min(sizes) > 0)


def test_a_large_read_holds_little_beside_its_answer():
    world = make_world("memory")
    world.make(os.urandom(40 * MIB), RollingPolicy(max_bytes=5 * MIB), step=10 * MIB)
    view = world.view()
    tracemalloc.start()
    try:
        assert len(world.read(view, 0, 40 * MIB)) == 40 * MIB
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 40 * MIB + 2 * 5 * MIB
