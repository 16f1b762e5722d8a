"""Blocks: what is joined on the way to a tier keeps its pieces' checksums, its time and its description."""

import contextlib
import random

import pytest
from hypothesis import given, strategies as st

from rollingfs.errors import CorruptChunkError
from rollingfs.format import names
from rollingfs.format.crc import crc32c
from rollingfs.format.header import PIECES_MAX, Chunk
from rollingfs.runtime.concurrency import drive
from rollingfs.segment.files import rewrite
from rollingfs.segment.files.rewrite import fold
from rollingfs.segment.verbs.offload import Offloaded
from tests.support.faults import TieredStore
from tests.support.life import World, pieces_of
from tests.support.small import client

pytestmark = pytest.mark.usefixtures("hurried")
A = "/stream/a"
DATA = random.Random(29).randbytes(400)


@pytest.fixture
def world(store):
    """Twenty chunks of 20 bytes."""
    world = client(store)
    world.create(A, pieces_of(DATA, [20] * 20))
    return world


def offload(world: World, block_bytes: int = 100, **chosen: int) -> Offloaded:
    return world.offload(A, block_bytes=block_bytes, **chosen)


def file_of(chunk: Chunk) -> str:
    return names.locate(A, chunk.file, chunk.tier)


def flip(store: TieredStore, file: str, at: int) -> None:
    content = bytearray(drive(store.read(file)).data)
    content[at] ^= 1
    store._put(file, bytes(content))


# -- blocks --------------------------------------------------------------------------------------------------


def test_run_moved_by_another_client_stays_so(store, world, monkeypatch):
    commit = rewrite.swap_chunks

    async def late(*args, **how):
        monkeypatch.undo()
        assert offload(client(store), block_bytes=1).files == 20
        return await commit(*args, **how)

    monkeypatch.setattr(rewrite, "swap_chunks", late)
    offload(world)
    assert [(chunk.length, chunk.tier) for chunk in world.chunks(A)] == [(20, "cold")] * 20
    assert world.content(A) == DATA


@pytest.mark.parametrize("start", [0, 7, 45, 110])
def test_only_bytes_that_segment_retains_go_to_tier(store, world, start):
    world.truncate(A, start)
    assert offload(world).bytes == 400 - start
    assert world.content(A) == DATA[start:]
    assert sum(len(drive(store.read(file_of(chunk))).data) for chunk in world.chunks(A)) == 400 - start


# -- what is read of a block ---------------------------------------------------------------------------------


def test_piece_reader_finds_its_damage_and_ignores_other_pieces(store, world):
    offload(world)
    flip(store, file_of(world.chunks(A)[1]), 45)  # in the third piece, bytes 140 to 160
    view = drive(client(store).client.headers.view(A, fresh=True))
    fetcher = client(store).client.fetcher
    with pytest.raises(CorruptChunkError, match="fail the checksum"):
        drive(fetcher.read(view, 140, 160))
    with pytest.raises(CorruptChunkError, match="fail the checksum"):
        drive(fetcher.read(view, 0, 400))
    assert drive(fetcher.read(view, 100, 140)) + drive(fetcher.read(view, 160, 200)) == DATA[100:140] + DATA[160:200]


@pytest.mark.parametrize("act", [World.onload, World.consolidate, lambda world, _: offload(world)])
def test_damaged_block_gets_no_fresh_checksum(store, world, act):
    offload(world, upto=200)
    flip(store, file_of(world.chunks(A)[0]), 3)
    with contextlib.suppress(CorruptChunkError):
        act(client(store), A)
    with pytest.raises(CorruptChunkError):
        client(store).content(A)
    assert drive(world.client.fetcher.read(drive(world.client.headers.view(A, fresh=True)), 100, 400)) == DATA[100:]


# -- pieces --------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=100))
def test_pieces_are_few_complete_and_have_right_checksums(lengths):
    data = random.Random(1).randbytes(sum(lengths))
    pieces, at = [], 0
    for length in lengths:
        pieces.append((length, crc32c(data[at : at + length])))
        at += length
    found = fold(pieces)
    assert len(found) <= PIECES_MAX
    assert len(found) != 1
    if len(lengths) <= PIECES_MAX and len(set(lengths)) == 1 and len(lengths) > 1:
        assert found == tuple(pieces)
    at = 0
    for length, crc in found:
        assert crc32c(data[at : at + length]) == crc
        at += length
    assert at in (0, len(data))
