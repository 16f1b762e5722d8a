"""The mark of a tier: no mark, no tier, and a segment's files belong to it by whichever path it is reached.

Rules of the protocol: P4.12 to P4.20.
"""

import errno
import os
import re
import subprocess
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from rollingfs import RollingFileSystem
from rollingfs.backend import patience
from rollingfs.backend.tier_marks import format_mark, make_mark, parse_mark
from rollingfs.backend.tiers import TieredBackend, TierStore
from rollingfs.errors import CorruptHeaderError, MissingTierError, TierFailedError
from rollingfs.format import names, tokens
from rollingfs.format.header import GRACE_S, Page
from rollingfs.runtime.concurrency import drive
from rollingfs.segment.verbs.rebuild import rebuild
from tests.backend.test_torn_reads import TORN, torn
from tests.support.backends import Scripted
from tests.support.examples import slowly
from tests.support.faults import CLOCK, Faulty, Store
from tests.support.life import World, pieces_of
from tests.support.small import SMALL, holding, shrink_pages

A, B = "/stream/a", "/stream/b"
DATA, TAIL = bytes(range(1, 101)), b"tail"
MARK, ROOT = "/archive/$tier", "/archive"
OTHER_ID = "11111111-2222-4333-8444-555555555555"

Verb = Callable[[World], object]
STOPPED: dict[str, Verb] = {
    "offload": lambda world: world.offload(A),
    "offload of another": lambda world: world.offload(B),
    "onload": lambda world: world.onload(A),
    "consolidate": lambda world: world.consolidate(A),
    "read": lambda world: world.content(A),
    "verify": lambda world: world.rows(A),
    "truncate": lambda world: world.truncate(A, 50),
    "erase": lambda world: world.erase(A, 50),
    "overwrite": lambda world: world.overwrite(A, b"new"),
    "rename onto it": lambda world: world.rename(B, A),
    "delete": lambda world: world.delete(A),
    "collect": lambda world: world.collect(A),
}


class Pair:
    """A hot store and a tier on another, whose disk can be taken away and comes back."""

    def __init__(self) -> None:
        self.hot, self.cold = Store(), Store()
        self.taken: dict[str, bytes] = {}

    def client(self) -> World:
        return World(TieredBackend(Faulty(self.hot), {"cold": TierStore(self.cold, ROOT)}), SMALL, CLOCK.time)

    def filled(self) -> World:
        """A segment with some of its chunks in the tier, and one that has never been there."""
        world = self.client()
        for path in (A, B):
            world.append(world.create(path, pieces_of(DATA, [20] * 5)), TAIL)
        world.offload(A, upto=60, block_bytes=20)
        return world

    def unmount(self, mark: bytes | None) -> None:
        """An empty folder lies in the place of the tier, or another tier."""
        self.taken = {path: bytes(data) for path, data in self.cold.snapshot().items()}
        self.cold.fs.store.clear()
        if mark is not None:
            self.cold.fs.pipe_file(MARK, mark)

    def mount(self) -> None:
        self.cold.fs.store.clear()
        for path, data in self.taken.items():
            self.cold.fs.pipe_file(path, data)


@pytest.fixture
def pair(hurried: Any) -> Pair:
    return Pair()


@pytest.mark.parametrize("verb", STOPPED)
@pytest.mark.parametrize("mark", [None, *slowly(b"", format_mark(OTHER_ID))], ids=["none", "empty", "of another"])
@pytest.mark.parametrize("is_known", [True, False])
def test_unmarked_tier_is_absent_and_nothing_is_dropped(pair, verb, mark, is_known):
    if verb == "offload of another" and mark is not None:
        pytest.skip("a segment that no tier has files of may go to any")
    world = pair.filled()
    pair.unmount(mark)
    left = pair.cold.files()
    with pytest.raises(MissingTierError, match=r"mounted\?") as caught:
        STOPPED[verb](world if is_known else pair.client())
    assert "'cold'" in str(caught.value)
    assert pair.cold.files() == left, "nothing is written into a folder that is not the tier"
    assert world.content(B) == DATA + TAIL
    pair.mount()
    for client in (world, pair.client()):
        assert client.content(A) == client.content(B) == DATA + TAIL
    assert all(row.ok for row in world.rows(A))


