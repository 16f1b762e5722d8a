"""`Segment`: its snapshot, what it reads and refuses, its verbs, exclusive handles; each verb's async twin."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from operator import methodcaller

import pytest

from rollingfs import BadOffsetError, FencedError, RollingPolicy
from rollingfs.format.header import LOOSE_CHUNKS_MAX
from rollingfs.fs.core import Core
from rollingfs.fs.segment_handle import SegmentHandle
from rollingfs.runtime.concurrency import drive
from rollingfs.segment.write import ingest
from tests.support.backends import Scripted, private_memory
from tests.support.site import Site

DATA = bytes(range(250))
POLICY = RollingPolicy(max_bytes=100, inline_bytes=20)


@pytest.fixture(autouse=True)
def small(limits):
    """Limits of bytes, so that a large append needs no megabytes."""
    limits(ingest, PIECE_BYTES=200, SMALL_BYTES_MAX=300)


@pytest.fixture
def handle(site):
    site.create()
    return site.segment()


# -- the snapshot --------------------------------------------------------------------------------------------


def test_attributes_are_a_snapshot_that_own_verbs_refresh(site, handle):
    assert (handle.start, handle.length, handle.size, handle.version, handle.sealed) == (0, 0, 0, 1, False)
    created = handle.created
    assert abs((datetime.now(UTC) - created).total_seconds()) < 60
    assert handle.append(DATA, attrs={"k": "v"}) == 0
    assert (handle.length, handle.version, handle.attrs) == (250, 2, {"k": "v"})
    handle.truncate(120)
    assert (handle.start, handle.length, handle.size) == (120, 250, 130)
    site.by_another("append", [b"!"])
    assert handle.length == 250
    handle.refresh()
    assert handle.length == 251
    assert handle.seal() == 251
    assert (handle.sealed, handle.state) == (True, "sealed")
    assert (handle.policy, handle.path) == (site.client.inherited.default, site.path)
    assert handle.created == created <= handle.modified


def test_plain_file_has_one_chunk_until_a_verb_adopts(site):
    site.run(site.backend.write(site.path, [b"plain"]))
    handle = site.segment()
    assert (handle.start, handle.length, handle.version, handle.sealed, handle.attrs) == (0, 5, 0, False, {})
    assert [(chunk.start, chunk.length) for chunk in handle.chunks] == [(0, 5)]
    assert handle.read(1, 4) == b"lai"
    assert handle.append(b"!") == 5
    assert handle.version > 0
    assert handle.read(0, 6) == b"plain!"
    handle.append(b"?", expected_offset=6)


# -- chunks --------------------------------------------------------------------------------------------------


def test_chunk_count_reads_no_page_and_items_their_own():
    site = Site(Scripted(private_memory()), "", RollingPolicy(max_bytes=1, inline_bytes=0))
    site.create()
    count = LOOSE_CHUNKS_MAX * 3
    site.append(DATA + DATA[: count - 250])
    client = site.other()
    client = replace(client, backend=Scripted(client.backend))
    handle = SegmentHandle(Core(client, site.bridge), drive(client.headers.view(site.path)))
    client.pages.backend = client.backend
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
    handle.truncate(30)
    assert len(handle.chunks) == len(list(handle.chunks)) == len(site.chunk_files()) == count - 30
    assert handle.chunks[0].start == 30


# -- reading -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("start", "end"), [(-1, 5), (0, 251), (251, 251), (5, 4), (-5, -1)])
def test_a_range_outside_is_an_argument_error(handle, start, end):
    handle.append(DATA)
    with pytest.raises(ValueError, match="there are no bytes") as caught:
        handle.read(start, end)
    assert isinstance(caught.value, BadOffsetError)


# -- verbs ---------------------------------------------------------------------------------------------------


ARGUMENTS = {"append": [b"x"], "truncate": [1], "acquire": ["me"], "read": [0, 5], "concat": [[]]}
VERBS = {verb: methodcaller(verb, *args) for verb, args in ARGUMENTS.items()}
VERBS |= {
    verb: methodcaller(verb)
    for verb in ("seal", "delete", "refresh", "collect", "roll", "consolidate", "verify", "onload")
}
VERBS |= {"large append": methodcaller("append", b"x" * 2_000), "empty append": methodcaller("append", b"")}
VERBS["set_policy"] = methodcaller("set_policy", max_bytes=9)
STAYING = frozenset({"stage", "offload", "release"})
"""Verbs that need no segment, a tier, or an epoch."""
WRITES = ("append", "empty append", "large append", "seal", "truncate", "delete", "concat", "set_policy")


def test_each_verb_of_handle_is_tried_on_gone_segment():
    verbs = {
        name
        for name, method in vars(SegmentHandle).items()
        if not name.startswith("_") and hasattr(method, "__wrapped__")
    }
    assert verbs - VERBS.keys() == STAYING, "give each verb of a handle a row in VERBS"


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("fate", ["deleted", "replaced"])
def test_everything_on_segment_that_is_gone_is_not_found(site, handle, verb, fate):
    handle.append(b"01234")
    if fate == "deleted":
        site.by_another("delete")
    else:
        site.by_another("overwrite", [b"another"])
    site.client.headers.forget(site.path)
    with pytest.raises(FileNotFoundError, match="another has its name" if fate == "replaced" else None):
        VERBS[verb](handle)
    if fate == "replaced":
        assert site.content() == b"another"


def test_rows_of_another_segment_are_no_answer_to_verify(site, handle):
    handle.append(DATA)
    site.backend.plan(path="$header", skips=1, before=lambda: site.by_another("overwrite", [b"another"]))
    with pytest.raises(FileNotFoundError, match="another has its name"):
        handle.verify()


# -- exclusive handles ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", WRITES)
@pytest.mark.parametrize("who", ["older", "nobody"])
def test_older_epochs_are_fenced_and_the_newer_does_everything(site, handle, verb, who):
    handle.append(b"0123")
    older = handle.acquire("older")
    newer = handle.acquire("newer")
    assert (newer.epoch, newer.owner) == (older.epoch + 1, "newer")
    fenced = older if who == "older" else handle
    with pytest.raises(FencedError):
        VERBS[verb](fenced)
    assert fenced.read(0, 4) == b"0123"
    assert site.content() == b"0123"
    VERBS[verb](newer)


def test_release_lets_anybody_write_again(handle):
    held = handle.acquire("me")
    held.append(b"1")
    held.release()
    assert handle.append(b"2") == 1
    assert held.append(b"3") == 2
    assert held.owner is None
    for one in (held, handle):
        with pytest.raises(ValueError, match="holds no epoch"):
            one.release()


def test_what_another_has_acquired_cannot_be_released(handle):
    older, newer = handle.acquire("older"), handle.acquire("newer")
    with pytest.raises(FencedError):
        older.release()
    assert newer.append(b"still mine") == 0


# -- async twins ---------------------------------------------------------------------------------------------


def test_verbs_of_handle_alone_are_awaited_on_any_loop(handle):
    async def live():
        held = await handle._acquire("me")
        with pytest.raises(FencedError):
            await handle._append(b"x")
        await held._release()
        assert await handle._append(b"0123") == 0
        assert await handle._read(1, 4) == b"123"
        await handle._refresh()
        assert handle.epoch == 1
        assert (await handle._collect(grace=0, dry_run=True)).files == ()
        await handle._delete()
        with pytest.raises(FileNotFoundError):
            await handle._read(0, 1)

    asyncio.run(live())
