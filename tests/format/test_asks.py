"""Asks as values: the file, which asks a header admits, who voids them, and what the asker may conclude."""

import dataclasses
import itertools
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollingfs.errors import CorruptHeaderError
from rollingfs.format import asks, merging, transitions
from rollingfs.format.asks import Ask
from rollingfs.format.codec import format_header, parse_header
from rollingfs.format.header import COMMITS_MAX, Commit, Floor, Header, Merge, Phase, Placed
from rollingfs.format.transitions import stamp
from rollingfs.format.verdict import Verdict, judge
from rollingfs.policy import RollingPolicy
from tests.support import strategies

SEGMENT, OTHER = str(uuid.UUID(int=7)), str(uuid.UUID(int=8))
NOW_MS = 1_795_168_800_000
ME, NUMBER = "me", 5
BASE = Header(SEGMENT, 10, commits=(Commit("a", 1, 10),), asks=Floor(4, 10))
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


def test_an_ask_that_is_cut_off_anywhere_or_has_a_flipped_bit_is_refused():
    data = asks.format_ask(MINE)
    for size in range(len(data)):
        with pytest.raises(CorruptHeaderError):
            asks.parse_ask(data[:size], "file")
    for at in range(len(data)):
        with pytest.raises(CorruptHeaderError):
            asks.parse_ask(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :], "file")


@pytest.mark.parametrize("size", [0, asks.ASK_BYTES_MAX + 1])
def test_an_ask_of_no_or_too_many_bytes_cannot_be_written(size):
    with pytest.raises(ValueError, match="holds 1 to"):
        asks.format_ask(dataclasses.replace(MINE, data=b"x" * size))


# -- admission ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "ask", "is_admitted"),
    [
        ({}, {}, True),
        ({}, {"segment": OTHER}, False),
        ({}, {"writer": "b"}, False),  # the committer itself
        ({}, {"base": 4}, True),
        ({}, {"base": 3}, False),  # below the floor
        ({}, {"base": 11}, False),  # of a later header
        ({"asks": None}, {}, True),
        ({"asks": None}, {"base": 9}, False),
        ({"asks": Floor(4, 9)}, {"base": 9}, False),  # a line of another version means nothing
        ({"commits": (Commit(ME, NUMBER - 1, 10),)}, {}, True),
        ({"commits": (Commit(ME, NUMBER, 10),)}, {}, False),
        ({"commits": (Commit(ME, NUMBER + 1, 10),)}, {}, False),
        ({"evicted": 9}, {"base": 9}, True),
        ({"evicted": 9}, {"base": 8}, False),
        ({"evicted": 9, "commits": (Commit(ME, 1, 3),)}, {"base": 8}, True),
        ({"owner": "o"}, {}, False),
        ({"phase": Phase.SEALED}, {}, False),
        ({"phase": Phase.DELETED}, {}, False),
        ({"phase": Phase.MERGING, "merge": Merge(OTHER, "t", OTHER, Phase.OPEN, 0)}, {}, False),
    ],
)
def test_a_header_admits_an_ask(header, ask, is_admitted):
    found = dataclasses.replace(BASE, **header)
    assert asks.admits(found, dataclasses.replace(MINE, **ask), "b") is is_admitted


def test_of_one_writer_only_the_highest_number_is_chosen():
    older, newer = (dataclasses.replace(MINE, number=number) for number in (4, 5))
    assert asks.select(BASE, [newer, older], "b") == (newer,)
    taken = dataclasses.replace(BASE, commits=(Commit(ME, 5, 10),))
    assert asks.select(taken, [newer, older], "b") == ()


def test_those_come_first_who_have_waited_longest_and_the_rest_waits():
    lines = tuple(Commit(f"w{index}", 1, 10 - index) for index in range(5))
    header = dataclasses.replace(BASE, commits=lines)
    found = [Ask(f"w{index}", 2, SEGMENT, 10, b"x" * asks.ASK_BYTES_MAX) for index in range(5)]
    assert [ask.writer for ask in asks.select(header, found, "b")] == ["w4", "w3", "w2", "w1"]  # 1 MiB together


