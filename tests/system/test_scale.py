"""The requests of an operation do not grow with the segment, and headers stay within their limits."""

import asyncio
from collections import Counter

import pytest
from hypothesis import given, strategies as st

from benchmarks.fabricate import chunk_data, fabricate, page_counts
from rollingfs import RollingPolicy
from rollingfs.format import line_codec, names
from rollingfs.format.header import LOOSE_CHUNKS_MAX, TEXT_BYTES_MAX
from rollingfs.runtime.concurrency import drive
from rollingfs.segment.at import At
from rollingfs.segment.verbs.create import create
from rollingfs.segment.verbs.truncate import truncate
from tests.support.backends import Scripted, private_memory
from tests.support.examples import nightly, slowly
from tests.support.segment_verbs import append
from tests.support.strategies import chunks, pages

CHUNK_BYTES = 1000
POLICY = RollingPolicy(CHUNK_BYTES, None, CHUNK_BYTES)
PATH = "/logs/clicks"
COUNTS = [10, 1_000, *slowly(100_000), *nightly(1_000_000)]


class Segment:
    """A segment of `count` chunks, and a client that has not seen it."""

    def __init__(self, count: int) -> None:
        self.backend = Scripted(private_memory())
        self.count = count
        self.present = {0, 1, count // 2, count // 2 + 1, count - 1}
        self.header_bytes = asyncio.run(fabricate(self.backend.inner, [PATH], count, POLICY, self.present))
        self.client = At.of(self.backend)

    def asked(self, coroutine):
        """The requests of a call by verb, except those of the probe."""
        self.backend.calls.clear()
        drive(coroutine)
        return Counter(verb for verb, path in self.backend.calls if names.PROBE_PREFIX not in path)

    async def read(self, chunk, at):
        view = await self.client.headers.view(PATH)
        data = await self.client.fetcher.read(view, chunk * CHUNK_BYTES + at, chunk * CHUNK_BYTES + at + 10)
        assert data == chunk_data(chunk, CHUNK_BYTES)[at : at + 10]


@pytest.fixture(params=COUNTS, scope="module")
def segment(request):
    return Segment(request.param)


def test_each_operation_asks_same_of_store_at_every_size(segment):
    client, middle = segment.client, segment.count // 2
    in_page = middle < sum(page_counts(segment.count))
    assert segment.header_bytes <= TEXT_BYTES_MAX
    assert segment.asked(client.headers.view(PATH)) == {"read": 1}
    assert segment.asked(segment.read(middle, 0)) == Counter(read_if_changed=1, read=in_page, read_range=1)
    assert segment.asked(segment.read(middle + 1, 0)) == {"read_if_changed": 1, "read_range": 1}
    drive(client.abilities(PATH))  # the store is probed by then
    for _ in range(3):
        assert segment.asked(append(client, PATH, b"x" * 100)) == {"replace": 1}
    first_in_page = segment.count > LOOSE_CHUNKS_MAX
    asked = segment.asked(truncate(client, PATH, CHUNK_BYTES))
    assert asked == Counter(replace=1, read=first_in_page, delete=1)
    assert segment.asked(truncate(client, PATH, 2 * CHUNK_BYTES)) == {"replace": 1, "delete": 1}


def test_excess_loose_chunks_write_pages_beside_the_due_chunk():
    backend = Scripted(private_memory())
    client = At.of(backend, RollingPolicy(1, None, 0))
    drive(create(client, PATH))
    for _ in range(LOOSE_CHUNKS_MAX):
        drive(append(client, PATH, b"x"))
    backend.calls.clear()
    drive(append(client, PATH, b"x"))
    *before, last = backend.calls
    assert [verb for verb, _ in before] == ["write", "write"]
    assert last == ("replace", names.header_path(PATH))


KINDS = {"chunk": chunks, "page": pages}


@pytest.mark.parametrize("kind", KINDS)
@given(st.data())
def test_quick_parse_of_entry_says_what_thorough_one_says(kind, data):
    entry = data.draw(KINDS[kind](data.draw(st.integers(0, 2**40)), data.draw(st.integers(1, 2**40))))
    line = getattr(line_codec, f"format_{kind}")(entry)
    assert line_codec.parse_entry_line(line) in (None, entry)
    assert getattr(line_codec, f"parse_{kind}")(line.split(" ")[1:]) == entry


def test_the_entries_that_this_release_writes_are_parsed_quickly():
    line = f"Chunk 77 5 {names.new_chunk_name(77)} crc32c=0000abcd at=2026-11-20T10:00:00.123Z"
    assert line_codec.parse_entry_line(line) == line_codec.parse_chunk(line.split(" ")[1:])
    line = f"Page 0 500 {names.new_index_name(2**40)} crc32c=0000abcd count=7 size=900 from=3"
    assert line_codec.parse_entry_line(line) == line_codec.parse_page(line.split(" ")[1:])
    assert line_codec.parse_entry_line(line + " ") is None
    assert line_codec.parse_entry_line(line.replace("500", "0500")) is None
