"""What the text of a header tells a writer that waits: never more than the judge would say of the whole header."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollingfs.commit.glance import GLANCE_BYTES, version_to_wait_at
from rollingfs.format.asks import Ask, is_void, takes_plain
from rollingfs.format.codec import format_header
from rollingfs.format.header import Commit, Header, Phase
from rollingfs.format.verdict import Verdict, judge

SEGMENT, OTHER = (str(uuid.UUID(int=number)) for number in (7, 8))
ME = "0a"
VERSIONS_MAX = 32
BASE = Header(SEGMENT, 10, commits=(Commit(ME, 1, 9), Commit("0b", 1, 10)), asks=5)
ASK = Ask(ME, 2, SEGMENT, BASE.version, b"mine")
LATER = replace(BASE, version=12, commits=(Commit(ME, 1, 9), Commit("0b", 3, 12)), asks=5, tail=b"theirs")

CARRIED = replace(LATER, commits=(Commit("0b", 3, 12), Commit("0c", 4, 12, 1), Commit(ME, 1, 9, 0)))


def glance(header: Header) -> int | None:
    return version_to_wait_at(format_header(header)[:GLANCE_BYTES], ASK, VERSIONS_MAX)


def test_a_writer_waits_on_at_a_header_that_has_not_carried_its_ask() -> None:
    assert glance(BASE) == 10
    assert glance(LATER) == 12
    assert glance(CARRIED) == 12


@pytest.mark.parametrize(
    "header",
    [
        replace(LATER, commits=(Commit(ME, 2, 11), Commit("0b", 3, 12))),
        replace(LATER, commits=(Commit(ME, 3, 11),)),
        replace(CARRIED, commits=(Commit("0b", 3, 12), Commit(ME, 2, 11, 0))),
        replace(LATER, commits=(Commit("0b", 3, 12),)),
        replace(LATER, asks=11),
        replace(LATER, asks=None),
        replace(LATER, segment=OTHER),
        replace(LATER, owner="somebody"),
        replace(LATER, phase=Phase.SEALED),
        replace(LATER, turn="0b"),
        replace(LATER, version=9 + VERSIONS_MAX, asks=5),
        replace(LATER, version=9, commits=(Commit(ME, 1, 9),), asks=5),
        replace(LATER, unknown=("z" * GLANCE_BYTES,)),
    ],
    ids=str.split("own higher carried no-line void no-plain-append another owner sealed turn unheard older long"),
)
def test_everything_else_is_loaded_and_judged(header: Header) -> None:
    assert glance(header) is None


def test_a_text_that_is_cut_off_or_damaged_is_loaded() -> None:
    data = format_header(LATER)
    end = data.index(b"\n\n")
    for length in range(end + 2):
        assert version_to_wait_at(data[:length], ASK, VERSIONS_MAX) is None
    for at in range(end):
        damaged = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        assert version_to_wait_at(damaged, ASK, VERSIONS_MAX) is None
    assert version_to_wait_at(data[: end + 2], ASK, VERSIONS_MAX) == 12


@st.composite
def headers(draw: st.DrawFn) -> Header:
    version = draw(st.integers(8, 60))
    writers = draw(st.lists(st.sampled_from([ME, "0b", "0a b", "0c"]), unique=True))
    commits = tuple(
        Commit(one, draw(st.integers(1, 3)), draw(st.integers(1, version)), draw(st.none() | st.integers(0, 9)))
        for one in writers
    )
    floor = draw(st.none() | st.integers(1, 12))
    return Header(
        draw(st.sampled_from([SEGMENT, SEGMENT, SEGMENT, OTHER])),
        version,
        phase=draw(st.sampled_from([Phase.OPEN, Phase.OPEN, Phase.SEALED])),
        owner=draw(st.sampled_from([None, None, "commit 0a 2 9"])),
        tail=draw(st.sampled_from([b"", b"\ncommit 0a 2 9\nend crc32c=00000000\n\n"])),
        attrs=draw(st.sampled_from([{}, {"commit": "0a 2 9\nasks 1 9"}])),
        commits=commits,
        evicted=draw(st.integers(0, version)),
        turn=draw(st.sampled_from([None, None, "0b"])),
        asks=floor,
    )


@settings(max_examples=80, deadline=None)
@given(headers())
def test_a_glance_says_wait_exactly_where_the_judge_would_have_the_writer_wait(header: Header) -> None:
    mine = header.commit_of(ME)
    waits = (
        judge(BASE, header.version == BASE.version, header, ME, ASK.number) in (Verdict.NOT_MINE, Verdict.SAME)
        and takes_plain(header)
        and header.asks is not None
        and not is_void(ASK, header)
        and header.turn is None
        and header.version >= ASK.base
        and mine is not None
        and mine.number < ASK.number
        and header.version - mine.version < VERSIONS_MAX
    )
    assert glance(header) == (header.version if waits else None)
