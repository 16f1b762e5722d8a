"""Plain files that other programs replace while they are read: never old and new bytes in one answer."""

import os
import random
from collections.abc import Callable, Iterable
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from rollingfs import RollingFileSystem, SegmentReplacedError
from rollingfs.backend.generic import GenericBackend
from rollingfs.backend.local import looks
from rollingfs.backend.objects import obstore_files as requests
from rollingfs.folders.listing import scan as scan_folder
from rollingfs.fs import cat_and_get, read_buffer
from tests.support.backends import Scripted
from tests.support.descriptors import DESCRIPTORS, opened_below
from tests.support.places import backend_of
from tests.support.schedules import beside
from tests.support.servers import count_requests, new_bucket

SIZE = 4000
OLD = random.Random(1).randbytes(SIZE)
NEW = random.Random(2).randbytes(SIZE)
KINDS = ["memory", "async", "local", "generic", "s3"]


class Place:
    """A filesystem, a plain file that is read by it in many ranges, and another program."""

    def __init__(self, kind: str, request: Any, tmp_path: Any) -> None:
        self.kind = kind
        inner, root = backend_of(kind, request, tmp_path)
        if kind == "generic":
            inner = GenericBackend(MemoryFileSystem(), single_writer=True)
        if kind == "s3":
            self.other: Any = fsspec.filesystem("s3", **request.getfixturevalue("seaweed"), use_listings_cache=False)
        elif kind != "local":
            self.other = inner.fs
        self.backend = Scripted(inner, conflicts_are_final=inner.capability.conflicts_are_final)
        self.fs = RollingFileSystem(backend=self.backend, header_cache_s=0)
        self.path = f"{root}/plain"
        self.put(OLD)

    def put(self, data: bytes) -> None:
        """Write the file anew, as other programs do it: on a disk, another file gets its name."""
        if self.kind == "local":
            with open(f"{self.path}.new", "wb") as file:
                file.write(data)
            os.replace(f"{self.path}.new", self.path)
        else:
            self.other.pipe_file(self.path, data)

    def between(self, at: int, action: Callable[[], object]) -> None:
        self.backend.plan("read_range", when=lambda path, start, end, *_: start <= at < end, before=action)


@pytest.fixture(params=KINDS)
def place(request, tmp_path, monkeypatch, small_ranges):
    monkeypatch.setitem(cat_and_get.pieces.__kwdefaults__, "piece_bytes", 700)
    return Place(request.param, request, tmp_path)


HERE = [kind for kind in KINDS if kind != "s3"]
"""Where the other program may be called from within a read: that of S3 would wait for the loop that reads."""


# -- whole reads begin again -----------------------------------------------------------------------------------


@pytest.mark.parametrize("place", HERE, indirect=True)
def test_one_call_gives_the_bytes_of_one_moment(place):
    for at in (0, 600, 3900):
        place.put(OLD)
        place.between(at, lambda: place.put(NEW))
        assert place.fs.cat_file(place.path) in (OLD, NEW)
        assert not place.backend.plans
        place.put(OLD)
        starts = [0, 600, 3900]
        place.between(at, lambda: place.put(NEW))
        found = place.fs.cat_ranges([place.path] * 3, starts, [start + 50 for start in starts], on_error="raise")
        assert found in [[data[start : start + 50] for start in starts] for data in (OLD, NEW)]


@pytest.mark.parametrize("place", [kind for kind in HERE if kind != "local"], indirect=True)  # there it is held
def test_file_that_is_replaced_all_time_is_given_up(place):
    def again() -> None:
        place.put(NEW)
        place.between(300, again)

    place.between(300, again)
    with pytest.raises(FileNotFoundError, match="open it again"):
        place.fs.cat_file(place.path)


READS: dict[str, Callable[[Any], Iterable[bytes]]] = {
    "read": lambda file: [file.read()],
    "steps": lambda file: iter(lambda: file.read(90), b""),
    "lines": iter,
    "read_at": lambda file: [file.read_at(SIZE, 100)],
}


