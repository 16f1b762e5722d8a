"""Malformed headers and pages: each raises its own clear error, and nothing on the backend changes."""

import dataclasses
import itertools
import random
import uuid

import pytest

from rollingfs import CorruptHeaderError, RollingPolicy
from rollingfs.format import names, placement, side_files
from rollingfs.format.codec import format_text
from rollingfs.format.crc import crc32c
from rollingfs.format.header import OFFSET_MAX, Chunk, Header, Page
from rollingfs.format.line_codec import parse_chunk_line
from rollingfs.format.side_files import format_page, parse_page
from rollingfs.format.tokens import seal_text
from rollingfs.runtime.concurrency import drive
from rollingfs.segment.at import At
from rollingfs.segment.verbs.change import seal
from rollingfs.segment.verbs.collect import collect
from rollingfs.segment.verbs.concat import concat
from rollingfs.segment.verbs.create import create, overwrite
from rollingfs.segment.verbs.delete import delete
from rollingfs.segment.verbs.truncate import truncate
from tests.support.backends import private_memory
from tests.support.segment_verbs import append

AT = "at=2026-11-20T10:00:00.000Z"
PATH = "/folder/clicks"


def with_line(data, line):
    return seal_text(data.split(b"\nend crc32c=")[0] + b"\n" + line.encode() + b"\n")


DAMAGES = {
    "cut off": (lambda data: data[:-20], "truncated|tail"),
    "without its end line": (lambda data: data.split(b"\nend ")[0], "truncated"),
    "one bit flipped": (lambda data: data[:60] + bytes([data[60] ^ 1]) + data[61:], "checksum"),
    "of a newer version": (lambda data: data.replace(b"rollingfs 1", b"rollingfs 2"), "too new.*upgrade"),
    "of a later version": (lambda data: data.replace(b"rollingfs 1", b"rollingfs 10"), "too new.*upgrade"),
    "of version 0": (lambda data: b"rollingfs 0", "begins with 'rollingfs 0' where 'rollingfs 1' belongs: restore"),
    "of no version": (lambda data: data.replace(b"rollingfs 1", b"rollingfs"), "begins with 'rollingfs' where"),
    "another kind of file": (lambda data: b"PAR1" + data, "begins with 'PAR1rollingfs 1'"),
    "with Windows line ends": (lambda data: data.replace(b"\n", b"\r\n"), r"begins with 'rollingfs 1\\r'"),
    "with a line of a newer release": (lambda data: with_line(data, "Mirror cold"), "'Mirror cold'.*too new.*upgrade"),
    "referring outside": (lambda data: with_line(data, f"Chunk 0 5 ../../etc/passwd {AT}"), "refers outside"),
    "referring to a lock": (lambda data: with_line(data, f"Chunk 0 5 x$chunks/lock {AT}"), "names no chunk file"),
    "not text": (lambda data: with_line(data, "x").replace(b"\nx\n", b"\n\xff\n"), "checksum|UTF-8"),
}


@pytest.fixture
def client():
    client = At.of(private_memory(), RollingPolicy(100), header_cache_s=0)
    drive(create(client, PATH))
    return client


def files(client):
    return {path: file.getvalue() for path, file in client.backend.fs.store.items()}


OPERATIONS = {
    "append": lambda client: append(client, PATH, [b"x" * 1000]),
    "seal": lambda client: seal(client, PATH),
    "truncate": lambda client: truncate(client, PATH, 0),
    "create": lambda client: create(client, PATH),
    "overwrite": lambda client: overwrite(client, PATH, [b"new"]),
    "delete": lambda client: delete(client, PATH),
    "read": lambda client: client.headers.view(PATH, fresh=True),
    "concat": lambda client: concat(client, PATH, [f"{PATH}-source"]),
    "collect": lambda client: collect(client, PATH, grace_s=0),
}


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_header_stops_every_operation_and_stays(client, damage, operation):
    header = names.header_path(PATH)
    blob = drive(client.backend.read(header))
    spoil, why = DAMAGES[damage]
    drive(client.backend.replace(header, spoil(blob.data), blob.token))
    before = files(client)
    with pytest.raises(CorruptHeaderError, match=f"{PATH}.*header.*({why})"):
        drive(OPERATIONS[operation](At.of(client.backend, header_cache_s=0)))
    assert before.items() <= files(client).items()


# -- index pages ---------------------------------------------------------------------------------------------

LISTED = (Chunk(0, 5, "f", 1, 1), Chunk(5, 5, "g", 2, 1))
PAGE = format_page(LISTED)
LINE = Page(100, 10, "index-a", 2, crc32c(PAGE), len(PAGE))