def test_verbs_without_tier_bytes_work_without_the_tier(pair):
    world = pair.filled()
    pair.unmount(None)
    assert world.append(A, b"more") == 104
    view = drive(world.client.headers.view(A, fresh=True))
    assert drive(world.client.fetcher.read(view, 60, 108)) == DATA[60:] + TAIL + b"more"
    pair.mount()
    assert world.content(A) == DATA + TAIL + b"more"


WORD = "the tier's word"
ERRORS = [PermissionError(errno.EACCES, WORD), OSError(errno.EIO, WORD), TimeoutError(WORD)]
CASES = [*product(ERRORS, ("$chunks", "")), (CorruptHeaderError(WORD), "$chunks")]
"""Errors, and the paths in the tier that raise them: those of chunks, or all."""


class Broken:
    """A tier whose files raise an error, or only those whose path has some text."""

    def __init__(self, pair: Pair, error: OSError, text: str = "") -> None:
        for verb in ("read", "read_range", "read_into", "list"):
            setattr(pair.cold, verb, partial(self._call, getattr(pair.cold, verb), error, text))

    @staticmethod
    async def _call(call: Any, error: OSError, text: str, path: Any, *more: Any) -> Any:
        if text in str(path):
            raise error
        return await call(path, *more)


@pytest.mark.parametrize(("error", "text"), CASES)
def test_cut_without_look_and_trim_survive_failing_tiers(pair, error, text):
    """The first bytes of A show whether it may be cut; those of B are at hand."""
    world = pair.filled()
    fs = RollingFileSystem(backend=world.backend, skip_instance_cache=True)
    Broken(pair, error, text)
    with pytest.raises(OSError, match=r"nothing was changed\. as_bytes=True .* the tier's word") as caught:
        fs.truncate(A, 10)
    assert (type(caught.value), caught.value.errno) == (type(error), error.errno)
    with pytest.raises(OSError, match="nothing was changed"):
        fs.concat(B, [A])
    stream = fs.stream("/stream")
    cut = stream.cut()
    for path in (A, B):
        fs.append(path, b"more")
    did = stream.trim(cut)
    assert (did.dropped, list(did.failed)) == ({B: 104}, [A]), "the error is about A alone"
    if text:
        assert "as_bytes=True" in did.failed[A]
        assert fs.truncate(A, 70, as_bytes=True) == 0
        assert fs.cat_file(A) == DATA[70:] + TAIL + b"more"
    else:
        did = stream.trim(cut, as_bytes=True)
        assert "'cold' failed, so nothing was dropped" in did.failed[A]
        with pytest.raises(TierFailedError, match="nothing was dropped"):
            fs.truncate(A, 70, as_bytes=True)
        assert fs.segment(A).start == 0


def test_a_truncation_asks_only_the_tiers_that_lose_files(pair, monkeypatch):
    """Of two tiers, one is not mounted; the entries lie in the header, or in an index page."""
    for is_paged in (False, True):
        pair.hot, pair.cold, other = Store(), Store(), Store()
        tiers = {"cold": TierStore(pair.cold, ROOT), "other": TierStore(other, ROOT)}
        fs = RollingFileSystem(backend=TieredBackend(pair.hot, tiers), max_bytes=20, inline_bytes=0)
        fs.create(A)
        for _ in range(10):
            fs.append(A, b"0123456789abcdefghi\n")
        for tier, upto in (("other", 40), ("cold", 80)):
            fs.offload(A, tier=tier, upto=upto, block_bytes=20, deletion_lag=0)
        if is_paged:
            shrink_pages(monkeypatch)
            for _ in range(3):
                fs.append(A, b"0123456789abcdefghi\n")
            assert any(isinstance(entry, Page) for entry in World(pair.hot).header(A).entries)
        pair.unmount(None)
        with pytest.raises(MissingTierError, match="'cold'"):
            fs.truncate(A, 40, as_bytes=True, erase=True)
        assert fs.segment(A).start == 0, "an erase looks for files in all of them"
        assert fs.truncate(A, 50, as_bytes=True) == 0, "the file of bytes 40 to 60 stays"
        with pytest.raises(MissingTierError, match="'cold'"):
            fs.truncate(A, 60, as_bytes=True)
        assert fs.segment(A).start == 50
        pair.mount()
        assert fs.truncate(A, 80, as_bytes=True) == 0
        other.fs.store.clear()
        assert fs.truncate(A, 100, as_bytes=True) == 0
        assert fs.segment(A).start == 100


