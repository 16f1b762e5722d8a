"""Turns on a disk: beside others, a commit takes the lock before it looks at the header, and loses no race."""

import contextlib
import errno
import gc
import os
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from rollingfs import RollingFileSystem, RollingPolicy
from rollingfs.backend.local import disk, extending, record_lock, system
from rollingfs.backend.local.backend import LocalBackend
from rollingfs.errors import (
    AppendInterrupted,
    BadOffsetError,
    CommitTimeoutError,
    ConflictError,
    LockedError,
    RollingError,
    SegmentSealedError,
)
from rollingfs.format.codec import parse_header
from rollingfs.format.header import Header, Merge, Phase
from rollingfs.format.names import header_path, lock_path
from rollingfs.format.records import Record
from rollingfs.runtime.concurrency import SyncRuntime, drive
from rollingfs.runtime.meters import CONFLICT
from rollingfs.segment.commit import turns as turns_module
from rollingfs.segment.commit.attempt import Attempt, Change
from rollingfs.segment.commit.index_pages import PageGoneError
from rollingfs.segment.commit.turns import Turns
from rollingfs.segment.segment import Segment
from rollingfs.segment.write import group_commit as group
from tests.support.backends import raises
from tests.support.forks import is_so_in_child, needs_fork, needs_posix, needs_removal
from tests.support.places import counted, new_fs
from tests.support.schedules import beside, in_threads

RECORD = Record(9, "w", 1, 9, b"data").encode("an incarnation")


def is_free(path: str) -> bool:
    """Whether nobody holds the lock of a segment."""
    try:
        with record_lock.record_lock(lock_path(header_path(path)), end_s=0):
            return True
    except LockedError:
        return False


@pytest.fixture
def racing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every client takes each append for one beside others."""
    monkeypatch.setattr(Turns, "is_racing", True)


# -- the verb --------------------------------------------------------------------------------------------------


def locked(path: str) -> list[record_lock.record_lock]:
    return [lock for lock in record_lock._of_thread.locks if lock.path == lock_path(path)]


@pytest.mark.parametrize("verb", ["replace", "extend", "delete_if", "end_turn"])
def test_turn_excludes_others_until_its_thread_changes_the_header(backend, log, header, verb):
    blob = backend.read(header)
    backend.take_turn(header)
    backend.take_turn(header)  # it has it already
    assert not is_free(log)
    if verb == "end_turn":
        backend.end_turn(header)
        backend.end_turn(header)
    elif verb == "delete_if":
        assert backend.delete_if(header, blob.token)
    else:
        getattr(backend, verb)(header, blob.data if verb == "replace" else RECORD, blob.token)
    assert is_free(log)
    assert not locked(header)


def test_a_refused_record_leaves_its_thread_the_turn(backend, log, header):
    old = backend.read(header)
    record = Record(2, "w", 1, 9, b"data").encode(parse_header(old.data, header).segment)
    now = backend.extend(header, record, old.token)
    for adapt in (None, lambda *_: None):
        with pytest.raises(ConflictError):
            backend.extend(header, record, old.token, adapt)
        assert is_free(log) == (adapt is None)
    backend.replace(header, backend.read(header).data, now)
    assert is_free(log)


def test_a_turn_at_nothing_is_none_and_leaves_nothing(backend, tmp_path, log, header, monkeypatch):
    backend.take_turn(f"{tmp_path}/none$header")
    beside(monkeypatch, record_lock.record_lock, "acquire", after=lambda *_, **__: os.unlink(header))
    backend.take_turn(header)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("verb", ["replace", "extend", "delete_if"])
def test_turn_is_lost_with_folder_of_its_lock(backend, log, header, verb):
    """Another program moves the folder away, and makes a new one, in which another process changes the header."""
    folder = os.path.dirname(lock_path(header))
    backend.take_turn(header)
    os.rename(folder, f"{folder}.old")
    os.mkdir(folder)
    blob = backend.read(header)
    change = (header, blob.token) if verb == "delete_if" else (header, RECORD, blob.token)
    with record_lock.record_lock(lock_path(header)), pytest.raises(LockedError):
        drive(SyncRuntime().limit(getattr(backend.backend, verb)(*change), 0.05))
    assert backend.read(header).token == blob.token
    assert not locked(header)


@needs_removal
@pytest.mark.parametrize(("verb", "moment"), [("replace", (disk, "write_header")), ("extend", (extending, "put"))])
def test_nothing_is_written_once_hand_has_deleted_lock(backend, log, header, monkeypatch, verb, moment):
    blob = backend.read(header)
    beside(monkeypatch, *moment, lambda *_, **__: os.unlink(lock_path(header)))
    with pytest.raises(RollingError, match="its lock was deleted"):
        getattr(backend, verb)(header, RECORD, blob.token)
    assert backend.read(header) == blob


def test_turn_whose_wait_ends_by_error_holds_nothing(log, header, monkeypatch):
    monkeypatch.setattr(os.path, "lexists", raises(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        drive(LocalBackend().take_turn(header))
    monkeypatch.undo()
    assert is_free(log)


def test_what_begins_within_verb_does_not_share_its_lock(backend, log, header, monkeypatch):
    """As by garbage collection: it would change the header between the verb's comparison and its write."""
    blob = backend.read(header)
    seen = []

    def meanwhile(*_: Any) -> None:
        with pytest.raises(LockedError):
            drive(SyncRuntime().limit(LocalBackend().extend(header, b"inner", blob.token), 0))
        seen.append(backend.read(header).token == blob.token)

    beside(monkeypatch, system, "write_at", meanwhile, once=True)
    backend.take_turn(header)
    backend.extend(header, RECORD, blob.token)
    assert seen == [True]


