"""Loss of power, and flushes that fail: acknowledged data is there afterwards.

Rules of the protocol: P6.17 to P6.25.
"""

import contextlib
import errno
import os
import shutil
import sys
import threading
from pathlib import Path

import pytest

from rollingfs import RollingFileSystem, RollingPolicy
from rollingfs.backend.local import folders, system
from rollingfs.backend.local.backend import LocalBackend
from rollingfs.errors import RollingError
from rollingfs.folders.folders import make_all
from rollingfs.format import names
from rollingfs.runtime.concurrency import drive
from rollingfs.segment.verbs.concat import concat as concat_segment
from rollingfs.segment.verbs.rename import rename
from tests.support.examples import some
from tests.support.faults import CLOCK, hurry
from tests.support.life import World
from tests.support.segment_verbs import VERBS, append as append_segment

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at open files by /proc")

OLD, NEW = b"acknowledged before. ", b"and this is new"
FLUSHES_MAX = 60
POLICY = RollingPolicy(max_bytes=60, inline_bytes=40)


class Volatile:
    """The part of a tree that survives a loss of power: entries of folders and bytes of files, as last flushed."""

    def __init__(self, top, aside):
        self.top = top
        self.aside = aside
        self.entries = {}
        self.content = {}
        self.held = {}  # what is open keeps its inode number taken; a second name would keep a header from growing
        self.count = 0
        self.fails = range(0)
        self._lock = threading.Lock()  # chunks are finished in threads

    def fsync(self, descriptor):
        with self._lock:
            self.count += 1
            if self.count - 1 in self.fails:
                raise OSError(errno.EIO, "injected: the flush failed")
            path = os.readlink(f"/proc/self/fd/{descriptor}")
            if Path(path).is_relative_to(self.top):  # the folders above are not this disk's
                self.keep(path)

    def keep(self, path):
        inode = self._held(path)
        if os.path.isdir(path):
            self.entries[inode] = {name: self._held(f"{path}/{name}") for name in os.listdir(path)}
        else:
            self.content[inode] = Path(path).read_bytes()

    def _held(self, path):
        inode = os.stat(path).st_ino
        if os.path.isdir(path):
            if inode not in self.held:
                self.held[inode] = os.open(path, os.O_RDONLY)
                self.entries[inode] = {}
        elif "$" not in path and not os.path.exists(f"{self.aside}/{inode}"):
            os.link(path, f"{self.aside}/{inode}")  # a header tells by its number which plain file it hides
        elif inode not in self.held:
            self.held[inode] = os.open(path, os.O_RDONLY)
        return inode

    def keep_all(self):
        """Flush everything, as the system does by itself after a while."""
        for folder, _, files in os.walk(self.top):
            for path in [folder, *(os.path.join(folder, name) for name in files)]:
                self.keep(path)

    def lose_power(self):
        """Restore the state that was flushed."""
        inode = os.stat(self.top).st_ino
        shutil.rmtree(self.top)
        self._restore(self.top, inode)

    def _restore(self, path, inode):
        if inode in self.entries:
            os.mkdir(path)
            for name, child in self.entries[inode].items():
                self._restore(f"{path}/{name}", child)
            return
        content = self.content.get(inode, b"")
        if os.path.exists(f"{self.aside}/{inode}"):
            os.link(f"{self.aside}/{inode}", path)
            if Path(path).read_bytes() == content:
                return
        Path(path).write_bytes(content)

    def close(self):
        while self.held:
            os.close(self.held.popitem()[1])


@pytest.fixture
def new_disk(tmp_path, monkeypatch):
    """Makes an empty disk."""
    hurry(monkeypatch)
    disks = []

    def make():
        top, aside = tmp_path / f"disk-{len(disks)}", tmp_path / f"aside-{len(disks)}"
        top.mkdir()
        aside.mkdir()
        for old in disks:
            old.close()
        disks.append(Volatile(str(top), str(aside)))
        monkeypatch.setattr(folders, "_flushed", set(), raising=False)
        monkeypatch.setattr(system, "flush", disks[-1].fsync)
        return disks[-1]

    yield make
    for old in disks:
        old.close()


def client():
    return World(LocalBackend(), POLICY, CLOCK.time)


def content(path):
    """The content that a new process finds; None if there is nothing."""
    try:
        return client().content(path)
    except FileNotFoundError:
        return None


# -- what is done, and what is true once it is acknowledged -----------------------------------------------------


def of(verb, *args):
    """Calls a verb of the segment."""
    return lambda world, top: drive(VERBS[verb](world.client, f"{top}/a/log", *args))


