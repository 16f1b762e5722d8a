"""Clocks that differ: ages come from the store's clock, and an impossible age is ignored.

Rules of the protocol: P7.4 to P7.12, P7.26.
"""

import errno
import os
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

from rollingfs.backend.local import looks as local, system
from rollingfs.backend.local.backend import LocalBackend
from rollingfs.errors import StagedExpiredError
from rollingfs.format import names
from rollingfs.format.header import AGE_S_MAX, GRACE_S, LOOSE_CHUNKS_MAX, Page
from rollingfs.runtime.concurrency import drive
from rollingfs.segment.commit.chunk_files import SKEW_S_MAX
from rollingfs.segment.write import ingest
from tests.support.backends import Scripted, Shifted, private_memory, raises
from tests.support.life import CHUNKS, NOON_S, Turned, World

HOUR_S = 3_600.0


def ahead(by_s):
    """Stands in for the module `time` on a machine whose clock is wrong."""
    return SimpleNamespace(
        time=lambda: time.time() + by_s, time_ns=lambda: time.time_ns() + int(by_s * 1e9), sleep=time.sleep
    )


@pytest.fixture
def on_machine(monkeypatch):
    """Makes a client on a machine whose clock is this many seconds ahead."""

    def make(by_s=0.0):
        clock = ahead(by_s)
        monkeypatch.setattr(local, "time", clock)
        return World(LocalBackend(sync=False), CHUNKS, clock.time)

    return make


@pytest.fixture
def path(tmp_path):
    return f"{tmp_path}/log"


def commit(world, path, receipt):
    world.append(path, receipt)
    return [names.resolve(path, entry.file) for entry in world.header(path).entries]


# -- a disk that machines share ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["log", "log$header", "log$chunks", "log$chunks/chunk"])
@pytest.mark.parametrize("has_chunks", [True, False])
def test_disk_time_equals_its_files_and_leaves_nothing(on_machine, tmp_path, name, has_chunks):
    if has_chunks:
        (tmp_path / "log$chunks").mkdir()
    before = sorted(os.listdir(tmp_path))
    now = drive(on_machine(25 * HOUR_S).backend.now(f"{tmp_path}/{name}"))
    (tmp_path / "new").touch()
    assert abs(now - (tmp_path / "new").stat().st_mtime) < HOUR_S
    assert sorted(os.listdir(tmp_path)) == sorted([*before, "new"])


def test_where_nothing_can_be_written_time_is_machines(on_machine, tmp_path, monkeypatch):
    backend = on_machine(25 * HOUR_S).backend

    (tmp_path / "log$chunks").mkdir()
    monkeypatch.setattr(system, "open_file", raises(OSError(errno.EROFS, "Read-only file system")))
    assert abs(drive(backend.now(f"{tmp_path}/log")) - time.time() - 25 * HOUR_S) < HOUR_S


# -- dates from the future --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ahead_s", "is_copied"), [(2 * HOUR_S, True), (2 * SKEW_S_MAX, True), (SKEW_S_MAX / 2, False), (-60.0, False)]
)
def test_future_receipt_is_rewritten_before_its_commit(ahead_s, is_copied):
    world = World(policy=CHUNKS)
    world.create("/log")
    receipt = world.stage("/log", b"staged")
    chunks = tuple(replace(chunk, stored_at=chunk.stored_at + ahead_s) for chunk in receipt.chunks)
    files = commit(world, "/log", replace(receipt, chunks=chunks))
    assert (files != [chunk.path for chunk in chunks]) == is_copied
    assert world.content("/log") == b"staged"


def test_clock_set_back_while_staging_makes_no_young_receipt(monkeypatch):
    monkeypatch.setattr(ingest, "PIECE_BYTES", 4)  # so that the first bytes are written before the others come
    store = Shifted(private_memory(), shift_s=2 * AGE_S_MAX)
    world = World(store, CHUNKS, Turned(NOON_S + 2 * AGE_S_MAX))
    world.create("/log")

    def data():
        yield b"before, "
        store.shift_s = 0.0  # the store is a disk of this machine
        world.clock.now_s = NOON_S
        yield b"after"

    receipt = world.stage("/log", data())
    store.shift_s = 2.5 * AGE_S_MAX  # since then; half an hour after the first reading of the clock
    files = commit(world, "/log", receipt)
    assert world.content("/log") == b"before, after"
    assert not {chunk.path for chunk in receipt.chunks} & set(files)


def test_a_store_without_dates_collects_nothing_by_age():
    def undated(listing):
        return replace(listing, now=None, entries=tuple(replace(entry, modified=0.0) for entry in listing.entries))

    backend = Scripted(private_memory())
    backend.plan("list", answers=undated, times=None)
    backend.plan("now", answers=lambda now: 0.0, times=None)
    world = World(backend, CHUNKS)
    world.create("/log")
    (chunk,) = world.stage("/log", b"staged").chunks
    assert world.collect("/log", GRACE_S).files == ()
    assert world.collect("/log").files == (chunk.path,)


# -- a clock that is ahead for a moment, a machine that stands still --------------------------------------------


@pytest.fixture
def day_later():
    """Makes collections for which a store's files are a day old; the store's clock then goes back, or stays."""

    def collect(store, path="/log", *, is_back):
        store.shift_s = GRACE_S + HOUR_S
        assert World(store, CHUNKS, time.time).collect(path, None).files
        store.shift_s = 0.0
        World(store, CHUNKS, time.time).collect(path, None)  # what the first has made is new
        store.shift_s = 0.0 if is_back else GRACE_S + HOUR_S

    return collect


def test_receipt_taken_by_a_clock_ahead_is_not_committed(day_later):
    store = Shifted(private_memory())
    world = World(store, CHUNKS, time.time)
    world.create("/log")
    receipt = world.stage("/log", b"staged")
    day_later(store, is_back=True)
    with pytest.raises(StagedExpiredError, match="nothing was written"):
        world.append("/log", receipt)
    assert world.content("/log") == b""


@pytest.mark.parametrize("is_back", [True, False], ids=["the clock was ahead", "the machine stood still"])
@pytest.mark.parametrize("is_new", [False, True])
def test_chunk_taken_before_its_commit_is_not_committed(day_later, is_back, is_new):
    store = Shifted(private_memory())
    backend = Scripted(store)
    world = World(backend, CHUNKS, time.time)
    if not is_new:
        world.create("/log")
    backend.plan("create" if is_new else "replace", before=lambda: day_later(store, is_back=is_back))
    with pytest.raises(StagedExpiredError, match="nothing was written"):
        world.overwrite("/log", b"chunk")
    assert not is_new or not world.client.headers.seen("/log").live


def test_creator_who_stops_meets_a_collections_tombstone(day_later, path):
    store = Shifted(LocalBackend(sync=False))
    backend = Scripted(store, conflicts_are_final=True)
    world = World(backend, CHUNKS, time.time)
    backend.plan("create", before=lambda: day_later(store, path, is_back=False))
    with pytest.raises(StagedExpiredError, match="nothing was written"):
        world.overwrite(path, b"chunk")


def test_page_taken_before_its_commit_is_written_again(day_later):
    store = Shifted(private_memory())
    backend = Scripted(store)
    world = World(backend, CHUNKS, time.time)
    world.create("/log", [b"a"] * (LOOSE_CHUNKS_MAX - 1))
    world.create("/source", [b"b"] * 2)
    backend.plan("replace", names.header_path("/log"), before=lambda: day_later(store, is_back=True))
    world.concat("/log", ["/source"])
    assert any(isinstance(entry, Page) for entry in world.header("/log").entries)
    assert World(store).content("/log").endswith(b"abb")
