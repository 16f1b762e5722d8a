"""Reading: every byte right across chunks, pages and truncated starts; clear errors when things go."""

from __future__ import annotations

import _thread
import dataclasses
import functools
import io
import os
import pickle
import queue
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from rollingfs import CorruptChunkError, RollingFileSystem, RollingPolicy, SegmentTruncatedError
from rollingfs.fs import read_buffer
from rollingfs.fs.core import Tuning
from rollingfs.fs.read_file import ReadFile
from rollingfs.runtime.concurrency import drive
from rollingfs.segment.read import prefetch
from tests.support.examples import examples
from tests.support.reading import World, letters, make_world

# -- the bytes ----------------------------------------------------------------------------------------------

SHAPES = {
    # data, truncated to, policy
    "loose": (letters(2000), 0, RollingPolicy(max_bytes=100, inline_bytes=50)),
    "truncated": (letters(2000), 333, RollingPolicy(max_bytes=100, inline_bytes=0)),
    "tail only": (letters(300), 7, RollingPolicy(max_bytes=1000, inline_bytes=1000)),
    "pages": (letters(1000), 0, RollingPolicy(max_bytes=3, inline_bytes=2)),
    "truncated pages": (letters(1000), 501, RollingPolicy(max_bytes=3, inline_bytes=2)),
}


@functools.cache
def made(kind: str, shape: str) -> tuple[World, bytes, int]:
    """A world with a segment of some shape, made once."""
    data, start, policy = SHAPES[shape]
    world = make_world(kind)
    world.make(data, policy, start)
    return world, data, start


SPANS = st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 500)), min_size=1, max_size=6)
SIZES = st.one_of(st.integers(-1, 20), st.integers(0, 700))
MOVES = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["read", "readline", "readinto"]), SIZES),
        st.tuples(st.just("seek"), st.integers(0, 2100)),
        st.tuples(st.just("seek from end"), st.integers(0, 400)),
        st.tuples(st.just("skip"), st.integers(0, 200)),
        st.tuples(st.just("readuntil"), st.sampled_from([b"\n", b"ab", b"hgf"])),
    ),
    max_size=12,
)


def play(file: Any, move: tuple[str, Any]) -> Any:
    name, value = move
    if name == "seek from end":
        size = file.size if isinstance(file, ReadFile) else len(file.getvalue())
        return file.seek(-min(value, size), io.SEEK_END)
    if name == "skip":
        return file.seek(value, io.SEEK_CUR)
    if name == "readinto":
        target = bytearray(max(value, 0))
        return file.readinto(target), target
    if name == "readuntil":
        if isinstance(file, ReadFile):
            return file.readuntil(value, blocks=5)
        rest = file.getvalue()[file.tell() :]
        return file.read(rest.find(value) + len(value) if value in rest else -1)
    return getattr(file, name)(value)


@pytest.mark.parametrize("kind", ["memory", "async"])
@settings(max_examples=examples(60), deadline=None)
@given(shape=st.sampled_from(sorted(SHAPES)), moves=MOVES, absolute=st.booleans())
def test_file_reads_like_file_of_what_is_retained(kind, shape, moves, absolute):
    world, data, start = made(kind, shape)
    model = io.BytesIO(data if absolute else data[start:])
    model.seek(start if absolute else 0)
    with world.open(absolute=absolute) as file, pytest.MonkeyPatch.context() as patch:
        patch.setattr(read_buffer, "LINE_BYTES", 11)
        patch.setattr(prefetch, "PREFETCH_RANGE_BYTES", 64)
        assert (file.tell(), file.size) == (model.tell(), len(model.getvalue()))
        for move in moves:
            if absolute and move[0] != "seek from end" and model.tell() < start:
                model.seek(start)
                file.seek(start)
            if absolute and move[0] == "seek" and move[1] < start:
                continue
            assert play(file, move) == play(model, move)
            assert file.tell() == model.tell()


