"""When a writer asks, waits or competes: decisions from commit lines and times, and whole runs in virtual time."""

from __future__ import annotations

import functools
import itertools
import time
import uuid
from collections.abc import Collection
from typing import Any
from unittest import mock

import pytest

from rollingfs.client import COMMIT_TIMEOUT_S, Client
from rollingfs.commit.fairness import Turns
from rollingfs.commit.sharing import (
    AHEAD_MEMORY_COMMITS,
    ALONE_COMMITS,
    CARRIED_COMMITS,
    FIRST_LOOK_S_MAX,
    KNOWN_VERSIONS,
    LINGER_COMMIT_S_MIN,
    LINGER_FOUND_MIN,
    LIST_ALONE_S_MAX,
    LIST_COMMITS_ALONE,
    LIST_COMMITS_FIRST,
    LIST_COMMITS_SHARED,
    LIST_SHARE,
    READ_ASKS_MAX,
    RECENT_CYCLES,
    Sharing,
)
from rollingfs.format.header import CARRIED_LINES_MAX, Commit, Header
from tests.support import simulation
from tests.support.simulation import Figures, Latencies, Load, simulate

ME = "me"
SEGMENT = str(uuid.UUID(int=7))
PAUSING_RATIO_MAX = 1.5
"""Writers that pause hardly gain by asks; they wait at most so many times as long as with turns."""


def header(version: int, *lines: tuple[str, int], is_plain: bool = True, carried: Collection[str] = ()) -> Header:
    """A header with a line of each of these writers, in these versions; some of them were carried."""
    commits = tuple(Commit(writer, 1, at, 0 if writer in carried else None) for writer, at in lines)
    return Header(SEGMENT, version, commits=commits, asks=1 if is_plain else None)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def racing(clock: Any) -> Sharing:
    """A writer among others that commit in each cycle of 40 ms."""
    turns = Turns(ME)
    turns.commit_s = 0.02
    sharing = Sharing(turns)
    sharing.lost()
    for version in range(1, 20):
        sharing.looked(header(version), 0.02)
        clock[0] += 0.04
    return sharing


OTHERS = [("w1", 19), ("w2", 19), ("w3", 20)]
CARRIED = ["w1", "w2"]


def test_a_writer_shares_once_it_has_lost_a_race_to_another(clock: Any) -> None:
    sharing = Sharing(Turns(ME))
    assert not sharing.is_shared(header(20, *OTHERS)), "it is alone"
    sharing.lost()
    assert sharing.is_shared(header(20, *OTHERS))
    assert sharing.is_shared(header(20, OTHERS[0]))
    assert not sharing.is_shared(header(20, (ME, 20))), "of all others, nobody is left"
    assert not sharing.is_shared(header(99, *OTHERS)), "too long ago"
    assert not sharing.is_shared(None)


def test_a_writer_is_alone_again_after_commits_that_found_no_ask(clock: Any) -> None:
    sharing = Sharing(Turns(ME))
    sharing.lost()
    for version in range(1, ALONE_COMMITS):
        sharing.committed(header(version, (ME, version)), 0)
    assert not sharing.is_alone
    sharing.committed(header(9, (ME, 9)), 1)
    for version in range(10, 10 + ALONE_COMMITS):
        assert not sharing.is_alone
        sharing.committed(header(version, (ME, version)), 0)
    assert sharing.is_alone


def test_a_writer_waits_where_others_commit_often_and_carry(racing: Sharing) -> None:
    mine = (ME, 19)
    assert racing.waits(header(20, mine, *OTHERS, carried=CARRIED))
    assert not racing.waits(header(20, *OTHERS, carried=CARRIED)), "nobody knows it"
    assert not racing.waits(header(20, (ME, 20), ("a", 19), ("b", 19), carried=["a", "b"])), "it has committed last"
    assert racing.waits(header(20, (ME, 20), ("a", 20), ("b", 19), carried=[ME])), "it was carried"
    assert racing.waits(header(20, mine, ("a", 20), carried=[ME])), "by the only other"
    assert not racing.waits(header(20, mine, *OTHERS)), "nobody carries"
    assert not racing.waits(header(20, mine, *OTHERS, is_plain=False, carried=CARRIED)), "the last commit was not plain"
    assert not racing.waits(header(20 + KNOWN_VERSIONS, mine, *OTHERS, carried=CARRIED))