def test_at_most_63_are_carried_and_none_evicts_a_line():
    found = [Ask(f"w{index:02}", 2, SEGMENT, 10, b"x") for index in range(80)]
    assert len(asks.select(BASE, found, "b")) == asks.YOUNG_LINES_MAX - 2  # "a" and "b" have young lines as well
    for count in range(COMMITS_MAX + 1):
        header = dataclasses.replace(BASE, commits=tuple(Commit(f"d{index}", 1, 1) for index in range(count)))
        made = plain(header, "b", 1, found)
        assert len(made.commits) <= COMMITS_MAX
        gone = {line.writer for line in header.commits} - {line.writer for line in made.commits}
        assert len(gone) == (count == COMMITS_MAX), "only the line of the commit itself evicts"


def test_no_line_is_evicted_within_4_versions_however_many_writers_ask():
    header = BASE
    for version in range(11, 200):
        found = [Ask(f"w{index}", version, SEGMENT, header.version, b"x") for index in range(100)]
        made = plain(header, f"w{version % 100}" if version % 3 else f"new{version}", version, found)
        assert made.evicted <= made.version - asks.YOUNG_VERSIONS
        header = made
    assert header.evicted


# -- stamping: who writes the lines, and who voids ---------------------------------------------------------------


def test_a_plain_append_keeps_the_floor_and_moves_it_at_most_64_versions_behind():
    header = plain(BASE, "b", 1)
    assert (header.floor, header.asks) == (4, Floor(4, 11))
    for number in range(2, 80):
        header = plain(header, "b", number)
    assert header.floor == header.version - asks.WINDOW_VERSIONS


def test_a_carried_ask_gets_a_commit_line_and_its_place():
    header = plain(BASE, "b", 1, [MINE], b"own")
    assert header.tail == b"ownmine"
    assert header.commit_of(ME) == Commit(ME, NUMBER, 11)
    assert header.placed == (Placed(ME, NUMBER, 3),)
    assert header.placed_of(ME, NUMBER) == 3
    later = plain(header, "b", 2)
    assert later.placed_of(ME, NUMBER) == 3
    assert plain(later, ME, NUMBER + 1).placed == ()
    assert parse_header(format_header(header), "file") == header


def every_other_commit():
    """Each transition that is no plain append, over the header given."""
    txn = str(uuid.UUID(int=9))
    merge = Merge(txn, "t", OTHER, Phase.OPEN, NOW_MS)
    yield "guarded append", lambda header: transitions.extend(header, (), b"x", NOW_MS)
    yield "seal", transitions.seal
    yield "truncate", lambda header: transitions.truncate(header, header.length, NOW_MS, {}, "s")
    yield "acquire", lambda header: transitions.acquire(header, "o")
    yield "release", lambda header: transitions.release(header)
    yield "delete", transitions.tombstone
    yield "overwrite", lambda header: transitions.create(header, OTHER, RollingPolicy(), NOW_MS)
    yield "mark", lambda header: dataclasses.replace(header, phase=Phase.MERGING, merge=merge)
    yield "unmark", lambda header: merging.unmark(dataclasses.replace(header, phase=Phase.MERGING, merge=merge))
    yield "attributes", lambda header: transitions.with_attrs(header, {"a": "b"})
    yield "collection's", lambda header: header


@pytest.mark.parametrize(("kind", "change"), list(every_other_commit()), ids=[kind for kind, _ in every_other_commit()])
def test_every_other_commit_voids_all_asks_of_before(kind, change):
    header = plain(BASE, "b", 1)
    assert asks.admits(header, dataclasses.replace(MINE, base=11), "c")
    made = stamp(change(header), header, "c", 1, NOW_MS)
    assert made.asks is None
    assert made.floor == made.version
    assert asks.is_void(dataclasses.replace(MINE, base=11), made)
    kept = parse_header(format_header(made), "file")
    assert asks.is_void(dataclasses.replace(MINE, base=11), kept)
    assert b"\nasks " not in format_header(made)


def as_an_older_client(header, writer, number, data=b"o"):
    """An append by a client that keeps the lines of asks as lines that it does not know."""
    kept = [f"asks {header.asks.base} {header.asks.version}"] if header.asks else []
    kept += [f"placed {one.writer} {one.number} {one.offset}" for one in header.placed]
    bare = dataclasses.replace(header, asks=None, placed=(), unknown=tuple(kept))
    made = stamp(transitions.extend(bare, (), header.tail + data, NOW_MS), bare, writer, number, NOW_MS)
    return parse_header(format_header(made), "file")


