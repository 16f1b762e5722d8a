"""Following a segment: every byte once, in order, until it is sealed."""

import asyncio
import contextlib
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace

import pytest

from rollingfs import BadOffsetError, RollingFileSystem, RollingPolicy, SegmentReplacedError, SegmentTruncatedError
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


def test_follower_continues_through_appends_and_ends_at_the_seal(world, other, naps):
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


def test_idle_segment_costs_one_conditional_request_per_rarer_poll(world, other, naps):
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


def test_what_was_truncated_before_it_was_read_is_error(world, other, naps):
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


def test_bytes_of_a_cancelled_wait_come_with_the_next(other):
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


# -- another segment or file has the name --------------------------------------------------------------------------

LINES = b"".join(b"old record %d\n" % number for number in range(40))
NEXT = b"".join(b"new record %d of the next file\n" % number for number in range(40))


def napping(follower, *todo):
    """A follower that does one thing in each pause."""
    left = list(todo)
    follower.pause = lambda seconds: left.pop(0)()
    return follower


def rotated(fs, path):
    fs.mv(path, f"{path}.1")
    fs.pipe_file(path, NEXT)


def written(path, how, data=NEXT):
    with open(path, how) as file:
        file.write(data)


def moved(fs, path):
    os.replace(path, f"{path}.1")
    written(path, "wb")


ROTATIONS = {
    "overwritten": lambda fs, path: fs.pipe_file(path, NEXT),
    "renamed": rotated,
    "plain, renamed": moved,
    "plain, written anew in place": lambda fs, path: written(path, "wb"),
    "plain, shorter": lambda fs, path: written(path, "wb", NEXT[:90]),
    "plain, then a segment": lambda fs, path: (os.remove(path), fs.pipe_file(path, NEXT)),
    "plain, adopted when it was another": lambda fs, path: (moved(fs, path), fs.append(path, b"more\n")),
}
"""What happens to a log of `LINES` that was read to its end; a plain file is one of another program."""


@pytest.fixture(params=ROTATIONS)
def log(request, tmp_path):
    """A filesystem, a log, and what happens to it."""
    fs, path = RollingFileSystem("file"), str(tmp_path / "log")
    if request.param.startswith("plain"):
        written(path, "wb", LINES)
    else:
        fs.pipe_file(path, LINES)
    return SimpleNamespace(fs=fs, path=path, rotate=partial(ROTATIONS[request.param], fs, path))


def test_follower_never_continues_at_another_files_old_offset(log):
    follower = napping(log.fs.segment(log.path).tail(), log.rotate)
    assert next(follower) == LINES
    spot = str(follower.spot)
    with pytest.raises(SegmentReplacedError, match="another has its name"):
        next(follower)
    with pytest.raises(SegmentReplacedError) as told:
        next(log.fs.segment(log.path).tail(spot))
    assert next(log.fs.segment(log.path).tail(told.value.start))[:10] == b"new record"


def test_following_file_fails_when_another_takes_the_name(log):
    with log.fs.open(log.path, follow=True) as file:
        napping(file.raw._tail, log.rotate)
        assert file.read(len(LINES)) == LINES
        with pytest.raises(SegmentReplacedError):
            file.read(1)


def test_follower_that_retries_reads_other_from_its_start(log, caplog):
    fs, path = log.fs, log.path
    third = [partial(fs.seal, path), partial(fs.rm, path), lambda: None, partial(fs.pipe_file, path, b"the third\n")]
    follower = napping(fs.segment(path).tail(retry=True), log.rotate, lambda: None, *third, lambda: None)
    assert next(follower) == LINES
    assert next(follower).startswith(b"new record 0")
    assert f"read up to offset {len(LINES)}" in caplog.text
    while (piece := next(follower)) != b"the third\n":
        assert piece == b"more\n"


def test_plain_file_that_grows_or_is_adopted_is_same(tmp_path):
    fs, path = RollingFileSystem("file"), str(tmp_path / "log")
    written(path, "wb", LINES)
    adopted = partial(fs.append, path, b"adopted\n")
    follower = napping(fs.segment(path).tail(), partial(written, path, "ab"), adopted, partial(fs.seal, path))
    assert next(follower) == LINES
    spots = [str(follower.spot)]
    assert (next(follower), str(follower.spot)[-9:] != spots[0][-9:]) == (NEXT, True)
    spots.append(str(follower.spot))
    assert list(follower) == [b"adopted\n"]
    assert [b"".join(fs.segment(path).tail(spot)) for spot in spots] == [NEXT + b"adopted\n", b"adopted\n"]
    renamed = str(follower.spot)
    fs.mv(path, f"{path}.1")
    assert list(fs.segment(f"{path}.1").tail(renamed)) == []


@pytest.mark.parametrize("text", ["", "x", "-1", "1-", "1-3fa9", "1-3FA9c1b2", "1.5", "1-2.3", "1 "])
def test_a_text_that_is_no_spot_is_refused(world, text):
    with pytest.raises(ValueError, match="neither an offset"):
        tail(world, text)
