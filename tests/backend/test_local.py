"""The local backend: the contract, names, conditional verbs, tokens, modes, listings, faults that only a disk has."""

import errno
import os
import stat
import time
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rollingfs import RollingFileSystem
from rollingfs.backend.contract import Backend, Buffer, Link, Part
from rollingfs.backend.local import disk, folders, system
from rollingfs.backend.local.backend import LocalBackend
from rollingfs.backend.probe import probe
from rollingfs.errors import ConflictError, UnsafeBackendError
from rollingfs.runtime.concurrency import drive
from rollingfs.testing import BackendContract, Factory
from tests.support.backends import joined, raises
from tests.support.driven import Driven
from tests.support.forks import needs_posix
from tests.support.schedules import beside


class OnDisk(BackendContract):
    @pytest.fixture
    def folder(self, tmp_path: Path) -> str:
        return f"{tmp_path}/fresh"

    def raw_read(self, path: str) -> bytes:
        return Path(path).read_bytes()

    def raw_write(self, path: str, data: bytes) -> None:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        Path(path).write_bytes(data)


class TestLocalBackend(OnDisk):
    @pytest.fixture
    def backend(self) -> Backend:
        return LocalBackend()

    def spawn_arguments(self) -> Factory:
        return LocalBackend, ()


def _modes(*paths: str) -> list[int]:
    return [stat.S_IMODE(os.stat(path).st_mode) for path in paths]


# -- names --------------------------------------------------------------------------------------------------


@needs_posix
@pytest.mark.parametrize(
    ("path", "given"),
    [
        ("/a/b", ["/a/b", "/a/b/", "file:///a/b", "local:///a/b"]),
        ("/a", ["file:/a"]),
        ("/", ["", "/", "file://", "file:///"]),
        (f"{os.getcwd()}/a/b", ["a/b", "./a/b", "file://a/b", "local://a/b"]),
    ],
    ids=["absolute", "of one slash", "the root", "relative"],
)
def test_paths_and_urls_become_paths(backend, path, given):
    assert {one: backend.strip(one) for one in given} == dict.fromkeys(given, path)


def test_root_is_disk_of_nearest_folder_that_exists(backend, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    here, *others = (backend.root(f"{tmp_path}{path}") for path in ("", "/no/such/folder", "/file/x"))
    assert others == [here] * 2
    assert backend.root("/dev/x") != here


# -- conditional verbs ----------------------------------------------------------------------------------------


def test_conditional_writes_are_for_headers_only(backend, tmp_path):
    with pytest.raises(ValueError, match="header"):
        backend.create(f"{tmp_path}/chunk", b"")
    with pytest.raises(ValueError, match="header"):
        backend.replace(f"{tmp_path}/chunk", b"", "token")
    assert os.listdir(tmp_path) == []


def test_a_refused_create_or_replace_leaves_no_file_behind(backend, header, tmp_path):
    backend.create(header, b"x")
    before = sorted(os.listdir(tmp_path / "segment$chunks"))
    with pytest.raises(FileExistsError):
        backend.create(header, b"y")
    with pytest.raises(ConflictError):
        backend.replace(header, b"y", "stale")
    assert sorted({*before, "lock"}) == sorted(os.listdir(tmp_path / "segment$chunks"))


# -- tokens ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("has_preadv", [True, False])
def test_buffer_is_filled_as_far_as_file_goes(backend, tmp_path, monkeypatch, has_preadv):
    path = f"{tmp_path}/digits"
    Path(path).write_bytes(b"0123456789")
    if not has_preadv:
        monkeypatch.delattr(os, "preadv", raising=False)
    elif hasattr(os, "preadv"):
        real = os.preadv  # the kernel may give less than was asked for
        monkeypatch.setattr(system, "read_into", lambda file, targets, start: real(file, [targets[0][:3]], start))
    for start, expected in [(0, b"01234567"), (5, b"56789"), (10, b""), (99, b"")]:
        target = bytearray(b"-" * 8)
        assert backend.read_into(path, start, memoryview(target)) == len(expected)
        assert target == expected.ljust(8, b"-")


def test_token_sees_first_bytes_at_equal_inode_and_size(backend, header):
    token = backend.create(header, b"version 1")
    status = os.stat(header)
    with open(header, "r+b") as file:
        file.write(b"version 2")
    os.utime(header, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(ConflictError):
        backend.replace(header, b"lost", token)
    assert token.endswith(f"{zlib.crc32(b'version 1'):08x}")


# -- modes ----------------------------------------------------------------------------------------------------


@needs_posix
@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_new_files_follow_the_umask(backend, tmp_path, umask):
    header, chunk, uploaded = (f"{tmp_path}/x{tail}" for tail in ("$header", "$chunks/chunk", "$chunks/uploaded"))
    before = os.umask(umask)
    try:
        backend.replace(header, b"y", backend.create(header, b"x"))
        backend.write(chunk, [b"x"])
        backend.open_write(uploaded).finish()
    finally:
        os.umask(before)
    assert _modes(header, chunk, uploaded, f"{tmp_path}/x$chunks") == [0o666 & ~umask] * 3 + [0o777 & ~umask]


@needs_posix
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664])
def test_replaced_header_keeps_its_mode_and_temporaries_are_private(backend, header, monkeypatch, mode):
    token, seen = backend.create(header, b"x"), []
    os.chmod(header, mode)
    beside(monkeypatch, os, "write", lambda descriptor, _: seen.append(stat.S_IMODE(os.fstat(descriptor).st_mode)))
    backend.replace(header, b"secret", token)
    assert (seen, _modes(header)) == ([seen[0] & mode], [mode])


