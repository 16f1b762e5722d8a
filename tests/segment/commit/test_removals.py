"""What a delete or a rename leaves on a disk: nothing, unless something still needs it.

Rules of the protocol: P8.2, P11.31 to P11.33.
"""

import errno
import os
import threading
import uuid
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from rollingfs import RollingFileSystem
from rollingfs.backend.local import folders, record_lock as record_locks, removing, system
from rollingfs.backend.local.backend import LocalBackend
from rollingfs.backend.local.record_lock import record_lock
from rollingfs.errors import AppendOutcomeUnknown, ConflictError, CorruptHeaderError, LockedError
from rollingfs.folders import folders as deleting
from rollingfs.format import names
from rollingfs.format.codec import format_header
from rollingfs.format.header import Drop, Header, Merge, MergeOutcome, Phase
from rollingfs.format.records import Record
from rollingfs.policy import RollingPolicy
from rollingfs.runtime.concurrency import drive
from rollingfs.segment.at import At
from rollingfs.segment.commit.removals import remove_grave, take_whole
from tests.support.places import new_fs
from tests.support.schedules import Caller, beside

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows only reads")


@pytest.fixture
def fs() -> RollingFileSystem:
    return new_fs(max_bytes=100, inline_bytes=10)


def made(fs: RollingFileSystem, path: str, data: bytes) -> None:
    fs.pipe_file(path, data)
    fs.append(path, b"more")  # takes the lock, which makes its file


@pytest.fixture
def waits(monkeypatch) -> threading.Event:
    """Set once somebody waits for a lock."""
    found = threading.Event()
    beside(monkeypatch, record_locks._Wait, "pause", lambda _: found.set())
    return found


def test_a_moved_folder_leaves_no_file_of_small_segments(fs, tmp_path):
    for name in ("s", "in/t"):
        made(fs, f"{tmp_path}/a/{name}", b"few")
    fs.seal(f"{tmp_path}/a/s")
    fs.mv(f"{tmp_path}/a", f"{tmp_path}/b", recursive=True)
    assert os.listdir(tmp_path) == ["b"]
    assert fs.cat_file(f"{tmp_path}/b/s") == b"fewmore"
    assert fs.info(f"{tmp_path}/b/s")["sealed"]
    assert fs.append(f"{tmp_path}/b/in/t", b"!") == 7


def test_a_waiting_writer_finds_the_segment_gone(tmp_path, waits):
    backend, header = LocalBackend(), f"{tmp_path}/s$header"
    token = drive(backend.create(header, b"one"))
    writer = Caller(lambda: drive(backend.replace(header, b"two", token)))
    with record_lock(f"{tmp_path}/s$chunks/lock"):
        writer.start()
        waits.wait()
        os.unlink(header)
    writer.join()
    assert isinstance(writer.outcome, ConflictError)
    assert os.listdir(tmp_path) == []


def test_a_header_moved_back_has_its_token(tmp_path):
    backend, one, two = LocalBackend(), f"{tmp_path}/s$header", f"{tmp_path}/t$header"
    header = Header(str(uuid.uuid4()), 1)
    token = drive(backend.create(one, format_header(header)))
    assert drive(backend.move_whole([(one, token, two)])) == [True]
    assert drive(backend.move_whole([(two, token, one)])) == [True]
    assert drive(backend.read_if_changed(one, token)) is None
    changed = drive(backend.extend(one, Record(2, "w", 1, 0, b"more").encode(header.segment), token))
    assert drive(backend.move_whole([(one, changed, two)])) == [True]
    assert drive(backend.move_whole([(two, changed, one)])) == [True]
    with pytest.raises(ConflictError):
        drive(backend.replace(one, b"other", token))


@pytest.mark.parametrize("taken", ["t", "t$header"])
def test_a_whole_move_replaces_nothing(tmp_path, taken):
    backend = LocalBackend()
    token = drive(backend.create(f"{tmp_path}/s$header", b"one"))
    (tmp_path / taken).write_bytes(b"taken")
    assert drive(backend.move_whole([(f"{tmp_path}/s$header", token, f"{tmp_path}/t$header")])) == [False]
    assert (tmp_path / taken).read_bytes() == b"taken"
    assert (tmp_path / "s$header").read_bytes() == b"one"


