"""The header's text form: the round trip works, every damage is found, every limit holds."""

import dataclasses
import uuid
from functools import reduce

import pytest
from hypothesis import Phase, given, settings, strategies as st

from rollingfs.errors import CorruptHeaderError
from rollingfs.format.codec import format_header, format_text, parse_header
from rollingfs.format.crc import crc32c
from rollingfs.format.header import (
    OFFSET_MAX,
    TAIL_BYTES_MAX,
    TEXT_BYTES_MAX,
    Chunk,
    Commit,
    Drop,
    Header,
    MergeOutcome,
    Tier,
)
from rollingfs.format.tokens import seal_text
from tests.support.examples import examples
from tests.support.strategies import headers

SEGMENT = str(uuid.UUID(int=7))
EMPTY = Header(SEGMENT, 1)
AT = "at=2026-11-20T10:00:00.000Z"
TABLE = [reduce(lambda rest, _: rest >> 1 ^ (0x82F63B78 if rest & 1 else 0), range(8), byte) for byte in range(256)]
"""The remainder of each byte by Castagnoli's polynomial."""


def lines_of(header):
    """The lines of a header's text, without the end line."""
    return format_text(header).split(b"\nend crc32c=")[0].split(b"\n")


def sealed(lines, tail=b""):
    """A header file of these lines with a right checksum."""
    return seal_text(b"".join(line + b"\n" for line in lines)) + tail


def with_line(line):
    return sealed([*lines_of(EMPTY), line.encode()])


def parsed_or_none(data):
    """The header that a reader takes a damaged file for; None if the reader rejects it."""
    try:
        found = parse_header(data, "x")
    except CorruptHeaderError:
        return None
    assert found is not None, "a file that is not empty was taken for no segment"
    return found


# -- round trip ----------------------------------------------------------------------------------------------


def test_the_strategy_of_headers_draws_every_field():
    left = {field.name for field in dataclasses.fields(Header)}

    @given(headers())
    @settings(max_examples=300, phases=[Phase.generate])
    def draw(header):
        left.difference_update([name for name in left if getattr(header, name) != getattr(EMPTY, name)])

    draw()
    assert not left, "tests/support/strategies.py: `headers` never draws these fields"


@given(headers())
def test_a_header_round_trips_to_the_same_bytes(header):
    data = format_header(header)
    found = parse_header(data, "x")
    assert found == header
    assert format_header(found) == data


@given(headers())
def test_every_word_is_plain_text_between_single_blanks(header):
    known = set(header.unknown)
    for line in lines_of(header):
        text = line.decode()
        if text not in known:
            assert all(character == " " or ord(character) > 0x20 for character in text)
            assert "\x7f" not in text


# -- damage --------------------------------------------------------------------------------------------------


@settings(max_examples=examples(25))
@given(headers())
def test_every_prefix_of_a_header_is_rejected(header):
    data = format_header(header)
    assert parse_header(b"", "x") is None
    for end in range(1, len(data)):
        with pytest.raises(CorruptHeaderError):
            parse_header(data[:end], "x")


