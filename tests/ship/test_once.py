"""`ship --once`: a file goes to its segment, each line once, whatever is killed."""

import errno
import gzip
import os
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from rollingfs import RollingFileSystem
from rollingfs.format.transitions import check_attrs
from rollingfs.ship import Shipper, lineage, sender
from rollingfs.ship.generations import BLOCK_BYTES, LINES_MAX, Position
from rollingfs.ship.lineage import Lineage, Piece
from rollingfs.ship.sender import Sender
from rollingfs.ship.shipper import SOURCES_MAX
from tests.support.backends import Scripted, private_memory, raises
from tests.support.cli import Run, done, failed


class Site:
    """A log, its segment, and what a shipper says of them; all that is gone is believed to be gone at once."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.log, self.segment = folder, folder / "app.log", f"{folder}/segment"
        self.fs, self.said = RollingFileSystem("file", sync=False), list[str]()

    def write(self, name: str, data: bytes, at_ns: int = 10**18) -> None:
        """Write a file, compressed by its name, with this time."""
        (self.folder / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
        os.utime(self.folder / name, ns=(at_ns, at_ns))

    def shipper(self, **options: Any) -> Shipper:
        return Shipper(self.fs, [str(self.log)], self.segment, say=self.said.append, **options)

    def content(self) -> bytes:
        return self.fs.cat_file(self.segment)

    def shipped(self, shipper: Shipper | None = None) -> bytes:
        """The segment, once all is shipped."""
        (shipper or self.shipper()).once()
        return self.content()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setattr(lineage, "GONE_S", 0.0)
    monkeypatch.setattr(lineage, "LEAVE_S", 0.0)
    return Site(tmp_path)


def test_whole_lines_are_shipped_once(site: Site) -> None:
    site.log.write_bytes(b"one\ntwo\nthr")
    assert done("ship", "--once", site.log, site.segment).text.endswith("8 bytes in 1 commit\n")
    assert site.content() == b"one\ntwo\n"
    assert "0 bytes in 0 commits" in done("ship", "--once", site.log, site.segment).text
    with site.log.open("ab") as file:
        file.write(b"ee\n")
    assert site.shipped() == b"one\ntwo\nthree\n"
    assert not site.said


def test_lags_are_published_before_a_commit(tmp_path: Path) -> None:
    """Another thread reads them while the store lets the shipper wait."""
    log, fs = tmp_path / "app.log", RollingFileSystem("file")
    log.write_bytes(b"one\n")
    shipper = Shipper(fs, [str(log)], f"{tmp_path}/segment", prefix="{file} ")
    send, seen = Sender.send, []
    with mock.patch.object(Sender, "send", lambda *given: seen.append(shipper.lags()) or send(*given)):
        shipper.step(flush=True)
    assert [(lag.path, lag.bytes, lag.error) for (lag,) in [*seen, shipper.lags()]] == [
        (str(log), 4, None),
        (str(log), 0, None),
    ]
    assert seen[0][0].seconds > shipper.lags()[0].seconds == 0.0
    shipper.close()


def test_a_first_run_begins_with_the_oldest_file(site: Site) -> None:
    for number, (name, data) in enumerate(
        (("app.log.2.gz", b"one\n"), ("app.log.1", b"two\n"), ("app.log", b"three\n"))
    ):
        site.write(name, data, (10**9 + number) * 10**9)
    assert site.shipped() == b"one\ntwo\nthree\n"


@pytest.mark.parametrize("unit_ns", [1, 10**9], ids=["nanoseconds", "seconds"])
@pytest.mark.parametrize("older", [0, 1])
def test_a_file_compressed_within_a_second_is_shipped(unit_ns: int, older: int, site: Site) -> None:
    """Its time is that of the position or less: its place after the file before it counts, and then a doubt."""

    def write(name: str, data: bytes, at_ns: int) -> None:
        unit = 10**9 if name.endswith("gz") else unit_ns
        site.write(name, data, at_ns // unit * unit)

    if older:
        write("app.log.2.gz", b"zero\n", 100_100_000_000)
    write("app.log", b"one\n", 100_300_000_000)
    begin = b"zero\n" * older + b"one\n"
    assert site.shipped() == begin
    write("app.log.1.gz", b"two\n", 100_600_000_000)
    site.log.unlink()
    write("app.log", b"three\n", 101_000_000_000)
    assert site.shipped() == begin + b"two\nthree\n"
    assert "was cut or is gone" in site.said[0]


def test_a_file_after_a_deleted_log_is_shipped(site: Site) -> None:
    """A shipper that runs has the file open; the file after it is compressed with the same second."""
    shipper = site.shipper()
    site.write("app.log", b"one\n", 100_300_000_000)
    shipper.step(flush=True)
    site.log.unlink()
    for name, data in (("app.log.2.gz", b"one\n"), ("app.log.1.gz", b"two\n")):
        site.write(name, data, 100_000_000_000)
    site.log.write_bytes(b"three\n")
    assert site.shipped(shipper) == b"one\ntwo\nthree\n"


def test_a_file_written_over_within_its_second_is_shipped(site: Site) -> None:
    """The same inode, size and time, on a disk that keeps whole seconds."""
    shipper = site.shipper()
    for line in (b"one\n", b"two\n"):
        site.write("app.log", line)
        shipper.step(flush=True)
        shipper.step(flush=True)
    assert site.shipped(shipper) == b"one\ntwo\n"


@pytest.mark.parametrize("pad", [0, 2000])
@pytest.mark.parametrize("is_packed", [False, True])
@pytest.mark.parametrize("is_new", [False, True])
def test_a_copy_of_the_first_lines_is_not_shipped(pad: int, is_packed: bool, is_new: bool, site: Site) -> None:
    """Nor by a new shipper, on a disk of whole seconds, with an empty file between."""
    shipper, one = site.shipper(), b"one" + b"." * pad + b"\n"
    site.write("app.log", one + b"two\n")
    shipper.step(flush=True)
    site.write("app.log.2", b"")
    site.write(f"app.log.1{'.gz' * is_packed}", one)
    site.write("app.log", b"three\n")
    if is_new:
        shipper.close()
    shipper.step(flush=True)
    assert site.shipped(shipper) == one + b"two\nthree\n"


@pytest.mark.parametrize("commit_on", ["100 lines", "1s"])
def test_a_log_is_cut_after_a_look(commit_on: str, site: Site) -> None:
    look, shipper = Lineage.look, site.shipper(commit_on=commit_on)
    site.log.write_bytes(b"one\n")
    shipper.step()
    site.log.write_bytes(b"one\ntwo\n")

    def cut(self: Lineage) -> Piece | None:
        piece = look(self)
        site.log.write_bytes(b"three\n")
        return piece

    with mock.patch.object(Lineage, "look", cut):
        shipper.step(flush=commit_on == "1s")
    assert site.shipped(shipper) == b"one\nthree\n"


def test_a_new_file_may_begin_like_the_old(site: Site) -> None:
    """A look sees a byte of a line; then the log is copied and cut, and its next line begins with that byte."""
    shipper = site.shipper(commit_on="line")
    site.log.write_bytes(b"1")
    shipper.step()
    (site.folder / "app.log.1").write_bytes(b"12\n")
    site.log.write_bytes(b"16\n")
    shipper.step()
    assert site.shipped(shipper) == b"12\n16\n"


def test_a_copy_that_gets_the_inode_stays_shipped(site: Site) -> None:
    """A log was copied, written to and deleted; its inode comes back in the copy, as that is compressed."""
    log, packed = site.log, site.folder / "app.log.1.gz"
    log.write_bytes(b"one\ntwo\n")
    site.shipped()
    at_ns = log.stat().st_mtime_ns
    log.rename(packed)
    site.write(packed.name, b"one\n", at_ns)
    log.write_bytes(b"three\n")
    assert site.shipped() == b"one\ntwo\nthree\n"


@pytest.mark.parametrize("number", [0, 2**64 - 1])
def test_positions_fit_into_attributes(number: int) -> None:
    mark, begin = f"{2**40:x}.{2**32 - 1:x}", "ffff" * (LINES_MAX + 1)
    position = Position(number, 2**40, begin, 2**32 - 1, 2**63, "ffff", mark)
    assert Position.parse(str(position)) == position
    check_attrs({f"ship-{at:08x}": str(position) for at in range(SOURCES_MAX)}, "path")


@pytest.mark.parametrize("seen", [b"", b"one\n"])
def test_a_hole_is_skipped(seen: bytes, site: Site) -> None:
    site.log.write_bytes(seen)
    shipper = site.shipper(prefix="> ")
    shipper.step(flush=True)
    with site.log.open("r+b") as file:
        file.truncate()
        file.seek(2 * BLOCK_BYTES + 5000)
        file.write(b"two\n\0\0three\n")
    assert site.shipped(shipper) == b"> one\n" * bool(seen) + b"> two\n> \0\0three\n"
    assert "skipped a hole of 2,102,152 bytes" in site.said[-1]


def test_a_longer_copy_takes_the_place_of_its_log(site: Site) -> None:
    """As rsync does it: the old inode gets no more lines."""
    copy, shipper = site.folder / ".app.log.X", site.shipper()
    site.log.write_bytes(b"one\n")
    shipper.step(flush=True)
    copy.write_bytes(b"one\ntwo\n")
    copy.rename(site.log)
    assert site.shipped(shipper) == b"one\ntwo\n"


@pytest.mark.parametrize(
    "names",
    [
        ("app.log-28112026", "app.log-01122026.gz"),
        ("app.log.28-11-2026", "app.log.01-12-2026"),
        ("app-11282026_000000.log", "app-01012027_000000.log"),
        ("app.log-20261128", "app.log-20261201"),
    ],
)
def test_dated_files_come_in_the_order_of_time(names: tuple[str, str], site: Site) -> None:
    """Their digits are no order if the day or the month comes first."""
    for number, name in enumerate((*names, "app.log")):
        site.write(name, b"%d\n" % number, (10**9 + number) * 10**9)
    assert site.shipped() == b"0\n1\n2\n"


BAD = {
    "folder": "not a regular file",
    "pipe": "not a regular file",
    "device": "not a regular file",
    "torn": "cannot be decompressed",
    "unreadable": "Permission denied",
    "stale": "Stale file handle",
    "half": "Input/output error",
    "late": "Input/output error",
}
"""What a path is, and what its error has: a file on NFS that is gone, a disk that fails for the first MiB, or later."""


@pytest.mark.parametrize("into", [False, True])
@pytest.mark.parametrize("what", BAD)
def test_a_bad_file_is_named(what: str, into: bool, tmp_path: Path, monkeypatch) -> None:
    good, bad, said = tmp_path / "good.log", tmp_path / "bad.log", []
    good.write_bytes(b"line\n")
    bad.write_bytes(b"secret\n" * 400_000)
    inode, path, read = bad.stat().st_ino, str(bad), os.pread
    if what in ("folder", "pipe", "device"):
        bad.unlink()
        {"folder": os.mkdir, "pipe": os.mkfifo, "device": lambda path: os.symlink(os.devnull, path)}[what](bad)
    elif what == "torn":
        bad.unlink()
        bad = tmp_path / "bad.log.1.gz"
        bad.write_bytes(gzip.compress(b"line\n")[:-9])
    number = {"unreadable": errno.EACCES, "stale": errno.ESTALE, "half": errno.EIO, "late": errno.EIO}.get(what)
    reads: list[int] = []

    def pread(fd: int, size: int, offset: int) -> bytes:
        is_bad = number is not None and os.fstat(fd).st_ino == inode
        if is_bad and offset == 0 and size > 2000:
            reads.append(size)
        if is_bad and (what == "stale" or (offset == 0 and size > 2000 and len(reads) > (what == "late"))):
            raise OSError(number, os.strerror(number))
        return read(fd, size, offset)

    def refuse(name, *given, **more):
        if what == "unreadable" and name == path:
            raise PermissionError(number, os.strerror(number), name)
        return os_open(name, *given, **more)

    os_open = os.open
    monkeypatch.setattr(os, "pread", pread)
    monkeypatch.setattr(os, "open", refuse)
    shipper = Shipper(RollingFileSystem("file"), [path, str(good)], f"{tmp_path}/to", into=into, say=said.append)
    assert not shipper.step(flush=True) or not shipper.step(flush=True)
    shipper.step(flush=True)
    with pytest.raises(OSError, match=rf"{bad}.*: .*{BAD[what]}"):
        shipper.once()
    fs = RollingFileSystem("file", skip_instance_cache=True)
    assert fs.cat_file(f"{tmp_path}/to" if into else f"{tmp_path}/to/good.log") == b"line\n"
    assert len(said) == 1
    assert bad.name in said[0]


def test_a_full_disk_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, said, store = tmp_path / "app.log", [], Scripted(private_memory())
    log.write_bytes(b"one\n")
    store.plan(
        ("create", "replace"), "$header", before=raises(OSError(errno.ENOSPC, "No space left on device")), times=3
    )
    monkeypatch.setattr(sender, "RETRY_S_MIN", 0.001)
    fs = RollingFileSystem(backend=store, skip_instance_cache=True)
    Shipper(fs, [str(log)], "/logs/app", say=said.append).once()
    assert fs.cat_file("/logs/app") == b"one\n"
    assert len(said) == 1
    assert "/logs/app: waiting for the store: " in said[0]
    assert "No space left on device" in said[0]


def test_a_long_line_goes_in_parts(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lineage, "PART_BYTES", 64)
    site.log.write_bytes(b"a\0b\n" + b"x" * 1000)
    assert site.shipped() == b"a\0b\n" + b"x" * 1000


@pytest.mark.parametrize("words", [["--commit-on", "flush"], ["--prefix", "{who}"], ["--prefix", "{"]])
def test_wrong_options_are_refused(words: list[str], tmp_path: Path) -> None:
    failed("ship", "--once", *words, tmp_path / "app.log", tmp_path / "segment", code=2)
    assert not list(tmp_path.iterdir())


def test_a_replaced_segment_is_an_error(site: Site) -> None:
    site.log.write_bytes(b"one\n")
    shipper = site.shipper()
    shipper.step()
    site.fs.rm(site.segment)
    site.fs.pipe_file(site.segment, b"other")
    with site.log.open("ab") as file:
        file.write(b"two\n")
    shipper.step(flush=True)
    with pytest.raises(FileNotFoundError, match="another has its name"):
        shipper.once()
    site.fs.seal(site.segment)
    again = Run("ship", "--once", site.log, site.segment)
    assert again.code == 1
    assert "it takes no more bytes, so nothing was written" in again.err
    assert site.content() == b"other"
