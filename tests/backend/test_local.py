"""The local backend: the contract, names, conditional verbs, tokens, modes, listings, faults that only a disk has."""

import os
import stat
import zlib
from pathlib import Path

import pytest

from rollingfs.backend.contract import Backend, Link
from rollingfs.backend.local import folders, system
from rollingfs.backend.local.backend import LocalBackend
from rollingfs.errors import ConflictError
from rollingfs.testing import BackendContract, Factory
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