def test_a_writer_that_pauses_waits_only_where_nearly_each_commit_carries_an_ask(racing: Sharing, clock: Any) -> None:
    """Where one carried ask in 16 versions was enough, such writers waited for half a second, simulated."""
    lines = [(ME, 18), ("a", 20), ("b", 19), ("c", 20)]
    some, most = header(20, *lines, carried=["c"]), header(20, *lines, carried=["c", ME])
    assert racing.waits(some)
    pause(racing.turns, clock, 1)
    racing.looked(header(20), 0.02)
    for version in range(21, 40):  # others have gone on
        racing.looked(header(version), 0.02)
        clock[0] += 0.04
    assert racing.pauses
    assert not racing.waits(some)
    assert racing.waits(most)


def test_a_writer_waits_for_nobody_who_commits_seldom(racing: Sharing, clock: Any) -> None:
    clock[0] += 10
    racing.looked(header(20), 0.02)
    assert not racing.waits(header(20, (ME, 19), *OTHERS, carried=CARRIED))


def test_a_header_is_believed_for_three_cycles(racing: Sharing, clock: Any) -> None:
    racing.looked(header(20), 0.02)
    assert racing.is_recent(header(20))
    assert not racing.is_recent(header(19))
    assert not racing.is_stale(header(20))
    clock[0] += 0.2
    assert not racing.is_recent(header(20))
    assert racing.is_stale(header(20))


def test_who_waits_looks_first_after_half_of_its_usual_wait_and_at_most_after_100_ms(racing: Sharing) -> None:
    assert racing.first_look_s == pytest.approx(0.02), "the time of a look"
    racing.waited(0.03)
    assert racing.first_look_s == pytest.approx(0.02)
    racing.waited(0.09)
    assert racing.first_look_s == pytest.approx(0.03)
    racing.waited(10.0)
    assert racing.first_look_s == FIRST_LOOK_S_MAX


def test_listings_that_delay_commits_take_a_bounded_part_of_their_time(racing: Sharing) -> None:
    now = header(20, (ME, 20), *OTHERS)
    for delay_s, commits in ((0.0, LIST_COMMITS_SHARED), (0.001, LIST_COMMITS_SHARED), (0.02, 1 / LIST_SHARE)):
        racing.listed(now, (), delay_s)
        for _ in range(round(commits) - 1):
            racing.committed(now, 1)
            assert not racing.lists(now)
        racing.committed(now, 1)
        assert racing.lists(now)


def test_a_writer_alone_lists_asks_now_and_then(clock: Any) -> None:
    sharing = Sharing(Turns(ME))
    listed = []
    for version in range(1, 2 * LIST_COMMITS_ALONE + 9):
        now = header(version, (ME, version))
        if sharing.lists(now):
            listed.append(version)
            sharing.listed(now, [ME])
        sharing.committed(header(version + 1, (ME, version + 1)), 0)
    first = 2 * LIST_COMMITS_FIRST
    assert listed == [LIST_COMMITS_FIRST, first, first + LIST_COMMITS_ALONE, first + 2 * LIST_COMMITS_ALONE]


def test_after_the_last_sign_of_others_a_writer_lists_asks_less_and_less_often(racing: Sharing) -> None:
    """The other may wait, and lose every race: then nothing else shows it."""
    racing.lost()
    listed = []
    for commit in range(1, 1100):
        now = header(20 + commit, (ME, 20 + commit))
        if racing.lists(now):
            listed.append(commit)
            racing.listed(now, [ME])
        racing.committed(header(21 + commit, (ME, 21 + commit)), 0)
    gaps = [after - before for before, after in itertools.pairwise(listed)]
    assert gaps == [8, 16, 32, 64, 128, 256, LIST_COMMITS_ALONE]


def test_far_away_a_writer_alone_lists_asks_before_a_newcomer_gives_up(clock: Any) -> None:
    sharing = Sharing(Turns(ME))
    sharing.turns.commit_s = 0.25
    for _ in range(2):
        sharing.listed(header(1), [ME])
    commits = 0
    while not sharing.lists(header(1)):
        sharing.committed(header(1), 0)
        commits += 1
    assert commits * sharing.turns.commit_s == LIST_ALONE_S_MAX < COMMIT_TIMEOUT_S / 2


def pause(turns: Turns, clock: Any, seconds: float) -> None:
    turns.took(0.01, header(1))
    clock[0] += seconds
    turns.begin()


def test_a_writer_that_pauses_lists_nothing(racing: Sharing, clock: Any) -> None:
    racing.listed(header(20), [])
    racing.lost()
    assert racing.lists(header(20, *OTHERS))
    pause(racing.turns, clock, 1)
    assert not racing.lists(header(20, *OTHERS))


def test_who_has_paused_once_does_not_count_as_one_that_pauses_at_its_next_append(racing: Sharing, clock: Any) -> None:
    """By turns among 60 writers that share, each of its appends would take a second until the pause is forgotten."""
    pause(racing.turns, clock, 10)
    assert racing.pauses
    pause(racing.turns, clock, 0)
    assert racing.turns.away_s > RECENT_CYCLES * racing.cycle_s, "on average"
    assert not racing.pauses
    pause(racing.turns, clock, 10)
    assert racing.pauses


