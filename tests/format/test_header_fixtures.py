"""Headers and index pages of format 1: every release from 0.2.0 on must read them.

The files under ``fixtures/headers/v1`` were written for 0.2.0. NEVER regenerate or change one: a release that no longer
reads them is wrong, not they. A new kind of line gets a new description, and a file that `format_header` makes of it.
What each file says is described below by hand, and read twice: by the package, and by the reader that
``docs/protocol/`` gives to other implementations.
"""

import functools
import re
import runpy
from pathlib import Path
from typing import Any

import pytest

from rollingfs.format.codec import LINE_KINDS, format_header, parse_header
from rollingfs.format.header import (
    OFFSET_MAX,
    Adopted,
    Chunk,
    Commit,
    Drop,
    Edges,
    Header,
    Merge,
    MergeOutcome,
    Origin,
    Page,
    Phase,
    Tier,
)
from rollingfs.format.records import Record, fold
from rollingfs.format.side_files import format_page, parse_page
from rollingfs.format.tokens import seal_text
from rollingfs.policy import OffloadPolicy, RollingPolicy

FOLDER = Path(__file__).parents[1] / "fixtures" / "headers" / "v1"
PROTOCOL = Path(__file__).parents[2] / "docs" / "protocol" / "reader.py"

SEGMENT = "7b0c2f6e-4d11-4c53-9b0e-0d3a5f9c1e27"
OTHER = "11111111-2222-4333-8444-555555555555"
TXN = "c0ffee00-0000-4000-8000-000000000001"
TXN_2 = "c0ffee00-0000-4000-8000-000000000002"
WRITER = "5b2e9d0c1f4a4b6e8d7c3a2b1f0e9d8c"
WRITER_2 = "0123456789abcdef0123456789abcdef"
AT_MS = 1_795_168_800_000
"""2026-11-20T10:00:00.000Z"""
SMALL = RollingPolicy(100, None, 0)


FIRST, AT_100 = "00000000000000000000-5f3a9c21e0b4", "00000000000000000100-5f3a9c21e0b4"
LAST = "09223372036854775787-5f3a9c21e0b4"
AT_25 = "00000000000000000025-91c0d2aa7e15"
STAGED = "stage-0f1e2d3c4b5a69788796a5b4c3d2e1f0"
OTHERS = "../other$chunks/00000000000000000000-91c0d2aa7e15"
SHARED = "../o$chunks/tier-000000000000-shared-0f1e2d3c4b5a69788796a5b4c3d2e1f0"
OTHERS_TIERED = "../o$chunks/tier-5f3a9c21e0b4-00000000000000000100-91c0d2aa7e15"
TIERED = "tier-5f3a9c21e0b4-00000000000000000000-91c0d2aa7e15"
COLD = Tier("cold", "5f3a9c21e0b4", AT_MS)
DATES = {"created_ms": AT_MS, "modified_ms": AT_MS}


def _commits(count: int, newest: int) -> tuple[Commit, ...]:
    return tuple(Commit(f"{index:032x}", 7, newest - count + 1 + index) for index in range(count))


of = functools.partial(Header, SEGMENT)