def test_a_call_removes_many_by_their_own_tokens(tmp_path):
    backend, count = LocalBackend(), 3 * removing.CLOSED_AT_ONCE
    headers = [f"{tmp_path}/{index}$header" for index in range(count)]
    tokens = [drive(backend.create(header, header.encode())) for header in headers]
    drive(backend.replace(headers[1], b"newer", tokens[1]))
    os.unlink(headers[2])
    before = len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else None
    removed = drive(backend.remove_whole(list(zip(headers, tokens, strict=True))))
    assert removed == [True, False, False] + [True] * (count - 3)
    assert sorted(os.listdir(tmp_path)) == ["1$chunks", "1$header"]
    assert before is None or len(os.listdir("/proc/self/fd")) == before
    assert not record_locks._held


@pytest.fixture
def headers(tmp_path) -> list[tuple[str, str]]:
    """Three headers whose chunk folders are empty, with their tokens."""
    paths = [f"{tmp_path}/{name}$header" for name in "abc"]
    return [(path, drive(LocalBackend().create(path, b"content"))) for path in paths]


def whole(verb: str, headers: list[tuple[str, str]]) -> Sequence[bool]:
    backend = LocalBackend()
    if verb == "remove":
        return drive(backend.remove_whole(headers))
    return drive(backend.move_whole([(path, token, path.replace("$", "-new$")) for path, token in headers]))


@pytest.mark.parametrize("verb", ["remove", "move"])
def test_one_call_flushes_each_folder_once(tmp_path, monkeypatch, headers, verb):
    flushed: list[str] = []
    beside(monkeypatch, folders, "flush_folder_of", lambda path: flushed.append(os.path.dirname(path)))
    whole(verb, headers)
    assert flushed == [str(tmp_path)]


def test_a_list_of_segments_flushes_their_folder_once(fs, tmp_path, monkeypatch):
    paths = [f"{tmp_path}/{nth}" for nth in range(4)]
    for nth, path in enumerate(paths):
        made(fs, path, b"few" if nth else b"x" * 950)  # one has chunks
    (tmp_path / "plain").write_bytes(b"plain")
    (tmp_path / "damaged$header").write_bytes(b"damaged")
    flushed: list[str] = []
    beside(monkeypatch, folders, "flush_folder_of", flushed.append)
    fs.rm(paths[1:])
    assert len(flushed) == 1
    with pytest.raises(CorruptHeaderError, match="damaged"):
        fs.rm([paths[0], f"{tmp_path}/damaged", f"{tmp_path}/plain"])
    with pytest.raises(FileNotFoundError):
        fs.rm([f"{tmp_path}/missing", *paths])
    fs.rm([f"{tmp_path}/damaged", *fs.glob(f"{tmp_path}/*")], damaged=True)
    assert fs.find(tmp_path) == []


def test_headers_of_a_list_are_held_in_batches(fs, tmp_path, monkeypatch):
    paths, held = [f"{tmp_path}/{nth}" for nth in range(5)], []
    for path in paths:
        made(fs, path, b"tail")
    monkeypatch.setattr(deleting, "BATCH_MAX", 2)
    beside(monkeypatch, deleting, "take_whole", lambda _, __, seen: held.append(len(seen)))
    fs.rm(paths)
    assert (held, fs.find(tmp_path)) == ([2, 2, 1], [])


@pytest.mark.skipif(system.rename_free is None, reason="no rename that replaces nothing")
@pytest.mark.parametrize("verb", ["remove", "move"])
def test_a_lock_file_locks_each_segment_of_a_call(tmp_path, monkeypatch, headers, verb):
    files: list[tuple[str, int]] = []

    def look(folder: str) -> None:
        lock = f"{folder}/lock"
        files.append((folder, os.stat(lock).st_ino))
        assert [os.path.exists(names.lock_path(header)) for header, _ in headers].count(True) == 1
        with pytest.raises(LockedError), record_lock(lock, 0.0):
            pass

    beside(monkeypatch, removing, "holds_only_lock", look)
    assert whole(verb, headers) == [True, True, True]
    assert [folder for folder, _ in files] == [f"{tmp_path}/{name}$chunks" for name in "abc"]
    assert len({inode for _, inode in files}) == 1
    assert sorted(os.listdir(tmp_path)) == ([] if verb == "remove" else [f"{name}-new$header" for name in "abc"])
    assert not record_locks._held