# -- listings -------------------------------------------------------------------------------------------------


@needs_posix
def test_listing_skips_special_files_and_nobody_waits_for_pipes(backend, tmp_path):
    (tmp_path / "file").write_bytes(b"12")
    (tmp_path / "folder").mkdir()
    for name, target in (("to-file", "file"), ("to-folder", "folder"), ("broken", "nowhere"), ("loop", "loop")):
        (tmp_path / name).symlink_to(target)
    os.mkfifo(tmp_path / "pipe")
    entries = backend.list(str(tmp_path)).entries
    assert [(os.path.basename(entry.path), entry.size, entry.is_folder, entry.link) for entry in entries] == [
        ("broken", 0, False, Link.NOTHING),
        ("file", 2, False, None),
        ("folder", 0, True, None),
        ("loop", 0, False, Link.NOTHING),
        ("to-file", 2, False, Link.FILE),
        ("to-folder", 0, True, Link.FOLDER),
    ]
    with pytest.raises(FileNotFoundError):
        backend.read(f"{tmp_path}/pipe")


@needs_posix
def test_the_root_folder_is_listed_with_plain_paths(backend):
    paths = [entry.path for entry in backend.list("/").entries]
    assert paths
    assert all(path.count("/") == 1 for path in paths)


def test_undeletable_files_are_reported_after_others_are_deleted(backend, tmp_path):
    (tmp_path / "a$chunks/folder").mkdir(parents=True)
    (tmp_path / "a$chunks/file").write_bytes(b"")
    with pytest.raises(OSError, match=rf"1 of 2 files could not be deleted.*'{tmp_path}/a.chunks/folder'") as told:
        backend.delete([f"{tmp_path}/a$chunks/folder", f"{tmp_path}/a$chunks/file"])
    assert [told.value.__cause__.filename] == [str(path) for path in tmp_path.glob("a$chunks/*")]


def test_folder_removed_during_the_lookup_is_made_again(tmp_path, monkeypatch):
    folder = tmp_path / "s$chunks"
    folder.mkdir()

    def refused(path: str) -> None:
        monkeypatch.undo()
        folder.rmdir()
        raise FileExistsError(path)

    monkeypatch.setattr(system, "mkdir", refused)
    folders.make_folders(str(folder), True)
    assert folder.is_dir()


def test_plain_file_replaced_within_delete_if_is_put_back(backend, tmp_path, monkeypatch):
    plain = tmp_path / "plain"
    plain.write_bytes(b"adopted")
    token = backend.stat(str(plain)).token
    beside(monkeypatch, system, "rename", lambda *_, **__: plain.write_bytes(b"written in between"))
    assert backend.delete_if(str(plain), token) is False
    assert plain.read_bytes() == b"written in between"
    assert os.listdir(tmp_path) == ["plain"]


# -- copies: whole, young, and of nobody's half-written file ---------------------------------------------------


HOUR_S = 3600