HEADERS: dict[str, Header] = {
    "empty": of(1, **DATES, commits=(Commit(WRITER, 1, 1),)),
    "tail": of(
        2,
        tail=b"\x00tail with\nend crc32c=00000000\n\nbytes \xff",
        tail_at_ms=AT_MS + 1,
        created_ms=AT_MS,
        modified_ms=AT_MS + 2,
        commits=(Commit(WRITER, 2, 2),),
    ),
    "chunks": of(
        4,
        policy=SMALL,
        start=150,
        entries=(
            Chunk(100, 100, AT_100, 0x9C7F0B11, AT_MS),
            Chunk(200, 40, "00000000000000000200-91c0d2aa7e15", 0, AT_MS + 999),
            Chunk(240, 9, STAGED, 0xFFFFFFFF, AT_MS),
        ),
        tail=b"xyz",
        tail_at_ms=AT_MS,
        **DATES,
        commits=(Commit(WRITER, 9, 4), Commit(WRITER_2, 1, 3)),
    ),
    "tier-with-an-id-and-a-path": of(
        7,
        entries=(Chunk(0, 20, TIERED, 1, AT_MS, tier="cold", moved_ms=AT_MS),),
        tiers=(
            Tier("cold", "5f3a9c21e0b4", AT_MS, "0d1f2a3b-4c5d-4e6f-8a9b-0c1d2e3f4a5b", "/mnt/a b/%/s\u00e4"),
            Tier("far", "000000000000", AT_MS, path="bucket/s"),
            Tier("id-alone", "000000000000", AT_MS, OTHER),
        ),
    ),
    "partial-and-foreign-chunks": of(
        3,
        entries=(
            Chunk(0, 10, OTHERS, 1, AT_MS, 1024, 9437184),
            Chunk(10, 5, "../../a b/c%d=e&f\nü$chunks/stage-0f1e2d3c4b5a69788796a5b4c3d2e1f0", 2, AT_MS, 0, 6),
            Chunk(15, 5, "neighbour$chunks/00000000000000000000-5f3a9c21e0b4", None, AT_MS, 3, 8),
        ),
    ),
    "pages": of(
        1000,
        start=70,
        entries=(
            Page(0, 128, "index-7d1e90b2c4aa", 128, 0x01020304, 9000),
            Chunk(128, 1, "00000000000000000128-91c0d2aa7e15", 5, AT_MS),
            Page(129, 1000, "../other$chunks/index-0000000000aa", 4096, 6, 400000, 77, 4096),
            Page(1129, 1, "index-0000000000ab", 1, 7, 120, 0, 1),
        ),
    ),
    "drops": of(
        8,
        start=500,
        drops=(
            Drop(FIRST, AT_MS),
            Drop("index-7d1e90b2c4aa", AT_MS, 0, 12800, True),
            Drop("index-7d1e90b2c4ab", AT_MS, 100, 200),
            Drop("../other$chunks/", AT_MS, size=9437184),
            Drop("./", AT_MS, size=0),
            Drop(AT_100, AT_MS, after_ms=AT_MS + 3_600_000),
        ),
    ),
    "owner": of(5, epoch=3, owner="spark driver %7\tat host\n1"),
    "released": of(6, epoch=3),
    "sealed": of(5, phase=Phase.SEALED, start=17),
    "merging": of(
        6,
        phase=Phase.MERGING,
        merge=Merge(TXN, "../2026/all months", OTHER, Phase.SEALED, AT_MS),
        entries=(Chunk(0, 10, FIRST, 1, AT_MS),),
    ),
    "merging-open": of(
        6, phase=Phase.MERGING, merge=Merge(TXN, "renamed", OTHER, Phase.OPEN, AT_MS), tail=b"t", tail_at_ms=1
    ),
    "tombstone": of(7, phase=Phase.DELETED, epoch=2, drops=(Drop(FIRST, AT_MS),)),
    "tombstone-merged": of(7, phase=Phase.DELETED, merged=TXN),
    "adopted": of(
        1,
        adopted=Adopted('"9b2cf535f27731c974343645a3985328-2 %"', AT_MS + 123),
        entries=(Chunk(0, 5, FIRST, None, AT_MS),),
    ),
    "adopted-long-ago": of(1, adopted=Adopted("", -62_135_596_800_000)),
    "attributes": of(
        2,
        attrs={
            "spark/9f1c": "17",
            "blank key": "value with  two blanks",
            "%": "%25",
            "line\nbreak": "\r\t\x00\x7f",
            "naïve-ключ-鍵": "é\u2028\u0085\U0001f600",
            "a=b&c": "",
        },
    ),
    "commits-evicted": of(700, commits=_commits(64, 700), evicted=636),
    "ends": of(
        8,
        start=5,
        entries=(Chunk(0, 9000, FIRST, 1, AT_MS),),
        tail=b"tail",
        tail_at_ms=AT_MS,
        edges=Edges(0, "lines", 9000, ""),
    ),
    "rewritten": of(9, entries=(Chunk(0, 100, FIRST, 1, AT_MS),), rewritten=2**40, **DATES),
    "turn": of(8, commits=(Commit(WRITER, 3, 8),), turn=WRITER),
    "asks": of(8, commits=(Commit(WRITER, 3, 8), Commit(WRITER_2, 17, 8))),
    "carried": of(
        8,
        commits=(Commit(WRITER, 3, 8), Commit(WRITER_2, 17, 8, 4096), Commit("a word", 2, 7, 0)),
        unknown=("colour blue",),
    ),
    "marks": of(
        9,
        merges=(MergeOutcome(TXN, "../2026/01"), MergeOutcome(TXN, "02 feb")),
        aborts=(MergeOutcome(TXN_2, "$strange\tname"),),
    ),
    "adopted-and-renamed": of(
        3, adopted=Adopted("token", AT_MS), origin=Origin(SEGMENT, AT_MS), root=OTHER, tail=b"t", tail_at_ms=1
    ),
    "tiers": of(
        7,
        start=10,
        tiers=(COLD, Tier("x_2-y", "000000000000", AT_MS + 1)),
        entries=(
            Chunk(0, 20, TIERED, 1, AT_MS, tier="cold"),
            Chunk(20, 5, SHARED, 2, AT_MS, 3, 9, "x_2-y"),
            Chunk(25, 5, AT_25, 3, AT_MS),
        ),
        drops=(
            Drop("tier-5f3a9c21e0b4-00000000000000000000-91c0d2aa7e16", AT_MS, tier="cold"),
            Drop(STAGED, AT_MS, after_ms=AT_MS + 1),
        ),
    ),
    "blocks": of(
        9,
        start=10,
        tiers=(COLD,),
        entries=(
            Chunk(0, 20, TIERED, 1, AT_MS, 0, 20, "cold", AT_MS + 5000, ((5, 0), (14, 0xFFFFFFFF), (1, 7))),
            Chunk(20, 5, OTHERS_TIERED, 2, AT_MS, 3, 9, "cold", AT_MS + 1, ((4, 3), (5, 4))),
            Chunk(25, 5, "tier-5f3a9c21e0b4-00000000000000000025-91c0d2aa7e15", 3, AT_MS, tier="cold", moved_ms=AT_MS),
        ),
        offload=OffloadPolicy("cold", block_bytes=2**24, max_delay="10min"),
    ),
    "offload-policy": of(
        3, offload=OffloadPolicy("cold", 2**30, "7d", "90min"), tail=b"tail", tail_at_ms=AT_MS, **DATES
    ),
    "offload-policy-to-move-nothing": of(3, offload=OffloadPolicy(""), **DATES),
    "tombstone-with-a-tier": of(9, phase=Phase.DELETED, tiers=(COLD,)),
    "newer-lines": of(2, unknown=("colour blue", "hint  two blanks %zz", "mirror-of somewhere=1")),
    "policy": of(1, policy=RollingPolicy(1, 0.001, 1024 * 1024)),
    "largest-numbers": of(
        OFFSET_MAX,
        epoch=OFFSET_MAX,
        evicted=OFFSET_MAX,
        policy=RollingPolicy(OFFSET_MAX, 36500 * 86400.0, 0),
        start=OFFSET_MAX - 8,
        entries=(Chunk(OFFSET_MAX - 20, 15, LAST, 1, AT_MS, OFFSET_MAX - 15, OFFSET_MAX),),
        tail=b"12345",
        tail_at_ms=253_402_300_799_999,
        commits=(Commit(WRITER, OFFSET_MAX, OFFSET_MAX),),
    ),
}

