"""Verification says of every chunk what is wrong with it."""

import pytest

from rollingfs import RollingPolicy
from rollingfs.format import names
from rollingfs.segment.verbs.verify import damaged
from tests.support.backends import Scripted, private_memory
from tests.support.life import World

LOG = "/log"


@pytest.fixture
def world():
    world = World(private_memory(), RollingPolicy(max_bytes=50, inline_bytes=0))
    world.create(LOG, [bytes([65 + index]) * 50 for index in range(6)])
    return world


def file(world, index):
    return names.resolve(LOG, world.header(LOG).entries[index].file)


def states(world, path=LOG):
    return [row.state for row in world.rows(path)]


def test_each_damage_has_its_word_and_others_are_ok(world):
    world.backend.fs.rm_file(file(world, 0))
    world.backend._put(file(world, 1), b"B" * 49)
    world.backend._put(file(world, 2), b"C" * 51)
    world.backend._put(file(world, 3), b"D" * 49 + b"x")
    world.backend._put(file(world, 4), b"")
    rows = world.rows(LOG)
    assert [row.state for row in rows] == ["missing", "too short", "too long", "corrupt", "too short", "ok"]
    assert [row.found_size for row in rows] == [None, 49, 51, 50, 0, 50]
    assert [(row.start, row.length, row.size) for row in rows] == [(50 * index, 50, 50) for index in range(6)]
    assert damaged(rows) == rows[:5]
    assert rows[5].file == file(world, 5)


def test_a_page_that_cannot_be_read_is_one_row(world):
    for index in range(200):
        world.append(LOG, bytes([index]))
    page = world.header(LOG).entries[0]
    good = world.backend.fs.cat_file(names.resolve(LOG, page.file))
    world.client.pages.after_fork()  # forget what was read
    world.backend._put(names.resolve(LOG, page.file), good[:-1])
    assert states(world) == ["corrupt"] + ["ok"] * (206 - page.count)
    world.backend.fs.rm_file(names.resolve(LOG, page.file))
    assert states(world) == ["missing"] + ["ok"] * (206 - page.count)


def test_plain_files_and_segments_without_chunks_are_whole(world):
    world.backend.fs.pipe_file("/plain", b"12345")
    assert states(world, "/plain") == ["ok"]
    assert states(world, world.create("/empty")) == []
    with pytest.raises(FileNotFoundError):
        states(world, "/nothing")


def test_what_goes_while_it_is_verified_is_no_damage():
    world = World(Scripted(private_memory()), RollingPolicy(max_bytes=50, inline_bytes=0))
    world.create(LOG, [b"x" * 50] * 4)
    other = World(world.backend.inner, world.client.inherited.default)
    world.backend.plan("read_range", before=lambda: other.truncate(LOG, 150))
    assert states(world) == ["ok"]