def test_tier_that_goes_during_offload_takes_no_original_along(pair):
    """A second look comes after the copies were read back, before the commit that drops the originals."""
    world = pair.filled()
    lost: list[str] = []
    store = world.backend._stores["cold"].backend
    write = store._put

    def put(path: str, content: bytes) -> str:
        if names.CHUNKS_SUFFIX in path and not lost:
            lost.append(path)
            pair.unmount(None)
        return str(write(path, content))

    store._put = put
    with pytest.raises(MissingTierError):
        world.offload(A)
    store._put = write
    pair.mount()
    assert pair.client().content(A) == DATA + TAIL


@pytest.mark.parametrize("has_neighbour", [True, False])
def test_rebuild_without_tier_is_refused_or_says_so(pair, has_neighbour):
    """The header is lost that would name the tier: another segment's line shows that the tier was in use."""
    world = pair.filled()
    world.offload(B, upto=20, block_bytes=20)
    if not has_neighbour:
        world.delete(B)
        pair.hot.fs.store.pop(names.header_path(B))
    world.offload(A)
    world.append(A, DATA[:20])
    pair.hot.fs.store.pop(names.header_path(A))
    pair.unmount(None)
    client = pair.client().client
    if has_neighbour:
        with pytest.raises(MissingTierError, match=r"'cold' is not there .* mounted\?"):
            drive(rebuild(client, A, f"{A}2", 100))
    else:
        assert "'cold', whose root has no mark" in drive(rebuild(client, A, f"{A}2", 104)).lost[-1]
    pair.mount()
    assert drive(rebuild(pair.client().client, A, f"{A}3", 0)).end >= 100


def test_tombstone_leads_to_tier_until_tier_was_looked_at(pair):
    world = pair.filled()
    world.delete(A)
    world.backend._stores["cold"].backend.fs.pipe_file(f"{ROOT}{A}$chunks/tier-{'0' * 12}-x-y", b"of others")
    key = world.client.headers.seen(A).header.tiers[0].key
    pair.cold.fs.pipe_file(f"{ROOT}{A}$chunks/tier-{key}-{'0' * 20}-abc", b"of a crash")
    pair.unmount(None)
    pair.hot.lapse(2 * GRACE_S)
    with pytest.raises(MissingTierError):
        world.collect(A, None)
    assert names.header_path(A) in pair.hot.files()
    pair.mount()
    world.collect(A, 0.0)
    assert not any(key in path for path in pair.cold.files())


# -- who makes the mark, and older releases ---------------------------------------------------------------------


def test_clients_that_make_mark_at_once_take_one_id(pair):
    """Also over the empty mark of an older release, at each place where another may come between."""
    for old in (None, b""):
        for calls in range(6):
            pair.cold.fs.store.clear()
            if old is not None:
                pair.cold.fs.pipe_file(MARK, old)
            first, second = pair.client(), pair.client()
            cold = Faulty(pair.cold)
            first.backend._stores["cold"].backend = cold
            found: list[str] = []
            make = partial(make_mark, second.backend, second.client.runtime, "cold")
            cold.prepare(between={calls: lambda found=found, make=make: found.append(drive(make()))})
            found.append(drive(make_mark(first.backend, first.client.runtime, "cold")))
            assert {parse_mark(bytes(pair.cold.snapshot()[MARK]), MARK)} == set(found)