@settings(max_examples=examples(15))
@given(headers())
def test_every_flipped_bit_is_rejected(header):
    data = bytearray(format_header(header))
    for bit in range(len(data) * 8):
        data[bit // 8] ^= 1 << bit % 8
        assert parsed_or_none(bytes(data)) is None, f"bit {bit % 8} of byte {bit // 8}"
        data[bit // 8] ^= 1 << bit % 8


@given(headers(live=True), st.data())
def test_a_doubled_line_with_a_right_checksum_is_rejected(header, data):
    lines = lines_of(header)
    # drops, marks and lines of newer releases are lists, in which a line may come twice
    single = [line for line in lines[1:] if line.split(b" ")[0] not in (b"Drop", b"Merged", b"Aborted")]
    single = [line for line in single if line.decode() not in header.unknown]
    line = data.draw(st.sampled_from(single))
    where = data.draw(st.integers(1, len(lines)))
    assert parsed_or_none(sealed([*lines[:where], line, *lines[where:]], header.tail)) is None


@given(headers(live=True), st.data())
def test_a_missing_line_is_rejected_unless_it_is_optional(header, data):
    lines = lines_of(header)
    index = data.draw(st.integers(0, len(lines) - 1))
    kind = lines[index].split(b" ")[0].decode()
    found = parsed_or_none(sealed(lines[:index] + lines[index + 1 :], header.tail))
    if kind in ("rollingfs", "segment", "version", "state", "epoch", "policy", "start"):
        assert found is None
    elif kind != "time":
        assert found != header


@given(headers(live=True), st.data())
def test_the_order_of_lines_changes_lists_only(header, data):
    lines = lines_of(header)
    shuffled = [lines[0], *data.draw(st.permutations(lines[1:]))]
    found = parsed_or_none(sealed(shuffled, header.tail))
    if found is None:
        assert len(header.entries) > 1  # only entries must come in the order of their offsets
        return
    for name in ("commits", "tiers", "drops", "merges", "aborts", "unknown"):
        assert sorted(getattr(found, name), key=repr) == sorted(getattr(header, name), key=repr)
        found = dataclasses.replace(found, **{name: getattr(header, name)})
    assert found == header


@pytest.mark.parametrize("other", ["s$chunks/index-a", "../d/s$chunks/index-a"])
def test_a_page_that_two_spellings_name_is_named_twice(other):
    pages = [f"Page {at} 5 {file} crc32c=00000000 count=1 size=9" for at, file in ((0, "index-a"), (5, other))]
    data = sealed([*lines_of(EMPTY), *(line.encode() for line in pages)])
    with pytest.raises(CorruptHeaderError, match="named twice"):
        parse_header(data, "/c/d/s$header")
    assert parse_header(data, "/c/e/t$header") is not None


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("Chunk 0 0 f " + AT, "empty"),
        ("Chunk 0 5 f", "lacks at="),
        ("Chunk 0", "lacks at="),
        ("Chunk 0 5 f at=yesterday", "not a time"),
        ("Chunk 0 5 f at=2026-02-30T10:00:00.000Z", "not a time"),
        ("Chunk 0 5 f at=2026-02-03T24:00:00.000Z", "not a time"),
        (f"Chunk 0 5 f {AT} {AT}", "twice"),
        (f"Chunk 0 5 f {AT} from=1", "only one of"),
        (f"Chunk 0 5 f {AT} from=3 size=7", "outside its file"),
        (f"Chunk 0 5 f {AT} crc32c=ABCDEF01", "8 hexadecimal"),
        (f"Chunk 0 5 f {AT} mirror=cold", "newer rollingfs"),
        (f"Chunk 9223372036854775800 100 f {AT}", "start offset|longer"),
        (f"Chunk 00 5 f {AT}", "'00' is not a number"),
        (f"Chunk 0 9223372036854775808 f {AT}", "not a number"),
        ("Page 0 5 index-a crc32c=00000000 size=9", "lacks count="),
        ("Page 0 5 index-a crc32c=00000000 size=9 count=4097", "count is out of range"),
        ("Page 0 5 index-a crc32c=00000000 size=9 count=3 foreign=4", "foreign"),
        (f"Drop f {AT} from=3", "neither"),
        (f"Drop f {AT} from=3 to=2", "neither"),
        (f"Drop f {AT} whole=1", "neither"),
        (f"Drop f {AT} bytes=7", "neither"),
        (f"Drop ./ {AT} from=0 to=7", "neither"),
        (f"Drop ../elsewhere/ {AT} bytes=7", "not a chunk folder"),
        ("commit w 1 2", "newer than the header"),
        ("commit w 1", "2 words where 3 belong"),
        ("commit w 1 1 2 3", "5 words where 4 belong"),
        ("evicted 2", "newer than the header"),
        ("turn w 1", "2 words where 1 belong"),
        ("attr a", "1 words where 2 belong"),
        ("attr a%zz b", "escapes nothing"),
        ("attr a%41 b", "escapes nothing"),
        ("Merged 7 x", "not a uuid"),
        (f"Inline 0 0 crc32c=00000000 {AT}", "do not go together"),
        ("Adopted token", "1 words where 2 belong"),
        *((f"Chunk 0 5 f {AT}\nChunk {at} 5 g {AT}", f"overlap at offset {at}") for at in (0, 4)),
        (f"Chunk 0 5 f {AT}\nChunk 6 5 g {AT}", "leave a gap at offset 5"),
        ("", "does not begin with a word"),
        (" attr a b", "does not begin with a word"),
        ("1 2", "does not begin with a word"),
    ],
)
def test_a_malformed_line_is_refused_with_its_reason(line, why):
    with pytest.raises(CorruptHeaderError, match=f"x.*({why})"):
        parse_header(with_line(line), "x")


def test_the_error_names_the_file_and_the_line():
    with pytest.raises(CorruptHeaderError, match=r"^events/clicks\$header, line 9 \('attr a'\): has 1 words"):
        parse_header(with_line("attr a"), "events/clicks$header")


@pytest.mark.parametrize(
    ("state", "more"),
    [
        *(
            (state, "")
            for state in ("merging", "deleted merged", f"deleted because {SEGMENT}", "open merged", "frozen", "")
        ),
        *(("deleted", more) for more in (f"Chunk 0 5 f {AT}", "attr a b")),
    ],
)
def test_a_state_that_is_none_is_refused(state, more):
    said = f"state {state}".strip().encode()
    lines = [said if line.startswith(b"state") else line for line in lines_of(EMPTY)]
    with pytest.raises(CorruptHeaderError, match="a tombstone has no content" if more else None):
        parse_header(sealed([*lines, *[more.encode()] * bool(more)]), "x")


# -- lines of newer releases ---------------------------------------------------------------------------------


def test_unknown_fields_of_lower_case_lines_are_skipped():
    lines = [line + b" colour=blue" if line.startswith((b"policy", b"time")) else line for line in lines_of(EMPTY)]
    assert parse_header(sealed(lines), "x") == EMPTY


# -- limits --------------------------------------------------------------------------------------------------


def loose(count):
    return tuple(Chunk(index, 1, f"{index:020d}-0123456789ab", 1, 1) for index in range(count))


