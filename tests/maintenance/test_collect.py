"""Collection deletes what nobody refers to, and nothing else."""

import uuid

import pytest

from rollingfs import CorruptHeaderError, RollingPolicy
from rollingfs.backend.local.backend import LocalBackend
from rollingfs.backend.memory import MemoryBackend
from rollingfs.client import Client
from rollingfs.format import names
from rollingfs.format.codec import format_header
from rollingfs.format.drops import with_hints
from rollingfs.format.header import GRACE_S, Drop, Header, Phase
from rollingfs.format.pin_codec import Pin, format_pin, pin_path
from rollingfs.maintenance.collected import is_old
from rollingfs.runtime.concurrency import drive
from tests.support.backends import Scripted, Shifted
from tests.write.test_concat import content, header, make, path

POLICY = RollingPolicy(max_bytes=10, inline_bytes=0)


@pytest.fixture(params=["memory", "local"])
def client(request, tmp_path):
    inner = MemoryBackend() if request.param == "memory" else LocalBackend(sync=False)
    client = Client(Shifted(inner), POLICY)
    client.root = f"/{uuid.uuid4().hex}" if request.param == "memory" else str(tmp_path)
    return client


def files(client, where):
    """The names in a segment's chunk folder."""
    try:
        listing = drive(client.backend.list(names.chunks_folder(where)))
    except FileNotFoundError:
        return []
    return [found for entry in listing.entries if (found := entry.path.rpartition("/")[2]) != names.LOCK_NAME]


def collect(client, where, grace_s=0.0, **options):
    return drive(client.collector.collect(where, grace_s=grace_s, **options))


def orphan(client, where, name=None):
    file = f"{names.chunks_folder(where)}/{name or names.new_chunk_name(0)}"
    drive(client.backend.write(file, [b"orphan"]))
    return file


def test_orphans_older_than_the_grace_go_and_the_rest_stays(client):
    where = make(client, "segment", b"x" * 95)
    old = [orphan(client, where), orphan(client, where, names.new_staged_name()), orphan(client, where, "tmp-1")]
    mine = orphan(client, where, "notes.txt")
    before = collect(client, where, None)
    assert (before.files, before.young) == ((), 3)
    client.backend.inner.shift_s = GRACE_S + 60
    dry = collect(client, where, None, dry_run=True)
    assert set(dry.files) == set(old)
    assert set(old) < {entry.path for entry in drive(client.backend.list(names.chunks_folder(where))).entries}
    assert set(collect(client, where, None).files) == set(old)
    assert content(client, where) == b"x" * 95
    assert mine.rpartition("/")[2] in files(client, where)


def test_an_ask_goes_after_a_minute_and_other_leftovers_stay(client):
    where = make(client, "segment", b"x" * 95)
    ask, leftover = orphan(client, where, "tmp-ask-5b2e9d0c"), orphan(client, where, "tmp-1")
    client.backend.inner.shift_s = 50
    assert collect(client, where, None).files == ()
    client.backend.inner.shift_s = 70
    found = collect(client, where, None)
    assert found.files == (ask,)
    assert found.reasons == {ask: "ask of a writer that waits no longer"}
    assert leftover in {entry.path for entry in drive(client.backend.list(names.chunks_folder(where))).entries}


def test_a_collection_is_a_new_version_so_that_commits_in_flight_look_again(client):
    where = make(client, "segment", b"x")
    version = header(client, where).version
    collect(client, where)
    assert header(client, where).version == version
    orphan(client, where)
    collect(client, where)
    assert header(client, where).version == version + 1


def test_a_header_that_leads_to_another_folder_gives_no_word_for_it(client):
    victim, forged = make(client, "victim/s", b"v" * 20), make(client, "mine/s", b"m")
    under_way = orphan(client, victim)

    async def hint(base, attempt):
        return with_hints(base.header, ["../victim/s$chunks/"], 1)

    drive(client.commits.commit(forged, hint))
    assert collect(client, forged).files == ()
    assert under_way.rpartition("/")[2] in files(client, victim)
    assert collect(client, victim).files == (under_way,)


def test_a_hint_goes_once_the_file_is_gone_that_a_tombstone_kept_there(client):
    there, gone = make(client, "there", b"t"), path(client, "gone")
    folder, kept = names.chunks_folder(gone), Drop("00000000000000000000-5f3a9c21e0b4", 1, after_ms=1)
    grave = Header(str(uuid.uuid4()), 1, phase=Phase.DELETED, drops=(kept,))
    drive(client.backend.write(names.header_path(gone), [format_header(grave)]))
    for name in (kept.file, "unknown"):
        drive(client.backend.write(f"{folder}/{name}", [b"bytes"]))

    async def hint(base, attempt):
        return with_hints(base.header, ["gone$chunks/"], 1)

    drive(client.commits.commit(there, hint))
    collect(client, there)
    assert header(client, there).drops != ()
    drive(client.backend.delete([f"{folder}/{kept.file}"]))
    collect(client, there)
    assert header(client, there).drops == ()


