"""What a follower does now with one segment: pure functions, by examples and at random."""

import math
from dataclasses import replace

from hypothesis import given, strategies as st

from rollingfs.format.header import Chunk, Header, Phase
from rollingfs.segment.files.rewrite_plan import Asked, Chosen
from rollingfs.stream import blocks
from rollingfs.stream.blocks import DEFAULT, Hot, Move, Wait

NOW_MS = 1_800_000_000_000
RULE = Asked("cold", Chosen(), 0.0, block_bytes=100, max_delay_s=600)


def chunk(start: int, length: int, tier: str = "", age_s: int = 0) -> Chunk:
    return Chunk(start, length, f"{start:020}-0", 0, NOW_MS - age_s * 1000, size=length, tier=tier)


def header(*chunks: Chunk, tail: bytes = b"", tail_age_s: int = 0, start: int = 0, sealed: bool = False) -> Header:
    at_ms = NOW_MS - tail_age_s * 1000 if tail else 0
    phase = Phase.SEALED if sealed else Phase.OPEN
    return Header("s" * 32, 1, start=start, entries=chunks, tail=tail, tail_at_ms=at_ms, phase=phase)


def hot(found: Header) -> Hot:
    return blocks.with_chunks(blocks.look(found, NOW_MS), found.entries, RULE, found, NOW_MS)  # type: ignore[arg-type]


def plan(found: Header) -> Wait | Move:
    return blocks.plan(hot(found), NOW_MS, RULE)


def test_block_is_due_once_its_first_byte_is_old():
    assert blocks.plan(hot(header(chunk(0, 10, age_s=590))), NOW_MS, RULE) == Wait(10.0)
    assert blocks.plan(hot(header(chunk(0, 10, age_s=599))), NOW_MS + 990, RULE) == Wait(1.0)
    assert blocks.plan(hot(header(chunk(0, 10))), NOW_MS, RULE) == Wait(600.0)
    assert blocks.plan(hot(header(chunk(0, 10, "cold"))), NOW_MS, RULE) == Wait(math.inf)


def test_second_look_knows_age_of_first_byte():
    first = hot(header(tail=b"t" * 10, tail_age_s=500))
    now = replace(hot(header(chunk(0, 50))), oldest_ms=NOW_MS + 19_000)
    assert blocks.since(now, first).oldest_ms == NOW_MS - 500_000
    assert blocks.since(now, replace(first, segment="x" * 32)) == now
    assert blocks.since(now, None) == now
    assert blocks.since(replace(now, first=7), first).oldest_ms == NOW_MS + 19_000


def test_clock_ahead_delays_no_block_for_ever():
    ahead = header(chunk(0, 10, age_s=-9999))
    assert hot(ahead).oldest_ms == NOW_MS
    later = blocks.since(replace(hot(ahead), oldest_ms=NOW_MS + 700_000), hot(ahead))
    assert blocks.plan(later, NOW_MS + 700_000, RULE) == Move(0, 10)


@given(
    st.lists(st.tuples(st.integers(1, 80), st.sampled_from(["", "", "cold"]), st.integers(0, 900)), max_size=9),
    st.integers(0, 120),
    st.integers(0, 900),
    st.booleans(),
)
def test_plan_always_moves_hot_bytes_or_waits_while(parts, tail, age_s, sealed):
    start, chunks = 0, []
    for length, tier, chunk_age_s in parts:
        chunks.append(chunk(start, length, tier, chunk_age_s))
        start += length
    found = header(*chunks, tail=b"t" * tail, tail_age_s=age_s, sealed=sealed)
    now = plan(found)
    hot_chunks = [one for one in chunks if not one.tier]
    hot_bytes = sum(one.length for one in hot_chunks) + tail
    if isinstance(now, Move):
        end = found.length if now.upto is None else now.upto
        assert any(now.start <= one.start and one.end <= end for one in hot_chunks) or (tail and now.upto is None)
        assert not any(one.end <= now.start for one in hot_chunks), "nothing hot is left behind"
        assert (now.upto is None) <= bool(tail)
    else:
        assert 0 < now.pause_s <= (600 if hot_bytes else math.inf)
        assert hot_bytes < 100
        assert not (sealed and hot_bytes)
        assert now.is_over == (sealed and not hot_bytes)
        if hot_bytes and (hot_chunks or tail):
            first_s = hot_chunks[0].at_ms if hot_chunks else found.tail_at_ms
            assert (NOW_MS - first_s) / 1000 < 600


def test_rule_polls_often_for_short_delays():
    rule = replace(RULE, max_delay_s=2.0)
    assert (blocks.poll_s_max(rule), blocks.poll_s_min(rule)) == (0.5, 0.5)
    assert blocks.poll_s_max(DEFAULT) == 30.0
