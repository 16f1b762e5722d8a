"""The 32 behaviours of Pravega's RollingStorage, good and bad, that rollingfs is checked against.

The numbers in the names are those of the list. Where rollingfs differs, the docstring says how. A "reader"
is a `Segment`, which looks again past the known end and refuses what is outside.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

import fsspec
import pytest

from rollingfs import (
    AppendOutcomeUnknown,
    BadOffsetError,
    CorruptChunkError,
    CorruptHeaderError,
    FencedError,
    RollingPolicy,
    SegmentNotSealedError,
    SegmentSealedError,
    SegmentTruncatedError,
)
from rollingfs.backend.local.backend import LocalBackend
from rollingfs.backend.memory import MemoryBackend
from rollingfs.format.tokens import seal_text
from tests.support.backends import Scripted, fail, raises
from tests.support.examples import slowly
from tests.support.servers import new_bucket

TINY = RollingPolicy(max_bytes=1, inline_bytes=0)
SMALL = RollingPolicy(max_bytes=7, inline_bytes=3)
CHUNKED = RollingPolicy(max_bytes=100, inline_bytes=0)


@dataclass(frozen=True)
class Place:
    """Where a test's segments lie."""

    protocol: str
    options: dict[str, Any]
    root: str

    def open(self, **options: Any) -> Any:
        """A new filesystem: another writer with its own caches."""
        return fsspec.filesystem(
            "rolling",
            target_protocol=self.protocol,
            target_options=self.options,
            skip_instance_cache=True,
            sync=False,
            **{"max_bytes": 100, **options},
        )

    def failing(self, *plan: Any, **plans: Any) -> Any:
        """A filesystem whose backend does what a plan says (see `Scripted.plan`)."""
        backend = Scripted(MemoryBackend() if self.protocol == "memory" else LocalBackend(sync=False))
        if plan:
            backend.plan(*plan, **plans)
        return fsspec.filesystem("rolling", backend=backend, skip_instance_cache=True, max_bytes=100)

    @property
    def below(self) -> Any:
        """The filesystem below, to look around rollingfs."""
        return fsspec.filesystem(self.protocol, **self.options)

    def path(self, name: str = "segment") -> str:
        return f"{self.root}/{name}"

    def files(self, name: str = "segment") -> list[str]:
        """The names of the chunks in a segment's chunk folder."""
        self.below.invalidate_cache()
        names = [path.rpartition("/")[2] for path in self.below.find(self.path(name) + "$chunks")]
        return sorted(found for found in names if found[:1].isdigit())


class Crash(BaseException):
    """The process is gone."""


@pytest.fixture(params=["memory", "file"])
def place(request: pytest.FixtureRequest, tmp_path: Any) -> Place:
    return Place(request.param, {}, f"/{uuid.uuid4().hex}" if request.param == "memory" else str(tmp_path))


@pytest.fixture(params=["memory", "file", *slowly("s3")])
def anywhere(request: pytest.FixtureRequest, tmp_path: Any) -> Place:
    if request.param != "s3":
        return Place(request.param, {}, f"/{uuid.uuid4().hex}" if request.param == "memory" else str(tmp_path))
    options = request.getfixturevalue("seaweed")
    return Place("s3", options, new_bucket(options))


def make(fs: Any, path: str, data: bytes, *, piece: int = 0, sealed: bool = True, policy: Any = None) -> str:
    """A segment with `data`, appended in pieces."""
    fs.create(path, policy)
    for start in range(0, len(data), piece or len(data) or 1):
        fs.append(path, data[start : start + (piece or len(data))])
    if sealed:
        fs.seal(path)
    return path


