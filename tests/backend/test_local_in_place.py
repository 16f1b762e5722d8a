"""Appends in place on a disk: what the file holds after each fault, and which tokens name it.

Rules of the protocol: P6.1 to P6.16.
"""

import errno
import os
import shutil
import struct
import sys
from pathlib import Path
from typing import Any

import pytest

from rollingfs.backend.local import disk, extending, folders, looks, record_lock, system
from rollingfs.backend.local.backend import LocalBackend
from rollingfs.errors import AppendOutcomeUnknown, UnflushedError
from rollingfs.format import records
from rollingfs.format.codec import format_header, parse_file, parse_header
from rollingfs.format.header import HEADER_BYTES_MAX, RECORDS_MAX, Header
from rollingfs.format.names import header_path
from rollingfs.format.records import Record
from rollingfs.runtime.concurrency import drive
from rollingfs.segment.commit.turns import Turns
from tests.support.backends import raises
from tests.support.places import new_fs
from tests.support.schedules import beside

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux says what a filesystem is")

SEGMENT = "7b0c2f6e-4d11-4c53-9b0e-0d3a5f9c1e27"
BASE = format_header(Header(SEGMENT, 1, tail=b"tail", tail_at_ms=5))
ONE, TWO = (Record(2 + index, "w", index, 9, b"record").encode(SEGMENT) for index in range(2))


def fail_flush(patch: pytest.MonkeyPatch, file: Path) -> list[Any]:
    """Let each flush of what is the file now fail; the locks that its thread holds then."""
    inode = os.stat(file).st_ino

    def fails(descriptor: int) -> None:
        if os.fstat(descriptor).st_ino == inode:
            locks.append(record_lock._of_thread.locks[:])
            raise OSError(errno.EIO, "injected: the flush failed")

    locks: list[Any] = []
    beside(patch, system, "flush", fails)
    return locks


def segment_of(tmp_path: Path, *pieces: bytes) -> tuple[str, Path]:
    path = f"{tmp_path}/log"
    fs = new_fs()
    fs.create(path)
    for piece in pieces:
        fs.append(path, piece)
    return path, Path(header_path(path))


# -- the verb ----------------------------------------------------------------------------------------------------


def test_reader_gets_only_what_follows_its_known_bytes(backend, header):
    token = backend.create(header, BASE)
    first = backend.extend(header, ONE, token)
    assert backend.read_if_changed(header, first) is None
    second = backend.extend(header, TWO, first)
    for known, rest in ((token, ONE + TWO), (first, TWO)):
        blob = backend.read_if_changed(header, known)
        assert (blob.data, blob.token, blob.is_rest) == (rest, second, True)
    backend.replace(header, BASE + ONE, second)
    blob = backend.read_if_changed(header, first)
    assert (blob.data, blob.is_rest) == (BASE + ONE, False)


def test_torn_records_rest_changes_no_token_and_is_cut(backend, tmp_path):
    path, file = segment_of(tmp_path, b"one ", b"two ")
    whole = file.read_bytes()
    token = backend.read(str(file)).token
    known = new_fs()
    assert known.cat_file(path) == b"one two "
    for rest in (b"R", whole[-90:-1], bytes(4096), b"x" * 10):
        for content in (whole + rest, whole, whole + rest):
            os.truncate(file, len(whole))
            with open(file, "ab") as opened:
                opened.write(content[len(whole) :])
            assert backend.read(str(file)).token == token
            assert backend.read_if_changed(str(file), token) is None
        assert new_fs().cat_file(path) == known.cat_file(path) == b"one two "
    known.append(path, b"three ")
    assert rest not in file.read_bytes()
    new_fs().append(path, b"four")
    assert new_fs().cat_file(path) == known.cat_file(path) == b"one two three four"