@pytest.mark.parametrize("how", TORN)
def test_torn_mark_is_reread_and_gives_no_second_id(pair, how, monkeypatch):
    monkeypatch.setattr(patience, "LOOK_PAUSE_FIRST_S", 0.0)
    pair.filled()
    world, cold = pair.client(), Scripted(pair.cold)
    world.backend._stores["cold"].backend = cold
    cold.may_tear = lambda _path: True
    cold.plan("read", MARK, answers=torn(how, met := []), times=2)
    before = pair.cold.snapshot()[MARK]
    world.offload(A)
    assert pair.cold.snapshot()[MARK] == before
    assert len(met) == 2
    assert world.content(A) == DATA + TAIL


@pytest.mark.parametrize("calls", range(8))
def test_first_offloads_of_two_clients_both_succeed(pair, calls):
    """A line that came after the look for the mark shows no tier that went away: its mark came before it."""
    hot, second = Faulty(pair.hot), pair.client()
    first = World(TieredBackend(hot, {"cold": TierStore(pair.cold, ROOT)}), SMALL, CLOCK.time)
    for path in (A, B):
        first.append(first.create(path, pieces_of(DATA, [20] * 5)), TAIL)
    hot.prepare(between={calls: partial(second.offload, B, upto=60, block_bytes=20)})
    first.offload(A, upto=60, block_bytes=20)
    assert pair.client().content(A) == pair.client().content(B) == DATA + TAIL


def _as_by_an_older_release(world: World, pair: Pair) -> None:
    """Take the id and the path out of the lines, and the id out of the mark."""
    header = world.header(A)
    text = pair.hot.snapshot()[names.header_path(A)]
    line = re.sub(rb" id=\S+ path=\S+\n", b"\n", bytes(text))
    body = line[: line.index(b"\nend crc32c=") + 1]
    tail = line[line.index(b"\n\n", len(body)) + 2 :]
    pair.hot._put(names.header_path(A), tokens.seal_text(body) + tail)
    pair.cold.fs.pipe_file(MARK, b"")
    assert header.tiers[0].id
    world.client.headers.forget()


def test_older_line_and_mark_learn_the_id_later(pair):
    world = pair.filled()
    _as_by_an_older_release(world, pair)
    assert (world.header(A).tiers[0].id, world.content(A)) == ("", DATA + TAIL)
    world.collect(A)
    pair.unmount(None)
    with pytest.raises(MissingTierError):
        world.offload(A)
    pair.mount()
    world.offload(A)
    line, mark = world.header(A).tiers[0], parse_mark(bytes(pair.cold.snapshot()[MARK]), MARK)
    assert (line.id, line.path) == (mark, A)
    assert line.id
    assert world.content(A) == DATA + TAIL


def test_older_line_below_another_path_learns_nothing_wrong(pair):
    world = pair.filled()
    _as_by_an_older_release(world, pair)
    for path in [path for path in pair.cold.files() if names.CHUNKS_SUFFIX in path]:
        pair.cold.fs.store["/elsewhere" + path] = pair.cold.fs.store.pop(path)
    with pytest.raises(MissingTierError, match=r"below the path that the first offload used"):
        world.offload(A)


# -- other paths ------------------------------------------------------------------------------------------------


def _fs(cold: Path) -> RollingFileSystem:
    return RollingFileSystem(
        "file", tiers={"cold": str(cold)}, max_bytes=1000, inline_bytes=100, sync=False, skip_instance_cache=True
    )


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.name != names.TIER_MARK)