def test_an_older_client_voids_asks_too_and_keeps_the_places():
    header = as_an_older_client(plain(BASE, "b", 1, [MINE]), "old", 1)
    assert header.asks is None
    assert asks.is_void(dataclasses.replace(MINE, number=NUMBER + 1, base=11), header)
    assert header.placed_of(ME, NUMBER) == 1
    assert header.unknown == ()


def test_a_tombstone_keeps_the_places_and_a_new_incarnation_does_not():
    header = plain(BASE, "b", 1, [MINE])
    grave = stamp(transitions.tombstone(header), header, "c", 1, NOW_MS)
    assert grave.placed_of(ME, NUMBER) == 1
    made = stamp(transitions.create(grave, OTHER, RollingPolicy(), NOW_MS), grave, "c", 2, NOW_MS)
    assert made.commit_of(ME) is not None
    assert made.placed == ()


def test_a_place_without_its_commit_line_means_nothing():
    header = plain(BASE, "b", 1, [MINE])
    data = format_header(dataclasses.replace(header, commits=header.commits[:1], placed=()))
    alone = format_header(dataclasses.replace(header, commits=header.commits[:1]))
    assert alone != data
    assert parse_header(alone, "file") == parse_header(data, "file")


# -- every course of events of a small world -----------------------------------------------------------------------
#
# "me" has asked with the base 10, and may compete besides. Others append plainly, carrying the ask or not having seen
# it; append with a guard; append as older clients do; overwrite. "me" looks now and then. After every event the
# verdict is held against what really happened. Where two commit lines fit a header, mine is soon evicted.

EVENTS = ("carries", "sees nothing", "guarded", "older", "overwrites", "looks", "competes")
WORLDS = [(2, 3), (COMMITS_MAX, 3), pytest.param(2, 5, marks=pytest.mark.slow)]
"""How many commit lines fit a header, and how many events there are."""


def after(event, header, number, seen):
    writer = f"w{number % 3}"
    if event in ("carries", "sees nothing"):
        return plain(header, writer, number, [MINE] if event == "carries" else ())
    if event == "competes":
        return plain(header, ME, NUMBER, data=b"mine") if is_seen_clean(header, seen) else header
    if event == "looks":
        seen[0] = header if is_seen_clean(header, seen) else seen[0]
        return header
    if event == "guarded":
        return stamp(transitions.extend(header, (), header.tail + b"g", NOW_MS), header, writer, number, NOW_MS)
    if event == "older":
        return as_an_older_client(header, writer, number)
    made = transitions.create(header, str(uuid.UUID(int=number + 100)), RollingPolicy(), NOW_MS)
    return stamp(made, header, writer, number, NOW_MS)


def is_seen_clean(header, seen):
    return judge(seen[0], header is seen[0], header, ME, NUMBER) in (Verdict.SAME, Verdict.NOT_MINE)


@pytest.mark.parametrize(("lines_max", "events_max"), WORLDS)
def test_an_ask_never_takes_place_twice_and_the_asker_never_concludes_what_is_not_so(
    monkeypatch, lines_max, events_max
):
    monkeypatch.setattr(transitions, "COMMITS_MAX", lines_max)
    monkeypatch.setattr(asks, "COMMITS_MAX", lines_max)
    counts = dict.fromkeys(Verdict, 0)
    for course in itertools.product(EVENTS, repeat=events_max):
        header, seen, times, was_void = BASE, [BASE], 0, False
        for number, event in enumerate(course, start=20):
            before = header
            header = after(event, header, number, seen)
            line = header.commit_of(ME)
            if line is not None and line.version == header.version and header is not before:
                times += 1
                assert not (was_void and event == "carries"), course
            was_void = was_void or asks.is_void(MINE, header)
            assert times <= 1, course
            verdict = judge(seen[0], header is seen[0], header, ME, NUMBER)
            counts[verdict] += 1
            assert verdict is not Verdict.MINE or times == 1, course
            assert verdict not in (Verdict.SAME, Verdict.NOT_MINE) or times == 0, course
            if verdict is Verdict.MINE and (place := header.placed_of(ME, NUMBER)) is not None:
                assert header.tail[place : place + 4] == b"mine"
    if lines_max == 2:
        assert all(counts.values()), counts
    else:
        assert not counts[Verdict.UNKNOWN], counts