def page_of(*lines):
    return seal_text(b"".join(line.encode() + b"\n" for line in ("rollingfs-index 1", *lines)))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "begins with ''"),
        (PAGE[:-1], "truncated"),
        (PAGE + b"x", "bytes after its end"),
        (PAGE.replace(b"Chunk 5 5 g", b"Chunk 5 6 g"), "checksum"),
        (PAGE.replace(b"rollingfs-index 1", b"rollingfs-index 2"), "too new"),
        (format_text(Header(str(uuid.UUID(int=7)), 1)), "begins with 'rollingfs 1'"),
        (page_of(), "does not have as many chunks"),
        (page_of(f"Chunk 1 5 f {AT}"), "do not cover"),
        (format_page([*LISTED, Chunk(10, OFFSET_MAX, "h", 3, 1)]), "do not cover"),
        (page_of(f"Chunk 0 5 f {AT}", f"Chunk 6 5 g {AT}"), "gap or overlap"),
        (page_of(f"Chunk 0 5 f {AT}", f"Chunk 4 5 g {AT}"), "gap or overlap"),
        (page_of(f"Chunk 0 5 ../f {AT}"), "refers outside"),
        (page_of("Page 0 5 index-b crc32c=00000000 count=1 size=9"), "'Page' is too new"),
        (page_of(f"chunk 0 5 f {AT}"), "'chunk' is too new"),
        ({"crc32c": LINE.crc32c ^ 1}, "size and the checksum that the header says"),
        ({"size": LINE.size + 1}, "size and the checksum that the header says"),
        ({"count": 3}, "does not have as many chunks as the header says"),
        *(
            ({name: value}, "do not cover the range that the header says")
            for name, value in {"length": 11, "offset": 1}.items()
        ),
    ],
)
def test_a_malformed_or_other_index_page_is_refused(data, why):
    assert tuple(parse_page(PAGE, LINE, "index-a")) == LISTED
    data, line = (PAGE, dataclasses.replace(LINE, **data)) if isinstance(data, dict) else (data, None)
    with pytest.raises(CorruptHeaderError, match=f"^index-a.*{why}"):
        tuple(parse_page(data, line, "index-a"))


def page_line(data, length, count):
    return Page(0, length, "index-a", count, crc32c(data), len(data))


@pytest.mark.parametrize("count", [1, 2, 3, 5, 4096])
def test_a_place_of_a_page_parses_few_lines(monkeypatch, count):
    chance, starts = random.Random(count), [0]
    for _ in range(count):
        starts.append(starts[-1] + chance.choice((1, 9, 10**5)))
    chunks = [Chunk(a, b - a, f"{a}-x", 1, 1) for a, b in itertools.pairwise(starts)]
    data, parsed = format_page(chunks), []
    monkeypatch.setattr(
        side_files.line_codec, "parse_chunk_line", lambda line: parsed.append(line) or parse_chunk_line(line)
    )
    listed = parse_page(data, page_line(data, starts[-1], count), "index-a")
    assert parsed == []
    places = {0, *(place + near for place in chance.sample(starts, min(count, 200)) for near in (-1, 0, 1))}
    for start in sorted(place for place in places if 0 <= place < starts[-1]):
        for end in (start + 1, start + 10):
            parsed.clear()
            expected = placement.overlapping(chunks, start, end)
            assert placement.overlapping(listed, start, end) == expected
            assert len(parsed) == len(expected)
    assert placement.overlapping(listed, starts[-1], starts[-1] + 9) == []
    assert list(listed) == chunks


BREAKS = {"gap": "Chunk 6 4 g {AT}", "overlap": "Chunk 4 6 g {AT}", "malformed": "Chunk 5 5 ../g {AT}", "none": "x"}


@pytest.mark.parametrize("kind", BREAKS)
def test_a_read_refuses_broken_lines_that_it_uses(kind):
    lines = [f"Chunk 0 5 f {AT}", BREAKS[kind].replace("{AT}", AT), f"Chunk 10 5 h {AT}", f"Chunk 15 5 i {AT}"]
    data = page_of(*lines)
    listed = parse_page(data, page_line(data, 20, 4), "index-a")
    assert [chunk.file for chunk in listed.overlapping(11, 20)] == ["h", "i"]
    for use in (lambda: listed.overlapping(3, 12), lambda: tuple(listed)):
        with pytest.raises(CorruptHeaderError, match=r"^index-a, line [23]"):
            use()


def test_a_cut_or_flipped_index_page_is_refused():
    size = len(PAGE)
    flipped = (PAGE[:at] + bytes([PAGE[at] ^ 1 << bit]) + PAGE[at + 1 :] for at in range(size) for bit in range(8))
    for damaged in (*(PAGE[:end] for end in range(size)), *flipped):
        with pytest.raises(CorruptHeaderError):
            parse_page(damaged, None, "index-a")