# -- commits -----------------------------------------------------------------------------------------------------


def test_beside_another_only_the_first_append_meets_a_conflict(log, monkeypatch):
    monkeypatch.setattr(turns_module, "RACE_TURNS", 10**9)  # however slow the machine is
    one, two = new_fs(), new_fs()
    for number in range(20):
        one.append(log, b"%02d" % number)
        two.append(log, b"%02d" % number)
    assert one.cat_file(log) == b"".join(b"%02d" % (number // 2) for number in range(40))
    assert counted(one, CONFLICT) + counted(two, CONFLICT) <= 2  # each lost one race


def test_nobody_comes_between_look_and_commit_of_turn(tmp_path, racing, monkeypatch):
    """The full tail becomes a chunk within the turn: no process writes a chunk that loses.

    A record that fits is sent without a turn. It meets a conflict only where another has just made the tail a chunk.
    """
    log = f"{tmp_path}/small"
    new_fs().create(log, policy=RollingPolicy(inline_bytes=64, max_bytes=64))
    files, count, each = [new_fs() for _ in range(4)], 4, 20
    written: list[str] = []
    beside(monkeypatch, LocalBackend, "write", lambda _, path, *__: written.append(path))

    def append(fs: RollingFileSystem) -> None:
        for _ in range(each):
            fs.append(log, b"0123456789")

    assert in_threads(*(partial(append, fs) for fs in files)) == [None] * count
    fs = new_fs()
    assert fs.cat_file(log) == b"0123456789" * count * each
    chunks = [name for name in os.listdir(f"{log}$chunks") if name != "lock"]
    assert len(written) == len(set(written)) == len(chunks)
    assert sum(counted(fs, CONFLICT) for fs in files) <= len(chunks) * (count - 1)


@pytest.mark.parametrize(
    ("verb", "options", "ending"),
    [
        ("seal", {"data": b"refused"}, pytest.raises(SegmentSealedError)),
        ("exists", {"data": b"refused", "expected_offset": 7}, pytest.raises(ValueError, match="expected offset 7")),
        ("rm", {"data": b"refused"}, pytest.raises(FileNotFoundError)),
        ("exists", {"data": b""}, contextlib.nullcontext()),
    ],
    ids=["sealed", "wrong offset", "gone", "nothing to do"],
)
def test_a_commit_without_a_change_gives_its_turn_up(log, header, racing, verb, options, ending):
    fs = new_fs()
    fs.append(log, b"first")
    getattr(new_fs(), verb)(log)  # by another client
    with ending:
        fs.append(log, **options)
    assert not locked(header)
    new_fs().touch(log)
    assert is_free(log)


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, OSError])
def test_a_step_that_breaks_off_gives_the_turn_up(log, racing, monkeypatch, error):
    fs = new_fs()
    fs.append(log, b"first")

    async def broken(*args: Any, **options: Any) -> Any:
        assert not is_free(log)
        raise error

    monkeypatch.setattr(group, "grow", broken)
    with pytest.raises((error, AppendInterrupted)):
        fs.append(log, b"never", attrs={"a": "b"})
    monkeypatch.undo()
    gc.collect()
    assert is_free(log)
    new_fs().append(log, b" second")
    assert fs.cat_file(log) == b"first second"


