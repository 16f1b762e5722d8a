"""Collection deletes what nobody refers to, and nothing else.

Rules of the protocol: P12.1 to P12.15.
"""

import time
import uuid

import pytest

from rollingfs import CorruptHeaderError, RollingPolicy
from rollingfs.backend.local.backend import LocalBackend
from rollingfs.format import names
from rollingfs.format.codec import format_header
from rollingfs.format.drops import with_hints
from rollingfs.format.header import GRACE_S, Drop, Header, Phase
from rollingfs.format.side_files import Pin, format_pin, pin_path
from rollingfs.runtime.concurrency import drive
from rollingfs.segment.files.survey import is_old
from tests.support.backends import Scripted, Shifted, private_memory
from tests.support.life import World

POLICY = RollingPolicy(max_bytes=10, inline_bytes=0)


@pytest.fixture(params=[private_memory, lambda: LocalBackend(sync=False)], ids=["memory", "local"])
def world(request):
    return World(Shifted(request.param()), POLICY, time.time)


def give_hint(world, path, folder):
    """Let a header lead collections to another folder."""

    async def hint(base, attempt):
        return with_hints(base.header, [folder], 1)

    drive(world.client.commits.commit(path, hint))


def test_orphans_older_than_grace_go_and_rest_stays(world, tmp_path):
    where = world.create(f"{tmp_path}/segment", [b"x" * 95])
    old = [world.orphan(where), world.orphan(where, names.new_staged_name()), world.orphan(where, "tmp-1")]
    mine = world.orphan(where, "notes.txt")
    before = world.collect(where, None)
    assert (before.files, before.young) == ((), 3)
    world.backend.shift_s = GRACE_S + 60
    assert set(world.collect(where, None, dry_run=True).files) == set(old)
    assert set(old) < {entry.path for entry in drive(world.backend.list(names.chunks_folder(where))).entries}
    assert set(world.collect(where, None).files) == set(old)
    assert world.content(where) == b"x" * 95
    assert mine.rpartition("/")[2] in world.files(where)


def test_collection_makes_a_version_that_commits_notice(world, tmp_path):
    where = world.create(f"{tmp_path}/segment", [b"x"])
    version = world.header(where).version
    world.collect(where)
    assert world.header(where).version == version
    world.orphan(where)
    world.collect(where)
    assert world.header(where).version == version + 1


def test_header_of_another_folder_gives_no_word_for_it(world, tmp_path):
    victim, forged = world.create(f"{tmp_path}/victim/s", [b"v" * 20]), world.create(f"{tmp_path}/mine/s", [b"m"])
    under_way = world.orphan(victim)
    give_hint(world, forged, "../victim/s$chunks/")
    assert world.collect(forged).files == ()
    assert under_way.rpartition("/")[2] in world.files(victim)
    assert world.collect(victim).files == (under_way,)


def test_hint_goes_once_the_tombstones_file_is_gone(world, tmp_path):
    there, gone = world.create(f"{tmp_path}/there", [b"t"]), f"{tmp_path}/gone"
    folder, kept = names.chunks_folder(gone), Drop("00000000000000000000-5f3a9c21e0b4", 1, after_ms=1)
    grave = Header(str(uuid.uuid4()), 1, phase=Phase.DELETED, drops=(kept,))
    world.write(names.header_path(gone), format_header(grave))
    for name in (kept.file, "unknown"):
        world.write(f"{folder}/{name}", b"bytes")
    give_hint(world, there, "gone$chunks/")
    world.collect(there)
    assert world.header(there).drops != ()
    drive(world.backend.delete([f"{folder}/{kept.file}"]))
    world.collect(there)
    assert world.header(there).drops == ()


def test_unreadable_pin_stops_collection_and_absent_one_keeps_files(world, tmp_path):
    target = world.create(f"{tmp_path}/target", [b"t"])
    source = world.create(f"{tmp_path}/source", [b"s" * 40])
    world.concat(target, [source])
    lost, header = world.orphan(source), names.header_path(target)
    drive(world.backend.replace(header, b"garbage", drive(world.backend.read(header)).token))
    world.client.headers.forget()
    with pytest.raises(CorruptHeaderError):
        world.collect(source)
    drive(world.backend.delete([header]))
    world.client.headers.forget()
    assert world.collect(source).files == (lost,), "it was still there"
    assert len(world.files(source)) == 5


@pytest.mark.parametrize("is_undone", [True, False])
def test_pin_after_an_undone_move_keeps_nothing(world, tmp_path, is_undone):
    """Its request was late. Of a move that took place, the target's tree may have been moved by another tool."""
    source, target = world.create(f"{tmp_path}/source", [b"s" * 40]), f"{tmp_path}/target"
    folder, segment, txn = names.chunks_folder(source), world.header(source).segment, str(uuid.uuid4())
    if not is_undone:
        world.rename(source, target)
        txn = drive(world.client.headers.load(source)).header.merged
        drive(world.backend.delete([names.header_path(target), pin_path(folder, txn)]))
    pin, late = Pin(txn, source, target, segment), pin_path(folder, txn)
    world.write(late, format_pin(pin, folder))
    extra = world.orphan(source)
    world.backend.shift_s = GRACE_S + 60
    assert ({late, extra} <= set(world.collect(source, None).files)) is is_undone


def test_old_tombstone_without_files_is_removed(world, tmp_path):
    where = world.create(f"{tmp_path}/segment", [b"x" * 40])
    world.delete(where)
    if world.backend.capability.removes_whole:  # it went with the delete
        with pytest.raises(FileNotFoundError):
            world.collect(where)
        return
    assert world.collect(where, None).files == ()
    world.backend.shift_s = GRACE_S + 60
    assert names.header_path(where) in world.collect(where, None).files
    with pytest.raises(FileNotFoundError):
        world.collect(where)


def test_evidence_of_a_dead_move_without_target_goes(world, tmp_path):
    source, target = world.create(f"{tmp_path}/source", [b"s" * 40]), f"{tmp_path}/sub/target"
    folder = names.chunks_folder(target)
    pin = Pin(str(uuid.uuid4()), source, target, world.header(source).segment)
    evidence = pin_path(folder, pin.txn)
    world.write(evidence, format_pin(pin, folder))
    assert world.collect(target, None).files == (), "its mover may be about to send the mark"
    world.backend.shift_s = GRACE_S + 60
    assert evidence in world.collect(target, None).files
    assert world.files(target) == []
    assert world.content(source) == b"s" * 40


def test_move_between_two_reads_is_seen_by_the_second(world, tmp_path):
    """The listing knows the pin of the first target only, and when that is read its chunks have gone to another."""
    first, second = world.create(f"{tmp_path}/first"), f"{tmp_path}/second"
    source = world.create(f"{tmp_path}/source", [b"s" * 40])
    world.concat(first, [source])
    moving = Scripted(world.backend)
    moving.plan(("read", "read_if_changed"), names.header_path(first), before=lambda: world.rename(first, second))
    World(moving, POLICY, time.time).collect(source)
    assert not moving.plans
    assert world.content(second) == b"s" * 40


def test_file_in_the_clocks_future_has_no_grace():
    assert is_old(now=100.0, since=100.9, grace_s=0)
    assert not is_old(now=100.0, since=100.9, grace_s=0.5)
    assert is_old(now=100.0, since=40.0, grace_s=60)
