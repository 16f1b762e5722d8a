"""A stream: its segments as one, trimming, what it remembers."""

import asyncio

import pytest

from rollingfs import BadOffsetError, CorruptHeaderError
from rollingfs.format import names
from rollingfs.runtime.concurrency import drive
from rollingfs.segment.verbs.rename import rename
from rollingfs.stream.cut import StreamCut
from rollingfs.stream.retention import RetentionPolicy
from tests.support.life import CHUNKS, NOON_S, World, cut_of

A, B, C = "/stream/a", "/stream/b", "/stream/c"


@pytest.fixture
def world():
    world = World(policy=CHUNKS)
    for path in (A, B, C):
        world.create(path, [path[-1:].encode() * 10] * 5)
    return world


@pytest.fixture
def stream(world):
    return world.stream()


def test_segments_infos_and_size_are_those_of_the_folder(world):
    world.create("/stream/deeper/x", [b"no"])
    stream = world.stream()
    stream.retention = RetentionPolicy.by_size(1)
    assert stream.segments() == [A, B, C]
    assert {path: info["size"] for path, info in stream.infos().items()} == {A: 50, B: 50, C: 50}
    assert list(stream.infos([B])) == [B]
    assert asyncio.run(stream._size()) == stream.size() == 150


def test_a_deleted_stream_has_no_segments_and_remembers_nothing(stream):
    stream.retention = RetentionPolicy.by_size(1)
    stream.delete()
    assert stream.segments() == []
    assert stream.retention is None
    stream.delete()


def test_trim_truncates_and_deletes_wholly_older_sealed_segments(stream, world):
    world.seal(A)
    world.seal(B)
    cut = cut_of(stream, {A: 50, B: 30, C: 50})
    trimmed = stream.trim(cut)
    assert (trimmed.bytes, trimmed.deleted) == (130, (A,))
    assert stream.segments() == [B, C]
    assert (world.header(B).start, world.content(B)) == (30, b"b" * 20)
    assert (world.header(C).start, world.header(C).size, world.header(C).sealed) == (50, 0, False)
    assert stream.trim(cut).bytes == 0
    world.seal(C)
    assert stream.trim(cut).deleted == (C,)


def test_trim_that_goes_backwards_is_refused_and_changes_nothing(stream, world):
    stream.trim(cut_of(stream, {A: 20, B: 20}))
    with pytest.raises(BadOffsetError, match=r"trimmed to .* already"):
        stream.trim(cut_of(stream, {A: 10, B: 40}))
    assert (world.header(A).start, world.header(B).start) == (20, 20)
    stream.trim(cut_of(stream, {A: 20, C: 5}))
    with pytest.raises(BadOffsetError, match=r"trimmed to .* already"):
        stream.trim(cut_of(stream, {B: 19}))


def test_trim_beyond_end_or_of_another_stream_is_refused(stream, world):
    with pytest.raises(BadOffsetError, match="cannot trim to 51"):
        stream.trim(cut_of(stream, {A: 10, B: 51}))
    with pytest.raises(ValueError, match="not a segment of the stream"):
        stream.trim(cut_of(stream, {A: 10, "/other/x": 1}))
    assert world.header(A).start == 0
    assert stream.trim(cut_of(stream, {"/stream/gone": 1})).bytes == 0


def test_stream_memory_is_stored_and_moved_with_its_folder(stream, world):
    policy = RetentionPolicy.by_time("1h", "7d", every="10min", align=b"\r\n\xff")
    cut = stream.cut()
    stream.retention = policy
    stream.publish("reader", cut)
    stream.publish("other", StreamCut({A: 1}, NOON_S, 0))
    stream.retain()
    other = World(world.backend, clock=world.clock)
    assert other.stream().retention == policy
    assert other.stream().subscribers() == {"reader": cut, "other": StreamCut({A: 1}, NOON_S, 0)}
    (kept,) = other.stream().cuts()
    assert kept == StreamCut(dict.fromkeys((A, B, C), 0), NOON_S, 150, cut.incarnations)  # no whole record yet
    for path in (A, B, C, names.ledger_path("/stream")):
        drive(rename(other.client, path, path.replace("/stream/", "/moved/")))
    assert list(world.stream("/moved").cuts()[0]) == ["/moved/a", "/moved/b", "/moved/c"]
    world.stream("/moved").unsubscribe("other")
    world.stream("/moved").unsubscribe("nobody")
    assert list(other.stream("/moved").subscribers()) == ["reader"]
    stream.retention = None
    assert world.stream().retention is None


def test_unreadable_ledger_is_an_error_and_stays(world):
    path = world.create(names.ledger_path("/stream"), [b"{}"])
    with pytest.raises(CorruptHeaderError, match="the ledger of the stream cannot be read"):
        world.stream().publish("reader", world.stream().cut())
    assert world.content(path) == b"{}"
