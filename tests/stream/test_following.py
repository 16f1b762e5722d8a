"""A follower of folders: it finds segments, forgets those that ended, follows policies, and lists once a poll."""

import asyncio
import math
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import fsspec
import pytest

from rollingfs import Follower, OffloadPolicy, RollingFileSystem, RollingPolicy
from rollingfs.fs import follower
from rollingfs.runtime.concurrency import drive
from rollingfs.stream import blocks
from rollingfs.stream.blocks import Move, Wait
from rollingfs.stream.follow import Followed
from tests.support.backends import LOOKS, Counting, Scripted, fail, raises
from tests.support.faults import TieredStore
from tests.support.life import World
from tests.support.places import DATA, tiered, write
from tests.support.schedules import eventually
from tests.support.small import verbs


def tiers(fs: RollingFileSystem, path: str) -> set[str]:
    segment = fs.segment(path)
    return {chunk.tier for chunk in segment.chunks} | ({"inline"} if segment.chunks[-1].end < segment.length else set())


def test_each_segment_below_a_folder_follows_its_own_policy(root):
    fs = tiered(root)
    fs.set_policy(write(fs, f"{root}/own"), OffloadPolicy("far"))
    write(fs, f"{root}/kept/a")
    fs.set_policy(f"{root}/kept", OffloadPolicy(""))
    fs.set_policy(root, OffloadPolicy("cold", block_bytes=200, max_delay=0.2))
    write(fs, f"{root}/deep/er/a")
    with Follower(root, fs=tiered(root)) as follower:
        eventually(lambda: tiers(fs, f"{root}/own") == {"far"})
        eventually(lambda: tiers(fs, f"{root}/deep/er/a") == {"cold"})
        write(fs, f"{root}/later")
        eventually(lambda: tiers(fs, f"{root}/later") == {"cold"})
        eventually(lambda: f"{root}/later" in follower.status())
        eventually(lambda: follower.status()[f"{root}/later"].offloaded == 304)
        status = follower.status()[f"{root}/later"]
        assert (status.assigned, status.offloaded, status.lag_bytes, status.lag_s) == (304, 304, 0, 0.0)
        assert status.assigned_at is not None
        assert status.offloaded_at is not None
        assert status.assigned_at <= status.offloaded_at
    assert tiers(fs, f"{root}/kept/a") == {"", "inline"}
    assert [chunk.length for chunk in fs.segment(f"{root}/later").chunks] == [200, 104]
    assert fs.cat_file(f"{root}/later") == DATA + b"tail"


def test_segments_that_ended_or_are_gone_are_forgotten(root):
    fs = tiered(root, offload_policy=OffloadPolicy("cold", max_delay=0.1))
    ended, gone, open_ = write(fs, f"{root}/ended", seal=True), write(fs, f"{root}/gone"), write(fs, f"{root}/open")
    with Follower(root, fs=fs) as follower:
        eventually(lambda: tiers(fs, ended) == tiers(fs, gone) == tiers(fs, open_) == {"cold"})
        fs.rm(gone)
        eventually(lambda: set(follower.status()) == {open_})
        fs.onload(ended, deletion_lag=0)  # its header is another, so it is followed again
        eventually(lambda: tiers(fs, ended) == {"cold"})


def test_folder_with_damaged_memory_is_reported_others_continue(root):
    fs = tiered(root, offload_policy=OffloadPolicy("cold", max_delay=0.1))
    good, bad = write(fs, f"{root}/good/a"), write(fs, f"{root}/bad/a")
    fs.set_policy(f"{root}/bad", OffloadPolicy("far"))
    fsspec.filesystem("memory").pipe_file(f"{root}/bad/$stream$header", b"damaged")
    with Follower(root, fs=tiered(root, offload_policy=OffloadPolicy("cold", max_delay=0.1))) as follower:
        eventually(lambda: tiers(fs, good) == {"cold"})
        eventually(lambda: bad in follower.status() and follower.status()[bad].last_error is not None)
    assert tiers(fs, bad) == {"", "inline"}


def following(world: World, path: str | list[str], **given: Any) -> Follower:
    """A follower that a test drives, by the client of a world."""
    bridge, strip = SimpleNamespace(arun=lambda call: call), world.backend.strip
    below = SimpleNamespace(client=world.client, bridge=bridge, strip=strip)
    with mock.patch.object(follower, "core", return_value=below):
        return Follower(path, fs=cast("Any", None), **given)


def poll(one: Follower) -> list[str]:
    """List once, and look at all that is due; returns it."""

    async def polled() -> list[str]:
        if one._loop is None:
            one._prepare()
        one._list_s = -math.inf
        await one._list()
        one._begin()
        due = sorted(one._busy)
        await asyncio.gather(*one._busy.values())
        return due

    return asyncio.run(polled())


def test_policy_unreadable_when_set_counts_for_idle_segments():
    world = World(Scripted(TieredStore()), RollingPolicy(100, inline_bytes=10))
    world.create("/root/a", [DATA])
    one = following(world, "/")
    assert poll(one) == ["/root/a"]
    assert one.status() == {}, "no policy counts for it"
    writer = World(world.backend.inner, RollingPolicy(100, inline_bytes=10))
    drive(verbs(writer).set_offload_policy(OffloadPolicy("cold", max_delay=1000)))
    world.backend.plan(LOOKS, lambda path: "$stream" in path, before=fail, times=None)
    assert poll(one) == []
    world.backend.plans.clear()
    assert poll(one) == ["/root/a"]
    assert one.status()["/root/a"].tier == "cold"