OWNER_BYTES_MAX = TEXT_BYTES_MAX - len(format_text(dataclasses.replace(EMPTY, owner="")))
OVER_A_LIMIT = {
    f"{TEXT_BYTES_MAX + 1} bytes": dataclasses.replace(EMPTY, owner="o" * (OWNER_BYTES_MAX + 1)),
    "129 loose chunks": dataclasses.replace(EMPTY, entries=loose(129)),
    "1048577 bytes of inline tail": dataclasses.replace(EMPTY, tail=bytes(TAIL_BYTES_MAX + 1)),
    "129 drop lines": dataclasses.replace(EMPTY, drops=tuple(Drop(f"f{index}", 1) for index in range(129))),
    "65 attributes": dataclasses.replace(EMPTY, attrs={str(index): "" for index in range(65)}),
    "4097 bytes of attributes": dataclasses.replace(EMPTY, attrs={"k": "v" * 4096}),
    "321 commit lines": dataclasses.replace(EMPTY, commits=tuple(Commit(f"w{index}", 1, 1) for index in range(321))),
    "129 merge marks": dataclasses.replace(
        EMPTY, merges=(MergeOutcome(SEGMENT, "s"),) * 100, aborts=(MergeOutcome(SEGMENT, "s"),) * 29
    ),
}


@pytest.mark.parametrize("what", OVER_A_LIMIT)
def test_a_header_beyond_a_limit_is_refused_both_ways(what):
    header = OVER_A_LIMIT[what]
    why = f"{what}, but at most [0-9]+ are allowed"
    with pytest.raises(ValueError, match=why):
        format_header(header)
    with pytest.raises(CorruptHeaderError, match=why):
        parse_header(format_text(header) + header.tail, "x")


def test_a_header_at_every_limit_round_trips():
    header = dataclasses.replace(
        EMPTY,
        entries=loose(128),
        tail=bytes(TAIL_BYTES_MAX),
        tail_at_ms=1,
        drops=tuple(Drop(f"{index:020d}-0123456789ab", 1) for index in range(128)),
        attrs={f"{index:032d}": "v" * 32 for index in range(64)},
        commits=tuple(Commit(uuid.UUID(int=index).hex, 1, 1) for index in range(64)),
        merges=(MergeOutcome(SEGMENT, "s"),) * 128,
    )
    for one in (header, dataclasses.replace(EMPTY, owner="o" * OWNER_BYTES_MAX)):
        assert parse_header(format_header(one), "x") == one


@pytest.mark.parametrize(
    "header",
    [
        dataclasses.replace(EMPTY, version=0),
        dataclasses.replace(EMPTY, start=-1),
        dataclasses.replace(EMPTY, start=OFFSET_MAX - 1, entries=(Chunk(OFFSET_MAX - 10, 10, "f", 1, 1),), tail=b"x"),
        dataclasses.replace(EMPTY, entries=(Chunk(0, 5, "/etc/passwd", 1, 1),)),
        dataclasses.replace(EMPTY, drops=(Drop("../x/f", 1),)),
        dataclasses.replace(EMPTY, created_ms=10**17),
        dataclasses.replace(EMPTY, commits=(Commit("w", 1, 1), Commit("w", 2, 1))),
    ],
)
def test_what_could_not_be_read_again_is_not_written(header):
    with pytest.raises(ValueError):  # noqa: PT011 - each has its own words
        format_header(header)


def test_a_tier_without_its_line_is_refused_both_ways():
    name, cold = "tier-5f3a9c21e0b4-00000000000000000000-91c0d2aa7e15", Tier("cold", "5f3a9c21e0b4", 0)
    chunk, drop = Chunk(0, 5, name, 1, 0, tier="cold"), Drop(name, 0, tier="cold")
    good = dataclasses.replace(EMPTY, entries=(chunk,), drops=(drop,), tiers=(cold,))
    assert parse_header(format_header(good), "x") == good
    other = (Tier("warm", "5f3a9c21e0b4", 0),)
    for flaw in ({"tiers": (), "drops": ()}, {"tiers": (), "entries": ()}, {"tiers": other}, {"tiers": (cold, cold)}):
        flawed = dataclasses.replace(good, **flaw)
        with pytest.raises(ValueError, match=r"no line of its own|two lines"):
            format_header(flawed)
        with pytest.raises(CorruptHeaderError, match=r"no line of its own|two lines"):
            parse_header(format_text(flawed), "x")


@given(st.binary(max_size=64), st.integers(0, 300), st.integers(0, 64))
@settings(max_examples=examples(200))
def test_the_checksum_is_that_of_rfc_3720(seed, repeats, start):
    data = memoryview(bytearray(seed * repeats))[start:]  # its ways differ by length and alignment
    register = 0xFFFFFFFF
    for byte in data:
        register = register >> 8 ^ TABLE[(register ^ byte) & 0xFF]
    assert crc32c(data) == crc32c(data[9:], crc32c(bytes(data[:9]))) == register ^ 0xFFFFFFFF
    assert [crc32c(one) for one in (bytes(32), b"\xff" * 32, b"")] == [0x8A9136AA, 0x62A8AB43, 0]