PAGES: dict[str, tuple[Chunk, ...]] = {
    "own": (Chunk(0, 100, AT_100, 0x9C7F0B11, AT_MS), Chunk(100, 1, STAGED, 1, AT_MS, 5, 7)),
    "foreign": (
        Chunk(0, 7, OTHERS, None, AT_MS, 0, 9),
        Chunk(7, OFFSET_MAX - 7, "00000000000000000007-5f3a9c21e0b4", 2, AT_MS),
    ),
}

RECORDS = (
    Record(3, WRITER_2, 1, AT_MS + 3, b"by another\n"),
    Record(4, WRITER, 3, AT_MS + 2, b"\nend crc32c=00000000\n\n\xff"),
    Record(5, "a writer", 0, AT_MS + 9, b"Record 6 x 1 1 "),
)
RECORDED: dict[str, tuple[str, tuple[Record, ...], bytes]] = {
    "records": ("tail", RECORDS, b""),
    "records-without-tail": ("attributes", RECORDS, b""),
    "records-torn": ("tail", RECORDS[:2], RECORDS[2].encode(SEGMENT)[:-1]),
    "records-zeros": ("tail", RECORDS[:1], bytes(4096)),
    "records-flipped-bit": ("tail", RECORDS[:1], RECORDS[1].encode(SEGMENT).replace(b" 3 ", b" 2 ", 1)),
}
"""Files with records: what lies before them, the whole records, and what lies behind."""


