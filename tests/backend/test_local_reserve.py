"""A full disk can be freed: what is kept on a disk that is nearly full, and given up by verbs that free space.

Rules of the protocol: P6.31 to P6.34.
"""

import contextlib
import errno
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rollingfs import RetentionPolicy, RollingFileSystem
from rollingfs.backend.local import disk, folders, system
from rollingfs.backend.objects.request_errors import Refusal, as_os_error
from rollingfs.format import names
from tests.support.schedules import beside

MIB = 1024 * 1024
KEPT = 250_000
"""An offset within a chunk, so that an erase must write a part of it anew."""

Verb = Callable[[RollingFileSystem, str], object]
FREEING: dict[str, Verb] = {
    "truncate": lambda fs, path: fs.truncate(path, KEPT),
    "erase": lambda fs, path: fs.truncate(path, KEPT, erase=True),
    "offload": lambda fs, path: fs.offload(path, tier="cold", deletion_lag=0),
    "retain": lambda fs, path: fs.stream(os.path.dirname(path)).retain(),
    "rm": lambda fs, path: fs.rm(path),
    "rm -r": lambda fs, path: fs.rm(os.path.dirname(path), recursive=True),
    "collect": lambda fs, path: fs.collect(path, grace=0),
}


def _fs(cold: Path, **options: Any) -> RollingFileSystem:
    return RollingFileSystem(
        "file", tiers={"cold": str(cold)}, max_bytes=100_000, inline_bytes=5000, skip_instance_cache=True, **options
    )


def _fill(fs: RollingFileSystem, folder: str) -> bytes:
    data = os.urandom(600_000) + b"tail"
    fs.pipe_file(f"{folder}/a", data[:300_000])
    fs.append(f"{folder}/a", data[300_000:])
    fs.pipe_file(f"{folder}/b", b"b" * 300_000)
    fs.stream(folder).retention = RetentionPolicy(max_bytes=200_000)
    return data


def _reserves(folder: Path) -> list[Path]:
    return sorted(folder.rglob(f"*{names.CHUNKS_SUFFIX}/{names.RESERVE_PREFIX}*"))


@pytest.fixture
def fs(tmp_path: Path) -> RollingFileSystem:
    return _fs(tmp_path / "cold", sync=False)


@pytest.fixture
def data(fs: RollingFileSystem, tmp_path: Path) -> bytes:
    """The content of a segment ``s/a``, which is there, beside another; asked for after `left`."""
    return _fill(fs, f"{tmp_path}/s")


def _let_be_full(patch: pytest.MonkeyPatch, is_full: Callable[[str], bool], number: int = errno.ENOSPC) -> None:
    """Let each new file be refused of which a test says that the disk is full."""

    def refuse(path: str, *_: Any) -> None:
        if is_full(path):
            raise OSError(number, os.strerror(number), path)

    beside(patch, disk, "open_new", refuse)


# -- what is kept -----------------------------------------------------------------------------------------------


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """What the disk has left, which a test sets."""
    left = SimpleNamespace(bytes=64 * MIB, files=100_000)
    monkeypatch.setattr(system, "room", lambda _path: (left.bytes, left.files))
    return left