@pytest.mark.parametrize("how", READS)
def test_an_open_file_gives_no_bytes_of_another(place, how):
    with place.fs.open(place.path) as file:
        first = file.read(100)
        place.put(NEW)
        found, error = b"", None
        try:
            for piece in READS[how](file):
                found += piece
        except FileNotFoundError as raised:
            error = raised
    assert first == OLD[:100]
    if place.kind == "local":
        assert (found, error) == (OLD[100:], None)
    else:
        assert found == OLD[100 : 100 + len(found)]
        assert len(found) <= 100 + 300  # what was buffered
        assert place.path in str(error)
        assert f"a plain file of {SIZE} bytes" in str(error)
        assert "open it again" in str(error)


@pytest.mark.parametrize("verb", ["cp_file", "get_file"])
@pytest.mark.parametrize("place", HERE, indirect=True)
def test_copy_during_replacement_is_of_one_file_or_none(place, verb, tmp_path):
    local = tmp_path / "got"
    target = f"{place.path}-copy" if verb == "cp_file" else str(local)
    place.between(2100, lambda: place.put(NEW))
    if place.kind == "local":
        getattr(place.fs, verb)(place.path, target)
        assert (place.fs.cat_file(target) if verb == "cp_file" else local.read_bytes()) == OLD
        return
    if verb == "cp_file":  # it begins again: nothing of its target was committed
        place.fs.cp_file(place.path, target)
        assert place.fs.cat_file(target) == NEW
    else:
        with pytest.raises(FileNotFoundError, match="open it again"):
            place.fs.get_file(place.path, target)
        assert not local.exists()
    place.put(OLD)
    place.between(300, lambda: place.put(NEW))  # within the first piece, which is read again if the file is another
    getattr(place.fs, verb)(place.path, target)
    assert (place.fs.cat_file(target) if verb == "cp_file" else local.read_bytes()) == NEW


def test_file_opened_before_adoption_survives_a_reused_name(place):
    with place.fs.open(place.path) as file:
        assert file.read(100) == OLD[:100]
        place.fs.append(place.path, b"more")  # adopts it
        place.put(NEW)
        assert file.read() == OLD[100:]
    assert place.fs.cat_file(place.path) == OLD + b"more"


@pytest.mark.parametrize("place", HERE, indirect=True)
def test_follower_of_a_file_continues_after_replacement(place):
    """A log that is written anew with more in it, as on an object store, between a look and the read."""
    tail = place.fs.segment(place.path).tail(poll_s_min=0.001)
    found = next(tail)
    place.between(SIZE - 100, lambda: place.put(OLD + b"more and more"))
    place.put(OLD + b"more")
    while len(found) < SIZE + 13:
        if place.kind == "local":  # another file, by its inode
            with pytest.raises(SegmentReplacedError):
                next(tail)
            return
        found += next(tail)
    assert found == OLD + b"more and more"


# -- on a disk -------------------------------------------------------------------------------------------------


@pytest.fixture
def disk(request, tmp_path):
    return Place("local", request, tmp_path)


needs_proc = pytest.mark.skipif(not os.path.isdir(DESCRIPTORS), reason="there is no /proc here")


@needs_proc
def test_file_is_held_exactly_while_it_is_open(disk, tmp_path):
    files = [disk.fs.open(disk.path) for _ in range(3)]
    assert len(opened_below(tmp_path)) == 1  # one for all
    assert disk.fs.cat_file(disk.path) == OLD
    for file in files:
        file.close()
    assert opened_below(tmp_path) == []
    disk.fs.open(disk.path)  # forgotten
    assert opened_below(tmp_path) == []


@needs_proc
def test_held_files_are_limited_and_others_need_their_tokens(disk, tmp_path, monkeypatch):
    monkeypatch.setattr(looks, "HELD_MAX", 2)
    monkeypatch.setattr(read_buffer, "SYNC_BUFFER_BYTES", 1)
    paths = [f"{disk.path}-{number}" for number in range(4)]
    for path in paths:
        with open(path, "wb") as file:
            file.write(OLD)
    files = [disk.fs.open(path) for path in paths]
    assert len(opened_below(tmp_path)) == 2
    assert [file.read(100) for file in files] == [OLD[:100]] * 4
    for path in paths:
        os.unlink(path)
        with open(path, "wb") as file:
            file.write(NEW)
    assert [file.read(100) for file in files[:2]] == [OLD[100:200]] * 2
    for file in files[2:]:
        with pytest.raises(FileNotFoundError, match="open it again"):
            file.read(100)
    for file in files:
        file.close()


