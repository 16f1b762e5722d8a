"""What is uploaded before a commit: chunk files of a stream, what callers may hand over, receipts."""

import array
import asyncio
import io
import pickle
from functools import partial

import numpy as np
import pytest
from fastcrc.crc32 import iscsi

from rollingfs import RollingPolicy
from rollingfs.format import names
from rollingfs.segment.verbs.append import stage as stage_segment
from rollingfs.segment.write import chunk_writer, ingest
from rollingfs.segment.write.chunk_writer import ChunkWriter
from rollingfs.segment.write.ingest import PIECE_BYTES, SMALL_BYTES_MAX
from tests.support.backends import Counting, Scripted, fail, private_memory
from tests.support.places import backend_of
from tests.support.site import Site

MIB = 1024 * 1024


@pytest.fixture(params=["memory", "local", "async"])
def site(request, tmp_path):
    return Site(*backend_of(request.param, request, tmp_path), RollingPolicy(max_bytes="2MiB"))


def pattern(size):
    return bytes(range(251)) * (size // 251) + bytes(size % 251)


# -- chunk files ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("piece", [1, 7, 10, 64])
def test_a_stream_becomes_chunks_of_exactly_max_bytes(site, piece):
    data = pattern(64)

    async def write():
        writer = ChunkWriter(site.backend, site.path, 10, start=5)
        for start in range(0, len(data), piece):
            await writer.write(memoryview(bytearray(data[start : start + piece])))
        stored = await writer.finish()
        return stored, [await site.backend.read_range(chunk.path, 0, 99) for chunk in stored]

    stored, contents = site.run(write())
    assert contents == [data[start : start + 10] for start in range(0, 64, 10)]
    assert [chunk.size for chunk in stored] == [10] * 6 + [4]
    assert [chunk.crc32c for chunk in stored] == [iscsi(content) for content in contents]
    assert [int(names.relate(site.path, chunk.path)[:20]) for chunk in stored] == list(range(5, 69, 10))


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("verb", ["open_write", "upload.write", "upload.finish"])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_an_upload_that_fails_leaves_no_file(limits, is_async, verb, moment):
    limits(ingest, PIECE_BYTES=100, SMALL_BYTES_MAX=50)
    limits(chunk_writer, FINISHING_BYTES_MAX=1000)
    memory = private_memory()
    backend = Scripted(memory, suspends=is_async)
    site = Site(backend, "", RollingPolicy(max_bytes=100))
    site.create()
    backend.plan(verb)
    backend.plan(verb, **{moment: fail})
    with pytest.raises(OSError, match="connection broke"):
        site.append(pattern(1000))
    assert [path for path in memory.fs.store if "$chunks/0" in path] == []
    assert site.append(b"after") == 0


def test_two_aborts_at_once_leave_no_file():
    """As after Ctrl-C: the write that it broke off aborts, and the end of ``with`` does."""
    site = Site(Scripted(memory := private_memory(), suspends=True), "")
    writer = ChunkWriter(site.backend, site.path, 10)

    async def abort_twice():
        await writer.write(pattern(35))
        await asyncio.gather(writer.abort(), writer.abort())

    site.run(abort_twice())
    assert not memory.fs.store


# -- what callers may hand over ------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, SMALL_BYTES_MAX, SMALL_BYTES_MAX + 1, 5 * MIB])
@pytest.mark.parametrize("kind", ["bytes", "file", "pieces", "bytearray"])
def test_data_of_every_kind_is_appended_whole(site, kind, size):
    data = pattern(size)
    pieces = (data[start : start + 70_000] for start in range(0, size, 70_000))
    make = {"bytes": bytes, "bytearray": bytearray, "file": io.BytesIO, "pieces": lambda _: pieces}
    site.create()
    assert site.append(b"before") == 0
    version = site.segment().version
    assert site.append(make[kind](data)) == 6
    handle = site.segment()
    assert handle.version == version + (size > 0)
    assert site.content() == b"before" + data
    assert max((chunk.length for chunk in handle.chunks), default=0) <= 2 * MIB
    assert len(site.chunk_files()) == len(handle.chunks)


@pytest.mark.parametrize(
    "data",
    [
        *(memoryview(b"0123456789")[::2], array.array("d", [1.5, 2.5]), np.arange(6, dtype="<i4").reshape(2, 3)),
        *(np.arange(6, dtype=">i4"), np.arange(12, dtype="<i2").reshape(3, 4)[:, ::2], np.zeros((0, 3))),
        np.array([(1, 2.0)], dtype=[("a", "<i4"), ("b", "<f8")]),
    ],
)
def test_anything_with_a_buffer_is_written_as_its_bytes(site, data):
    site.create()
    site.append(data)
    site.append([data])
    assert site.content() == memoryview(data).tobytes() * 2


@pytest.mark.parametrize(
    ("data", "message"),
    [
        *(("text", "encode it"), (["text"], "encode it"), (io.StringIO("text"), "encode it")),
        *((7, "cannot write int"), ([1, 2], "cannot write int from an iterable"), (None, "cannot write NoneType")),
    ],
)
def test_other_data_than_bytes_is_a_type_error(site, data, message):
    site.create()
    with pytest.raises(TypeError, match=message):
        site.append(data)
    assert site.content() == b""


@pytest.mark.parametrize("verb", ["append", "stage"])
def test_an_iterable_that_fails_half_way_leaves_nothing(site, verb):
    def failing():
        for _ in range(5):
            yield pattern(MIB)
        raise LookupError("no more")

    site.create()
    with pytest.raises(LookupError, match="no more"):
        (site.append if verb == "append" else partial(stage, site))(failing())
    assert (site.content(), site.chunk_files()) == (b"", [])


class Meter(io.RawIOBase):
    """A file of zeros that knows how much of it was read and not yet uploaded."""

    def __init__(self, backend, size):
        self.backend, self.left, self.given, self.held_max = backend, size, 0, 0

    def read(self, size=-1):
        size = min(size, self.left)
        self.left -= size
        self.given += size
        self.held_max = max(self.held_max, self.given - self.backend.moved["upload.write"])
        return bytes(size)


def test_a_long_stream_is_held_in_bounded_memory():
    backend = Counting(private_memory())
    site = Site(backend, "", RollingPolicy(max_bytes="8MiB"))
    site.create()
    source = Meter(backend, 40 * MIB)
    site.append(source)
    assert source.held_max <= PIECE_BYTES + SMALL_BYTES_MAX
    assert site.segment().length == 40 * MIB


def test_a_source_on_the_same_loop_does_not_hang():
    backend = Counting(private_memory(), suspends=True)
    site = Site(backend, "")
    site.create()

    def reading():
        for _ in range(3):
            yield site.segment().path.encode()

    site.append(reading())
    assert site.content() == site.path.encode() * 3


# -- receipts ------------------------------------------------------------------------------------------------


def stage(site, data):
    return site.run(stage_segment(site.client, site.path, data))


def test_receipts_are_small_picklable_and_committed_in_order(site):
    first, second = stage(site, pattern(5 * MIB)), stage(site, b"second")
    assert not site.is_there()
    assert len(pickle.dumps(first)) < 2000
    assert first.size == 5 * MIB
    site.create()
    assert site.append(b"start") == 0
    assert site.append([pickle.loads(pickle.dumps(second)), b"between", first]) == 5
    assert site.content() == b"startsecondbetween" + pattern(5 * MIB)
    assert all(names.is_staged(chunk.file) for chunk in list(site.segment().chunks)[1:2])


@pytest.mark.parametrize("how", ["list", "generator"])
def test_one_receipt_twice_is_refused_and_writes_nothing(site, how):
    receipt = stage(site, b"once")
    site.create()
    twice = [receipt, pattern(3 * MIB), receipt]
    with pytest.raises(ValueError, match="twice"):
        site.append(twice if how == "list" else iter(twice))
    assert site.content() == b""
    assert len(site.chunk_files()) == 1


def test_a_receipt_for_another_segment_is_refused(site):
    receipt = site.run(stage_segment(site.client, site.path + "-other", b"x"))
    site.create()
    with pytest.raises(ValueError, match=r"staged for .*-other cannot be committed to"):
        site.append([receipt])
    for again in (receipt, [receipt]):
        with pytest.raises(TypeError, match="staged already"):
            stage(site, again)
