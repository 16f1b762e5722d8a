"""The header's text form: round trip, and every damage found."""

import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollingfs.codec import format_header, parse_header
from rollingfs.errors import CorruptHeaderError
from rollingfs.header import Chunk, Commit, Header
from rollingfs.words import seal_text

SEGMENT = str(uuid.UUID(int=7))
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)


@st.composite
def headers(draw: st.DrawFn) -> Header:
    start = draw(st.integers(0, 2**40))
    end = start
    entries = []
    for length in draw(st.lists(st.integers(1, 2**30), max_size=5)):
        entries.append(
            Chunk(end, length, f"{end:020d}-0123456789ab", draw(st.integers(0, 2**32 - 1)), 1_700_000_000_123)
        )
        end += length
    tail = draw(st.binary(max_size=64))
    return Header(
        SEGMENT,
        9,
        owner=draw(st.none() | TEXTS),
        start=start,
        entries=tuple(entries),
        tail=tail,
        tail_at_ms=5 if tail else 0,
        attrs=draw(st.dictionaries(TEXTS, TEXTS, max_size=4)),
        commits=(Commit(uuid.UUID(int=1).hex, 3, 9),),
    )


@given(headers())
def test_a_header_round_trips(header):
    assert parse_header(format_header(header), "x") == header


@settings(max_examples=20)
@given(headers())
def test_every_prefix_is_rejected_and_an_empty_file_is_no_segment(header):
    data = format_header(header)
    assert parse_header(b"", "x") is None
    for end in range(1, len(data)):
        with pytest.raises(CorruptHeaderError):
            parse_header(data[:end], "x")


@given(headers(), st.data())
def test_every_flipped_bit_is_rejected(header, data):
    damaged = bytearray(format_header(header))
    bit = data.draw(st.integers(0, len(damaged) * 8 - 1))
    damaged[bit // 8] ^= 1 << bit % 8
    with pytest.raises(CorruptHeaderError):
        parse_header(bytes(damaged), "x")


def _with_line(line: str) -> bytes:
    text = format_header(Header(SEGMENT, 1)).split(b"end crc32c=")[0]
    return seal_text(text + line.encode() + b"\n")


def test_an_unknown_lower_case_line_is_kept_and_an_upper_case_one_refused():
    parsed = parse_header(_with_line("colour blue"), "x")
    assert parsed is not None
    assert parsed.unknown == ("colour blue",)
    with pytest.raises(CorruptHeaderError, match="too new"):
        parse_header(_with_line("Mirror somewhere"), "x")


@pytest.mark.parametrize(
    "file", ["../../etc/passwd", "/etc/passwd", "x$header", "a$chunks/../b", "a$chunks/b$chunks/c"]
)
def test_a_reference_outside_a_chunk_folder_is_refused(file):
    with pytest.raises(CorruptHeaderError, match="reference"):
        parse_header(_with_line(f"Chunk 0 5 {file} at=2026-11-20T10:00:00.000Z"), "x")