def test_lengthened_file_is_read_only_to_the_headers_end(tmp_path, monkeypatch, backend):
    path, file = segment_of(tmp_path, b"one ", b"two ")
    known = new_fs()
    assert known.cat_file(path) == b"one two "
    before = backend.stat(str(file)).token
    os.truncate(file, 1 << 26)
    counts: list[int] = []
    beside(monkeypatch, system, "read_at", lambda _, size, __: counts.append(size))
    assert backend.stat(str(file)).token == before
    assert known.cat_file(path) == b"one two "
    assert [one["name"] for one in known.ls(str(tmp_path))] == [path]
    known.append(path, b"three")
    assert max(counts) <= HEADER_BYTES_MAX
    assert new_fs().cat_file(path) == b"one two three"
    assert os.stat(file).st_size < HEADER_BYTES_MAX


def test_torn_record_before_another_of_its_length_is_detected(backend, tmp_path):
    path, file = segment_of(tmp_path, b"one ")
    whole = file.read_bytes()
    _, room = parse_file(whole, "x")
    base = parse_header(whole, "x")
    assert room == RECORDS_MAX - 1
    made = [Record(base.version + 1, "w", 7, 9_000_000_000_000, data) for data in (b"a", b"b")]
    torn, other = (record.encode(base.segment) for record in made)
    reader = new_fs()
    file.write_bytes(whole + torn[:-1] + b"?")
    os.utime(file, ns=(10**18, 10**18))
    assert reader.cat_file(path) == b"one "
    file.write_bytes(whole + other)
    os.utime(file, ns=(10**18, 10**18))
    assert reader.cat_file(path) == b"one b"
    assert backend.read(str(file)).token.endswith(other.split(b"\n")[0][-8:].decode())


needs_linux = pytest.mark.skipif("linux" not in system._calls.__name__, reason="filesystems have numbers on Linux")


