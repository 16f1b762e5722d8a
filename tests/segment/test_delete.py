"""Deletions of many segments: two requests each, and what one deletion guarantees holds for each of them."""

import errno

import pytest

from rollingfs import RollingFileSystem, RollingPolicy
from rollingfs.errors import CorruptHeaderError
from rollingfs.folders import listing
from rollingfs.segment.commit import header_cache
from rollingfs.segment.verbs import delete
from tests.support.backends import Scripted, private_memory, raises
from tests.support.small import shrink_pages

COUNT = 60
SMALL = RollingPolicy(max_bytes=20, inline_bytes=10)
FILES = [f"/bucket/d/s{number:02}" for number in range(COUNT)]


@pytest.fixture
def store():
    return private_memory()


def client(store):
    """A new client of an object store, which has seen nothing and has probed the store."""
    fs = RollingFileSystem(backend=Scripted(store, has_folders=False), policy=SMALL)
    fs.touch("/bucket/probed")
    fs._client.headers.forget()
    fs._backend.clear()
    return fs


def fill(store, count=COUNT):
    fs = client(store)
    for path in FILES[:count]:
        fs.pipe_file(path, path.encode() * 4)
    return fs


def headers(store):
    fs = client(store)
    return [fs._bridge.run(fs._client.headers.load(path)) for path in FILES]


def chunks(store):
    return [path for path in store.fs.store if "$chunks/0" in path]


@pytest.mark.parametrize(
    ("remove", "cached_max"),
    [  # a folder may have more segments than the cache takes; a pattern without rows then costs three
        (lambda fs: fs.rm("/bucket/d", recursive=True), 8),
        (lambda fs: fs.rm(FILES), 8),
        (lambda fs: fs.rm("/bucket/d/s*"), COUNT + 8),
    ],
    ids=["a folder", "a list", "a pattern"],
)
@pytest.mark.parametrize("has_rows", [False, True])
def test_many_segments_cost_two_requests_each(store, remove, cached_max, has_rows, monkeypatch):
    monkeypatch.setattr(delete, "BATCH_MAX", 25)
    monkeypatch.setattr(header_cache, "HEADERS_CACHED_MAX", cached_max)
    monkeypatch.setattr(listing, "ROWLESS_MAX", 20)
    fill(store)
    if has_rows:
        client(store).ls("/bucket/d")
    fs = client(store)
    remove(fs)
    assert len(fs._backend.calls) <= 2.2 * COUNT + 3  # two listings of the folder, and a look for the rows
    assert all(loaded.header.deleted for loaded in headers(store))
    assert chunks(store) == []
    assert client(store).find("/bucket/d") == []


@pytest.mark.parametrize("leaves", ["nothing", "a plain file", "a tombstone"])
def test_segment_gone_since_the_listing_fails_no_folder_delete(store, leaves):
    fill(store, 3)
    fs, other = client(store), client(store)

    def meanwhile():
        if leaves == "nothing":  # another tool
            del store.fs.store[f"{FILES[1]}$header"]
            return
        other.rm(FILES[1])
        if leaves == "a plain file":
            store.fs.pipe_file(FILES[1], b"plain")

    fs._backend.plan("replace", f"{FILES[1]}$header", before=meanwhile)
    fs.rm("/bucket/d", recursive=True)
    assert client(store).find("/bucket/d") == []


def test_undeletable_files_are_named_and_collected_later(store):
    fill(store, 4)
    fs = client(store)
    fs._backend.plan("delete", before=raises(OSError(errno.EIO, "it broke")), times=None)
    with pytest.raises(OSError, match=r"s00 and 3 more: committed, but .* could not be deleted yet.*it broke"):
        fs.rm("/bucket/d", recursive=True)
    fs._backend.plans.clear()
    assert all(loaded.header.deleted for loaded in headers(store)[:4])
    assert chunks(store)
    fs.collect("/bucket/d", grace=0, recursive=True)
    assert chunks(store) == []


@pytest.fixture(params=["damaged", "missing"])
def unmapped(store, monkeypatch, request):
    """A segment whose index pages are lost."""
    shrink_pages(monkeypatch, chunks=2, loose_max=1)
    fs = fill(store, 1)
    for _ in range(6):
        fs.append(FILES[0], b"x" * 40)
    for page in [path for path in store.fs.store if "/index-" in path]:
        if request.param == "damaged":
            store.fs.pipe_file(page, b"damaged")
        else:
            store.fs.rm_file(page)
    return FILES[0]


def test_truncation_over_lost_pages_leaves_files_to_collection(store, unmapped):
    fs = client(store)
    fs.truncate(unmapped, fs.info(unmapped)["length"])
    assert client(store).info(unmapped)["size"] == 0
    fs.collect(unmapped, grace=0)
    assert chunks(store) == []


def test_segment_with_lost_pages_is_deleted_as_advised(store, unmapped):
    with pytest.raises(CorruptHeaderError, match=r"rm\(path, damaged=True\)"):
        client(store).rm(unmapped)
    client(store).rm(unmapped, damaged=True)
    assert not client(store).exists(unmapped)
    client(store).collect(unmapped, grace=0)
    assert chunks(store) == []
