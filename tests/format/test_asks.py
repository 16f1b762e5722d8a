"""Asks as values: the file, which asks a header admits, who voids them, and what the asker may conclude."""

import dataclasses
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollingfs.format import asks, codec, transitions
from rollingfs.format.asks import Ask
from rollingfs.format.codec import format_header, parse_header
from rollingfs.format.header import (
    CARRIED_LINES_MAX,
    COMMITS_MAX,
    DROPS_MAX,
    TEXT_BYTES_MAX,
    Commit,
    Drop,
    Header,
    MergeOutcome,
)
from rollingfs.format.transitions import stamp
from tests.support import strategies

SEGMENT, OTHER = str(uuid.UUID(int=7)), str(uuid.UUID(int=8))
NOW_MS = 1_795_168_800_000
ME, NUMBER = "me", 5
BASE = Header(SEGMENT, 10, commits=(Commit("a", 1, 10),), asks=4)
MINE = Ask(ME, NUMBER, SEGMENT, 10, b"mine")


def plain(header, writer, number, found=(), data=b"x"):
    """What a plain append that has found these asks makes of a header."""
    chosen = asks.select(header, found, writer)
    added = asks.carry(header, chosen, header.length + len(data))
    tail = header.tail + data + b"".join(ask.data for ask in chosen)
    return stamp(transitions.extend(header, (), tail, NOW_MS), header, writer, number, NOW_MS, added)


# -- the file --------------------------------------------------------------------------------------------------


@given(
    st.builds(
        Ask, strategies.WORDS, st.integers(0, 2**40), strategies.UUIDS, st.integers(0, 2**40), st.binary(min_size=1)
    )
)
def test_an_ask_is_read_as_it_was_written(ask):
    assert asks.parse_ask(asks.format_ask(ask), "file") == ask


def test_the_text_of_an_ask_is_that_of_the_protocol():
    text, _, rest = asks.format_ask(Ask("w", 3, SEGMENT, 12, b"123456789")).partition(b"end crc32c=")
    assert text == f"rollingfs-ask 1\nask w 3 {SEGMENT} 12\ndata 9 crc32c=e3069283\n".encode()
    assert rest[8:] == b"\n\n123456789"


@pytest.mark.parametrize("size", [0, asks.ASK_BYTES_MAX + 1])
def test_an_ask_of_no_or_too_many_bytes_cannot_be_written(size):
    with pytest.raises(ValueError, match="holds 1 to"):
        asks.format_ask(dataclasses.replace(MINE, data=b"x" * size))


# -- admission: `tests/models/test_asks_in_code.py` compares it with the model ------------------------------------


def test_an_ask_of_a_later_header_is_not_admitted():
    """The model has no such asks."""
    assert asks.admits(BASE, MINE, "b")
    assert not asks.admits(BASE, dataclasses.replace(MINE, base=BASE.version + 1), "b")


def test_of_one_writer_only_the_highest_number_is_chosen():
    older, newer = (dataclasses.replace(MINE, number=number) for number in (4, 5))
    assert asks.select(BASE, [newer, older], "b") == (newer,)
    assert asks.select(dataclasses.replace(BASE, commits=(Commit(ME, 5, 10),)), [newer, older], "b") == ()


def test_those_come_first_who_have_waited_longest_and_the_rest_waits():
    lines = tuple(Commit(f"w{index}", 1, 10 - index) for index in range(5))
    header = dataclasses.replace(BASE, commits=lines)
    found = [Ask(f"w{index}", 2, SEGMENT, 10, b"x" * asks.ASK_BYTES_MAX) for index in range(5)]
    assert [ask.writer for ask in asks.select(header, found, "b")] == ["w4", "w3", "w2", "w1"]  # 1 MiB together


def asked(count, base=10):
    return [Ask(f"w{index:03}", base, SEGMENT, base, b"x") for index in range(count)]


