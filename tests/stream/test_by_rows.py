"""A stream of many segments is cut, kept and shown by the rows of its folder, as by the headers themselves."""

from dataclasses import replace
from typing import Any

import pytest

from rollingfs import RollingFileSystem, RollingPolicy
from rollingfs.backend.contract_values import Listing
from rollingfs.backend.memory import MemoryBackend
from rollingfs.folders import listing
from rollingfs.runtime.concurrency import drive
from tests.support.backends import Scripted, private_memory

COUNT = 120
FOLDER = "/d"
SMALL = RollingPolicy(max_bytes=20, inline_bytes=10)
FILES = [f"{FOLDER}/s{number:03}" for number in range(COUNT)]
CALLS_MAX = 12
"""Of any of the verbs: the listing, the rows, the memory of the stream, the time."""


@pytest.fixture(autouse=True)
def _few(limits: Any) -> None:
    """So that a folder of 120 segments has many."""
    limits(listing, UNSEEN_MIN=4, ROWLESS_MAX=50)


@pytest.fixture
def store() -> MemoryBackend:
    return private_memory()


def client(store: MemoryBackend) -> RollingFileSystem:
    """A new client of an object store, which has seen nothing."""
    return RollingFileSystem(backend=Scripted(store, has_folders=False), policy=SMALL, header_cache_s=0)


def fill(store: MemoryBackend) -> RollingFileSystem:
    """Open, sealed and truncated segments, and a tombstone; and the rows of them."""
    fs = client(store)
    for nth, path in enumerate(FILES):
        fs.pipe_file(path, b"x" * (1 + nth % 50))
        if nth % 3 == 0:
            fs.seal(path)
        if nth % 4 == 0:
            fs.truncate(path, (1 + nth % 50) // 2)
    fs.rm(FILES[7])
    client(store).ls(FOLDER)
    return fs


def truth(store: MemoryBackend, verb: str, **options: Any) -> Any:
    """What a stream says by its headers alone."""
    fs = client(store)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(listing, "UNSEEN_MIN", 10**6)
        return getattr(fs.stream(FOLDER), verb)(**options)


def same(found: Any, expected: Any) -> bool:
    """Whether two answers are the same, but for the time of a cut."""
    if not hasattr(found, "incarnations"):
        return bool(found == expected)
    return (dict(found), found.size, found.incarnations) == (dict(expected), expected.size, expected.incarnations)


@pytest.mark.parametrize("verb", ["cut", "size", "infos", "segments"])
def test_what_stream_is_costs_listing_and_rows(store: MemoryBackend, verb: str) -> None:
    fill(store)
    fs = client(store)
    found = getattr(fs.stream(FOLDER), verb)()
    assert fs._backend.count("list") == 1
    assert len(fs._backend.calls) <= CALLS_MAX, fs._backend.calls
    assert same(found, truth(store, verb))


def test_cut_at_time_reads_only_headers_that_changed_since(store: MemoryBackend) -> None:
    fs = fill(store)
    at = max(fs.stream(FOLDER).infos().values(), key=lambda info: info["mtime"])["mtime"]
    late = client(store)
    for path in FILES[22:24]:
        late.append(path, b"later")
    fs = client(store)
    fs.ls(FOLDER)
    fs._backend.clear()
    assert same(fs.stream(FOLDER).cut(at=at), truth(store, "cut", at=at))
    assert len(fs._backend.calls) <= CALLS_MAX + 2 * 3


def test_cut_after_records_stays_after_late_appends(store: MemoryBackend) -> None:
    fs = client(store)
    for path in FILES:
        fs.pipe_file(path, b"one\ntwo")
    client(store).ls(FOLDER)
    new = client(store)
    new._backend.plan("list", FOLDER, after=lambda: fs.append(FILES[5], b" and a half\nthree"))
    assert set(new.stream(FOLDER).cut(align=b"\n").values()) == {len(b"one\n")}


def test_cut_after_records_trusts_no_older_header(store: MemoryBackend) -> None:
    fs = client(store)
    for path in FILES:
        fs.pipe_file(path, b"one\ntwo")
    backend = Scripted(store, has_folders=False)
    late = RollingFileSystem(backend=backend, header_cache_s=3600)
    assert late.cat_file(FILES[5]) + late.cat_file(FILES[6]) == b"one\ntwo" * 2
    fs.append(FILES[5], b" and a half\nthree")
    fs.overwrite(FILES[6], b"another\nsegment")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(listing, "ROWLESS_MAX", 0)
        client(store).ls(FOLDER)
    assert same(late.stream(FOLDER).cut(align=b"\n"), truth(store, "cut", align=b"\n"))


def test_cut_before_renames_and_adoptions_means_shown_segments(store: MemoryBackend) -> None:
    fs = fill(store)
    store.fs.pipe_file(f"{FOLDER}/plain", b"plain bytes")
    cut = fs.stream(FOLDER).cut()
    fs.append(f"{FOLDER}/plain", b" and more")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(listing, "ROWLESS_MAX", 0)
        client(store).ls(FOLDER)
    new = client(store)
    did = new.stream(FOLDER).trim(cut, dry_run=True)
    assert did == truth(store, "trim", cut=cut, dry_run=True)
    assert did.dropped[f"{FOLDER}/plain"] == len(b"plain bytes")


def test_move_while_store_lists_folder_shows_no_byte_twice(store: MemoryBackend) -> None:
    """The listing shows the source as it was before the move, and the target as it is after it."""
    fs = fill(store)
    source, target = FILES[10], f"{FOLDER}/z"
    new, size = client(store), fs.stream(FOLDER).size()

    def move(answer: Listing) -> Listing:
        fs.mv(source, target)
        after = drive(store.list(FOLDER))
        entries = {one.path: one for one in after.entries} | {one.path: one for one in answer.entries}
        return replace(after, entries=tuple(entries[path] for path in sorted(entries)))

    new._backend.plan("list", FOLDER, answers=move)
    found = new.stream(FOLDER).cut()
    assert not new._backend.plans
    assert found.size == size
    assert not {source, target} <= {*found}
