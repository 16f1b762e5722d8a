"""Upkeep joins small chunks by itself; `benchmarks.life` kills it, and the simulation has other clients beside it."""

import random

from rollingfs import RollingPolicy
from rollingfs.stream.upkeep import Upkeep, Upkept, total
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


def test_growing_segment_has_few_chunks_and_sealed_the_fewest():
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


def test_truncated_large_chunks_rest_is_not_rewritten():
    world = World(policy=POLICY)
    world.create(GROWN, [bytes(6400)])
    grow(world, DATA)
    world.truncate(GROWN, 6000)
    upkeep(world, readers_grace_s=0)
    world.seal(GROWN)
    upkeep(world, readers_grace_s=0)
    assert sizes(world) == [6400, 1040]
    assert world.content(GROWN) == bytes(400) + DATA
