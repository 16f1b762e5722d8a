"""What a new segment inherits from folders that cannot be read."""

import errno

import pytest

from rollingfs import RollingPolicy
from rollingfs.format.policies import PolicyChange
from rollingfs.runtime.concurrency import drive
from tests.support.backends import LOOKS, Scripted, private_memory, raises
from tests.support.life import World
from tests.support.small import verbs


@pytest.mark.parametrize(("number", "is_believed"), [(errno.EIO, False), (errno.EBUSY, False), (errno.EACCES, True)])
def test_only_a_refusal_counts_for_the_next_segments_too(number, is_believed):
    store = private_memory()
    writer = World(store, RollingPolicy(200))
    writer.create("/root/first")
    drive(verbs(writer).set_policies(PolicyChange(max_bytes=77)))
    away = Scripted(store)
    world = World(away, RollingPolicy(200))
    away.plan(LOOKS, lambda path: "$stream" in path, before=raises(OSError(number, "the store is away")), times=None)
    assert world.header(world.create("/root/a")).policy.max_bytes == 200
    away.plans.clear()
    assert world.header(world.create("/root/b")).policy.max_bytes == (200 if is_believed else 77)


def test_a_field_comes_from_the_nearest_folder():
    store = private_memory()
    writer, world = (World(store, RollingPolicy(200)) for _ in range(2))
    for folder, max_bytes in (("/root", 77), ("/root/sub", 33)):
        writer.create(f"{folder}/first")
        drive(verbs(writer, folder).set_policies(PolicyChange(max_bytes=max_bytes)))
    assert world.header(world.create("/root/sub/a")).policy.max_bytes == 33


def test_a_look_under_way_is_not_believed_after_forgetting():
    store = private_memory()
    writer, world = World(store), World(Scripted(store))
    writer.create("/root/first")
    drive(verbs(writer).set_policies(PolicyChange(max_bytes=33)))

    def change() -> None:
        drive(verbs(writer).set_policies(PolicyChange(max_bytes=77)))
        world.client.inherited.forget()

    world.backend.plan("read", "/root/$stream$header", after=change)
    assert world.header(world.create("/root/a")).policy.max_bytes == 33
    assert world.header(world.create("/root/b")).policy.max_bytes == 77
