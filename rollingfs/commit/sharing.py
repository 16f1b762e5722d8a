"""When a writer asks others to carry its bytes, waits for that, or commits itself. Speed and fairness only.

Commit lines say who commits, and whose bytes others carried. What is committed never depends on what is decided here.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Collection
from heapq import nsmallest

from rollingfs.commit.fairness import RIVAL_VERSIONS, Turns
from rollingfs.format.asks import has_room
from rollingfs.format.header import Commit, Header
from rollingfs.runtime.concurrency import BACKOFF_S_MAX

KNOWN_VERSIONS = 32
"""The asks of writers are read that have a line of so many last versions."""
READ_ASKS_MAX = 16
"""Who has not committed last reads so many asks at most: each of many losers would read those of all."""
ALONE_COMMITS = 8
"""After so many own commits in a row that found no ask, a writer no longer looks for asks."""
LIST_COMMITS_FIRST = 4
"""Beside its commit of this number, a writer lists all asks: it may win every race, and not know that others wait.

It does so once more after as many: those that began together have lost their first race by then, and have asked. (MinIO
tells some losers after 0.1 s.)
"""
LIST_COMMITS_ALONE = 336
"""Own commits from one listing of asks to the next, for a writer alone."""
LIST_ALONE_S_MAX = 20.0
"""Far away, it lists after so much time of commits: a newcomer that loses every race gives up after 60 s."""
LIST_COMMITS_SHARED = 8
"""The same for a writer that shares: it looks for newcomers.

After the last sign of others, the number doubles from this to that of a writer alone.
"""
LIST_SHARE = 1 / 32
"""Listings that delay commits take at most this part of their time."""
CARRIED_COMMITS = 0.5
"""In this part of a commit's time, nobody whose bytes were carried has looked and asked again."""
AHEAD_SHARE_MAX = 1.9
"""Who has this part of its fair share of the appends does not read asks ahead: it would get more."""
AHEAD_MEMORY_COMMITS = 8
"""That share is one of about so many own commits."""
AHEAD_COMMITS_MAX = 1.5
"""The reading of asks beside a commit takes at most so many times as long as a commit."""
LINGER_FOUND_MIN = 2
"""A commit that carried so many asks is followed by a pause: those whose bytes it carried may ask again."""
LINGER_COMMITS = 1.0
"""The time from a commit to the reading of asks for the next, in commit times: a look, and a request that asks."""
LINGER_COMMIT_S_MIN = 0.04
"""Where a commit is quicker, nobody lingers: there the differences between processes are as long as the pause."""
OTHERS_PER_CYCLE_MIN = 0.2
"""A writer waits only if others commit at least so often in the time of a look and a commit."""
RECENT_CYCLES = 3
"""A header that was seen so many cycles ago is believed."""
QUIET_CYCLES = (3.0, 6.0)
"""After a time between these without a new version, a writer that waits competes."""
PASSED_VERSIONS_MAX = 8
"""After so many versions that did not carry its ask, a writer competes."""
HOPED_VERSIONS_MAX = 4
"""The same for a writer that nobody looks for: who commits may list its ask."""
FIRST_LOOK_S_MAX = 0.1
"""Who has asked looks after the time of a look, at most so long: a commit that carries the ask takes longer."""
FIRST_LOOK_SHARE = 0.5
"""Where it notes how long its asks wait: not before this part of that time."""
LOOK_PAUSE_S_MAX = 0.01
LOOK_SHARE = 0.25
"""From a look to the next, a writer pauses for this part of a cycle, and at most for the time above."""
CARRYING_SHARE_MIN = 0.25
"""A writer waits only if so many of the last lines are of carried asks, for each line of a commit."""
CARRYING_SHARE_MIN_PAUSING = 1.0
"""The same for a writer that usually pauses for longer than a cycle: among such, most commit without reading asks."""
RATE_CYCLES = 8
"""The rate of others' commits is an average over about so many cycles."""
NEWCOMER_CYCLES = (4.0, 16.0)
"""A writer that nobody looks for, among many, pauses up to a time between these, at random, before it tries."""
NEWCOMER_CYCLES_PER_LOSS = 4.0
NEWCOMER_LOSSES = 3
"""After so many lost races, a writer that nobody looks for pauses among any number of writers."""
STALE_COMMITS = 0.5
"""A writer looks before it tries if others have probably committed this often since its last look."""