def test_poll_of_idle_segments_lists_each_folder_once():
    world = World(Counting(TieredStore()), RollingPolicy(100, inline_bytes=10))
    for folder in "ab":
        for number in range(20):
            world.create(f"/root/{folder}/{number}", [DATA])
    one = following(world, "/", tier="cold", max_delay=1000)
    assert len(poll(one)) == 40
    world.backend.calls.clear()
    assert poll(one) == []
    assert [verb for verb, _ in world.backend.calls] == ["list"] * 4
    world.append("/root/a/7", b"more")
    assert poll(one) == ["/root/a/7"]


def test_stale_read_counts_until_the_next_listing_only(monkeypatch):
    world = World(TieredStore(), RollingPolicy(100, inline_bytes=10))
    world.create("/root/a", [DATA[:50]])
    one = following(world, "/", tier="cold", max_delay=1000)
    assert poll(one) == ["/root/a"]
    world.append("/root/a", b"more")

    async def stale(path: str, token: str) -> None:
        return None

    with monkeypatch.context() as patch:
        patch.setattr(world.backend, "read_if_changed", stale)
        patch.setattr(world.client.headers, "seen", lambda path: None)
        assert poll(one) == ["/root/a"]
        assert one._upkeep.rest_s("/root/a", None) > 0, "not again by the same listing"
    assert poll(one) == ["/root/a"]
    assert one.status()["/root/a"].lag_bytes == 54
    assert poll(one) == []


def test_failed_segment_waits_its_pause_in_spite_of_listings(monkeypatch):
    world = World(Counting(TieredStore()), RollingPolicy(100, inline_bytes=10))
    world.create("/root/a", [DATA])
    monkeypatch.setattr(Followed, "_move", raises(ConnectionError("the tier is away")))
    monkeypatch.setattr(blocks, "retry_s", lambda failures, chance: 300.0)
    one = following(world, "/", tier="cold", block_bytes=100, max_delay=1000)
    assert poll(one) == ["/root/a"]
    world.backend.calls.clear()
    assert poll(one) == []
    assert {verb for verb, _ in world.backend.calls} == {"list"}
    world.append("/root/a", b"more")
    assert poll(one) == ["/root/a"], "so that the status shows that it grows"
    assert one.status()["/root/a"].lag_bytes == 304
    assert one.status()["/root/a"].last_error == "the tier is away"


def test_damaged_header_waits_its_pause_in_spite_of_listings(monkeypatch):
    store = TieredStore()
    world = World(store, RollingPolicy(100, inline_bytes=10))
    world.create("/root/a", [DATA])
    monkeypatch.setattr(blocks, "retry_s", lambda failures, chance: 300.0)
    one = following(world, "/", tier="cold", max_delay=1000)
    assert poll(one) == ["/root/a"]
    store._put("/root/a$header", b"damaged")
    assert poll(one) == ["/root/a"]
    assert "header" in str(one.status()["/root/a"].last_error)
    assert poll(one) == []


def test_folder_that_may_not_be_listed_leaves_others_followed():
    world = World(Scripted(TieredStore()), RollingPolicy(100, inline_bytes=10))
    world.create("/root/a/s", [DATA])
    world.create("/other/b/s", [DATA])
    one = following(world, ["/root/a", "/other/b"], tier="cold", max_delay=1000)
    assert poll(one) == ["/other/b", "/root/a"]
    assert poll(one) == ["/other/b/s", "/root/a/s"]
    world.backend.plan("list", "/other/b", before=raises(PermissionError("no")), times=None)
    world.append("/root/a/s", b"more")
    world.create("/root/a/later", [DATA])
    assert poll(one) == ["/root/a/later", "/root/a/s"]


def test_pause_below_a_clock_step_is_no_loop(monkeypatch):
    world = World(TieredStore(), RollingPolicy(100, inline_bytes=10))
    world.create("/root/a", [DATA])

    async def look(self: Followed, ledger: object = None) -> Wait:
        return Wait(1e-9)

    monkeypatch.setattr(Followed, "look", look)
    monkeypatch.setattr(Followed, "tier", "cold")
    one = following(world, "/root/a")
    assert poll(one) == ["/root/a"]
    assert poll(one) == []


def test_end_of_the_program_ends_a_follower(monkeypatch):
    world = World(TieredStore(), RollingPolicy(100, inline_bytes=10))
    monkeypatch.setattr(Followed, "look", raises(RuntimeError("no thread can begin")))
    monkeypatch.setattr(follower, "main_has_ended", lambda: True)
    with pytest.raises(RuntimeError, match="no thread"):
        following(world, "/root/a").run()


def test_named_folder_is_followed_without_a_warning(caplog):
    world = World(TieredStore(), RollingPolicy(100, inline_bytes=10))
    world.create("/root/a", [DATA])
    one = following(world, "/root", tier="cold", max_delay=1000)
    assert poll(one) == ["/root"]
    assert poll(one) == ["/root/a"]
    assert list(one.status()) == ["/root/a"]
    assert not caplog.records


@pytest.mark.parametrize("is_named", [False, True])
def test_planned_block_stays_once_the_folder_forbids_moves(is_named, monkeypatch):
    world, move, planned = World(TieredStore(), RollingPolicy(100, inline_bytes=10)), Followed.move, list[Move]()
    world.create("/root/a", [DATA])
    drive(verbs(world).set_offload_policy(OffloadPolicy("cold", block_bytes=100)))

    async def late(self: Followed, block: Move) -> Wait:
        planned.append(block)
        drive(verbs(world).set_offload_policy(OffloadPolicy("")))
        return await move(self, block)

    monkeypatch.setattr(Followed, "move", late)
    of_all = following(world, "/root/a" if is_named else "/")
    assert poll(of_all) == ["/root/a"]
    poll(of_all)
    assert len(planned) == 1
    assert {chunk.tier for chunk in world.header("/root/a").entries} == {""}
