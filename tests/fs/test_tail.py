"""Following a segment: every byte once, in order, until it is sealed."""

import asyncio
import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace

import pytest

from rollingfs import BadOffsetError, RollingPolicy, SegmentTruncatedError
from rollingfs.fs.core import Core
from rollingfs.fs.tail import Tail, open_follow
from tests.support.backends import Counting, Scripted, private_memory
from tests.support.life import World

LOG = "/log"
POLICY = RollingPolicy(max_bytes=40, inline_bytes=10)


@pytest.fixture
def world():
    world = World(Counting(private_memory()), POLICY)
    world.create(LOG, [b"0123456789" * 10])
    return world


@pytest.fixture
def other(world):
    """Another client."""
    return World(world.backend.inner, POLICY)


@pytest.fixture
def naps(monkeypatch):
    """What is done in each pause, in order; pauses cost no time. An exhausted list fails the test."""
    todo, lengths = [], []

    def sleep(seconds):
        lengths.append(seconds)
        todo.pop(0)()

    monkeypatch.setattr("rollingfs.fs.tail.time.sleep", sleep)
    return SimpleNamespace(todo=todo, lengths=lengths)


def tail(world, *args, **options):
    return Tail(Core(world.client, world.bridge), LOG, *args, **options)


def test_without_follow_it_ends_where_the_segment_ends(world):
    assert b"".join(tail(world, follow=False)) == b"0123456789" * 10
    assert b"".join(tail(world, 95, follow=False)) == b"56789"
    assert list(tail(world, 100, follow=False)) == []


def test_it_goes_on_with_what_is_appended_and_ends_at_the_seal(world, other, naps):
    naps.todo += [partial(other.append, LOG, b"small"), lambda: None, partial(other.append, LOG, b"large" * 30)]
    naps.todo.append(lambda: (other.append(LOG, b"last"), other.seal(LOG)))
    assert b"".join(tail(world)) == b"0123456789" * 10 + b"small" + b"large" * 30 + b"last"
    assert naps.todo == []


def test_the_async_iterator_gives_the_same(world, other):
    async def follow():
        found = b""
        async for piece in tail(world, 90, poll_s_min=0.001, poll_s_max=0.001):
            found += piece
            if found == b"0123456789":
                other.append(LOG, b"more")
                other.seal(LOG)
        return found

    assert asyncio.run(follow()) == b"0123456789more"


def test_an_idle_segment_costs_one_conditional_request_a_poll_more_and_more_rarely(world, other, naps):
    naps.todo += [lambda: None] * 20
    naps.todo.append(lambda: other.append(LOG, b"!"))
    follower = tail(world, 100, poll_s_min=0.1, poll_s_max=1.0)
    world.backend.clear()
    assert next(follower) == b"!"
    assert world.backend.verbs == ["read_if_changed"] * 22
    assert naps.lengths[0] == 0.1
    assert naps.lengths == sorted(naps.lengths)
    assert naps.lengths[-1] == 1.0
    naps.lengths.clear()
    naps.todo.append(lambda: other.append(LOG, b"?"))
    assert next(follower) == b"?"
    assert naps.lengths == [0.1]


def test_what_was_truncated_before_it_was_read_is_an_error(world, other, naps):
    follower = tail(world, 10)
    assert next(follower) == (b"0123456789" * 10)[10:]
    naps.todo.append(lambda: (other.append(LOG, b"x" * 100), other.truncate(LOG, 150)))
    with pytest.raises(SegmentTruncatedError, match="150 to 200"):
        next(follower)
    with pytest.raises(SegmentTruncatedError):
        next(tail(world, 20))
    assert next(tail(world)) == b"x" * 50


def test_offsets_outside_are_refused(world):
    with pytest.raises(BadOffsetError, match="at least 0"):
        tail(world, -1)
    with pytest.raises(BadOffsetError, match="beyond the end"):
        next(tail(world, 101))
    with pytest.raises(ValueError, match="poll_s_min is 0"):
        tail(world, poll_s_min=0.0)


def test_a_file_that_follows_gives_lines_as_they_come(world, other):
    lines = []
    file = open_follow(Core(world.client, world.bridge), world.create("/lines", [b"one\ntw"]))
    reader = threading.Thread(target=lambda: lines.extend(file))
    reader.start()
    for piece in (b"o\n", b"three\n" * 20, b"no end"):
        other.append("/lines", piece)
    other.seal("/lines")
    reader.join(30)
    assert lines == [b"one\n", b"two\n", *[b"three\n"] * 20, b"no end"]
    assert file.read() == b""
    assert file.name == "/lines"


def test_bytes_that_a_cancelled_wait_was_about_to_get_come_with_the_next(other):
    world, reading, may_go_on = World(Scripted(other.backend), POLICY), threading.Event(), threading.Event()
    other.seal(LOG)
    world.backend.plan("read_range", before=lambda: (reading.set(), may_go_on.wait(60)))

    async def follow():
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))  # the next call follows the first
        pieces = tail(world)
        task = asyncio.ensure_future(anext(pieces))
        while not reading.is_set():
            await asyncio.sleep(0.001)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        may_go_on.set()
        return await anext(pieces)

    assert asyncio.run(follow()) == b"0123456789" * 10