@pytest.mark.parametrize("kind", ["memory", "async"])
@settings(max_examples=examples(40), deadline=None)
@given(shape=st.sampled_from(sorted(SHAPES)), spans=SPANS)
def test_simultaneous_ranges_equal_single_ranges(kind, shape, spans):
    world, data, start = made(kind, shape)
    view = world.view()
    ranges = [(max(start, min(a, len(data))), min(max(start, min(a, len(data))) + n, len(data))) for a, n in spans]
    found = world.run(world.client.fetcher.read_many([(view, *span) for span in ranges], range_bytes=40))
    assert found == [data[first:last] for first, last in ranges]
    assert [world.read(view, *span) for span in ranges] == found


def test_ranges_outside_segment_are_refused_and_others_still_read(world):
    world.make(letters(500), start=120)
    view = world.view()
    requests = [(view, 119, 130), (view, -1, 5), (view, 400, 501), (view, 300, 200), (view, 120, 121), (view, 500, 500)]
    found = world.run(world.client.fetcher.read_many(requests))
    assert [type(result) for result in found] == [SegmentTruncatedError, *[ValueError] * 3, bytes, bytes]
    assert "120 to 500" in str(found[0])
    assert found[4:] == [letters(500)[120:121], b""]


def test_text_lines_and_blocks_come_out_of_usual_wrappers(world):
    data = letters(5000)
    world.make(data, start=100, policy=RollingPolicy(max_bytes=900))
    with world.open() as file:
        assert list(file) == io.BytesIO(data[100:]).readlines()
        assert file.readlines() == []
    with io.TextIOWrapper(world.open()) as text:
        assert text.read() == data[100:].decode()
    with world.open() as file:
        assert b"".join(iter(lambda: file.read1(33), b"")) == data[100:]
        assert (file.readable(), file.seekable(), file.writable()) == (True, True, False)
    assert file.closed
    file.close()
    with pytest.raises(ValueError, match="closed"):
        file.read()


@pytest.mark.parametrize("verify", [False, True])
def test_absolute_positions_before_the_start_say_what_is_left(world, verify):
    world.make(letters(500), start=120)
    with world.open(absolute=True, verify=verify) as file:
        assert (file.tell(), file.size) == (120, 500)
        file.seek(119)
        with pytest.raises(SegmentTruncatedError, match="120 to 500"):
            file.read(10)
        file.seek(130)
        assert file.read(10) == letters(500)[130:140]


def test_a_file_stays_at_its_snapshot(world):
    world.make(letters(500))
    with world.open() as file:
        assert file.info()["size"] == file.size == 500
        world.by_another("append", [b"more"])
        assert file.read() == letters(500)
        assert file.size == 500


class NativeThread:
    """A thread that Python has not started, as those of DuckDB and Arrow: it makes one call after the other."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        _thread.start_new_thread(self._run, ())

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            self._answers.put(call())

    def __call__(self, call: Callable[..., Any], *arguments: Any) -> Any:
        self._calls.put(partial(call, *arguments))
        return self._answers.get(timeout=60)

    def __enter__(self) -> NativeThread:
        return self

    def __exit__(self, *raised: object) -> None:
        self._calls.put(None)


def test_native_thread_reads_its_position_while_others_seek(world):
    world.make(data := random.Random(3).randbytes(300))
    with world.open() as file, NativeThread() as one, NativeThread() as two:
        one(file.seek, 200)
        two(file.seek, 100)
        file.seek(50)
        assert one(file.tell) == 200
        assert one(file.read, 60) == data[200:260]
        assert two(file.seek, 10, os.SEEK_CUR) == 110
        assert file.read(7) == data[50:57]
        assert two(file.readline) == data[110:].splitlines(keepends=True)[0]


def test_threads_that_pass_a_file_continue_its_position(world):
    world.make(data := random.Random(3).randbytes(300))
    with world.open() as file, ThreadPoolExecutor(1) as other, NativeThread() as native:
        other.submit(file.seek, 0, os.SEEK_END).result()
        file.seek(20)
        assert other.submit(file.read, 10).result() == data[20:30]
        assert native(file.read, 10) == data[30:40]
        native(file.seek, 100)
        assert file.read(5) == data[100:105]
        assert native(file.read, 5) == data[105:110]


def test_unpickled_file_keeps_its_position_and_tuning():
    fs, path = RollingFileSystem("memory"), "/unpickled"
    fs.pipe_file(path, letters(500))
    fs.truncate(path, 50)
    tuning = Tuning(3, False, "2MiB")
    with fs.open(path, absolute=True, block_size=77, **dataclasses.asdict(tuning)) as file:
        file.seek(100)
        with pickle.loads(pickle.dumps(file)) as again:
            assert (again.tell(), again.blocksize, again.read(5)) == (100, 77, letters(500)[100:105])
            assert again._tuning == tuning


# -- headers at open ----------------------------------------------------------------------------------------


def known(world: World) -> World:
    """The world's client has seen the header, and believes no header without a look."""
    world.make(letters(500), start=100)
    world.open().close()
    assert world.client.headers.cache_s == 0
    world.backend.clear()
    return world