FLAWED = {
    "record-of-another-version": "version",
    "record-behind-a-seal": "record follows",
    "tier-without-a-line": "no line of its own",
    "tier-of-a-hint": "neither a file",
    "pieces-of-another-size": "pieces are too many, or are not the file",
    "moved-without-a-tier": "without tier=",
    "upper-case-line": "too new",
    "format-2": "format 'rollingfs 2' is too new",
    "flipped-bit": "checksum",
    "cut-off": "truncated",
    "overlap": "overlap at offset 50",
    "outside": "refers outside",
    "mark-with-a-line-break": "line break",  # a name that no segment can have
}


def test_files_and_descriptions_are_pairs():
    there = {path.name for path in FOLDER.iterdir()}
    described = {f"{name}.header" for name in (*HEADERS, *RECORDED)} | {f"{name}.page" for name in PAGES}
    assert there == described | {f"{name}.flawed" for name in FLAWED}


@pytest.mark.parametrize("name", RECORDED)
def test_a_header_with_records_says_what_they_say(name):
    before, found, rest = RECORDED[name]
    base = HEADERS[before]
    data, header = (FOLDER / f"{name}.header").read_bytes(), fold(base, found)
    assert data == b"".join([format_header(base), *(record.encode(base.segment) for record in found), rest])
    assert parse_header(data, name) == header
    assert header.version == base.version + len(found)
    lines, tail = reader_of_the_docs()(data)
    assert (int(lines["version"][0][0]), tail) == (header.version, header.tail)


@pytest.mark.parametrize("name", PAGES)
def test_an_index_page_of_release_1_reads_as_then(name):
    data = (FOLDER / f"{name}.page").read_bytes()
    assert tuple(parse_page(data, None, name)) == PAGES[name]
    assert format_page(PAGES[name]) == data


@pytest.mark.parametrize("name", FLAWED)
def test_a_flawed_header_stays_refused_with_its_reason(name):
    data = (FOLDER / f"{name}.flawed").read_bytes()
    with pytest.raises(OSError, match=f"^{name}.*{FLAWED[name]}"):
        parse_header(data, name)
    if name in ("upper-case-line", "format-2", "flipped-bit", "cut-off"):
        with pytest.raises(ValueError):  # noqa: PT011 - each has its own words
            reader_of_the_docs()(data)


# -- the reader that docs/protocol/ gives to other implementations -----------------------------------------


def reader_of_the_docs() -> Any:
    return runpy.run_path(str(PROTOCOL))["read_header"]


@pytest.mark.parametrize("name", HEADERS)
def test_a_header_of_release_1_round_trips(name):
    data, expected = (FOLDER / f"{name}.header").read_bytes(), HEADERS[name]
    assert parse_header(data, name) == expected
    text, asks, rest = data.partition(b"asks 4\n")  # a line that is left out since its feature was removed
    assert format_header(expected) == (seal_text(text + rest[: rest.index(b"end crc32c=")]) if asks else data)
    lines, tail = reader_of_the_docs()(data)
    assert tail == expected.tail
    assert [words[0] for words in lines["segment"]] == [expected.segment]
    assert [int(words[0]) for words in lines["start"]] == [expected.start]
    assert lines["state"][0][0] == expected.phase
    assert dict(lines.get("attr", [])) == expected.attrs
    chunks = [entry for entry in expected.entries if isinstance(entry, Chunk)]
    assert [(int(words[0]), int(words[1]), words[2]) for words in lines.get("Chunk", [])] == [
        (chunk.start, chunk.length, chunk.file) for chunk in chunks
    ]
    assert len(lines.get("Page", [])) == len(expected.entries) - len(chunks)
    assert [words[0] for words in lines.get("Drop", [])] == [drop.file for drop in expected.drops]


@pytest.mark.parametrize("kind", LINE_KINDS)
def test_each_kind_of_line_has_rule_and_fixture(kind: str) -> None:
    rule = re.search(rf"^\| `{kind}\b", PROTOCOL.with_name("header.md").read_text(), re.MULTILINE)
    assert rule, f"docs/protocol/header.md: the table has no row for the line {kind!r}"
    line = f"\n{kind} ".encode()
    assert any(line in file.read_bytes() for file in FOLDER.glob("*.header")), (
        f"{FOLDER}: no header has the line {kind!r}"
    )