def test_an_unreadable_pinned_header_stops_the_collection(client):
    target = make(client, "target", b"t", sealed=False)
    source = make(client, "source", b"s" * 40)
    drive(client.concats.concat(target, [source]))
    lost = orphan(client, source)
    token = drive(client.backend.read(names.header_path(target))).token
    drive(client.backend.replace(names.header_path(target), b"garbage", token))
    client.headers.forget()
    with pytest.raises(CorruptHeaderError):
        collect(client, source)
    assert lost.rpartition("/")[2] in files(client, source)


def test_a_pinned_target_that_is_absent_keeps_what_it_may_refer_to(client):
    target = make(client, "target", b"t", sealed=False)
    source = make(client, "source", b"s" * 40)
    drive(client.concats.concat(target, [source]))
    drive(client.backend.delete([names.header_path(target)]))
    client.headers.forget()
    assert collect(client, source).files == ()
    assert len(files(client, source)) == 5


@pytest.mark.parametrize("is_undone", [True, False])
def test_a_pin_that_lands_after_its_move_was_undone_keeps_nothing(client, is_undone):
    """Its request was late. Of a move that took place, the target's tree may have been moved by another tool."""
    source, target = make(client, "source", b"s" * 40), path(client, "target")
    folder, segment, txn = names.chunks_folder(source), header(client, source).segment, str(uuid.uuid4())
    if not is_undone:
        drive(client.concats.rename(source, target))
        txn = drive(client.headers.load(source)).header.merged
        drive(client.backend.delete([names.header_path(target), pin_path(folder, txn)]))
    pin, late = Pin(txn, source, target, segment), pin_path(folder, txn)
    drive(client.backend.write(late, [format_pin(pin, folder)]))
    extra = orphan(client, source)
    client.backend.inner.shift_s = GRACE_S + 60
    assert ({late, extra} <= set(collect(client, source, None).files)) is is_undone


def test_a_tombstone_goes_when_it_is_old_and_nothing_is_left(client):
    where = make(client, "segment", b"x" * 40)
    drive(client.segments.delete(where))
    if client.backend.removes_whole:  # it went with the delete
        with pytest.raises(FileNotFoundError):
            collect(client, where)
        return
    assert collect(client, where, None).files == ()
    client.backend.inner.shift_s = GRACE_S + 60
    assert names.header_path(where) in collect(client, where, None).files
    with pytest.raises(FileNotFoundError):
        collect(client, where)


def test_evidence_of_a_move_that_died_before_its_mark_goes_though_its_target_never_was(client):
    source, target = make(client, "source", b"s" * 40), path(client, "sub/target")
    folder = names.chunks_folder(target)
    pin = Pin(str(uuid.uuid4()), source, target, header(client, source).segment)
    evidence = pin_path(folder, pin.txn)
    drive(client.backend.write(evidence, [format_pin(pin, folder)]))
    assert collect(client, target, None).files == (), "its mover may be about to send the mark"
    client.backend.inner.shift_s = GRACE_S + 60
    assert evidence in collect(client, target, None).files
    assert files(client, target) == []
    assert content(client, source) == b"s" * 40


def test_what_moves_on_between_two_reads_of_one_look_is_seen_by_the_second(client):
    """The listing knows the pin of the first target only, and when that is read its chunks have gone to another."""
    first, second = make(client, "first", sealed=False), path(client, "second")
    source = make(client, "source", b"s" * 40)
    drive(client.concats.concat(first, [source]))
    other = Client(client.backend.inner, POLICY)

    moving = Scripted(client.backend.inner)
    moving.plan(
        ("read", "read_if_changed"), names.header_path(first), before=lambda: drive(other.concats.rename(first, second))
    )
    drive(Client(moving, POLICY).collector.collect(source, grace_s=0.0))
    assert not moving.plans
    assert content(client, second) == b"s" * 40


def test_a_file_that_the_whole_seconds_of_the_stores_clock_put_into_the_future_is_as_old_as_no_grace():
    assert is_old(now=100.0, since=100.9, grace_s=0)
    assert not is_old(now=100.0, since=100.9, grace_s=0.5)
    assert is_old(now=100.0, since=40.0, grace_s=60)