def test_a_file_overwritten_in_place_is_another_one(disk, monkeypatch):
    monkeypatch.setattr(read_buffer, "SYNC_BUFFER_BYTES", 1)
    for data in (NEW, NEW[:2000], NEW * 2):
        disk.put(OLD)
        with disk.fs.open(disk.path) as file:
            assert file.read(100) == OLD[:100]
            with open(disk.path, "wb") as other:
                other.write(data)
            with pytest.raises(FileNotFoundError, match="open it again"):
                file.read(100)
        assert disk.fs.cat_file(disk.path) == data


@pytest.mark.parametrize("kind", ["local", "memory"])
def test_growing_log_is_read_up_to_its_end_then(kind, request, tmp_path, monkeypatch):
    monkeypatch.setattr(read_buffer, "SYNC_BUFFER_BYTES", 1)
    place = Place(kind, request, tmp_path)
    with place.fs.open(place.path) as file:
        assert file.read(100) == OLD[:100]
        with (open if kind == "local" else place.other.open)(place.path, "ab") as log:
            log.write(b"one more line")
        assert file.read() == OLD[100:]
    assert place.fs.cat_file(place.path) == OLD + b"one more line"


def test_file_replaced_during_open_is_opened_as_then(disk, monkeypatch):
    times: list[str] = []
    beside(monkeypatch, disk.backend.inner, "hold", lambda path, _: (times or disk.put(NEW), times.append(path)))
    with disk.fs.open(disk.path) as file:
        assert file.read() == NEW
    assert len(times) == 2


def test_listing_without_tokens_serves_unchanged_files(disk):
    client = disk.fs._client
    scan = disk.fs._bridge.run(scan_folder(disk.fs._client, os.path.dirname(disk.path)))
    view = scan.views[disk.path]
    assert view.token is None
    assert disk.fs._bridge.run(client.fetcher.read(view, 5, 700)) == OLD[5:700]
    disk.put(NEW[:3999])
    with pytest.raises(FileNotFoundError, match="now a plain file of 3999 bytes"):
        disk.fs._bridge.run(client.fetcher.read(view, 5, 700))


# -- on an object store ----------------------------------------------------------------------------------------


@pytest.fixture
def on_s3(seaweed):
    fs = RollingFileSystem("s3", seaweed, skip_instance_cache=True, header_cache_s=0)
    return fs, fsspec.filesystem("s3", **seaweed, use_listings_cache=False), f"{new_bucket(seaweed)}/plain"


@pytest.mark.parametrize("size", [4000, 5_000_000])
@pytest.mark.parametrize("condition", ["If-Match", "ignored"])
def test_on_s3_ranges_of_another_object_are_refused(on_s3, size, condition, monkeypatch):
    fs, other, path = on_s3
    if condition == "ignored":  # by a store that does not know it
        options = requests.get_options
        monkeypatch.setattr(requests, "get_options", lambda span, if_token, unless: options(span, "", unless))
    old, new = random.Random(1).randbytes(size), random.Random(2).randbytes(size)
    other.pipe_file(path, old)
    with fs.open(path) as file:
        assert file.read(100) == old[:100]
        other.pipe_file(path, new)
        for read in (file.read, lambda: file.read_at(10, 5)):
            with pytest.raises(FileNotFoundError, match="open it again"):
                read()
    assert fs.cat_file(path) == new


def test_on_s3_plain_file_costs_requests_that_it_did(on_s3):
    fs, other, path = on_s3
    other.pipe_file(path, OLD)
    with count_requests(fs._backend) as counts:
        assert fs.cat_file(path) == OLD
        assert counts == {"GetObject": 2, "HeadObject": 1}  # no header, what there is instead, its bytes
        counts.clear()
        with fs.open(path) as file:
            assert file.read() == OLD
        assert counts == {"GetObject": 2, "HeadObject": 1}