def pattern(size: int, first: int = 0) -> bytes:
    """Bytes in which a wrong offset shows."""
    return bytes((first + index * 7 + index // 251) % 256 for index in range(size))


def whole(fs: Any, path: str) -> bytes:
    """All retained bytes, read by a new reader, which must agree with the file."""
    segment = fs.segment(path)
    data: bytes = segment.read(segment.start, segment.length)
    assert fs.cat_file(path) == data
    return data


# -- rolling and writing -------------------------------------------------------------------------------------


def test_01_what_20_writes_roll_reads_back_and_no_chunk_exceeds_the_maximum(anywhere: Place) -> None:
    fs = anywhere.open()
    fs.create(anywhere.path())
    reader = fs.segment(anywhere.path())
    written = b""
    for index in range(20):
        data = pattern(180 if index % 2 else 24, index)
        assert fs.append(anywhere.path(), data) == len(written)
        written += data
    assert reader.read(0, len(written)) == written
    assert max(chunk.length for chunk in fs.segment(anywhere.path()).chunks) <= 100
    assert whole(anywhere.open(), anywhere.path()) == written


def test_02_writers_and_readers_opened_before_see_what_the_others_wrote(anywhere: Place) -> None:
    one, two = anywhere.open(), anywhere.open()
    path = anywhere.path()
    one.create(path)
    readers = [one.segment(path), two.segment(path)]
    stale = anywhere.open().segment(path)
    assert one.append(path, b"data", expected_offset=0) == 0
    assert two.append(path, b"data", expected_offset=4) == 4
    assert [reader.read(0, 8) for reader in readers] == [b"datadata"] * 2
    assert stale.append(b"more", expected_offset=8) == 8
    assert whole(one, path) == b"datadatamore"


def test_03_one_write_larger_than_the_maximum_comes_back_whole(place: Place) -> None:
    fs = place.open(max_bytes=3, inline_bytes=0)
    fs.create(place.path())
    fs.append(place.path(), b"0123456789")
    assert fs.cat_file(place.path()) == b"0123456789"
    assert [chunk.length for chunk in fs.segment(place.path()).chunks] == [3, 3, 3, 1]


def test_04_a_write_of_nothing_changes_nothing_and_full_chunks_begin_no_new_one(place: Place) -> None:
    fs = place.open(inline_bytes=0)
    make(fs, place.path(), pattern(200), sealed=False)
    before = fs.segment(place.path())
    assert len(before.chunks) == len(place.files()) == 2
    assert fs.append(place.path(), b"") == 200
    assert fs.segment(place.path()).version == before.version
    assert len(place.files()) == 2
    fs.append(place.path(), b"x")
    assert len(fs.segment(place.path()).chunks) == len(place.files()) == 3


@pytest.mark.parametrize("wrong", [9, 11])
def test_05_a_wrong_expected_offset_is_refused_with_both_numbers(anywhere: Place, wrong: int) -> None:
    fs = anywhere.open()
    make(fs, anywhere.path(), b"0123456789", sealed=False)
    version = fs.segment(anywhere.path()).version
    with pytest.raises(BadOffsetError, match=rf"\b{wrong}\b.*\b10\b|\b10\b.*\b{wrong}\b"):
        fs.append(anywhere.path(), b"x", expected_offset=wrong)
    assert whole(anywhere.open(), anywhere.path()) == b"0123456789"
    assert anywhere.open().segment(anywhere.path()).version == version


def test_06_a_segment_keeps_its_policy_and_a_concat_the_targets(place: Place) -> None:
    make(place.open(policy=CHUNKED, max_bytes=None), place.path(), pattern(100), sealed=False)
    other = place.open(policy=SMALL, max_bytes=None)
    other.append(place.path(), pattern(250))
    assert [chunk.length for chunk in other.segment(place.path()).chunks] == [100, 100, 100, 50]
    make(other, place.path("source"), pattern(21))
    other.concat(place.path(), [place.path("source")])
    other.append(place.path(), pattern(200))
    assert [chunk.length for chunk in other.segment(place.path()).chunks][-2:] == [100, 100]


# -- create, delete, list ------------------------------------------------------------------------------------


def test_07_create_refuses_what_is_there_and_leaves_no_header_by_a_plain_file(anywhere: Place) -> None:
    fs = anywhere.open()
    make(fs, anywhere.path(), b"kept")
    anywhere.below.pipe_file(anywhere.path("plain"), b"plain")
    for name in ("segment", "plain"):
        with pytest.raises(FileExistsError):
            fs.create(anywhere.path(name))
    anywhere.below.invalidate_cache()
    assert not anywhere.below.exists(anywhere.path("plain") + "$header")
    assert fs.cat_file(anywhere.path()) == b"kept"
    assert fs.cat_file(anywhere.path("plain")) == b"plain"


def test_08_a_create_that_fails_leaves_nothing_and_an_empty_header_is_no_segment(place: Place) -> None:
    refused = raises(PermissionError(errno.EACCES, "refused"))
    with pytest.raises(PermissionError):
        place.failing("create", "t$header", before=refused, times=None).create(place.path())
    fs = place.open()
    assert not fs.exists(place.path())
    assert not place.below.exists(place.path() + "$header")
    place.below.pipe_file(place.path() + "$header", b"")
    assert not fs.exists(place.path())
    assert fs.ls(place.root, detail=False) == []
    with pytest.raises(FileNotFoundError):
        fs.segment(place.path())
    make(fs, place.path(), b"data")
    assert fs.cat_file(place.path()) == b"data"


def test_09_a_delete_that_fails_is_reported_and_finished_by_the_next(place: Place) -> None:
    make(place.open(inline_bytes=0), place.path(), pattern(500))
    first, *_ = place.files()

    failing = place.failing()

    async def keep_first(paths: Any) -> None:
        if any(path.endswith(first) for path in paths):
            raise PermissionError(errno.EACCES, "refused", first)
        await failing._backend.inner.delete(paths)

    failing._backend.plan("delete", instead=keep_first, times=None)
    with pytest.raises(PermissionError, match="refused"):
        failing.rm(place.path())
    fs = place.open()
    assert not fs.exists(place.path())
    place.below.rm_file(f"{place.path()}$chunks/{first}")
    fs.rm(place.path())
    assert place.files() == []
    with pytest.raises(FileNotFoundError):
        fs.rm(place.path())


def test_10_a_listing_gives_each_segment_once_with_its_length_and_seal(place: Place) -> None:
    fs = place.open(policy=TINY, max_bytes=None)
    for index in range(50):
        make(fs, place.path(f"s{index:02}"), pattern(index % 5 + 1), sealed=bool(index % 2))
    found = place.open().ls(place.root)
    assert [info["name"] for info in found] == [place.path(f"s{index:02}") for index in range(50)]
    assert [info["length"] for info in found] == [index % 5 + 1 for index in range(50)]
    assert [info["sealed"] for info in found] == [bool(index % 2) for index in range(50)]
    fs.rm([place.path(f"s{index:02}") for index in range(0, 50, 3)])
    left = [place.path(f"s{index:02}") for index in range(50) if index % 3]
    assert place.open().ls(place.root, detail=False) == place.open().find(place.root) == left


def test_10_a_name_does_not_exist_because_a_longer_one_does(anywhere: Place) -> None:
    fs = anywhere.open()
    make(fs, anywhere.path("issue4591$x"), b"data")
    assert not fs.exists(anywhere.path("issue4591"))
    assert fs.ls(anywhere.root, detail=False) == [anywhere.path("issue4591$x")]


@pytest.mark.slow
def test_10_a_listing_of_1001_segments_is_complete(anywhere: Place) -> None:
    fs = anywhere.open()
    make(fs, anywhere.path("s0000"), b"data")
    header = anywhere.below.cat_file(anywhere.path("s0000") + "$header")
    anywhere.below.pipe({anywhere.path(f"s{index:04}") + "$header": header for index in range(1, 1001)})
    infos = fs.ls(anywhere.root)
    assert [info["name"] for info in infos] == [anywhere.path(f"s{index:04}") for index in range(1001)]
    assert {info["length"] for info in infos} == {4}


def test_11_a_handle_of_a_deleted_segment_finds_nothing_even_if_there_is_a_new_one(place: Place) -> None:
    fs = place.open()
    make(fs, place.path("source"), b"source")
    make(fs, place.path(), b"old", sealed=False)
    handle = place.open().segment(place.path())
    fs.rm(place.path())
    calls: list[Callable[[], Any]] = [
        lambda: handle.append(b"x"),
        handle.seal,
        lambda: handle.truncate(1),
        lambda: handle.concat([place.path("source")]),
        lambda: handle.read(3, 4),
        lambda: handle.acquire("me"),
    ]
    for call in calls:
        with pytest.raises(FileNotFoundError):
            call()
    make(fs, place.path(), b"new", sealed=False)
    for call in calls:
        with pytest.raises(FileNotFoundError):
            call()
    assert whole(fs, place.path()) == b"new"


# -- seal ----------------------------------------------------------------------------------------------------


def test_12_a_sealed_segment_takes_nothing_more_and_is_still_read_truncated_and_sealed(place: Place) -> None:
    fs = place.open()
    path = make(fs, place.path(), pattern(250))
    source = make(fs, place.path("source"), b"source")
    assert fs.seal(path) == 250
    for call in (lambda: fs.append(path, b"x"), lambda: fs.append(path, b""), lambda: fs.concat(path, [source])):
        with pytest.raises(SegmentSealedError):
            call()
    fs.truncate(path, 120)
    assert fs.seal(path) == 250
    assert whole(fs, path) == pattern(250)[120:]
    assert fs.segment(path).sealed
    assert whole(fs, source) == b"source"


# -- truncate ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sealed", [False, True], ids=["open", "sealed"])
def test_13_a_truncation_keeps_the_bytes_from_it_on_and_deletes_chunks_before_it(anywhere: Place, sealed: bool) -> None:
    fs = anywhere.open(inline_bytes=0)
    data = pattern(430)
    path = make(fs, anywhere.path(), data, piece=43, sealed=sealed)
    reader = anywhere.open().segment(path)
    ends = {chunk.file: chunk.end for chunk in reader.chunks}
    for offset in [*range(0, 430, 50), 430]:
        assert fs.truncate(path, offset) == 0
        assert reader.read(offset, 430) == data[offset:]
        assert set(anywhere.files()) == {file for file, end in ends.items() if end > offset}
        if offset:
            with pytest.raises(SegmentTruncatedError, match=rf"\b{offset}\b.*\b430\b"):
                fs.segment(path).read(offset - 1, 430)
    if not sealed:
        assert fs.append(path, b"more") == 430
        assert whole(fs, path) == b"more"


@pytest.mark.parametrize("count", [10, 150], ids=["loose", "in index pages"])
def test_13_chunks_in_other_folders_and_staged_ones_go_by_collection(place: Place, count: int) -> None:
    fs = place.open(policy=TINY, max_bytes=None)
    target = make(fs, place.path(), b"", sealed=False)
    fs.concat(target, [make(fs, place.path(f"s{n}"), pattern(count, n)) for n in range(3)])
    fs.append(target, [fs.stage(target, b"staged")])
    assert fs.truncate(target, count + 5) >= count + 5  # index pages wait as well
    assert [len(place.files(f"s{n}")) for n in range(3)] == [count] * 3
    fs.collect(target, grace=0)
    assert [len(place.files(f"s{n}")) for n in range(3)] == [count] * 3, "the word that nobody writes is for one folder"
    fs.collect(place.path(""), grace=0, recursive=True)
    assert [len(place.files(f"s{n}")) for n in range(3)] == [0, count - 5, count]
    assert whole(place.open(), target) == pattern(count, 1)[5:] + pattern(count, 2) + b"staged"
    fs.truncate(target, 3 * count + 6)
    fs.collect(place.path(""), grace=0, recursive=True)
    assert [place.below.find(place.path(f"{name}$chunks/stage-")) for name in ("segment", "s0", "s1", "s2")] == [[]] * 4
    assert [len(place.files(f"s{n}")) for n in range(3)] == [0] * 3


def test_14_truncating_outside_is_refused_and_going_back_changes_nothing(place: Place) -> None:
    fs = place.open()
    path = make(fs, place.path(), pattern(250), sealed=False)
    fs.truncate(path, 120)
    version = fs.segment(path).version
    for offset in (-1, 251):
        with pytest.raises(ValueError, match=str(offset)):
            fs.truncate(path, offset)
    fs.truncate(path, 60)
    assert (fs.segment(path).start, fs.segment(path).version) == (120, version)


def test_15_every_byte_before_the_start_is_gone_and_says_so(place: Place) -> None:
    """Pravega keeps the rest of the chunk readable, and fails with an index error below a trimmed header."""
    data = pattern(430)
    fs = place.open(inline_bytes=0)
    path = make(fs, place.path(), data, piece=30)
    for start in (1, 99, 100, 101, 237, 429):
        fs.truncate(path, start)
        segment = place.open().segment(path)
        assert (segment.start, fs.info(path)["size"]) == (start, 430 - start)
        assert whole(place.open(), path) == data[start:]
        for below in (0, start - 1):
            with pytest.raises(SegmentTruncatedError, match=rf"\b{start}\b"):
                segment.read(below, 430)
        lines = place.below.cat_file(path + "$header").decode(errors="replace")
        assert lines.count("\nChunk ") == sum(chunk.end > start for chunk in segment.chunks)


# -- concat --------------------------------------------------------------------------------------------------


def test_16_missing_or_unsealed_parts_are_refused_and_an_empty_source_just_goes(place: Place) -> None:
    fs = place.open()
    target = make(fs, place.path(), b"target", sealed=False)
    source, empty = make(fs, place.path("source"), b"s", sealed=False), make(fs, place.path("empty"), b"")
    with pytest.raises(SegmentNotSealedError):
        fs.concat(target, [source])
    for missing in ((target, place.path("missing")), (place.path("missing"), empty)):
        with pytest.raises(FileNotFoundError):
            fs.concat(missing[0], [missing[1]])
    fs.concat(target, [empty])
    assert whole(fs, target) == b"target"
    assert not fs.exists(empty)
    assert whole(fs, source) == b"s"


def test_17_small_sources_make_no_small_chunks(place: Place) -> None:
    fs = place.open(inline_bytes=0)
    target = make(fs, place.path(), b"t" * 50, sealed=False)
    fs.concat(target, [make(fs, place.path("half"), b"h" * 50)])
    assert [chunk.length for chunk in fs.segment(target).chunks] in ([100], [50, 50])
    inline = place.open()
    many = make(inline, place.path("many"), b"", sealed=False)
    sources = [make(inline, place.path(f"s{n}"), bytes([65 + n]) * 21) for n in range(10)]
    inline.concat(many, sources)
    inline.append(many, b"z" * 21)
    assert len(inline.segment(many).chunks) <= 3
    assert whole(inline, many) == b"".join(bytes([65 + n]) * 21 for n in range(10)) + b"z" * 21


def test_18_ten_sources_of_many_chunks_are_joined_without_copying(anywhere: Place) -> None:
    fs = anywhere.open(inline_bytes=0)
    target = make(fs, anywhere.path(), b"t" * 50, sealed=False)
    sources = [make(fs, anywhere.path(f"s{n}"), pattern(300, n), piece=150) for n in range(10)]
    before = [anywhere.files(f"s{n}") for n in range(10)]
    assert fs.concat(target, sources) == 50
    assert [anywhere.files(f"s{n}") for n in range(10)] == before
    assert len(anywhere.files()) == 1
    assert fs.append(target, b"more") == 3050
    assert whole(anywhere.open(), target) == b"t" * 50 + b"".join(pattern(300, n) for n in range(10)) + b"more"
    assert not any(map(fs.exists, sources))


@pytest.mark.parametrize("verb", ["replace", "write", "delete"])
def test_19_a_concat_whose_calls_fail_four_times_has_the_bytes_once(place: Place, verb: str) -> None:
    fs = place.open(inline_bytes=0)
    target = make(fs, place.path(), b"t" * 50, sealed=False)
    source = make(fs, place.path("source"), pattern(250))
    failing = place.failing(verb, before=fail, times=4)
    for _ in range(5):  # the call itself repeats a conditional write; the caller repeats other verbs
        with contextlib.suppress(OSError):
            failing.concat(target, [source])
        if not fs.exists(source):
            break
    assert whole(place.open(), target) == b"t" * 50 + pattern(250)
    assert not fs.exists(source)


def test_20_the_same_concat_again_finds_no_source_and_changes_nothing(place: Place) -> None:
    fs = place.open()
    target, source = make(fs, place.path(), b"t", sealed=False), make(fs, place.path("source"), pattern(250))
    fs.concat(target, [source])
    version = fs.segment(target).version
    for again in (fs, place.open()):
        with pytest.raises(FileNotFoundError):
            again.concat(target, [source])
    assert whole(fs, target) == b"t" + pattern(250)
    assert fs.segment(target).version == version


@pytest.mark.parametrize("start", [1, 99, 100, 137, 249, 250])
def test_21_a_truncated_source_gives_what_it_retains(place: Place, start: int) -> None:
    """Pravega refuses it."""
    fs = place.open(inline_bytes=0)
    target, source = make(fs, place.path(), b"t", sealed=False), make(fs, place.path("source"), pattern(250))
    fs.truncate(source, start)
    assert fs.concat(target, [source]) == 1
    assert whole(fs, target) == b"t" + pattern(250)[start:]
    assert fs.append(target, b"more") == 251 - start


def trees(leaves: tuple[str, ...]) -> Iterator[Any]:
    """Every way to bracket a sequence."""
    if len(leaves) == 1:
        yield leaves[0]
    for cut in range(1, len(leaves)):
        yield from itertools.product(trees(leaves[:cut]), trees(leaves[cut:]))


@pytest.mark.parametrize("cut", [0, 3], ids=["whole", "truncated between"])
@pytest.mark.parametrize("into", ["left", "new"])
@pytest.mark.parametrize("tree", list(trees(("a", "b", "deeper/c", "d"))), ids=str)
def test_22_nested_concats_are_right_in_every_order_and_depth(place: Place, tree: Any, into: str, cut: int) -> None:
    """Pravega's target becomes unreadable, or silently has the wrong length."""
    fs = place.open(policy=SMALL, max_bytes=None)
    numbers = itertools.count()

    def build(node: Any) -> tuple[str, bytes]:
        if isinstance(node, str):
            data = pattern(30, ord(node[-1]))
            return make(fs, place.path(node), data, piece=8, sealed=False), data
        (left, left_data), (right, right_data) = map(build, node)
        fs.seal(right)
        if into == "new":
            fs.seal(left)
            new = make(fs, place.path(f"n{next(numbers)}/x"), b"", sealed=False)
            fs.concat(new, [left, right])
            left = new
        else:
            fs.concat(left, [right])
        fs.truncate(left, fs.segment(left).start + cut)
        return left, (left_data + right_data)[cut:]

    path, expected = build(tree)
    assert whole(place.open(), path) == expected
    segment = place.open().segment(path)
    for offset in range(segment.start, segment.length, 11):
        assert segment.read(offset, segment.length) == expected[offset - segment.start :]


def test_23_a_segment_made_again_shares_no_chunk_with_what_was_given_away(place: Place) -> None:
    """Pravega's old chunk names can collide with the new ones."""
    fs = place.open(inline_bytes=0)
    target = make(fs, place.path(), b"", sealed=False)
    for turn in range(3):
        source = make(fs, place.path("source"), pattern(250, turn))
        fs.concat(target, [source])
    make(fs, source, b"n" * 250)
    assert whole(fs, target) == pattern(250, 0) + pattern(250, 1) + pattern(250, 2)
    fs.truncate(source, 250)
    fs.rm(source)
    fs.collect(target, grace=0)
    assert whole(place.open(), target) == pattern(250, 0) + pattern(250, 1) + pattern(250, 2)


@pytest.mark.parametrize("kinds", [("plain", "plain"), ("plain", "segment"), ("segment", "plain")], ids=" into ".join)
def test_24_plain_files_are_joined_once_the_source_is_sealed(place: Place, kinds: tuple[str, str]) -> None:
    fs = place.open()
    for name, kind in zip(("source", "segment"), kinds, strict=True):
        if kind == "plain":
            place.below.makedirs(place.root, exist_ok=True)
            place.below.pipe_file(place.path(name), name.encode())
        else:
            make(fs, place.path(name), name.encode(), sealed=False)
    with pytest.raises(SegmentNotSealedError):
        fs.concat(place.path(), [place.path("source")])
    assert fs.seal(place.path("source")) == 6
    assert fs.concat(place.path(), [place.path("source")]) == 7
    assert whole(fs, place.path()) == b"segmentsource"
    assert fs.append(place.path(), b"more") == 13
    assert not fs.exists(place.path("source"))


# -- reading -------------------------------------------------------------------------------------------------


def test_25_every_offset_and_length_reads_across_chunks_and_nothing_else_does(place: Place) -> None:
    fs = place.open(policy=SMALL, max_bytes=None)
    data = pattern(31)
    path = make(fs, place.path(), data, piece=9)
    segment = place.open().segment(path)
    for start, end in itertools.combinations_with_replacement(range(32), 2):
        assert segment.read(start, end) == data[start:end]
    for start, end in ((-1, 3), (-2, -1), (0, 32), (31, 33), (40, 50)):
        with pytest.raises(ValueError, match=f"bytes {start} to {end}"):
            segment.read(start, end)


def test_26_there_is_no_empty_chunk_and_a_header_with_one_is_refused(place: Place) -> None:
    """Pravega reads such a chunk for ever. rollingfs makes none, and its headers cannot hold one."""
    fs = place.open(inline_bytes=0)
    path = make(fs, place.path(), pattern(100), sealed=False)
    fs.concat(path, [make(fs, place.path("empty"), b"")])
    fs.append(path, [b"", pattern(100), b""])
    assert [chunk.length for chunk in fs.segment(path).chunks] == [100, 100]
    assert whole(fs, path) == pattern(100) * 2
    lines = place.below.cat_file(path + "$header").splitlines()[:-2]
    second = next(index for index, line in enumerate(lines) if line.startswith(b"Chunk 100 "))
    lines.insert(second, b"Chunk 100 0 00000000000000000100-000000000000 at=2026-11-20T10:00:00Z")
    place.below.pipe_file(path + "$header", seal_text(b"\n".join(lines) + b"\n"))
    with pytest.raises(CorruptHeaderError, match="line"):
        place.open().cat_file(path)


def test_27_a_chunk_missing_below_the_start_is_truncated_and_one_above_it_corrupt(place: Place) -> None:
    fs = place.open(inline_bytes=0)
    path = make(fs, place.path(), pattern(300))
    reader = place.open().segment(path)
    fs.truncate(path, 100)
    with pytest.raises(SegmentTruncatedError, match=r"\b100\b.*\b300\b"):
        reader.read(0, 300)
    assert reader.read(100, 300) == pattern(300)[100:]
    lost = place.files()[0]
    place.below.rm_file(f"{path}$chunks/{lost}")
    for segment in (reader, place.open().segment(path)):
        with pytest.raises(CorruptChunkError, match=lost):
            segment.read(100, 300)
        assert segment.read(200, 300) == pattern(300)[200:]


# -- recovery and fencing ------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["write", "replace"])
def test_28_after_a_crash_at_an_append_the_segment_reads_as_before_and_takes_the_next(place: Place, verb: str) -> None:
    """Chunks are written before the header names them, so no header names a chunk without data."""
    failing = place.failing()

    def crash() -> NoReturn:
        failing._backend.plan(before=raises(Crash()), times=None, probes=True)
        raise Crash

    failing._backend.plan(verb, before=crash)
    path = make(place.open(inline_bytes=0), place.path(), b"before", sealed=False)
    with pytest.raises(AppendOutcomeUnknown):
        failing.append(path, pattern(250))
    fs = place.open()
    assert whole(fs, path) == b"before"
    assert fs.append(path, b" and after") == 6
    assert whole(fs, path) == b"before and after"
    fs.collect(path, grace=0)
    assert len(place.files()) == len(fs.segment(path).chunks)


def test_29_of_two_equal_writes_at_one_offset_exactly_one_succeeds(place: Place) -> None:
    place.open().create(place.path())
    clients = [place.open() for _ in range(2)]
    for turn in range(20):
        barrier = threading.Barrier(2)
        wins: list[int] = []

        def write(fs: Any, turn: int = turn, barrier: Any = barrier, wins: list[int] = wins) -> None:
            barrier.wait()
            with contextlib.suppress(BadOffsetError):
                wins.append(fs.append(place.path(), b"0123456789", expected_offset=turn * 10))

        run_threads(write, clients)
        assert wins == [turn * 10]
    assert whole(place.open(), place.path()) == b"0123456789" * 20


def test_30_an_older_epoch_is_fenced_and_still_reads(place: Place) -> None:
    fs = place.open()
    path, source = make(fs, place.path(), b"data", sealed=False), make(fs, place.path("source"), b"source")
    old = place.open().segment(path).acquire("old")
    new = place.open().segment(path).acquire("new")
    assert new.epoch > old.epoch
    for call in (
        lambda: old.append(b"x"),
        old.seal,
        lambda: old.concat([source]),
        lambda: old.truncate(1),
        lambda: fs.append(path, b"x"),
        lambda: fs.rm(path),
    ):
        with pytest.raises(FencedError):
            call()
    assert old.read(0, 4) == b"data"
    assert new.append(b"more") == 4
    assert new.concat([source]) == 8
    new.truncate(1)
    assert new.seal() == 14
    assert new.read(1, 14) == whole(fs, path) == b"atamoresource"


@pytest.mark.parametrize("count", [5, pytest.param(30, marks=pytest.mark.slow)])
def test_30_hand_overs_while_writing_lose_and_double_nothing(place: Place, count: int) -> None:
    path = make(place.open(), place.path(), b"", sealed=False)
    written: dict[int, bytes] = {}

    def write(handle: Any, started: threading.Event) -> None:
        for number in itertools.count():
            record = f"{handle.epoch}:{number};".encode()
            try:
                written[handle.append(record)] = record
            except FencedError:
                return
            finally:
                started.set()

    threads = []
    for turn in range(count):
        started = threading.Event()
        handle = place.open().segment(path).acquire(f"owner-{turn}")
        threads.append(threading.Thread(target=write, args=(handle, started)))
        threads[-1].start()
        assert started.wait(60)
    last = place.open().segment(path).acquire("last")
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert last.append(b"end") == sum(map(len, written.values()))
    assert whole(place.open(), path) == b"".join(written[offset] for offset in sorted(written)) + b"end"
    assert len({record.split(b":")[0] for record in written.values()}) == count


NAMES = [
    "a&b",
    "a=b",
    "50%25",
    "with  space",
    "日本-naïve-🦀",
    "+;,@!",
    "$x",
    "quote'\"",
    "#hash",
    "~tilde",
    "back\\slash",
]


@pytest.mark.parametrize("name", NAMES)
def test_31_any_legal_name_works(place: Place, name: str) -> None:
    """`&` corrupts Pravega's header."""
    fs = place.open(inline_bytes=0)
    target = make(fs, place.path(f"{name}/{name}"), b"t" * 150, sealed=False)
    source = make(fs, place.path(f"other {name}/{name}"), pattern(250))
    fs.concat(target, [source])
    fs.append(target, b"more", attrs={name: name}, expected_attrs={name: None})
    fs.truncate(target, 200)
    fs.mv(target, place.path(f"moved {name}"))
    fs = place.open()
    assert whole(fs, place.path(f"moved {name}")) == pattern(250)[50:] + b"more"
    assert fs.segment(place.path(f"moved {name}")).attrs == {name: name}
    assert place.path(f"moved {name}") in fs.ls(place.root, detail=False)


@pytest.mark.parametrize("name", ["line\nbreak", "carriage\rreturn", "nul\0", "x$header", "x$chunks", "x$chunks/y"])
def test_31_names_that_no_header_could_hold_are_refused(place: Place, name: str) -> None:
    fs = place.open()
    for call in (lambda: fs.create(place.path(name)), lambda: fs.pipe_file(place.path(name), b"x")):
        with pytest.raises(ValueError, match="name"):
            call()
    assert place.below.find(place.root) == []


# -- scale ---------------------------------------------------------------------------------------------------


def test_32_a_segment_of_1000_chunks_round_trips(place: Place) -> None:
    fs = place.open(policy=TINY, max_bytes=None)
    path = make(fs, place.path(), pattern(1000), piece=250)
    segment = place.open().segment(path)
    assert len(segment.chunks) == len(place.files()) == 1000
    assert segment.read(0, 1000) == pattern(1000)
    assert [segment.read(offset, offset + 1) for offset in (0, 127, 128, 999)] == [
        pattern(1000)[offset : offset + 1] for offset in (0, 127, 128, 999)
    ]


def test_32_fifteen_concats_of_ten_chunks_with_failures_between_round_trip(place: Place) -> None:
    fs, failing = place.open(policy=TINY, max_bytes=None), place.failing()
    refused = raises(PermissionError(errno.EACCES, "refused"))
    target = make(fs, place.path(), b"", sealed=False)
    for turn in range(15):
        source = make(fs, place.path(f"source-{turn}"), pattern(10, turn))
        failing._backend.plans.clear()
        failing._backend.plan(("write", "replace", "list")[turn % 3], before=refused)
        with contextlib.suppress(PermissionError):
            failing.concat(target, [source])
        if fs.exists(source):
            fs.concat(target, [source])
        assert len(fs.segment(target).chunks) == 10 * (turn + 1)
    assert whole(place.open(), target) == b"".join(pattern(10, turn) for turn in range(15))


def run_threads(work: Callable[..., None], clients: list[Any]) -> None:
    threads = [threading.Thread(target=work, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
