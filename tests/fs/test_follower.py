"""`Follower`: many segments at once, in threads or on an event loop, until it is stopped; and its command."""

import asyncio
import threading
from typing import Any

import fsspec
import pytest

from rollingfs import Follower, OffloadStatus, RollingFileSystem, UnknownTierError
from rollingfs.stream import follow
from rollingfs.stream.blocks import RETRY_S_MAX
from tests.support.backends import raises
from tests.support.cli import done
from tests.support.places import DATA, tiered, write
from tests.support.schedules import count_at_once, eventually

WAIT_S = 60.0
"""Only a broken test waits so long."""


def test_one_segment_that_fails_does_not_stop_the_others(root):
    fs, good, missing = tiered(root), f"{root}/good", f"{root}/missing"
    write(fs, good, seal=True)
    with Follower([missing, good], fs=fs) as follower:
        eventually(lambda: follower.status()[good].cold_end == 304)
        eventually(lambda: follower.status()[missing].last_error)
        assert "No such segment" in str(follower.status()[missing].last_error)
        assert follower.status()[good].last_error is None


def test_status_shows_growth_while_the_move_waits_for_retry(root, monkeypatch):
    fs, path = tiered(root), f"{root}/s"
    fs.pipe_file(path, DATA)
    monkeypatch.setattr(follow.Followed, "_move", raises(ConnectionError("the tier is away")))
    monkeypatch.setattr(follow.blocks, "retry_s", lambda failures, chance: RETRY_S_MAX)
    with Follower(path, "cold", 100, max_delay=0.2, fs=fs) as follower:
        eventually(lambda: follower.status()[path].last_error)
        fs.append(path, b"tail")
        eventually(lambda: follower.status()[path].lag_bytes == 304)
        assert follower.status()[path].last_error == "the tier is away"


def test_plain_file_is_followed_once_it_becomes_a_segment(root, monkeypatch):
    fs, path, told = tiered(root), f"{root}/plain", list[OffloadStatus]()
    fsspec.filesystem("memory").pipe_file(path, b"a plain file")
    monkeypatch.setattr(follow.blocks, "retry_s", lambda failures, chance: RETRY_S_MAX)
    monkeypatch.setattr(follow.blocks, "POLL_S_MAX", 0.1)
    with Follower(path, "cold", 100, max_delay=0.2, fs=fs, on_change=lambda _, status: told.append(status)):
        eventually(lambda: told and "plain file" in str(told[-1].last_error))
        fs.append(path, b" no more")
        eventually(lambda: told[-1].cold_end == len(b"a plain file no more") and not told[-1].last_error)


def test_a_cancelled_run_waits_for_the_block_under_way(root, monkeypatch):
    fs, path = tiered(root), f"{root}/s"
    fs.pipe_file(path, DATA)
    follower = Follower(path, "cold", 100, fs=fs)
    move, tasks = follow.Followed.move, []
    has_cancelled = threading.Event()

    def cancel() -> None:
        tasks[0].cancel()
        has_cancelled.set()

    async def cancelled_within(self: Any, block: Any) -> Any:
        tasks[0].get_loop().call_soon_threadsafe(cancel)
        assert has_cancelled.wait(WAIT_S)
        return await move(self, block)

    async def run() -> None:
        tasks.append(asyncio.ensure_future(follower._run()))
        with pytest.raises(asyncio.CancelledError):
            await tasks[0]

    monkeypatch.setattr(follow.Followed, "move", cancelled_within)
    asyncio.run(run())
    assert follower.status()[path].cold_end == 100


def test_blocks_beyond_the_memory_wait_and_move_later(root, monkeypatch):
    fs = tiered(root)
    paths = [write(fs, f"{root}/{number}", seal=True) for number in range(6)]
    moves = count_at_once(monkeypatch, follow.Followed, "move")
    follower = Follower(paths, fs=fs, max_memory="64MiB")
    follower.run()
    assert moves["most"] == 1
    assert {status.cold_end for status in follower.status().values()} == {304}


def test_error_of_callback_ends_follower_and_reaches_its_user(root, caplog):
    fs, has_failed = tiered(root), threading.Event()

    def fail(path: str, status: OffloadStatus) -> None:
        has_failed.set()
        raise BrokenPipeError("nobody listens")

    paths = [write(fs, f"{root}/{name}", seal=True) for name in "ab"]
    with pytest.raises(BrokenPipeError):
        Follower(paths, fs=fs, on_change=fail).run()
    has_failed.clear()
    follower = Follower(paths, fs=fs, on_change=fail).start()
    assert has_failed.wait(WAIT_S)
    with pytest.raises(BrokenPipeError):
        follower.close()
    assert "has ended: BrokenPipeError('nobody listens')" in caplog.text


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"tier": "warm"}, UnknownTierError, "'warm' is not configured"),
        ({"block_bytes": 0}, ValueError, "block_bytes is 0"),
        ({"block_bytes": "5x"}, ValueError, "not a size"),
        ({"max_delay": -1}, ValueError, "max_delay is -1"),
        ({"max_memory": 0}, ValueError, "max_memory is 0"),
        ({"paths": []}, ValueError, "at least one segment"),
        ({"paths": "/x$chunks"}, ValueError, r"\$chunks"),
    ],
)
def test_invalid_arguments_are_refused_before_anything_is_followed(root, given, error, said):
    with pytest.raises(error, match=said):
        Follower(**{"paths": f"{root}/s", **given}, fs=tiered(root))


def test_a_follower_is_started_once(root):
    with (
        Follower(write(tiered(root), f"{root}/s", seal=True), fs=tiered(root)) as follower,
        pytest.raises(RuntimeError, match="started already"),
    ):
        follower.start()


# -- roll, and the commands ----------------------------------------------------------------------------------


def test_plain_file_has_nothing_inline_and_stays_unchanged(root):
    fs, path = tiered(root), f"{root}/plain"
    fsspec.filesystem("memory").pipe_file(path, b"a plain file")
    assert fs.roll(path) == 12
    assert fs.segment(path).roll() == 12
    assert fs.segment(path).version == 0
    with pytest.raises(FileNotFoundError):
        fs.roll(f"{root}/none")


def test_the_commands_roll_and_follow(tmp_path):
    fs = RollingFileSystem("file", max_bytes=100, inline_bytes=10)
    path = str(tmp_path / "s")
    write(fs, path, seal=True)
    option = ("--option", f"tiers.cold.root={tmp_path}/archive")
    assert "all bytes before offset 304 lie in chunks" in done("roll", path).text
    assert '"length": 304' in done("roll", path, "--json").text
    said = done("offload", "--follow", "--block", "100", path, *option).text.splitlines()
    assert said[-1] == f"{path}: in 'cold' up to offset 304; nothing behind"
    assert '"cold_end": 304' in done("offload", "--follow", "--json", path, *option).text
    assert {chunk.tier for chunk in fs.segment(path).chunks} == {"cold"}