append, append_chunks, overwrite = of("append", [NEW]), of("append", [NEW * 9]), of("overwrite", [NEW])
seal, truncate, delete = of("seal"), of("truncate", 5), of("delete")


def append_thrice(world, top):
    for piece in (NEW[:3], NEW[3:7], NEW[7:]):
        world.append(f"{top}/a/log", piece)


def append_with_attributes(world, top):
    """The second replaces the header, with the record of the first folded in."""
    world.append(f"{top}/a/log", NEW[:3])
    drive(append_segment(world.client, f"{top}/a/log", [NEW[3:]], attrs={"key": "value"}))


def create(world, top):
    world.create(f"{top}/b/c/d/log")


def make_folder(world, top):
    drive(make_all(world.client, f"{top}/b/c/d", exist_ok=True))


def move(world, top):
    drive(rename(world.client, f"{top}/a/log", f"{top}/b/log"))


def concat(world, top):
    drive(concat_segment(world.client, f"{top}/b/log", [f"{top}/a/log"]))


def is_sealed(top):
    return client().header(f"{top}/a/log").sealed


def is_one_of(*allowed):
    return lambda top: content(f"{top}/a/log") in allowed


def grown(old, new):
    """What holds of an append that was acknowledged, which another may repeat, and of one that was not."""
    return is_one_of(old + new, old + new * 2), is_one_of(old, old + new)


def is_between(begin, end=b""):
    def check(top):
        found = content(f"{top}/a/log")
        return found.startswith(begin) and found.endswith(end)

    return check


def is_there(before=b""):
    """Whether the data is where the mark in the source says."""

    def check(top):
        return content(f"{top}/b/log") == before + OLD or (
            (content(f"{top}/a/log"), content(f"{top}/b/log")) == (OLD, before or None)
        )

    return check


def came(before=b""):
    def check(top):
        world = client()
        header = drive(world.client.headers.load(f"{top}/a/log")).header
        if header is not None and header.merge is not None:  # the next client that meets the mark ends it
            drive(world.client.commits.merges.resolve(f"{top}/a/log", header))
        return (content(f"{top}/a/log"), content(f"{top}/b/log")) == (None, before + OLD)

    return check


def segment(world, top):
    world.create(f"{top}/a/log", [OLD])


def records(world, top):
    """A segment that another process has extended."""
    segment(world, top)
    client().append(f"{top}/a/log", NEW)


def plain(world, top):
    os.makedirs(f"{top}/a")
    with open(f"{top}/a/log", "wb") as file:
        file.write(OLD)


def two(world, top):
    segment(world, top)
    seal(world, top)
    world.create(f"{top}/b/log", [NEW])


def alone(world, top):
    """`two`, of which the first has no chunk file."""
    world.create(f"{top}/a/log", [OLD[:10]])
    world.append(f"{top}/a/log", OLD[10:])
    seal(world, top)
    world.create(f"{top}/b/log", [NEW])


def nothing(world, top):
    pass


def anything(top):
    return True


CASES = {
    "append": (segment, append, *grown(OLD, NEW)),
    "append behind records": (records, append, *grown(OLD + NEW, NEW)),
    "append thrice": (segment, append_thrice, is_between(OLD, NEW), is_between(OLD)),
    "append with attributes": (segment, append_with_attributes, is_between(OLD, NEW), is_between(OLD)),
    "append chunks": (segment, append_chunks, *grown(OLD, NEW * 9)),
    "append to a plain file": (plain, append, *grown(OLD, NEW)),
    "overwrite": (segment, overwrite, is_one_of(NEW), is_one_of(OLD, NEW)),
    "create": (nothing, create, lambda top: content(f"{top}/b/c/d/log") == b"", anything),
    "make a folder": (nothing, make_folder, lambda top: os.path.isdir(f"{top}/b/c/d"), anything),
    "seal": (segment, seal, is_sealed, is_one_of(OLD)),
    "seal a plain file": (plain, seal, is_sealed, is_one_of(OLD)),
    "truncate": (segment, truncate, is_one_of(OLD[5:]), is_one_of(OLD, OLD[5:])),
    "delete": (segment, delete, is_one_of(None), is_one_of(OLD, None)),
    "delete a plain file": (plain, delete, is_one_of(None), is_one_of(OLD, None)),
    "move": (segment, move, came(), is_there()),
    "move a plain file": (plain, move, came(), is_there()),
    "concat": (two, concat, came(NEW), is_there(NEW)),
    "concat of a header alone": (alone, concat, came(NEW), is_there(NEW)),
}
"""Preparation, operation, what holds if the operation was acknowledged, and what holds otherwise."""

