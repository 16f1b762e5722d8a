"""Upkeep joins small chunks by itself, beside writers, readers of old snapshots, other clients and crashes."""

import random
import time

import pytest

from rollingfs import RollingFileSystem, RollingPolicy
from rollingfs.fs.core import core
from rollingfs.stream.segment_upkeep import Upkept, total
from rollingfs.stream.upkeep import Upkeep
from tests.support.cli import running
from tests.support.life import World, pieces_of
from tests.support.small import a_round

POLICY = RollingPolicy(max_bytes=6400, inline_bytes=25)
"""As the default one, with 100 bytes for each MiB: 64, a quarter of one, ratio 256."""
GROWN, DONE, LONE = "/root/stream/grown", "/root/stream/done", "/root/lone/c"
DATA = random.Random(29).randbytes(40 * 26)


def upkeep(world: World, **how: object) -> Upkept:
    return total(a_round(Upkeep(world.client, **how)))


def grow(world: World, data: bytes) -> None:
    for piece in pieces_of(data, [26] * (len(data) // 26)):
        world.append(GROWN, piece)


def sizes(world: World) -> list[int]:
    return [chunk.length for chunk in world.chunks(GROWN)]


# -- what is joined ------------------------------------------------------------------------------------------


def test_a_segment_that_grows_has_about_as_few_chunks_as_its_size_asks_for_and_the_fewest_once_it_is_sealed():
    world, content = World(policy=POLICY), b""
    world.create(GROWN)
    chance = random.Random(1)
    for _ in range(60):
        data = chance.randbytes(40 * 26)
        grow(world, data)
        content += data
        did = upkeep(world, readers_grace_s=0)
        assert not did.failed
        assert did.consolidated.replaced >= 8
        assert world.content(GROWN) == content
        assert len(sizes(world)) <= len(content) / 4800 + 32
    world.seal(GROWN)
    did = upkeep(world, readers_grace_s=0)
    header = world.header(GROWN)
    assert len(sizes(world)) == -(-len(content) // 6400) == 10
    assert max(sizes(world)) <= 6400
    assert world.content(GROWN) == content
    assert header.rewritten <= 3 * len(content)
    assert did.write_amplification == 1 + header.rewritten / len(content)
    assert upkeep(world).consolidated.replaced == 0
    assert [row.state for row in world.rows(GROWN)] == ["ok"] * 10


def test_what_a_truncation_leaves_of_a_large_chunk_is_not_written_anew():
    world = World(policy=POLICY)
    world.create(GROWN, [bytes(6400)])
    grow(world, DATA)
    world.truncate(GROWN, 6000)
    upkeep(world, readers_grace_s=0)
    world.seal(GROWN)
    upkeep(world, readers_grace_s=0)
    assert sizes(world) == [6400, 1040]
    assert world.content(GROWN) == bytes(400) + DATA


# -- real processes ------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_process_that_is_killed_ten_times_on_the_way_loses_nothing(tmp_path):
    path, fs = f"{tmp_path}/log", RollingFileSystem("file", policy=POLICY, sync=False, skip_instance_cache=True)
    fs.create(path)
    written, chance = b"", random.Random(7)
    for _ in range(10):
        options = ("--every", "0.1s", "--readers-grace", "0", "--option", "sync=false")
        with running("run", tmp_path, *options) as run:
            joined = 0
            while joined < 2:
                for _ in range(40):
                    data = chance.randbytes(chance.randrange(1, 60))
                    fs.append(path, data)
                    written += data
                line = run.stdout.readline()
                joined += b"joined to" in line and not line.startswith(b"round")
            time.sleep(chance.random() / 20)
            run.kill()
    fs.seal(path)
    keeper = Upkeep(core(fs).client, grace_s=0, readers_grace_s=0)
    for _ in range(2):
        assert not total(a_round(keeper, path)).failed
    segment = fs.segment(path)
    assert fs.cat_file(path) == written
    assert len(segment.chunks) <= -(-len(written) // 6400) + 1
    assert {row.state for row in segment.verify()} == {"ok"}
    assert segment.rewritten <= 4 * len(written)