@needs_linux
@pytest.mark.parametrize("kind", [0x6969, 0xFE534D42, 0x65735546, 0])
def test_where_another_machine_may_write_a_header_is_replaced(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(folders, "_disks", {})
    monkeypatch.setattr(system._calls.posix, "statfs", lambda path: struct.pack("l", kind))
    path, file = segment_of(tmp_path, b"one ", b"two ")
    assert (new_fs().cat_file(path), file.read_bytes().count(b"Record ")) == (b"one two ", 0)


def test_a_header_that_may_not_be_written_is_replaced(tmp_path, monkeypatch):
    path, header = segment_of(tmp_path, b"one")

    def refuse(name: Any, flags: int, *_: Any, **__: Any) -> None:
        if str(name) == str(header) and flags & os.O_ACCMODE != os.O_RDONLY:  # root is refused nothing
            raise PermissionError(errno.EACCES, "injected: a file for reading only", str(name))

    os.chmod(header, 0o444)
    beside(monkeypatch, system, "open_file", refuse)
    assert new_fs().append(path, b"two") == 3
    assert new_fs().cat(path) == b"onetwo"
    assert os.stat(header).st_mode & 0o777 == 0o444


def test_listing_gives_no_content_token_of_later_one(tmp_path, monkeypatch, backend, header):
    """The rest of a record that the disk refused was read, and before its token, another record came in its place."""
    Path(header).write_bytes(BASE + ONE[:-1] + b"?")
    then_comes_another = lambda *_: Path(header).write_bytes(BASE + ONE)  # noqa: E731
    beside(monkeypatch, disk, "read_exactly", after=then_comes_another, once=True)
    with os.scandir(tmp_path) as found:
        info = looks.info_of(header, next(found))
    assert info is not None
    assert info.data == BASE + ONE[:-1] + b"?"
    assert info.token != backend.stat(header).token


@pytest.mark.parametrize("look", ["load", "newer"])
def test_header_that_goes_during_the_record_read_is_gone(tmp_path, monkeypatch, look):
    path, header = segment_of(tmp_path, b"one")
    client = new_fs()._core.client
    base = header.read_bytes()
    incarnation = records._SEGMENT.search(base)[1].decode()
    version = int(records._VERSION.search(base)[1]) + 1 + base.count(b"Record ")
    record = Record(version, "w", 1, 9, b"record").encode(incarnation)
    header.write_bytes(base + record[:-1])  # as it is seen while it is written
    headers = client.headers
    token = drive(headers.load(path)).token
    with header.open("r+b") as file:
        file.seek(len(base))
        file.write(record)
    beside(monkeypatch, LocalBackend, "read", lambda *_: header.unlink())
    assert drive(headers.load(path) if look == "load" else headers.load(path, token)).token is None


@needs_linux
def test_this_disk_is_known(tmp_path):
    assert folders.is_local(f"{tmp_path}/x")
    assert not system.is_local(f"{tmp_path}/missing")
    assert not folders.is_local(f"{tmp_path}/missing/x")


def test_header_in_a_new_folder_loses_nothing(tmp_path):
    """A commit to a store that may lose what it acknowledges asks it each time, for the life of the process."""
    assert not LocalBackend().may_tear(f"{tmp_path}/new/deep/log$header")


def test_records_are_limited_and_bytes_written_about_once(tmp_path):
    pieces = [b"%4d" % index for index in range(2 * RECORDS_MAX + 5)]
    path, file = segment_of(tmp_path, *pieces)
    assert file.read_bytes().count(b"Record ") == 3
    assert new_fs().cat_file(path) == b"".join(pieces)


# -- faults ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("written", [0, 1, 30, 100])
def test_full_disk_leaves_the_file_and_names_no_write(tmp_path, monkeypatch, written):
    path, file = segment_of(tmp_path, b"one ", b"two ")
    fs, whole, write = new_fs(), file.read_bytes(), os.pwrite

    def full(descriptor: int, data: Any, at: int) -> int:
        if at > len(whole) or not written:
            raise OSError(errno.ENOSPC, "injected: no space left")
        return write(descriptor, bytes(data)[:written], at)

    with monkeypatch.context() as patch:
        patch.setattr(system, "write_at", full)
        with pytest.raises(OSError, match="nothing was committed") as caught:
            fs.append(path, b"more" * 50)
        assert not isinstance(caught.value, AppendOutcomeUnknown)
        assert file.read_bytes() == whole
    fs.append(path, b"three")
    assert new_fs().cat_file(path) == b"one two three"


def test_what_cannot_be_cut_off_is_replaced(tmp_path, monkeypatch):
    path, file = segment_of(tmp_path, b"one ", b"two ")
    fs, write, tries = new_fs(), os.pwrite, []

    def torn(descriptor: int, data: Any, at: int) -> int:
        tries.append(at)
        if len(tries) > 1:
            raise OSError(errno.EIO, "injected")
        return write(descriptor, bytes(data)[:40], at)

    monkeypatch.setattr(system, "write_at", torn)
    monkeypatch.setattr(os, "ftruncate", raises(OSError(errno.EIO, "injected: it cannot be cut")))
    fs.append(path, b"three")
    assert (new_fs().cat_file(path), file.read_bytes().count(b"Record ")) == (b"one two three", 0)


@pytest.mark.parametrize("is_racing", [False, True], ids=["alone", "in a turn"])
def test_failed_flush_is_unknown_never_repeated_and_replaces_first(tmp_path, monkeypatch, is_racing):
    monkeypatch.setattr(Turns, "is_racing", is_racing)
    path, file = segment_of(tmp_path, b"one ", b"two ")
    fs, locks, inode = new_fs(), fail_flush(monkeypatch, file), os.stat(file).st_ino
    with pytest.raises(AppendOutcomeUnknown, match="flush failed"):
        fs.append(path, b"three ")
    assert locks == [[]], "the flush is not under the lock, and comes once"
    assert os.stat(file).st_ino != inode
    assert file.read_bytes().count(b"Record ") == 3
    fs.append(path, b"four")
    assert new_fs().cat_file(path) == b"one two three four"


@pytest.mark.parametrize("then", ["append", "flush"])
def test_file_with_failed_flush_is_neither_extended_nor_believed(tmp_path, monkeypatch, backend, then):
    """As a volume that was full; the cache will forget what it never wrote, and with it all records behind."""
    path, file = segment_of(tmp_path)
    first, second = new_fs(), new_fs()
    first.append(path, b"o")
    second.append(path, b"ne ")
    inode = os.stat(file).st_ino
    with monkeypatch.context() as patch:
        patch.setattr(system, "flush", raises(OSError(errno.ENOSPC, "injected: the flush failed")))
        with pytest.raises(AppendOutcomeUnknown, match="flush failed"):
            first.append(path, b"two ")
        with pytest.raises(OSError, match="nothing was committed") as caught:
            second.append(path, b"never ")
        assert not isinstance(caught.value, AppendOutcomeUnknown)
        with pytest.raises(UnflushedError):
            backend.flush(str(file))
    assert os.stat(file).st_ino == inode
    assert len(os.listdir(f"{path}$chunks")) == 2, "the lock, and one more name of the header"
    if then == "append":
        second.append(path, b"three ")
    else:
        backend.flush(str(file))
    assert os.stat(file).st_ino != inode
    new_fs().append(path, b"four")
    assert new_fs().cat_file(path) == (b"one two three four" if then == "append" else b"one two four")


@pytest.mark.parametrize("moved", ["segment", "folder"])
def test_failed_flush_replaces_the_file_that_was_moved(tmp_path, monkeypatch, moved):
    path, header = segment_of(tmp_path / "a", b"one")
    before, target = os.stat(header), tmp_path / "b" / header.name

    def fail(descriptor: int) -> None:
        if not target.exists() and os.path.samestat(os.fstat(descriptor), before):
            (tmp_path / "b").mkdir(exist_ok=moved == "segment")
            os.rename(*((header, target) if moved == "segment" else (tmp_path / "a", tmp_path / "b")))
            raise OSError(errno.EIO, "injected: the flush failed")

    beside(monkeypatch, system, "flush", fail)
    with pytest.raises(AppendOutcomeUnknown):
        new_fs().append(path, b"two")
    assert not os.path.samestat(os.stat(target), before), "the poisoned file has the name still"
    assert new_fs().cat(f"{tmp_path}/b/log") == b"onetwo"


def test_failed_flush_of_look_replaces_file_too(tmp_path, monkeypatch, backend):
    _, file = segment_of(tmp_path, b"one ", b"two ")
    inode, content = os.stat(file).st_ino, file.read_bytes()
    fail_flush(monkeypatch, file)
    with pytest.raises(UnflushedError):
        backend.flush(str(file))
    assert (os.stat(file).st_ino == inode, file.read_bytes()) == (False, content)
    backend.flush(str(file))


def test_linked_header_that_goes_during_its_flush_is_skipped(tmp_path, monkeypatch, backend):
    path, file = segment_of(tmp_path)
    os.link(file, tmp_path / "backup")

    def delete(_: int) -> None:
        file.unlink(missing_ok=True)
        shutil.rmtree(f"{path}$chunks", ignore_errors=True)

    beside(monkeypatch, system, "flush", after=delete)
    backend.flush(str(file))
    assert os.listdir(tmp_path) == ["backup"]


def test_what_dead_process_named_is_flushed_with_its_name(tmp_path, monkeypatch, backend, header):
    """A process that renamed a new header may have died before it flushed the folder."""
    token = backend.create(header, BASE)
    flushed: list[str] = []
    beside(monkeypatch, folders, "flush_folder_of", flushed.append)
    first = backend.extend(header, ONE, token)
    assert flushed == []
    monkeypatch.setattr(extending, "_named", {})  # as in another process
    second = backend.extend(header, TWO, first)
    assert flushed == [header]
    backend.extend(header, Record(4, "w", 5, 9, b"x").encode(SEGMENT), second)
    assert flushed == [header]