def test_a_header_goes_before_its_lock(monkeypatch, headers):
    """Without the lock's name, another process could lock anew and commit to what is about to go."""
    there: list[bool] = []
    monkeypatch.setattr(system, "rename_free", None)
    beside(monkeypatch, removing, "unlink", lambda _: there.append(os.path.exists(headers[len(there)][0])))
    assert whole("remove", headers) == [True, True, True]
    assert there == [False, False, False]


@pytest.mark.parametrize("verb", ["remove", "move"])
def test_a_call_that_waits_holds_no_other_lock(tmp_path, waits, headers, verb):
    """Two calls that wait for each other's lock would never end."""
    (first, token), second = headers[0], names.lock_path(headers[1][0])
    (tmp_path / "a$chunks/tmp-ask-1").write_bytes(b"ask")  # so it stays
    caller = Caller(lambda: whole(verb, headers))
    with record_lock(second):
        caller.start()
        waits.wait()
        with record_lock(names.lock_path(first), 0.0):
            pass
        drive(LocalBackend().replace(first, b"newer", token))
    caller.join()
    assert caller.outcome == [False, True, True]
    assert Path(first).read_bytes() == b"newer"


@pytest.mark.parametrize("verb", ["remove", "move"])
def test_a_writer_of_a_kept_segment_does_not_wait(tmp_path, monkeypatch, waits, headers, verb):
    (tmp_path / "a$chunks/tmp-ask-1").write_bytes(b"ask")
    writer = threading.Thread(target=lambda: drive(LocalBackend().replace(headers[0][0], b"newer", headers[0][1])))

    def look(folder: str) -> None:
        if folder.endswith("a$chunks"):
            writer.start()
            waits.wait()
        else:
            writer.join()

    beside(monkeypatch, removing, "holds_only_lock", look)
    assert whole(verb, headers) == [False, True, True]
    assert Path(headers[0][0]).read_bytes() == b"newer"


@pytest.mark.parametrize("verb", ["remove_whole", "move_whole"])
def test_after_an_error_the_client_forgets_all_segments(fs, tmp_path, monkeypatch, verb):
    for index in range(3):
        fs.pipe_file(f"{tmp_path}/a/{index}", b"few")

    def refuse(folder: str) -> None:
        if folder == f"{tmp_path}/a/1$chunks":
            raise PermissionError(errno.EACCES, "refused", folder)

    beside(monkeypatch, removing, "holds_only_lock", refuse)
    a, b = f"{tmp_path}/a", f"{tmp_path}/b"
    call = partial(fs.rm, a) if verb == "remove_whole" else partial(fs.mv, a, b)
    with pytest.raises(PermissionError):
        call(recursive=True)
    monkeypatch.undo()
    assert sorted(fs.ls(f"{tmp_path}/a", detail=False)) == [f"{tmp_path}/a/1", f"{tmp_path}/a/2"]
    assert not fs.exists(f"{tmp_path}/a/0")
    call(recursive=True)
    assert os.listdir(tmp_path) == ([] if verb == "remove_whole" else ["b"])


def test_a_removed_folder_goes_once_it_is_unused(fs, tmp_path):
    made(fs, f"{tmp_path}/a/s", b"x" * 250)
    fs.mv(f"{tmp_path}/a/s", f"{tmp_path}/t")
    fs.rm(f"{tmp_path}/a", recursive=True)
    assert (tmp_path / "a/$removed").exists()
    fs.rm(f"{tmp_path}/t")
    fs.collect(str(tmp_path), recursive=True, grace=0)
    fs.collect(str(tmp_path), recursive=True, grace=0)
    assert not (tmp_path / "a").exists()


def test_a_new_header_at_the_target_is_not_replaced(tmp_path, monkeypatch):
    backend, one, two = LocalBackend(), f"{tmp_path}/s$header", f"{tmp_path}/t$header"
    token = drive(backend.create(one, b"one"))
    beside(monkeypatch, removing, "rename_to_free", lambda *_: drive(backend.create(two, b"two")))
    assert drive(backend.move_whole([(one, token, two)])) == [False]
    assert (Path(one).read_bytes(), Path(two).read_bytes()) == (b"one", b"two")