def test_a_writer_that_usually_pauses_takes_turns_with_one_other_and_shares_with_two(
    racing: Sharing, clock: Any
) -> None:
    pair, three = header(20, (ME, 19), ("a", 20)), header(20, (ME, 19), ("a", 20), ("b", 18))
    assert racing.is_shared(pair)
    pause(racing.turns, clock, 1)
    assert not racing.is_shared(pair)
    assert racing.is_shared(three)


def test_the_ask_of_a_newcomer_is_looked_for_in_the_next_commit_only(clock: Any) -> None:
    sharing = Sharing(Turns(ME))
    sharing.listed(header(8, (ME, 8)), [ME, "new"])
    sharing.committed(header(9, (ME, 9)), 0)
    assert sharing.is_shared(header(9, (ME, 9)))
    assert sharing.known(header(9, (ME, 9))) == ["new"]
    sharing.committed(header(10, (ME, 10)), 0)
    assert sharing.known(header(10, (ME, 10))) == []
    assert not sharing.is_shared(header(10, (ME, 10)))


def test_who_has_not_committed_last_reads_the_asks_of_those_that_wait_longest(racing: Sharing) -> None:
    """Of 100 processes on a disk, each loser read the asks of all: more than half of the processors' time."""
    lines = [(f"w{index:02}", 40 - index % 20) for index in range(2 * READ_ASKS_MAX)]
    asked = racing.known(header(41, ("leader", 41), *lines))
    assert len(asked) == READ_ASKS_MAX
    oldest = sorted(lines, key=lambda line: line[1])[:READ_ASKS_MAX]
    assert set(asked) == {writer for writer, _ in oldest}
    assert len(racing.known(header(41, (ME, 41), *lines))) == len(lines), "the leader reads all"
    assert len(racing.known(header(41, ("leader", 41), *lines[: READ_ASKS_MAX - 1]))) == READ_ASKS_MAX
    racing.listed(header(41, ("leader", 41), *lines), [writer for writer, _ in lines])
    assert len(racing.known(header(41, ("leader", 41), *lines))) == READ_ASKS_MAX, "they are no newcomers"


def led(sharing: Sharing, found: int, version: int = 21, lines: int = 2) -> Header:
    """The header of an own commit that carried so many asks."""
    mine = header(version, (ME, version), *((f"w{index}", version - 1) for index in range(lines)))
    sharing.committed(mine, found)
    return mine


def test_who_stays_reads_asks_ahead_as_long_as_it_has_not_twice_its_share(racing: Sharing) -> None:
    assert not racing.reads_ahead(header(20, *OTHERS), 2), "another has committed last"
    mine = led(racing, 2)
    assert racing.reads_ahead(mine, 2)
    assert not racing.reads_ahead(mine, 0), "nobody has asked"
    version, greedy = 22, 0
    while racing.reads_ahead(mine, 1):
        mine, version, greedy = led(racing, 0, version), version + 1, greedy + 1
    assert 1 <= greedy <= AHEAD_MEMORY_COMMITS, "it has committed, and carried nothing"
    racing.carried(header(version, ("w1", version), (ME, version), carried=[ME]))
    assert not racing.reads_ahead(led(racing, 1, version + 1), 0)


def test_who_stays_reads_nothing_ahead_where_it_lingers_or_pauses(racing: Sharing, clock: Any) -> None:
    mine = led(racing, 2)
    racing.turns.commit_s = LINGER_COMMIT_S_MIN
    assert not racing.reads_ahead(mine, 2)
    racing.turns.commit_s = 0.02
    assert racing.reads_ahead(mine, 2)
    pause(racing.turns, clock, 1)
    assert not racing.reads_ahead(mine, 2)


def test_asks_that_were_read_ahead_count_for_the_next_header_and_not_for_long(racing: Sharing, clock: Any) -> None:
    racing.read_ahead(21)
    assert racing.has_read_ahead(led(racing, 2, 21))
    assert not racing.has_read_ahead(header(21, ("w1", 21), (ME, 20))), "another's commit"
    clock[0] += racing.turns.commit_s * CARRIED_COMMITS
    assert not racing.has_read_ahead(header(21, (ME, 21)))
    assert not racing.has_read_ahead(led(racing, 2, 22))