def test_known_header_is_looked_at_beside_first_data(over_async):
    world = known(over_async)
    with world.open() as file:
        assert world.backend.calls == []
        assert file.read(10) == letters(500)[100:110]
        assert sorted(world.backend.verbs) == ["read_if_changed", "read_range"]
        assert file.size == 400
    assert len(world.backend.calls) == 2


NOW = letters(500)[200:] + b"new"


@pytest.mark.parametrize(
    ("look", "expected"),
    [
        (lambda file: file.read(10) + file.read(), NOW),
        (lambda file: file.readline() + file.read(), NOW),
        (lambda file: (file.size, file.read()), (303, NOW)),
        (lambda file: (file.seek(-3, io.SEEK_END), file.read()), (300, b"new")),
    ],
)
def test_changed_header_is_taken_and_data_are_read_again(over_async, look, expected):
    world = known(over_async)
    world.by_another("append", [b"new"])
    world.by_another("truncate", 200)
    with world.open() as file:
        assert look(file) == expected


def test_known_header_of_missing_segment_fails_the_first_read(over_async):
    world = known(over_async)
    world.by_another("delete")
    with world.open() as file, pytest.raises(FileNotFoundError):
        file.read(1)


# -- things that go while they are read ---------------------------------------------------------------------


@pytest.mark.parametrize("pages", [False, True])
def test_replaced_or_deleted_segment_is_gone_for_open_files(world, pages):
    policy = RollingPolicy(max_bytes=3, inline_bytes=2) if pages else None
    world.make(letters(500), policy)
    with world.open() as file:
        world.by_another("overwrite", [letters(700, seed=1)])
        for _ in range(2):
            with pytest.raises(FileNotFoundError, match="open it again"):
                file.read(10)
        world.by_another("delete")
        with pytest.raises(FileNotFoundError, match="open it again"):
            file.read(10)


def test_a_chunk_missing_short_or_changed_is_named(world):
    world.make(letters(500))
    paths, entries, view = world.chunk_paths(), world.header().entries, world.view()
    assert entries[1].length > 5
    world.delete(paths[0])
    world.put(paths[1], b"short")
    world.put(paths[2], drive(world.behind.backend.read(paths[2])).data[:-1] + b"!")
    for path, entry, what in zip(paths[:3], entries, ("missing", "ends at byte 5", "checksum"), strict=False):
        with pytest.raises(CorruptChunkError, match=what) as caught:
            world.read(view, entry.start, entry.end)
        assert path in str(caught.value)
    assert world.read(view, entries[3].start, 500) == letters(500)[entries[3].start :]


@pytest.mark.parametrize("by_a_segment", [False, True])
def test_missing_plain_files_error_says_what_is_there(by_a_segment, monkeypatch):
    monkeypatch.setattr(read_buffer, "SYNC_BUFFER_BYTES", 1)
    world = make_world("memory")
    world.put(world.path, letters(500))
    with world.open() as file:
        assert file.read(10) == letters(500)[:10]
        if by_a_segment:
            world.by_another("overwrite", [letters(700, seed=1)])
        world.delete(world.path)
        for _ in range(2):
            with pytest.raises(FileNotFoundError, match="now segment" if by_a_segment else "now nothing is there"):
                file.read()