class Sharing:
    """One writer's view of those with which it shares commits to one segment."""

    def __init__(self, turns: Turns) -> None:
        self.turns = turns
        self._writer = turns.writer
        self._empty_commits = ALONE_COMMITS
        """The number of own commits in a row that found no ask."""
        self._found = 0
        """The number of asks that the last own commit found."""
        self._own_commits = 0.0
        """The number of own commits of late, since another has committed."""
        self._carried_asks = 0.0
        """How many asks so many own commits have carried."""
        self._ahead_version = 0
        """The version of the own header beside whose commit the asks for the next commit were read."""
        self._until_list = LIST_COMMITS_FIRST - 1
        """The number of own commits before one with a listing of asks beside it."""
        self._list_commits = LIST_COMMITS_FIRST
        """The number of own commits from the next such listing to the one after it, for a writer alone."""
        self._newcomers: frozenset[str] = frozenset()
        """Writers that a listing has shown."""
        self._newcomer_commits = 0
        """For so many own commits, their asks are looked for."""
        self._version = 0
        self._segment = ""
        self._seen_s = 0.0
        self._look_s = 0.0
        self._wait_s = 0.0
        self._others = 0.0
        self._span_s = 0.0

    # -- what was seen -----------------------------------------------------------------------------------------

    def lost(self) -> None:
        """Note that another was first."""
        self._meet()
        self._follow()
        self._until_list = 0

    def _meet(self) -> None:
        self._empty_commits = 0
        self._list_commits = LIST_COMMITS_SHARED

    def _follow(self) -> None:
        """Note that another commits."""
        self._own_commits = self._carried_asks = 0.0

    def committed(self, header: Header, found: int) -> None:
        """Note an own commit, which found so many asks."""
        self._own_commits += 1 - self._own_commits / AHEAD_MEMORY_COMMITS
        self._carried_asks += found - self._carried_asks / AHEAD_MEMORY_COMMITS
        self._empty_commits += 1
        if found:
            self._meet()
        self._found = found
        self._until_list -= 1
        self._newcomer_commits -= 1
        if self._newcomer_commits <= 0:
            self._newcomers = frozenset()
        self.saw(header, own=1)

    def carried(self, header: Header) -> None:
        """Note that another's commit carried the own bytes."""
        self._meet()
        self._follow()
        self.turns.carried(header)
        self.saw(header)

    def listed(self, header: Header, writers: Collection[str], delay_s: float = 0.0) -> None:
        """Note the writers of all young asks, as a listing beside the commit that replaces this header shows them.

        Parameters
        ----------
        delay_s
            For so many seconds, the listing has delayed what comes after the commit.
        """
        newcomers = frozenset(writers) - {self._writer, *(line.writer for line in self._heard(header))}
        if newcomers:
            self._newcomers, self._newcomer_commits = newcomers, 2  # this commit, and the next
            self._meet()  # before the next listing is due: who was alone shares from now on
            self.turns.meet()
        commits = self._list_commits if self.is_alone else LIST_COMMITS_SHARED
        is_first = commits == LIST_COMMITS_FIRST
        self._list_commits = LIST_COMMITS_ALONE if is_first else min(2 * commits, LIST_COMMITS_ALONE)
        dear = delay_s / (self.turns.commit_s * LIST_SHARE) if self.turns.commit_s else 0.0
        most = math.ceil(LIST_ALONE_S_MAX / self.turns.commit_s) if self.turns.commit_s else commits
        self._until_list = max(min(commits, most), math.ceil(dear))

    def waited(self, seconds: float) -> None:
        """Note how long it took from the writing of an ask until its bytes were seen to be carried."""
        self._wait_s = (self._wait_s + seconds) / 2 if self._wait_s else seconds

    def looked(self, header: Header | None, seconds: float) -> None:
        """Note a look, and how long it took."""
        self._look_s = (self._look_s + seconds) / 2 if self._look_s else seconds
        if header is not None:
            self.saw(header)

    def saw(self, header: Header, *, own: int = 0) -> None:
        """Note a header that is there now."""
        self.saw_version(header.segment, header.version, own=own)

    def saw_version(self, segment: str, version: int, *, own: int = 0) -> None:
        """Note the version of a header that is there now."""
        now_s = time.monotonic()
        if segment != self._segment or version < self._version:
            self._segment, self._others, self._span_s = segment, 0.0, 0.0
        elif self._version:
            elapsed_s = now_s - self._seen_s
            kept = math.exp(-elapsed_s / (RATE_CYCLES * self.cycle_s)) if self.cycle_s else 0.0
            self._others = self._others * kept + max(0, version - self._version - own)
            self._span_s = self._span_s * kept + elapsed_s
        self._version, self._seen_s = version, now_s

    @property
    def cycle_s(self) -> float:
        """The time of a look and a commit, in seconds."""
        return (self.turns.commit_s or self._look_s) + self._look_s

    @property
    def _others_per_s(self) -> float:
        return self._others / self._span_s if self._span_s else 0.0

    # -- what to do ----------------------------------------------------------------------------------------------

    @property
    def is_alone(self) -> bool:
        """Whether nobody else has committed or asked of late."""
        return self._empty_commits >= ALONE_COMMITS

    def is_shared(self, header: Header | None) -> bool:
        """Whether so many writers commit that asks are worth their requests, and this one was not alone of late."""
        if header is None or self.is_alone:
            return False
        if self._newcomers:
            return True
        others = self._heard(header, RIVAL_VERSIONS)
        if len(others) != 1:
            return bool(others)
        # a commit after the floor is a sharer's plain append; two of which one commits otherwise, or pauses, take turns
        return others[0].version > header.floor and not self._usually_pauses

    @property
    def pauses(self) -> bool:
        """Whether this writer usually lets much time pass between two appends, and has before this one.

        Then a look and another try are quicker than an ask. One long pause is remembered for some appends, so the usual
        one alone does not tell.
        """
        return min(self.turns.away_s, self.turns.newest_away_s) > RECENT_CYCLES * self.cycle_s

    def known(self, header: Header) -> list[str]:
        """The other writers whose asks are looked for, by who commits last: all; by others, those that wait longest."""
        lines = self._heard(header)
        newcomers = sorted(self._newcomers.difference(line.writer for line in lines))
        if len(lines) > READ_ASKS_MAX and not self.stays(header):
            lines = nsmallest(READ_ASKS_MAX, lines, key=lambda line: line.version)
        return [*(line.writer for line in lines), *newcomers]

    @property
    def _usually_pauses(self) -> bool:
        return self.turns.away_s > self.cycle_s

    def _heard(self, header: Header, versions: int = KNOWN_VERSIONS) -> list[Commit]:
        """The lines of the others that have committed, or were carried, in so many last versions."""
        since = header.version - versions
        return [line for line in header.commits if line.version > since and line.writer != self._writer]

    def just_carried(self, header: Header) -> set[str]:
        """The writers whose bytes this one has carried so short a time ago that they cannot have asked again."""
        if not self._has_just_committed(header):
            return set()
        return {line.writer for line in header.commits if line.version == header.version}

    def reads_ahead(self, header: Header, found: int) -> bool:
        """Whether this writer reads the asks for its next commit beside the one that replaces this header.

        Parameters
        ----------
        found
            The number of asks that this commit carries.
        """
        if not found or not self.stays(header) or self.turns.commit_s >= LINGER_COMMIT_S_MIN or self.pauses:
            return False
        own, carried = self._own_commits + 1, self._carried_asks + found
        return own * (len(self._heard(header)) + 1) <= AHEAD_SHARE_MAX * (own + carried)

    @property
    def ahead_s(self) -> float:
        """How long the reading of asks beside a commit may take, in seconds."""
        return self.turns.commit_s * AHEAD_COMMITS_MAX

    def read_ahead(self, version: int) -> None:
        """Note the version of an own header, beside whose commit the asks for the next were read."""
        self._ahead_version = version

    def has_read_ahead(self, header: Header) -> bool:
        """Whether the asks for the commit that replaces this header were read a short time ago."""
        return header.version == self._ahead_version and not self._newcomers and self._has_just_committed(header)

    def _has_just_committed(self, header: Header) -> bool:
        return self.stays(header) and time.monotonic() - self._seen_s < CARRIED_COMMITS * self.turns.commit_s

    def lists(self, header: Header | None) -> bool:
        """Whether this writer lists all asks beside the commit that replaces this header."""
        if header is None or self._until_list > 0 or self.pauses:
            return False
        return self.is_alone or (self.is_shared(header) and has_room(header))

    def stays(self, header: Header) -> bool:
        """Whether this writer made the last commit, and so knows the token."""
        mine = header.commit_of(self._writer)
        return mine is not None and mine.version == header.version and mine.offset is None

    def linger_s(self) -> float:
        """How long the writer of the last commit waits, in seconds, before it reads the asks for the next."""
        commit_s = self.turns.commit_s
        if self._found < LINGER_FOUND_MIN or commit_s < LINGER_COMMIT_S_MIN:
            return 0.0
        return max(0.0, LINGER_COMMITS * commit_s - (time.monotonic() - self._seen_s))

    def is_recent(self, header: Header) -> bool:
        """Whether this header was seen so short a time ago that it is believed."""
        return header.version == self._version and time.monotonic() - self._seen_s < RECENT_CYCLES * self.cycle_s

    def is_stale(self, header: Header) -> bool:
        """Whether others probably have replaced this header, which was seen some time ago."""
        return header.version != self._version or (
            self._others_per_s * (time.monotonic() - self._seen_s) >= STALE_COMMITS
        )

    def waits(self, header: Header) -> bool:
        """Whether another writer, which knows asks, will probably carry this one's bytes soon."""
        if header.asks is None or self.stays(header):
            return False  # who committed last knows no asks, or will not append plainly again
        if self.is_unheard(header):
            return False
        lines = [line for line in header.commits if line.version > header.version - RIVAL_VERSIONS]
        carried = sum(line.offset is not None for line in lines)
        share_min = CARRYING_SHARE_MIN_PAUSING if self._usually_pauses else CARRYING_SHARE_MIN
        is_carrying = carried >= share_min * (len(lines) - carried)
        return is_carrying and self._others_per_s * self.cycle_s >= OTHERS_PER_CYCLE_MIN

    def hopes(self, header: Header) -> bool:
        """Whether this writer, which nobody looks for and which has asked, leaves others the time to list its ask."""
        return self.is_unheard(header) and header.asks is not None and has_room(header)

    def is_unheard(self, header: Header) -> bool:
        """Whether nobody would look for an ask of this writer: it has no young line."""
        mine = header.commit_of(self._writer)
        return mine is None or mine.version <= header.version - KNOWN_VERSIONS

    def is_outside(self, header: Header, losses: int) -> bool:
        """Whether this writer is unheard where nobody has room for its line, or has lost races as one."""
        return self.is_unheard(header) and (losses >= NEWCOMER_LOSSES or not has_room(header))

    def newcomer_pause_s(self, header: Header, losses: int, times: int) -> float:
        """How long a writer that is outside leaves the segment to the others, in seconds, before it tries.

        The pauses of who has come in vain so many `times` before are shorter, so that nobody starves.
        """
        cycles = max(NEWCOMER_CYCLES[0], NEWCOMER_CYCLES[1] / (1 + times))
        if has_room(header):
            cycles = min(cycles, NEWCOMER_CYCLES_PER_LOSS * losses)
        return min(BACKOFF_S_MAX, self.cycle_s * random.uniform(0, cycles))

    def quiet_s(self, times: int) -> float:
        """How long a writer waits for a new version, in seconds, when it has waited in vain so many times before."""
        return self.cycle_s * random.uniform(*QUIET_CYCLES) * 2.0**times

    @property
    def first_look_s(self) -> float:
        """How long a writer that has asked waits, in seconds, before it looks."""
        return min(FIRST_LOOK_S_MAX, max(self._look_s or self.cycle_s / 2, self._wait_s * FIRST_LOOK_SHARE))

    @property
    def look_pause_s(self) -> float:
        return min(LOOK_PAUSE_S_MAX, self.cycle_s * LOOK_SHARE)