def test_the_asks_of_who_was_carried_by_the_last_commit_are_not_read_at_once(racing: Sharing, clock: Any) -> None:
    mine = header(21, (ME, 21), ("a", 21), ("b", 20))
    racing.committed(mine, 1)
    assert racing.just_carried(mine) == {ME, "a"}
    assert racing.just_carried(header(21, (ME, 20), ("a", 21))) == set(), "another's commit"
    clock[0] += racing.turns.commit_s * CARRIED_COMMITS
    assert racing.just_carried(mine) == set()


def test_who_has_carried_asks_lingers_for_a_commits_time_where_that_is_long(racing: Sharing, clock: Any) -> None:
    racing.turns.commit_s = LINGER_COMMIT_S_MIN
    racing.committed(header(21, (ME, 21)), LINGER_FOUND_MIN - 1)
    assert racing.linger_s() == 0
    racing.committed(header(22, (ME, 22)), LINGER_FOUND_MIN)
    assert racing.linger_s() == pytest.approx(LINGER_COMMIT_S_MIN)
    clock[0] += 0.005
    assert racing.linger_s() == pytest.approx(LINGER_COMMIT_S_MIN - 0.005)
    racing.turns.commit_s /= 2
    assert racing.linger_s() == 0


def test_a_writer_that_nobody_looks_for_hopes_only_where_the_last_commit_was_a_sharers(racing: Sharing) -> None:
    assert racing.hopes(header(20, *OTHERS))
    assert not racing.hopes(header(20, (ME, 19), *OTHERS)), "its ask is looked for"
    assert not racing.hopes(header(20, *OTHERS, is_plain=False))
    many = [f"w{index}" for index in range(CARRIED_LINES_MAX)]
    assert racing.hopes(header(20, *((writer, 19) for writer in many[1:]), carried=many))
    assert not racing.hopes(header(20, *((writer, 19) for writer in many), carried=many)), "no line is left for it"


# -- whole runs --------------------------------------------------------------------------------------------------------


@functools.cache
def run(load: Load, *, shares: bool) -> Figures:
    with mock.patch.object(simulation, "Client", functools.partial(Client, share_commits=shares)):
        return simulate(load)


@pytest.mark.parametrize(
    ("writers", "gain_min"),
    [
        (4, 1.2),
        pytest.param(8, 2.0, marks=pytest.mark.slow),
        pytest.param(32, 5.0, marks=pytest.mark.slow),
        pytest.param(60, 5.0, marks=pytest.mark.slow),
    ],
)
def test_many_writers_commit_more_than_one(writers: int, gain_min: float) -> None:
    duration_s = 5 if writers == 4 else 12 if writers < 32 else 6
    one = run(Load(1, duration_s=duration_s), shares=True)
    found = run(Load(writers, duration_s=duration_s), shares=True)
    assert found.rate_per_s >= gain_min * one.rate_per_s
    assert found.p99_ms <= 3 * found.median_ms
    assert found.least_share >= 0.5


def test_a_writer_alone_costs_what_it_costs_without_asks_but_for_a_listing_now_and_then() -> None:
    found, turns = (run(Load(1, duration_s=4), shares=shares) for shares in (True, False))
    assert found.requests - turns.requests <= 0.011
    assert found.median_ms == pytest.approx(turns.median_ms, rel=0.02)


def test_a_writer_beside_one_other_is_quicker_than_without_asks() -> None:
    found, turns = (run(Load(2, duration_s=10), shares=shares) for shares in (True, False))
    assert found.rate_per_s >= 1.2 * turns.rate_per_s
    assert found.least_share >= 0.5


@pytest.mark.parametrize("writers", [8, 16])
def test_where_all_delays_are_equal_sharing_begins_all_the_same(writers: int) -> None:
    """Who commits back to back wins every race there, and does not learn from a lost one that others wait."""
    equal = Latencies(60, jitter_ms=0.01, slow_share=0)
    one, found = (run(Load(count, latencies=equal, duration_s=6), shares=True) for count in (1, writers))
    assert found.rate_per_s >= 2 * one.rate_per_s
    assert found.least_share >= 0.5
    assert not found.errors


@pytest.mark.slow
def test_far_away_16_writers_commit_three_times_as_often_as_one() -> None:
    far = Latencies(60)
    one, many = (run(Load(writers, latencies=far, duration_s=30), shares=True) for writers in (1, 16))
    assert many.rate_per_s >= 3 * one.rate_per_s


@pytest.mark.slow
@pytest.mark.parametrize("pause_s", [0.3, 1.0])
def test_writers_that_pause_wait_hardly_longer_than_with_turns(pause_s: float) -> None:
    load = Load(8, pause_s)
    found, turns = run(load, shares=True), run(load, shares=False)
    assert found.median_ms <= PAUSING_RATIO_MAX * turns.median_ms
    assert found.p99_ms <= PAUSING_RATIO_MAX * turns.p99_ms