DONE_BEFORE = (FileExistsError, FileNotFoundError, RollingError)
"""Errors of a repeated operation that was already done; it then counts as acknowledged."""


def failing(new_disk, case, for_ever):
    """A disk after an operation of which a flush failed, each in turn; which one, and whether it is acknowledged."""
    begin, verb, *_ = CASES[case]
    for first in some(range(FLUSHES_MAX)):
        store = new_disk()
        begin(client(), store.top)
        store.keep_all()
        store.count = 0
        store.fails = range(first, FLUSHES_MAX**2 if for_ever else first + 1)
        try:
            verb(client(), store.top)
            acknowledged = True
        except OSError:
            acknowledged = False  # it may have taken place
        was_reached = store.count > first
        store.fails = range(0)
        yield store, first, acknowledged
        if not was_reached:
            assert acknowledged
            return
    raise AssertionError("it never ends")


def test_a_line_stays_until_its_source_is_surely_gone(new_disk):
    """Else the source would come back with its mark, and no line that says that its bytes have moved (P11.35)."""
    store = new_disk()
    alone(client(), store.top)
    store.keep_all()

    async def die(_, path):
        raise OSError(errno.EIO, "the mover dies before this flush")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalBackend, "flush", die)
        concat(client(), store.top)
    assert not os.path.exists(f"{store.top}/a/log$header")
    other = client()
    drive(other.client.commits.merges.settle(f"{store.top}/b/log"))
    drive(append_segment(other.client, f"{store.top}/b/log", [b"!"], attrs={"key": "value"}))
    assert not other.header(f"{store.top}/b/log").merges
    store.lose_power()
    assert (content(f"{store.top}/a/log"), content(f"{store.top}/b/log")) == (None, NEW + OLD + b"!")


def test_what_another_left_unflushed_survives_power_loss(new_disk):
    """A subscriber is known already, a file of a folder is gone, and a chunk folder of a tier is there."""
    store = new_disk()
    tiers = {"cold": f"{store.top}/cold"}
    fs = RollingFileSystem("file", max_bytes=60, inline_bytes=40, tiers=tiers, skip_instance_cache=True)
    for folder in "abc":
        os.mkdir(f"{store.top}/{folder}")
    fs.pipe_file(log := f"{store.top}/a/log", OLD * 9)
    Path(f"{store.top}/b/plain").touch()
    fs.stream(f"{store.top}/c").subscribe("audit")
    store.keep_all()
    flushed = folders.flush_folder_of

    def die(path):
        if names.CHUNKS_SUFFIX not in path:
            raise OSError(errno.EIO, "it dies before this flush", path)
        flushed(path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(folders, "flush_folder_of", die)
        with contextlib.suppress(OSError):
            fs.stream(f"{store.top}/c").subscribe("billing")
    os.unlink(f"{store.top}/b/plain")
    os.makedirs(f"{tiers['cold']}{log}$chunks")
    fs = RollingFileSystem("file", max_bytes=60, inline_bytes=40, tiers=tiers, skip_instance_cache=True)
    fs.stream(f"{store.top}/c").subscribe("billing")
    fs.offload(log, deletion_lag=0)
    fs.rm(f"{store.top}/b", recursive=True)
    store.lose_power()
    assert "billing" in fs.stream(f"{store.top}/c").subscribers()
    assert not fs.exists(f"{store.top}/b")
    assert fs.cat_file(log) == OLD * 9


@pytest.mark.exhaustive
@pytest.mark.parametrize("for_ever", [False, True], ids=["one flush fails", "all fail from then on"])
@pytest.mark.parametrize("case", CASES)
def test_acknowledged_data_survive_power_loss_despite_failed_flushes(new_disk, case, for_ever):
    *_, done, otherwise = CASES[case]
    for store, first, acknowledged in failing(new_disk, case, for_ever):
        store.lose_power()
        assert (done if acknowledged else otherwise)(store.top), first


@pytest.mark.exhaustive
@pytest.mark.parametrize("case", CASES)
def test_data_on_anothers_unflushed_bytes_survive_power_loss(new_disk, case):
    _, verb, done, _ = CASES[case]
    for store, first, _ in failing(new_disk, case, for_ever=True):
        with contextlib.suppress(*DONE_BEFORE):
            verb(client(), store.top)  # again, by another process
        store.lose_power()
        assert done(store.top), first