@pytest.mark.parametrize("verb", ["end_turn", "release", "_close"])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_ctrl_c_while_a_turn_ends_excludes_nobody(log, header, racing, monkeypatch, verb, moment):
    fs, owner = new_fs(), LocalBackend if verb == "end_turn" else record_lock.record_lock
    interrupt = raises(KeyboardInterrupt())
    fs.append(log, b"first")
    beside(monkeypatch, owner, verb, **{moment: interrupt}, once=True)
    with pytest.raises(AppendInterrupted) as caught:
        fs.append(log, b"", attrs={"a": None})
    assert caught.value.outcome == "not committed"
    assert is_free(log)
    assert not locked(header)


def test_step_that_misses_a_page_looks_again_in_turn(log, racing, monkeypatch):
    fs, gone = new_fs(), PageGoneError(2, "The index page is gone", "page")
    beside(monkeypatch, group, "grow", raises(gone), once=True)
    fs.append(log, b"bytes", attrs={"a": "b"})
    assert fs.cat_file(log) == b"bytes"
    assert is_free(log)


@pytest.mark.parametrize("is_racing", [False, True], ids=["alone", "in a turn"])
def test_commit_without_the_lock_ends_at_its_deadline_unwritten(log, header, monkeypatch, is_racing):
    monkeypatch.setattr(Turns, "is_racing", is_racing)
    fs = new_fs(commit_timeout_s=0.3)
    with (
        record_lock.record_lock(lock_path(header)),
        pytest.raises(CommitTimeoutError, match=r"another process .* holds the lock .*nothing was written") as caught,
    ):
        fs.append(log, b"refused")
    assert lock_path(header) in str(caught.value)
    assert fs.cat_file(log) == b""


@needs_removal
@pytest.mark.parametrize("options", [{"data": b""}, {"data": b"again", "expected_offset": 0}])
def test_nothing_is_concluded_from_record_that_cannot_be_flushed(log, monkeypatch, options):
    """A wrong offset tells a caller who repeats an append that it is there: a loss of power must not undo that."""
    new_fs().append(log, b"first")
    fs = new_fs()

    monkeypatch.setattr(system, "flush", raises(OSError(errno.EIO, "broken")))
    with pytest.raises(OSError, match="nothing was committed") as caught:
        fs.append(log, **options)
    assert not isinstance(caught.value, RollingError)
    monkeypatch.undo()
    if options["data"]:
        with pytest.raises(BadOffsetError):
            fs.append(log, **options)
    assert fs.cat_file(log) == b"first"


@needs_posix
def test_new_file_is_placed_in_turn_through_linked_folders(backend, tmp_path):
    new_fs().create(f"{tmp_path}/folder/log")
    os.symlink(tmp_path / "folder", tmp_path / "link")
    header = header_path(f"{tmp_path}/link/log")
    os.link(header, tmp_path / "backup")
    backend.take_turn(header)
    drive(SyncRuntime().limit(backend.backend.flush(header), 1))
    assert os.stat(header).st_nlink == 1
    assert not locked(header)


def test_turn_is_given_up_for_the_claimant_of_commits(log, racing, monkeypatch):
    fs, frees = new_fs(), []
    fs.append(log, b"first")

    async def claim(base: Segment, attempt: Attempt) -> Header | None:
        return replace(base.header, turn="slow") if base.header is not None else None

    drive(new_fs()._client.commits.commit(log, claim))

    async def over(self: SyncRuntime, seconds: float) -> None:
        frees.append(is_free(log))
        monkeypatch.setattr(Turns, "is_claimed", lambda turns, header: False)

    monkeypatch.setattr(SyncRuntime, "sleep", over)
    fs.append(log, b" second")
    assert frees == [True]
    assert is_free(log)
    assert fs.cat_file(log) == b"first second"


def test_a_claim_that_finds_a_merge_keeps_no_turn(log, racing):
    """Else a concat would read its sources under the lock, and keep it if it fails before its own commit."""

    async def mark(base: Segment, attempt: Attempt) -> Header | None:
        assert base.header is not None
        merge = Merge("c0ffee00-0000-4000-8000-000000000001", "target", base.header.segment, Phase.OPEN, 7)
        return replace(base.header, phase=Phase.MERGING, merge=merge)

    drive(new_fs()._client.commits.commit(log, mark))
    commits = new_fs()._client.commits
    slot = commits.store.slots.of(log)
    attempt = commits.attempt(slot, Change(log, mark, commits.deadline_s(), slow=True))
    found = drive(commits._claim_turn(slot, attempt))
    assert found.header is not None
    assert found.header.turn is None
    assert is_free(log)


@needs_fork
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_a_child_has_no_turn_of_its_parent(backend, log, header):
    backend.take_turn(header)
    assert is_so_in_child(lambda: record_lock.turn_of_thread(lock_path(header)) is None and not is_free(log))
    assert not is_free(log)
    backend.end_turn(header)
    assert is_free(log)