@pytest.mark.parametrize(
    ("free_bytes", "files", "kept_bytes", "kept_files"),
    [
        (1024 * MIB, 100_000, None, 0),  # roomy
        (1024 * MIB, 1000, 512 * 1024, 8),  # few inodes
        (128 * MIB, 100_000, 512 * 1024, 8),
        (4 * MIB, 100_000, 64 * 1024, 8),
        (4 * MIB, 128, 64 * 1024, 2),
        (100 * 1024, 100_000, None, 0),  # too late: a reserve takes no more than a small part of what is left
    ],
)
def test_segment_with_chunks_keeps_a_reserve_on_full_disks(
    fs, tmp_path, left, free_bytes, files, kept_bytes, kept_files
):
    left.bytes, left.files = free_bytes, files
    fs.pipe_file(f"{tmp_path}/s/small", b"a header alone")
    fs.seal(f"{tmp_path}/s/small")
    fs.pipe_file(f"{tmp_path}/s/a", b"x" * 300_000)
    found = _reserves(tmp_path)
    assert len(found) == kept_files
    assert {path.parent.name for path in found} <= {"a$chunks"}
    if kept_bytes is not None:
        status = found[0].stat()
        assert status.st_size == kept_bytes
        assert getattr(status, "st_blocks", kept_bytes // 512) * 512 == kept_bytes, "the disk has given it its blocks"


@pytest.mark.skipif(not hasattr(os, "statvfs"), reason="a disk of POSIX")
def test_disk_that_counts_no_inodes_has_a_reserve(fs, tmp_path, monkeypatch):
    counts = {"f_bavail": 16 * MIB // 4096, "f_frsize": 4096, "f_files": 0, "f_favail": 0}  # as Btrfs has it
    monkeypatch.setattr(os, "statvfs", lambda _path: SimpleNamespace(**counts))
    fs.pipe_file(f"{tmp_path}/a", b"x" * 300_000)
    assert len(_reserves(tmp_path)) == folders.RESERVE_FILES


def test_nobody_sees_reserve_and_it_goes_with_its_segment(fs, tmp_path, left):
    folder = f"{tmp_path}/s"
    fs.pipe_file(f"{folder}/a", b"x" * 300_000)
    fs.pipe_file(f"{folder}/b", b"x" * 300_000)
    assert len(_reserves(tmp_path)) == 2 * folders.RESERVE_FILES
    assert fs.collect(f"{folder}/a", grace=0).files == ()
    assert fs.du(folder) == 600_000
    fs.truncate(f"{folder}/a", 300_000)
    fs.mv(f"{folder}/a", f"{folder}/c")  # of a segment that has a header alone: in one step
    fs.rm(f"{folder}/c")
    fs.rm(f"{folder}/b")
    assert list(Path(folder).rglob("*")) == []


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("verb", FREEING)
def test_freeing_verb_gives_up_its_reserve_on_full_disks(tmp_path, left, data, monkeypatch, verb, number):
    """No new file can be made until a reserve has gone."""
    cold, kept = str(tmp_path / "cold"), len(_reserves(tmp_path))
    is_full = lambda path: not path.startswith(cold) and len(_reserves(tmp_path)) == kept  # noqa: E731
    _let_be_full(monkeypatch, is_full, number)
    monkeypatch.setattr(folders, "keep_reserve", lambda _header: None)
    fs = _fs(tmp_path / "cold", sync=False)
    with pytest.raises(OSError, match="nothing was committed") as refused:
        fs.append(f"{tmp_path}/s/a", b"x" * 10_000)
    assert refused.value.errno == number
    assert len(_reserves(tmp_path)) == kept, "an append uses no reserve"
    FREEING[verb](fs, f"{tmp_path}/s/a")
    if verb == "collect":
        return
    assert len(_reserves(tmp_path)) < kept
    with contextlib.suppress(FileNotFoundError):
        start = fs.segment(f"{tmp_path}/s/a").start
        assert fs.cat_file(f"{tmp_path}/s/a") == data[start:]


@pytest.mark.parametrize("is_at_commit", [True, False])
def test_freed_space_makes_the_reserve_again(fs, tmp_path, left, data, monkeypatch, is_at_commit):
    """Else a disk that is full a second time could not be freed: appends had taken all that the first time freed."""
    first = next((tmp_path / "s" / "a$chunks").glob("0" * 20 + "*"))
    assert folders.give_up_reserve(f"{tmp_path}/s/a")
    monkeypatch.setattr(system, "room", lambda _path: (MIB if is_at_commit or not first.exists() else 0, 1000))
    fs.truncate(f"{tmp_path}/s/a", KEPT)
    assert (tmp_path / "s" / "a$chunks" / f"{names.RESERVE_PREFIX}0").stat().st_size == folders.RESERVE_BYTES_MAX


def test_reserve_grows_when_there_is_room(fs, tmp_path, left):
    left.bytes = MIB
    fs.pipe_file(path := f"{tmp_path}/a", b"x" * 300_000)
    assert (reserve := _reserves(tmp_path)[0]).stat().st_size == MIB // folders.FREE_SHARE
    left.bytes = 64 * MIB
    fs.seal(path)
    assert reserve.stat().st_size == folders.RESERVE_BYTES_MAX


def test_moved_source_is_buried_on_a_full_disk(fs, tmp_path, left, data, monkeypatch):
    source, target, kept = f"{tmp_path}/s/a", f"{tmp_path}/t/a", len(_reserves(tmp_path / "s"))
    is_full = lambda _: os.path.exists(f"{target}$header") and len(_reserves(tmp_path / "s")) == kept  # noqa: E731
    _let_be_full(monkeypatch, is_full)
    fs.mv(source, target)
    assert not fs.exists(source)
    assert fs.cat_file(target) == data


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("verb", ["list", "list with chunks", "rm -r"])
def test_deleted_headers_give_up_a_reserve_for_a_lock(fs, tmp_path, left, data, monkeypatch, verb, number):
    """A header that was only made has no lock yet, and no inode is left for it."""
    folder = tmp_path / "s"
    for name in (few := [f"{folder}/few-{nth}" for nth in range(3)]):
        fs.create(name)
    kept = len(_reserves(tmp_path))

    def full(path: Any, flags: int, *_: Any, **__: Any) -> None:
        if flags & os.O_CREAT and len(_reserves(tmp_path)) == kept:
            raise OSError(number, os.strerror(number), path)

    beside(monkeypatch, system, "open_file", full)
    paths = {"list": few, "list with chunks": [f"{folder}/a", few[0]], "rm -r": str(folder)}[verb]
    fs.rm(paths, recursive=verb == "rm -r")
    assert len(_reserves(tmp_path)) < kept
    assert not any(map(fs.exists, paths if verb != "rm -r" else [paths]))


def test_without_reserve_error_says_that_nothing_was_committed(fs, tmp_path, data, monkeypatch):
    _let_be_full(monkeypatch, lambda _: True)
    for verb in ("truncate", "rm"):
        with pytest.raises(OSError, match="nothing was committed"):
            FREEING[verb](fs, f"{tmp_path}/s/a")
    with pytest.raises(OSError, match=rf"nothing was committed: .*{tmp_path}/s/file"):
        fs.export(f"{tmp_path}/s/a", f"{tmp_path}/s/file")
    assert fs.cat_file(f"{tmp_path}/s/a") == data


def test_erase_without_room_truncates_first(fs, tmp_path, left, data, monkeypatch):
    first = next(path for path in (tmp_path / "s" / "a$chunks").iterdir() if path.name.startswith("0" * 20))
    # a new chunk; a header has room once the reserve is gone
    _let_be_full(monkeypatch, lambda path: "tmp-" not in path and first.exists())
    did = fs.truncate(f"{tmp_path}/s/a", KEPT, erase=True)
    assert (did.start, did.bytes, did.is_gone) == (KEPT, KEPT, True)
    assert fs.cat_file(f"{tmp_path}/s/a") == data[KEPT:]


@pytest.mark.parametrize(("status", "code"), [(507, ""), (400, "XMinioStorageFull")])
def test_an_object_store_that_is_full_refuses_for_good(status, code):
    assert as_os_error(Refusal(status, code, "full"), "writing", "b/k").errno == errno.ENOSPC


# -- a real disk ------------------------------------------------------------------------------------------------


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[Path]:
    """An ext4 of 24 MiB and 800 inodes of its own."""
    image, folder = tmp_path / "image", tmp_path / "volume"
    folder.mkdir()
    if os.geteuid() != 0 or shutil.which("mkfs.ext4") is None:
        pytest.skip("a loop mount needs root and mkfs.ext4")
    with image.open("wb") as file:
        file.truncate(24 * MIB)
    subprocess.run(["mkfs.ext4", "-q", "-F", "-N", "800", "-m", "0", image], check=True)
    if subprocess.run(["mount", "-o", "loop", image, folder], check=False, capture_output=True).returncode:
        pytest.skip("this machine mounts no loop device")
    yield folder
    subprocess.run(["umount", folder], check=True)


def _fill_blocks(folder: Path) -> None:
    size = MIB
    with (folder / "filler").open("wb", buffering=0) as file:
        while size:
            try:
                file.write(b"x" * size)
            except OSError:
                size //= 2
        os.fsync(file.fileno())


def _fill_inodes(folder: Path) -> None:
    (folder / "fill").mkdir()
    with contextlib.suppress(OSError):
        for number in range(10_000):
            (folder / "fill" / str(number)).touch()


@pytest.mark.slow
@pytest.mark.parametrize("fill", [_fill_blocks, _fill_inodes])
@pytest.mark.parametrize("verb", FREEING)
def test_real_disk_without_blocks_or_inodes_can_be_freed(volume, tmp_path, verb, fill):
    fs = _fs(tmp_path / "cold")
    data = _fill(fs, f"{volume}/s")
    fill(volume)
    fs = _fs(tmp_path / "cold")
    with pytest.raises(OSError, match="No space left"):
        fs.append(f"{volume}/s/a", b"x" * 10_000)
    FREEING[verb](fs, f"{volume}/s/a")
    if verb == "collect":  # there was no garbage
        return
    if not verb.startswith("rm") and verb != "retain":
        start = fs.segment(f"{volume}/s/a").start
        assert fs.cat_file(f"{volume}/s/a") == data[start:]
    fs.pipe_file(f"{volume}/s/after", b"there is room again")
