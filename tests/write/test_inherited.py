"""What a new segment inherits from folders that cannot be read."""

from __future__ import annotations

import errno

import pytest

from rollingfs import RollingPolicy
from rollingfs.folders.listing import Listings
from rollingfs.format.policies import PolicyChange
from rollingfs.runtime.concurrency import drive
from rollingfs.stream.stream_verbs import StreamVerbs
from tests.support.backends import private_memory
from tests.support.life import World
from tests.support.small import Unreadable


@pytest.mark.parametrize(("number", "is_believed"), [(errno.EIO, False), (errno.EBUSY, False), (errno.EACCES, True)])
def test_only_a_refusal_counts_for_the_next_segments_too(number, is_believed):
    store = private_memory()
    writer = World(store, RollingPolicy(200))
    drive(writer.client.segments.create("/root/first"))
    drive(StreamVerbs(writer.client, Listings(writer.client), "/root").set_rolling(PolicyChange(max_bytes=77)))
    away = Unreadable(store)
    world = World(away, RollingPolicy(200))
    away.error, away.is_away = number, True
    assert world.header(world.create("/root/a")).policy.max_bytes == 200
    away.is_away = False
    assert world.header(world.create("/root/b")).policy.max_bytes == (200 if is_believed else 77)