def test_one_commit_carries_as_many_asks_as_a_header_has_lines_for():
    made = plain(BASE, "b", 1, asked(CARRIED_LINES_MAX + 9))
    assert len(made.carried) == CARRIED_LINES_MAX
    assert asks.select(made, [Ask("newcomer", 1, SEGMENT, made.version, b"x")], "c") == (), "there is no line left"
    assert made.commit_of("a") is not None
    later = plain(made, "b", 2, asked(CARRIED_LINES_MAX + 9, 11))
    assert {line.writer for line in later.carried} == {line.writer for line in made.carried}, "the others wait"
    assert later.evicted == 0


def test_beside_marks_and_for_writers_with_long_names_a_commit_carries_fewer():
    marked = dataclasses.replace(BASE, merges=(MergeOutcome(OTHER, "source"),))
    assert 50 < len(asks.select(marked, asked(200), "b")) < 120
    long = [dataclasses.replace(ask, writer=f"{index:03}" + " " * 900) for index, ask in enumerate(asked(100))]
    chosen = asks.select(BASE, [*long, *asked(20)], "b")
    made = plain(BASE, "b", 1, chosen)
    assert 20 < len(chosen) < 40, "one that asks under such a name stops nobody"
    assert len(codec.format_text(made)) < TEXT_BYTES_MAX
    room = asks.carry(BASE, chosen, 0).text_bytes_max
    assert len(codec.format_text(made)) <= len(codec.format_text(BASE)) + room + transitions.STAMP_BYTES_MAX


@pytest.mark.parametrize("count", [3, 100, CARRIED_LINES_MAX + 50])
def test_no_line_of_the_last_64_versions_goes_however_many_writers_ask(count):
    header, last = BASE, {}
    for version in range(11, 211):
        found = [
            Ask(f"w{(index * 7) % count}", version, SEGMENT, header.version, b"x") for index in range(version % 90)
        ]
        made = plain(header, f"w{version % count}" if version % 3 else f"new{version}", version, found)
        last |= {line.writer: line.version for line in made.commits if line.version == version}
        young = {writer for writer, at in last.items() if at > version - COMMITS_MAX}
        assert young <= {line.writer for line in made.commits}
        assert made.evicted <= max(0, version - COMMITS_MAX)
        gone = {writer: at for writer, at in last.items() if made.commit_of(writer) is None}
        assert made.evicted >= max(gone.values(), default=0)
        header = made
    assert header.evicted


def test_lines_of_carried_asks_go_once_they_are_old_and_no_header_stays_long():
    header = plain(BASE, "b", 1, asked(200))
    for number in range(2, COMMITS_MAX + 1):
        header = plain(header, "b", number)
        assert len(header.carried) == 200
    assert len(plain(header, "b", 99).commits) == COMMITS_MAX
    few = plain(BASE, "b", 1, asked(COMMITS_MAX - 2))
    for number in range(2, 2 * COMMITS_MAX):
        few = plain(few, "b", number)
    assert len(few.commits) == COMMITS_MAX, "without a rival for its place, no line goes"


def test_a_text_that_would_be_too_long_loses_the_oldest_lines_of_carried_asks():
    drops = tuple(Drop("x" * 465 + f"{index:03}", NOW_MS) for index in range(DROPS_MAX))
    header = plain(plain(BASE, "b", 1, asked(120)), "b", 2, [Ask("late", 1, SEGMENT, 11, b"x")])
    made = stamp(dataclasses.replace(header, drops=drops), header, "c", 1, NOW_MS)
    assert len(codec.format_text(made)) <= TEXT_BYTES_MAX
    assert 1 < len(made.carried) < 121
    assert made.commit_of("late") is not None
    assert made.evicted == 11


# -- stamping: who writes the lines, and who voids ---------------------------------------------------------------


def test_a_carried_ask_gets_a_line_that_says_where_its_data_begins():
    header = plain(BASE, "b", 1, [MINE], b"own")
    assert header.tail == b"ownmine"
    assert header.commit_of(ME) == Commit(ME, NUMBER, 11, 3)
    later = plain(header, "b", 2)
    assert later.commit_of(ME) == Commit(ME, NUMBER, 11, 3)
    again = plain(later, ME, NUMBER + 1)
    assert again.commit_of(ME) == Commit(ME, NUMBER + 1, 13)
    assert again.carried == ()
    assert [parse_header(format_header(one), "file") for one in (header, later, again)] == [header, later, again]