def _aged(path: Path, data: bytes, age_s: float) -> str:
    path.write_bytes(data)
    os.utime(path, (time.time() - age_s,) * 2)
    return str(path)


@pytest.mark.parametrize("age_s", [0, HOUR_S / 2, 48 * HOUR_S])
@pytest.mark.parametrize("mode", ["ab", "wb", "r+b"])
def test_copy_is_young_and_writes_to_original_spare_it(backend, tmp_path, age_s, mode):
    source = _aged(tmp_path / "plain", b"as adopted", age_s)
    target = f"{tmp_path}/plain$chunks/chunk"
    before = backend.stat(source)
    with open(source, "r+b") as held:  # by a program that goes on writing
        backend.copy(source, target, before.token)
        assert backend.stat(source) == before
        with open(source, mode) as file:
            file.write(b"by another program")
        held.write(b"and this")
    assert Path(target).read_bytes() == b"as adopted"
    assert os.stat(target).st_nlink == 1
    assert backend.now(target) - backend.stat(target).modified < 600  # else collection would take it


@needs_posix
def test_symbolic_link_is_copied_as_file_it_names(backend, tmp_path):
    _aged(tmp_path / "real", b"old", 2 * HOUR_S)
    (tmp_path / "plain").symlink_to("real")
    backend.copy(f"{tmp_path}/plain", f"{tmp_path}/plain$chunks/chunk")
    assert not os.path.islink(tmp_path / "plain$chunks/chunk")
    assert (tmp_path / "plain$chunks/chunk").read_bytes() == b"old"


def test_write_in_middle_of_copy_leaves_nothing(backend, tmp_path, monkeypatch):
    """In place, of the same length, and beyond what the token looks at."""
    source = _aged(tmp_path / "plain", bytes(100_000), 2 * HOUR_S)
    token = backend.stat(source).token

    def change(*_: int) -> None:
        with open(source, "r+b") as file:
            file.seek(1000)
            file.write(b"changed")

    beside(monkeypatch, disk, "copy_bytes", after=change)
    with pytest.raises(ConflictError):
        backend.copy(source, f"{tmp_path}/plain$chunks/chunk", token)
    assert os.listdir(tmp_path / "plain$chunks") == []


@pytest.mark.parametrize("machine_s", [0.0, 10.0**9, 10.0**10])
def test_copy_of_fresh_file_waits_until_dates_go_on(backend, tmp_path, monkeypatch, machine_s):
    slept: list[float] = []
    (tmp_path / "plain").write_bytes(b"just now")
    monkeypatch.setattr(time, "time", lambda: machine_s)
    monkeypatch.setattr(time, "sleep", slept.append)
    monkeypatch.setattr(disk, "DATE_TICK_S", 60.0)
    backend.copy(f"{tmp_path}/plain", f"{tmp_path}/plain$chunks/chunk")
    assert slept == [60.0]


def test_bytes_are_copied_where_the_kernel_cannot(backend, tmp_path, monkeypatch):
    data = os.urandom(2_500_000)
    (tmp_path / "plain").write_bytes(data)

    monkeypatch.setattr(system, "copy_in_kernel", raises(OSError(18, "Invalid cross-device link")))
    backend.copy(f"{tmp_path}/plain", f"{tmp_path}/copy")
    drive(joined(backend.backend, [Part(f"{tmp_path}/plain", 5, 2_000_000)], f"{tmp_path}/joined"))
    assert (tmp_path / "copy").read_bytes() == data
    assert (tmp_path / "joined").read_bytes() == data[5:2_000_000]


# -- what is flushed and in which order, and what a disk that refuses a write leaves behind --------------------


