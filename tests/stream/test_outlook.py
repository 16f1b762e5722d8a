"""`Outlook`: what it says of the next round is what the round then does."""

import pytest

from rollingfs import OffloadPolicy
from rollingfs.format.header import Chunk, Header, Page
from rollingfs.policy import RollingPolicy
from rollingfs.stream.states import Outlook
from rollingfs.stream.upkeep import Upkeep, total
from tests.support.places import tiered
from tests.support.small import a_round

POLICIES = {
    "none": None,
    "blocks": OffloadPolicy("cold", block_bytes=1000),
    "newest stay": OffloadPolicy("cold", block_bytes=700, after_bytes=1550),
    "delay": OffloadPolicy("cold", block_bytes=900, max_delay="1h"),
    "at once": OffloadPolicy("cold", block_bytes=900, max_delay=0),
}


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
@pytest.mark.parametrize("sealed", [False, True])
def test_the_next_round_does_what_the_states_have_said(root, policy, sealed):
    fs, folder = tiered(root, max_bytes=4096, inline_bytes=0), f"{root}/logs"
    for name, count, size in (("a", 60, 100), ("b", 3, 2000), ("c", 40, 70)):
        fs.create(f"{folder}/{name}")
        for _ in range(count):
            fs.append(f"{folder}/{name}", b"x" * size)
        if sealed:
            fs.seal(f"{folder}/{name}")
    fs.truncate(f"{folder}/a", 250)
    if policy is not None:
        fs.set_policy(folder, policy)
    said = Outlook()
    for one in fs.states(folder):
        said = said.plus(one.outlook)
    did = total(a_round(Upkeep(fs._client), folder))
    assert not did.failed
    assert (said.joins, said.joins_to) == (did.consolidated.replaced, did.consolidated.written)
    assert (said.moves, said.moves_to) == (did.offloaded.chunks, did.offloaded.files)
    assert said.saved_objects == did.saved_objects
    assert sum(said.sizes) == said.sizes[0] == 101
    assert sum(len(list(fs.segment(f"{folder}/{name}").chunks)) for name in "abc") == 101 - did.saved_objects


def test_chunks_of_an_unread_page_count_equally_long(monkeypatch):
    page, last = Page(0, 1005, "i", 67, 0, 100), Chunk(1005, 5, "f", None, 1)
    header = Header("id", 1, policy=RollingPolicy(max_bytes=400), entries=(page, last))
    found = Outlook.of(header, header.entries, 0, ("",))
    assert (sum(found.sizes), found.joins, found.joins_to, found.join_bytes) == (68, 68, 5, 1010)
    monkeypatch.setattr("rollingfs.stream.states.CHUNKS_MAX", 67)
    found = Outlook.of(header, header.entries, 0, ("",))
    assert (sum(found.sizes), found.joins) == (68, 0)


def test_little_used_page_has_at_most_chunk_per_byte():
    page = Page(0, 3, "i", 67, 0, 100, offset=1000)
    found = Outlook.of(Header("id", 1, entries=(page,)), (page,), 0, ("",))
    assert (sum(found.sizes), found.joins) == (3, 0)