def test_a_move_takes_marks_without_a_safe_rename(fs, tmp_path, monkeypatch):
    monkeypatch.setattr(system, "rename_free", None)
    made(fs, f"{tmp_path}/s", b"few")
    fs.mv(f"{tmp_path}/s", f"{tmp_path}/t")
    assert fs.cat_file(f"{tmp_path}/t") == b"fewmore"
    assert not fs.exists(f"{tmp_path}/s")


def test_a_move_to_another_mount_takes_marks(fs, tmp_path, monkeypatch):
    def refuse(path, target, *folders):
        is_elsewhere = str(tmp_path / "mounted") in target
        return errno.EXDEV if is_elsewhere or rename is None else rename(path, target, *folders)

    def no_rename(path: str, target: str, **options: int) -> None:
        if "link" in path:
            raise OSError(errno.EXDEV, "another mount", path, None, target)
        real(path, target, **options)

    rename, real = system.rename_free, system.rename
    monkeypatch.setattr(system, "rename_free", refuse)
    monkeypatch.setattr(system, "rename", no_rename)
    made(fs, f"{tmp_path}/a/s", b"few")
    made(fs, f"{tmp_path}/a/long", b"x" * 950)
    os.symlink("s", tmp_path / "a/link")
    fs.mv(f"{tmp_path}/a", f"{tmp_path}/mounted", recursive=True)
    assert fs.cat_file(f"{tmp_path}/mounted/s") == b"fewmore"
    assert fs.cat_file(f"{tmp_path}/mounted/long") == b"x" * 950 + b"more"
    assert os.readlink(tmp_path / "mounted/link") == "s"
    assert not fs.exists(f"{tmp_path}/a")


@pytest.mark.parametrize("is_new", [True, False])
@pytest.mark.parametrize("is_made_anew", [True, False])
def test_a_lost_commit_of_a_moved_segment_stays_lost(fs, tmp_path, monkeypatch, is_new, is_made_anew):
    path, other = f"{tmp_path}/s", new_fs()
    if not is_new:
        other.pipe_file(path, b"first")
    name = "_flush_name" if is_new else "_flush_records"  # the second is what an append in place flushes

    def lose(_: LocalBackend, header: str, *__: int) -> None:
        if not header.endswith("s$header"):
            return
        monkeypatch.undo()
        other.mv(path, f"{tmp_path}/t")
        if is_made_anew:
            other.pipe_file(path, b"other")
            other.append(path, b"other")
        raise OSError(errno.EIO, "the folder cannot be flushed")

    beside(monkeypatch, LocalBackend, name, lose)
    with pytest.raises(AppendOutcomeUnknown, match="was made anew" if is_made_anew else "moved or deleted"):
        fs.pipe_file(path, b"record") if is_new else fs.append(path, b"record")
    assert other.cat_file(f"{tmp_path}/t").endswith(b"record")
    assert other.cat_file(path) == b"otherother" if is_made_anew else not other.exists(path)


@pytest.mark.parametrize(
    "line",
    [
        {"phase": Phase.MERGING, "merge": Merge(str(uuid.uuid4()), "other", str(uuid.uuid4()), Phase.OPEN, 0)},
        {"merges": (MergeOutcome(str(uuid.uuid4()), "other"),)},
        {"drops": (Drop("other$chunks/", 0, size=9),)},
        {"owner": "somebody"},
    ],
    ids="+".join,
)
def test_a_segment_with_files_is_not_removed_whole(tmp_path, line):
    store, path = At.of(LocalBackend()), f"{tmp_path}/s"
    drive(store.backend.create(names.header_path(path), format_header(Header(str(uuid.uuid4()), 1, **line))))
    assert drive(take_whole(store, path, {path: drive(store.headers.load(path))})) == set()


@pytest.mark.parametrize("line", ["merges", "aborts"])
def test_a_tombstone_that_decides_a_move_is_not_removed(tmp_path, line):
    client, path = At.of(LocalBackend(), RollingPolicy()), f"{tmp_path}/s"
    mark = MergeOutcome(str(uuid.uuid4()), "other")
    header = Header(str(uuid.uuid4()), 1, phase=Phase.DELETED, **{line: (mark,)})
    drive(client.backend.create(names.header_path(path), format_header(header)))
    drive(remove_grave(client, path, drive(client.headers.load(path)).header))
    assert os.path.exists(names.header_path(path))
