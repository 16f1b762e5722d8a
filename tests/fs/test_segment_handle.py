"""`Segment`: its snapshot, what it reads and refuses, its verbs, exclusive handles; each verb's async twin."""

import asyncio
import threading
from datetime import UTC, datetime

import pytest

from rollingfs import (
    AttributeMismatchError,
    BadOffsetError,
    CorruptChunkError,
    FencedError,
    RollingPolicy,
    SegmentNotSealedError,
    SegmentSealedError,
    SegmentTruncatedError,
)
from rollingfs.backend.local.backend import LocalBackend
from rollingfs.format import names
from rollingfs.format.header import LOOSE_CHUNKS_MAX
from rollingfs.fs.core import Core
from rollingfs.fs.segment_handle import Segment
from rollingfs.runtime.concurrency import drive
from rollingfs.write import ingest
from tests.support.backends import Counting, Scripted, private_memory
from tests.support.site import Site

DATA = bytes(range(250))


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Limits of bytes, so that a large append needs no megabytes."""
    monkeypatch.setattr(ingest, "PIECE_BYTES", 200)
    monkeypatch.setattr(ingest, "SMALL_BYTES_MAX", 300)


@pytest.fixture(params=["memory", "local", "async"])
def site(request, tmp_path):
    policy = RollingPolicy(max_bytes=100, inline_bytes=20)
    if request.param == "local":
        return Site(Scripted(LocalBackend(sync=False)), str(tmp_path), policy)
    if request.param == "async":
        return Site(Counting(private_memory(), suspends=True), "", policy)
    return Site(Scripted(private_memory()), "", policy)


@pytest.fixture
def handle(site):
    site.create()
    return site.segment()


def other(site, verb, *args, **options):
    return drive(getattr(site.other().segments, verb)(site.path, *args, **options))


# -- the snapshot --------------------------------------------------------------------------------------------


def test_attributes_are_a_snapshot_that_moves_on_with_own_verbs_and_refresh(site, handle):
    assert (handle.start, handle.length, handle.size, handle.version, handle.sealed) == (0, 0, 0, 1, False)
    assert handle.append(DATA, attrs={"k": "v"}) == 0
    assert (handle.length, handle.version, handle.attrs) == (250, 2, {"k": "v"})
    handle.truncate(120)
    assert (handle.start, handle.length, handle.size) == (120, 250, 130)
    other(site, "append", [b"!"])
    assert handle.length == 250
    handle.refresh()
    assert handle.length == 251
    assert handle.seal() == 251
    assert (handle.sealed, handle.state) == (True, "sealed")
    assert handle.policy == site.client.segments.policy
    assert handle.path == site.path


def test_dates_are_in_utc_and_the_creation_stays(site, handle):
    created = handle.created
    assert abs((datetime.now(UTC) - created).total_seconds()) < 60
    handle.append(b"x")
    assert handle.created == created <= handle.modified


def test_changing_the_attributes_given_out_changes_nothing(handle):
    handle.append(b"", attrs={"k": "v"})
    handle.attrs["k"] = "other"
    assert handle.attrs == {"k": "v"}


def test_a_plain_file_is_a_segment_of_one_chunk_until_a_verb_adopts_it(site):
    site.run(site.backend.write(site.path, [b"plain"]))
    handle = site.segment()
    assert (handle.start, handle.length, handle.version, handle.sealed, handle.attrs) == (0, 5, 0, False, {})
    assert [(chunk.start, chunk.length) for chunk in handle.chunks] == [(0, 5)]
    assert handle.read(1, 4) == b"lai"
    assert handle.append(b"!") == 5
    assert handle.version > 0
    assert handle.read(0, 6) == b"plain!"
    handle.append(b"?", expected_offset=6)


def test_nothing_has_no_handle(site):
    with pytest.raises(FileNotFoundError):
        site.segment()


# -- chunks --------------------------------------------------------------------------------------------------


def test_the_length_of_chunks_needs_no_page_and_an_item_only_its_own(tmp_path):
    site = Site(Scripted(private_memory()), "", RollingPolicy(max_bytes=1, inline_bytes=0))
    site.create()
    count = LOOSE_CHUNKS_MAX * 3
    site.append(DATA + DATA[: count - 250])
    handle = Segment(Core(client := site.other(), site.bridge), drive(client.lookup.view(site.path)))
    client.backend = client.pages.backend = Scripted(client.backend)
    assert len(handle.chunks) == count
    assert client.backend.calls == []
    assert handle.chunks[0].start == 0
    assert client.backend.count("read") == 1
    assert handle.chunks[-1].start == count - 1
    assert [chunk.start for chunk in handle.chunks] == list(range(count))
    assert [chunk.start for chunk in handle.chunks[5:300:50]] == list(range(5, 300, 50))
    for index in (count, -count - 1):
        with pytest.raises(IndexError, match=f"it has {count}"):
            handle.chunks[index]


def test_chunks_that_were_truncated_away_within_a_page_are_not_counted():
    site = Site(private_memory(), "", RollingPolicy(max_bytes=1, inline_bytes=0))
    site.create()
    site.append(DATA)
    handle = site.segment()
    handle.truncate(30)
    assert len(handle.chunks) == len(list(handle.chunks)) == 220
    assert handle.chunks[0].start == 30
    assert len(site.chunk_files()) == 220


def test_the_inline_tail_is_no_chunk(handle):
    handle.append(b"inline")
    assert len(handle.chunks) == 0
    assert list(handle.chunks) == []
    assert handle.length == 6


# -- reading -------------------------------------------------------------------------------------------------


def test_every_range_reads_what_was_written_across_chunk_borders(handle):
    handle.append(DATA)
    for start in (0, 1, 99, 100, 101, 230, 250):
        for end in (start, start + 1, 100, 101, 200, 249, 250):
            if start <= end <= 250:
                assert handle.read(start, end) == DATA[start:end]


@pytest.mark.parametrize(("start", "end"), [(-1, 5), (0, 251), (251, 251), (5, 4), (-5, -1)])
def test_a_range_outside_is_an_argument_error(handle, start, end):
    handle.append(DATA)
    with pytest.raises(ValueError, match="there are no bytes") as caught:
        handle.read(start, end)
    assert isinstance(caught.value, BadOffsetError)


def test_reading_looks_again_past_the_known_end(site, handle):
    other(site, "append", [DATA])
    assert handle.read(200, 250) == DATA[200:]
    assert handle.length == 250


def test_reading_what_is_known_keeps_the_snapshot(site, handle):
    handle.append(DATA)
    other(site, "append", [DATA])
    assert handle.read(0, 250) == DATA
    assert handle.length == 250
    with pytest.raises(BadOffsetError):
        handle.append(b"late", expected_offset=handle.length)


def test_reading_before_the_start_names_the_range_that_is_there(site, handle):
    handle.append(DATA)
    other(site, "truncate", 150)
    site.client.headers.forget(site.path)
    with pytest.raises(SegmentTruncatedError, match="150 to 250"):
        handle.read(100, 200)
    assert handle.read(150, 250) == DATA[150:]
    other(site, "truncate", 250)
    site.client.headers.forget(site.path)
    assert handle.read(250, 250) == b""
    with pytest.raises(SegmentTruncatedError, match="250 to 250"):
        handle.read(249, 250)


def test_reading_goes_on_through_truncations_by_others(site, handle):
    handle.append(DATA)
    for offset in range(0, 251, 50):
        other(site, "truncate", offset)
        assert handle.read(offset, 250) == DATA[offset:]
    assert handle.append(b"on") == 250


def test_a_missing_chunk_above_the_start_is_corruption_and_names_it(site, handle):
    handle.append(DATA)
    chunk = handle.chunks[1]
    site.run(site.backend.delete([names.resolve(site.path, chunk.file)]))
    with pytest.raises(CorruptChunkError, match=chunk.file):
        handle.read(0, 250)


# -- verbs ---------------------------------------------------------------------------------------------------


def test_two_handles_and_a_stale_one_write_in_turn(site, handle):
    second, stale = site.segment(), site.segment()
    assert handle.append(b"data", expected_offset=0) == 0
    assert second.append(b"data", expected_offset=4) == 4
    assert handle.read(0, 8) == second.read(0, 8) == stale.read(0, 8) == b"datadata"
    assert stale.append(b"data", expected_offset=8) == 8


def test_expected_offset_and_attributes_are_checked_and_nothing_is_written(site, handle):
    handle.append(b"0123", attrs={"k": "v"})
    for offset in (3, 5, -1):
        with pytest.raises(BadOffsetError, match=rf"{offset}\b.*\b4\b"):
            handle.append(b"x", expected_offset=offset)
    for expected in ({"k": None}, {"k": "w"}, {"other": "v"}):
        with pytest.raises(AttributeMismatchError):
            handle.append(b"x", expected_attrs=expected)
    assert handle.append(b"x", expected_offset=4, attrs={"k": "w"}, expected_attrs={"k": "v", "other": None}) == 4
    assert handle.attrs == {"k": "w"}
    assert site.content() == b"0123x"


@pytest.mark.parametrize("offset", [-1, 5])
def test_truncating_outside_is_an_argument_error(site, handle, offset):
    handle.append(b"0123")
    with pytest.raises(BadOffsetError):
        handle.truncate(offset)
    assert site.content() == b"0123"


def test_truncating_backwards_changes_nothing(handle):
    handle.append(b"0123")
    handle.truncate(3)
    version = handle.version
    handle.truncate(1)
    assert (handle.start, handle.version) == (3, version)


def test_sealing_again_changes_nothing_and_no_byte_is_taken(handle):
    handle.append(b"0123")
    assert handle.seal() == handle.seal() == 4
    for data in (b"x", b""):
        with pytest.raises(SegmentSealedError):
            handle.append(data)
    assert handle.read(0, 4) == b"0123"
    handle.truncate(2)
    assert handle.read(2, 4) == b"23"


def test_staged_data_is_committed_by_its_receipt(site, handle):
    receipt = handle.stage(DATA)
    assert handle.length == 0
    assert handle.append([receipt]) == 0
    assert handle.read(0, 250) == DATA


def test_concat_takes_paths_urls_and_handles(site, handle):
    sources = []
    for number in range(3):
        path = f"{site.path}-{number}"
        site.run(site.client.segments.overwrite(path, b"%d" % number * 30))
        sources.append(site.run(Segment.open(Core(site.client, site.bridge), path)))
    handle.append(b"start")
    with pytest.raises(SegmentNotSealedError):
        handle.concat([sources[0]])
    for source in sources:
        source.seal()
    with pytest.raises(TypeError, match="a list of sources"):
        handle.concat(sources[0].path)
    mixed = [sources[0], sources[1].path, site.backend.unstrip(sources[2].path)]
    assert handle.concat(mixed, attrs={"k": "v"}) == 5
    assert handle.read(0, 95) == b"start" + b"0" * 30 + b"1" * 30 + b"2" * 30
    assert handle.attrs == {"k": "v"}
    with pytest.raises(FileNotFoundError):
        sources[0].read(0, 30)


def test_collect_takes_what_nobody_refers_to(site, handle):
    handle.stage(DATA)
    assert len(site.chunk_files()) == 3
    assert len(handle.collect().files) == 0
    assert len(handle.collect(grace=0, dry_run=True).files) == 3
    assert len(site.chunk_files()) == 3
    handle.collect(grace=0)
    assert site.chunk_files() == []


OLD = {
    "append": lambda handle: handle.append(b"x"),
    "large append": lambda handle: handle.append(b"x" * 2_000),
    "empty append": lambda handle: handle.append(b""),
    "seal": lambda handle: handle.seal(),
    "truncate": lambda handle: handle.truncate(1),
    "acquire": lambda handle: handle.acquire("me"),
    "delete": lambda handle: handle.delete(),
    "refresh": lambda handle: handle.refresh(),
    "collect": lambda handle: handle.collect(),
    "read": lambda handle: handle.read(0, 5),
}


@pytest.mark.parametrize("verb", OLD)
@pytest.mark.parametrize("fate", ["deleted", "replaced"])
def test_everything_on_a_segment_that_is_gone_is_not_found(site, handle, verb, fate):
    handle.append(b"01234")
    if fate == "deleted":
        other(site, "delete")
    else:
        other(site, "overwrite", [b"another"])
    site.client.headers.forget(site.path)
    with pytest.raises(FileNotFoundError, match="another has its name" if fate == "replaced" else None):
        OLD[verb](handle)
    if fate == "replaced":
        assert site.content() == b"another"


def test_a_handle_of_an_earlier_incarnation_cannot_concat(site, handle):
    source = f"{site.path}-source"
    site.run(site.client.segments.overwrite(source, b"source"))
    site.run(site.client.segments.seal(source))
    other(site, "overwrite", [b"another"])
    with pytest.raises(FileNotFoundError, match="another has its name"):
        handle.concat([source])
    assert site.content() == b"another"


def test_a_deleted_segment_is_gone_for_its_own_handle_at_once(site, handle):
    handle.append(DATA)
    handle.delete()
    for call in (lambda: handle.read(0, 1), handle.delete, lambda: handle.append(b"")):
        with pytest.raises(FileNotFoundError):
            call()
    assert site.chunk_files() == []


# -- exclusive handles ---------------------------------------------------------------------------------------

WRITES = {
    "append": lambda handle: handle.append(b"x"),
    "empty append": lambda handle: handle.append(b""),
    "large append": lambda handle: handle.append(b"x" * 2_000),
    "seal": lambda handle: handle.seal(),
    "truncate": lambda handle: handle.truncate(2),
    "delete": lambda handle: handle.delete(),
}


@pytest.mark.parametrize("verb", WRITES)
@pytest.mark.parametrize("who", ["older", "nobody"])
def test_an_older_epoch_and_none_are_fenced_but_read_and_the_newer_can_do_all(site, handle, verb, who):
    handle.append(b"0123")
    older = handle.acquire("older")
    newer = handle.acquire("newer")
    assert (newer.epoch, newer.owner) == (older.epoch + 1, "newer")
    fenced = older if who == "older" else handle
    with pytest.raises(FencedError):
        WRITES[verb](fenced)
    assert fenced.read(0, 4) == b"0123"
    assert site.content() == b"0123"
    WRITES[verb](newer)


def test_a_fenced_handle_cannot_concat_and_the_newer_can(site, handle):
    source = f"{site.path}-source"
    site.run(site.client.segments.overwrite(source, b"source"))
    site.run(site.client.segments.seal(source))
    older, newer = handle.acquire("older"), handle.acquire("newer")
    with pytest.raises(FencedError):
        older.concat([source])
    assert newer.concat([source]) == 0
    assert newer.read(0, 6) == b"source"


def test_release_lets_anybody_write_again(handle):
    held = handle.acquire("me")
    held.append(b"1")
    held.release()
    assert handle.append(b"2") == 1
    assert held.append(b"3") == 2
    assert held.owner is None
    with pytest.raises(ValueError, match="holds no epoch"):
        held.release()
    with pytest.raises(ValueError, match="holds no epoch"):
        handle.release()


def test_what_another_has_acquired_cannot_be_released(handle):
    older, newer = handle.acquire("older"), handle.acquire("newer")
    with pytest.raises(FencedError):
        older.release()
    assert newer.append(b"still mine") == 0


def test_an_owner_needs_a_name(handle):
    with pytest.raises(ValueError, match="needs a name"):
        handle.acquire("")


def test_thirty_hand_overs_while_writing_lose_and_double_nothing(site, handle):
    acknowledged = []
    done = threading.Event()

    def write():
        held = handle.acquire("writer")
        while not done.is_set():
            record = b"%04d" % (len(acknowledged) % 10_000)  # always 4 bytes, however fast it writes
            try:
                acknowledged.append((held.append(record), record))
            except FencedError:
                held = handle.acquire("writer")

    thread = threading.Thread(target=write)
    thread.start()
    for number in range(30):
        taken = site.segment().acquire(f"other {number}")
        try:
            acknowledged_here = taken.append(b"----")
        except FencedError:
            continue
        acknowledged.append((acknowledged_here, b"----"))
    done.set()
    thread.join()
    content = site.content()
    assert len(content) == 4 * len(acknowledged)
    assert sorted(offset for offset, _ in acknowledged) == list(range(0, len(content), 4))
    assert all(content[offset : offset + 4] == record for offset, record in acknowledged)


# -- async twins ---------------------------------------------------------------------------------------------


def test_each_verb_has_an_async_twin_that_works_on_any_loop(site, handle):
    source = f"{site.path}-source"
    site.run(site.client.segments.overwrite(source, b"source"))
    site.run(site.client.segments.seal(source))

    async def live():
        receipt = await handle._stage(b"staged")
        assert await handle._append([b"0123", receipt], expected_offset=0) == 0
        assert await handle._concat([source]) == 10
        assert await handle._read(4, 16) == b"stagedsource"
        held = await handle._acquire("me")
        with pytest.raises(FencedError):
            await handle._append(b"x")
        assert await held._truncate(4) >= 0
        await held._release()
        await handle._refresh()
        assert handle.start == 4
        assert await handle._seal() == 16
        assert (await handle._collect(grace=0, dry_run=True)).files is not None
        await handle._delete()
        with pytest.raises(FileNotFoundError):
            await handle._read(4, 5)

    asyncio.run(live())
