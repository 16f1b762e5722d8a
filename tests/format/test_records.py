"""Records behind the inline tail: what they say, where they end, and what names a state of the file.

Rules of the protocol: P3.1 to P3.5.
"""

import dataclasses

import pytest

from rollingfs.errors import CorruptHeaderError
from rollingfs.format import records, transitions
from rollingfs.format.codec import format_header, parse_file, parse_header, parse_more
from rollingfs.format.header import RECORDS_MAX, TAIL_BYTES_MAX, Chunk, Commit, Header, Phase
from rollingfs.format.records import Record

SEGMENT = "7b0c2f6e-4d11-4c53-9b0e-0d3a5f9c1e27"
AT_MS = 1_795_168_800_000
BASE = Header(
    SEGMENT, 4, tail=b"tail", tail_at_ms=AT_MS, created_ms=AT_MS, modified_ms=AT_MS + 1, commits=(Commit("a", 3, 4),)
)
DATA = [b"one\n", b"\nend crc32c=00000000\n\n", b"Record 7 a 1 4 ", bytes(300)]


def read_of(data):
    return lambda start, end: data[start:end]


def grown(base=BASE, pieces=DATA):
    """A file with a record for each piece, and the states of the header, one for each number of records."""
    data, states = format_header(base), [base]
    for index, piece in enumerate(pieces):
        made = Record(states[-1].version + 1, "ba"[index % 2], 10 + index, AT_MS + 5 * index, piece)
        data += made.encode(base.segment)
        states.append(records.fold(states[-1], [made]))
    return data, states


def ends(data, base=BASE):
    """Where the records of a file end."""
    found, at = [len(format_header(base))], len(format_header(base))
    while at < len(data):
        line = data[at : data.index(b"\n", at)]
        at += len(line) + 1 + int(line.split(b" ")[4])
        found.append(at)
    return found


@pytest.mark.parametrize("base", [BASE, dataclasses.replace(BASE, tail=b"", tail_at_ms=0)])
def test_whole_records_count_in_a_file_with_any_damage(base):
    data, states = grown(base)
    whole = ends(data, base)
    cut = [data[:size] for size in range(whole[0], len(data) + 1)]
    changed = [data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :] for at in range(whole[0], len(data))]
    followed = [data + rest for rest in (b"x", bytes(5000), b"Record ", data[whole[0] + 1 :], b"\n" * 300)]
    for found in cut + changed + followed:
        count = sum(found.startswith(data[:end]) for end in whole) - 1
        room = RECORDS_MAX - count if len(found) == whole[count] else 0  # no record follows on anything else
        assert parse_file(found, "x") == (states[count], room)
        mark = records.mark_of(read_of(found), len(found))
        assert (mark.version, mark.end) == (states[count].version, whole[count])
    for size in range(whole[0]):
        assert size == 0 or records.mark_of(read_of(data[:size]), size) is None or size >= whole[0] - len(base.tail)


def test_records_of_another_incarnation_are_none():
    data, _ = grown(pieces=[])
    other = Record(5, "b", 1, AT_MS, b"x").encode(SEGMENT.replace("7", "8"))
    assert parse_file(data + other, "x") == (BASE, 0)


@pytest.mark.parametrize(
    ("base", "record", "why"),
    [
        (BASE, Record(6, "b", 1, AT_MS, b"x"), "version 6 of version 4"),
        (BASE, Record(4, "b", 1, AT_MS, b"x"), "version 4 of version 4"),
        (dataclasses.replace(BASE, phase=Phase.SEALED), Record(5, "b", 1, AT_MS, b"x"), "sealed"),
        (transitions.tombstone(BASE), Record(5, "b", 1, AT_MS, b"x"), "deleted"),
        (BASE, Record(5, "b", 1, AT_MS, bytes(TAIL_BYTES_MAX)), "bytes of inline tail"),
        (BASE, Record(5, "b%zz", 1, AT_MS, b"x"), "escapes nothing"),
    ],
)
def test_a_whole_record_that_no_writer_writes_is_refused(monkeypatch, base, record, why):
    if "%" in record.writer:
        monkeypatch.setattr(records.tokens, "quote", lambda word: word)
    data = record.encode(SEGMENT)
    monkeypatch.undo()
    with pytest.raises(CorruptHeaderError, match=why):
        parse_header(format_header(base) + data, "x")


def test_a_file_has_at_most_so_many_records():
    data, states = grown(pieces=[b"x"] * (RECORDS_MAX + 1))
    with pytest.raises(CorruptHeaderError, match=f"{RECORDS_MAX + 1} records, but at most {RECORDS_MAX}"):
        parse_header(data, "x")
    assert parse_file(data[: ends(data)[-2]], "x") == (states[-2], 0)


def test_later_records_are_folded_into_the_known_header():
    data, states = grown()
    whole = ends(data)
    for known in range(len(states)):
        room = RECORDS_MAX - known
        assert parse_more(states[known], room, data[whole[known] :], "x") == (states[-1], RECORDS_MAX - len(DATA))
    assert parse_more(states[0], RECORDS_MAX, data[whole[0] : -1], "x") == (states[-2], 0)


def test_only_an_append_to_the_tail_is_a_record():
    longer = transitions.extend(BASE, (), b"tail and more", AT_MS + 7)
    assert records.data_of(BASE, longer) == b" and more"
    folded = records.fold(BASE, [Record(5, "w", 9, AT_MS + 7, b" and more")])
    assert folded == transitions.stamp(longer, BASE, "w", 9, AT_MS + 7)
    assert parse_header(format_header(folded), "x") == folded
    chunk = Chunk(0, 4, "x", 0, AT_MS)
    for changes in (
        {"tail": b"tail"},
        {"attrs": {"a": "b"}},
        {"phase": Phase.SEALED},
        {"epoch": 7},
        {"owner": "me"},
        {"entries": (chunk,)},
        {"start": 1},
        {"segment": "7b0c2f6e-4d11-4c53-9b0e-0d3a5f9c1e28"},
        {"rewritten": 1},
        {"unknown": ("colour blue",)},
    ):
        assert records.data_of(BASE, dataclasses.replace(longer, **changes)) is None, changes
    sealed = dataclasses.replace(BASE, phase=Phase.SEALED)
    assert records.data_of(sealed, transitions.extend(sealed, (), b"tail and more", AT_MS)) is None


def test_each_state_has_its_own_mark():
    data, _ = grown()
    whole = ends(data)
    marks = [records.mark_of(read_of(data[:size]), size) for size in whole]
    assert len(set(map(str, marks))) == len(marks)
    assert [records.Mark.of(str(mark)) for mark in marks] == marks
    for first, mark in enumerate(marks):
        assert mark.followed(data[mark.end :]) == marks[-1]
        assert all(mark.is_in(read_of(data[:size])) for size in whole[first:])
    # a torn record was cut off, and another of its length follows
    one, other = (Record(5, "b", number, AT_MS, b"12345").encode(SEGMENT) for number in (1, 2))
    base = marks[0]
    assert len(one) == len(other)
    assert base.followed(one[:-1]) == base
    assert base.extended(one) == base.followed(one)
    assert str(base.followed(one)) != str(base.followed(other))
    assert not base.followed(one).is_in(read_of(data[: whole[0]] + other))


@pytest.mark.parametrize("data", [b"", b"x", b"rollingfs 1\n", b"\nend crc32c=zzzzzzzz\n\n", bytes(100_000)])
def test_what_is_no_header_has_no_mark(data):
    assert records.mark_of(read_of(data), len(data)) is None
    assert records.Mark.of(data.decode()) is None