@pytest.fixture
def flushed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The inodes given to fsync, in order."""
    inodes: list[int] = []
    beside(monkeypatch, system, "flush", lambda descriptor: inodes.append(os.fstat(descriptor).st_ino))
    return inodes


def _inode(path: str | Path) -> int:
    return os.stat(path).st_ino


def test_file_and_folders_are_flushed(backend, tmp_path, flushed):
    header = f"{tmp_path}/new/x$header"
    backend.create(f"{tmp_path}/before$header", b"x")
    assert _inode(tmp_path.parent) in flushed  # the folders above, once
    flushed.clear()
    token = backend.create(header, b"x")
    assert flushed == [_inode(tmp_path), _inode(tmp_path / "new"), _inode(header), _inode(tmp_path / "new")]
    flushed.clear()
    backend.replace(header, b"y", token)
    assert flushed == [_inode(header), _inode(tmp_path / "new")]  # two, and no more


def test_failed_flush_of_a_folder_names_a_path(tmp_path, monkeypatch):
    monkeypatch.setattr(system, "flush", raises(OSError(errno.EIO, os.strerror(errno.EIO))))
    with pytest.raises(OSError, match="error") as caught:
        folders.flush_folder_of(f"{tmp_path}/x$header")
    assert (caught.value.errno, caught.value.filename) == (errno.EIO, f"{tmp_path}/x$header")


def test_without_sync_nothing_is_flushed(tmp_path, flushed):
    backend = Driven(LocalBackend(sync=False))
    backend.replace(f"{tmp_path}/new/x$header", b"y", backend.create(f"{tmp_path}/new/x$header", b"x"))
    backend.write(f"{tmp_path}/new/x$chunks/chunk", [b"x"])
    backend.open_write(f"{tmp_path}/new/x$chunks/uploaded").finish()
    backend.copy(f"{tmp_path}/new/x$chunks/chunk", f"{tmp_path}/copy")
    assert flushed == []


@pytest.mark.parametrize(
    ("verb", "call"),
    [*(("replace", call) for call in ("flush", "rename", "set_date")), ("write", "write"), ("put", "rename")],
)
def test_what_the_disk_refuses_leaves_what_was_there(backend, header, tmp_path, monkeypatch, verb, call):
    token, write = backend.create(header, b"old"), os.write

    def full(*args: Any, **_: Any) -> int:
        if call != "write" or len(args[1]) < 5000:
            raise OSError(28, "No space left on device")
        return write(args[0], args[1][:5000])

    folder = tmp_path / "segment$chunks"
    args = {"replace": (header, b"new", token), "write": (f"{folder}/chunk", [bytes(12_000)])}
    with monkeypatch.context() as patch:
        patch.setattr({"write": os}.get(call, system), call, full)
        with pytest.raises(OSError, match="No space left"):
            getattr(backend, verb)(*args.get(verb, (f"{folder}/pin", b"content")))
    assert backend.read(header).data == b"old"
    assert os.listdir(folder) == ["lock"] * (verb == "replace")
    backend.replace(header, b"new", token)  # the lock is free as well


def test_a_pin_is_not_seen_before_it_is_whole(tmp_path, monkeypatch):
    fs = RollingFileSystem("file", inline_bytes=0)
    fs.pipe_file(f"{tmp_path}/source", b"of a chunk")
    fs.seal(f"{tmp_path}/source")
    fs.touch(f"{tmp_path}/target")
    seen = []

    def look(_: int, data: Sequence[Buffer]) -> None:
        if bytes(data[0]).startswith(b"rollingfs-pin"):
            seen.append(list(tmp_path.glob("source$chunks/pin-*")))  # a collection would fail to read it

    beside(monkeypatch, disk, "write_all", look)
    fs.concat(f"{tmp_path}/target", [f"{tmp_path}/source"])
    assert seen == [[]]
    assert fs.cat_file(f"{tmp_path}/target") == b"of a chunk"


def test_header_dates_only_go_up_when_clocks_go_back(backend, header, monkeypatch):
    token = backend.create(header, b"x")
    dates = [os.stat(header).st_mtime_ns]
    monkeypatch.setattr(time, "time_ns", lambda: 10**18)
    for _ in range(5):
        token = backend.replace(header, b"x", token)
        dates.append(os.stat(header).st_mtime_ns)
    assert dates == sorted(set(dates))


def test_disk_that_gives_a_lock_to_two_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "is_local", lambda _path: False)
    drive(probe(LocalBackend(sync=False), f"{tmp_path}/right$chunks"))
    monkeypatch.setattr(system, "lock", lambda _descriptor: True)  # as bindfs by --enable-lock-forwarding
    with pytest.raises(UnsafeBackendError, match="gives a lock to two"):
        drive(probe(LocalBackend(sync=False), f"{tmp_path}/wrong$chunks"))
    assert [path for path in tmp_path.rglob("*") if not path.is_dir()] == []