@pytest.fixture(params=["link", "mount"])
def other(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Another path of the folder "hot"."""
    (tmp_path / "hot" / "in").mkdir(parents=True)
    link = tmp_path / "other"
    if request.param == "link":
        link.symlink_to(tmp_path / "hot")
        yield link
        return
    link.mkdir()
    command = ["mount", "--bind", tmp_path / "hot", link]
    if os.geteuid() != 0 or subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("a bind mount needs root")
    yield link
    subprocess.run(["umount", link], check=True)


@pytest.mark.parametrize("is_first", [True, False], ids=["offloaded by the other", "offloaded by the first"])
def test_a_tiers_files_are_the_segments_by_whichever_path(tmp_path, other, is_first):
    here, there = f"{tmp_path}/hot/in/a", f"{other}/in/a"
    if is_first:
        here, there = there, here
    cold = tmp_path / "cold"
    fs = _fs(cold)
    fs.pipe_file(here, b"x" * 5000)
    fs.offload(here, tier="cold", upto=2000, block_bytes=1000, deletion_lag=0)
    assert _fs(cold).cat_file(there) == b"x" * 5000
    _fs(cold).offload(there, tier="cold", block_bytes=1000, deletion_lag=0)
    assert len({path.parent for path in _files(cold)}) == 1
    erased = _fs(cold).truncate(there, 2500, erase=True)
    assert erased.is_gone
    assert sorted(path.stat().st_size for path in _files(cold)) == [500, 1000, 1000]
    fs.mv(there, there + "2")
    assert _fs(cold).cat_file(here + "2") == b"x" * 2500
    left = _fs(cold).truncate(here + "2", 3500, erase=True).remains
    named = {one.file.rpartition("/")[2] for one in left}
    assert named, "its former name still has some"
    assert named < {path.name for path in _files(cold)}
    _fs(cold).rm(there + "2")
    for path in (here, there + "2"):
        fs.collect(path, grace=0)
    assert _files(cold) == []


def test_uncertain_equal_paths_are_named_and_nothing_dropped(pair):
    """As by another URL of a bucket: the same files under another name of the store."""
    world = pair.filled()
    for path in list(pair.hot.files()):
        pair.hot.fs.store["/alias" + path] = pair.hot.fs.store[path]
    before = pair.cold.files()
    for verb in (
        partial(world.offload, f"/alias{A}"),
        partial(world.collect, f"/alias{A}"),
        partial(world.erase, f"/alias{A}", 50),
        partial(world.delete, f"/alias{A}"),
        partial(world.content, f"/alias{A}"),
    ):
        with pytest.raises(MissingTierError, match=f"/alias{A}.*lie below {A}"):
            verb()
    assert pair.cold.files() == before


def test_tree_moved_with_its_tier_tree_learns_the_path(pair):
    world = pair.filled()
    for store, top in ((pair.hot, ""), (pair.cold, ROOT)):
        for path in [path for path in store.files() if path.startswith(f"{top}/stream/")]:
            store.fs.store[path.replace("/stream/", "/moved/")] = store.fs.store.pop(path)
    assert world.content("/moved/a") == DATA + TAIL
    world.collect("/moved/a")
    world.offload("/moved/a")
    assert world.header("/moved/a").tiers[0].path == "/moved/a"
    assert world.erase("/moved/a", 50).is_gone
    assert world.content("/moved/a") == DATA[50:] + TAIL


def test_too_long_path_is_left_out_of_lines(pair):
    world, long = pair.client(), "/stream/" + "x" * 1100
    world.create(long, pieces_of(DATA, [20] * 5))
    world.offload(long)
    assert world.header(long).tiers[0].path == ""
    assert world.content(long) == DATA


@pytest.mark.parametrize("call", range(0, 60, 6))
@pytest.mark.parametrize("verb", ["offload", "append", "unmount"])
def test_erased_bytes_are_gone_beside_another_client(pair, call, verb):
    """`is_gone` is tried at each sixth call of the erase, by an offload, an append, or a disk that goes away."""
    world, other = pair.filled(), pair.client()
    calls = {
        "offload": partial(other.offload, A),
        "append": partial(other.append, A, b"z" * 20),
        "unmount": partial(pair.unmount, None),
    }
    world.backend.inner.prepare(between={call: calls[verb]})
    try:
        is_gone = world.erase(A, 50).is_gone
    except MissingTierError:
        is_gone = False
    world.backend.inner.prepare()
    if pair.taken:
        pair.mount()
    if is_gone:
        left = holding(pair.hot, DATA[:50]) | holding(pair.cold, DATA[:50])
        assert not [path for path in left if B not in path], "B has the same bytes"
    more = b"z" * 20 if verb == "append" and pair.client().content(A).endswith(b"z") else b""
    start = pair.client().header(A).start
    assert pair.client().content(A) == DATA[start:] + TAIL + more
