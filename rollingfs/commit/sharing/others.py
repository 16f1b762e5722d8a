"""What a writer knows of those with which it shares commits, and what it does about it. Speed and fairness only.

What is committed never depends on what is decided here. A *cycle* is the time of one look and one commit.
"""

from __future__ import annotations

import random
from collections.abc import Collection

from rollingfs.commit.fairness import Turns
from rollingfs.format.header import Header

KNOWN_VERSIONS = 32
"""A writer reads the asks of those that have a line of this many last versions.

100 writers that never pause each have one of the last 5; writers that are gone cost a request each until then.
"""
ALONE_COMMITS = 8
"""After this many own commits without a sign of others, a writer is alone: it neither asks nor reads asks."""
LIST_COMMITS_MIN = 4
"""Own commits from a sign of others to the first listing of asks; each listing makes the number four times as large.

Of 8 writers that begin together 60 ms away, where all requests take equally long, only this shows the others.
"""
LIST_COMMITS_MAX = 128
"""Most own commits from one listing to the next: a lone writer sends 1.01 requests for an append."""
QUIET_CYCLES = 3.0
"""After half of this many cycles without a new version up to all of them, at random, an asker competes.

With twice as many, writers that pause 0.3 s (8, 12 ms away) had a 99th percentile of 437 ms, and now have 300.
"""
PASSED_VERSIONS_MAX = 8
"""After this many versions that did not carry its ask, an asker competes: nobody reads it."""
CARRYING_VERSIONS = 2
"""Others carry asks if one of this many last versions has carried one.

With 1, the slowest of 8 writers that never pause waited twice as long; with 4, so did those that pause.
"""
LOSSES_MAX = 3
"""After this many lost races a writer asks even if it sees nobody carry asks: a writer that wins lists them.

With 2, writers that pause 1 s (8, 12 ms away) had a 99th percentile of 163 ms; with 3, 105.
"""
LOOK_SHARE = 0.2
"""An asker pauses for this part of a cycle between two looks: 8 writers send 3.5 requests for an append."""


class Others:
    """One writer's view of those with which it shares commits to one segment."""

    def __init__(self, turns: Turns) -> None:
        self.turns = turns
        self.newcomers: frozenset[str] = frozenset()
        """Writers without a young line that the last listing has shown."""
        self._lone_commits = ALONE_COMMITS
        """Own commits in a row without a sign of others."""
        self._until_list = self._list_commits = LIST_COMMITS_MIN
        self._look_s = 0.0

    # -- what was seen -----------------------------------------------------------------------------------------

    def met(self) -> None:
        """Note a sign of others: a lost race, an ask that was carried."""
        self._lone_commits = 0
        self.turns.meet()

    def lost(self) -> None:
        """Note a race that another writer has won: asks are listed beside the next commit."""
        self._until_list, self._list_commits = min(self._until_list, LIST_COMMITS_MIN), LIST_COMMITS_MIN

    def committed(self, carried: int) -> None:
        """Note an own commit, which carried this many asks."""
        self._lone_commits += 1
        self._until_list -= 1
        if carried:
            self.met()

    def listed(self, writers: Collection[str], header: Header) -> None:
        """Note the writers of all young asks, as a listing beside the commit that replaces this header shows them."""
        self.newcomers = frozenset(writers) - {self.turns.writer, *self.known(header)}
        self._until_list = self._list_commits
        if self.is_alone:
            self._list_commits = min(4 * self._list_commits, LIST_COMMITS_MAX)
        if self.newcomers:
            self.met()
            self._until_list = self._list_commits = LIST_COMMITS_MIN

    def looked(self, seconds: float) -> None:
        """Note how long a look took."""
        self._look_s = (self._look_s + seconds) / 2 if self._look_s else seconds

    # -- what to do --------------------------------------------------------------------------------------------

    @property
    def is_alone(self) -> bool:
        """Whether nobody else has committed or asked of late."""
        return self._lone_commits >= ALONE_COMMITS

    def are_carrying(self, header: Header) -> bool:
        """Whether asks are carried just now."""
        since = header.version - CARRYING_VERSIONS
        return any(line.version > since for line in header.carried)

    def leads(self, header: Header) -> bool:
        """Whether this writer made the last commit, and so knows the token."""
        mine = header.commit_of(self.turns.writer)
        return mine is not None and mine.version == header.version and mine.offset is None

    @property
    def must_list(self) -> bool:
        """Whether this writer lists all asks beside its commit."""
        return self._until_list <= 0

    def known(self, header: Header) -> list[str]:
        """The other writers whose asks are looked for."""
        since = header.version - KNOWN_VERSIONS
        lines = (line for line in header.commits if line.version > since and line.writer != self.turns.writer)
        return [*(line.writer for line in lines), *self.newcomers]

    @property
    def look_s(self) -> float:
        """How long a look takes, in seconds."""
        return self._look_s or self.turns.commit_s

    @property
    def cycle_s(self) -> float:
        """The time of a look and a commit, in seconds."""
        return (self.turns.commit_s or self.look_s) + self.look_s

    @property
    def patience_s(self) -> float:
        """How long a header is believed, and a listing beside a commit is waited for, in seconds."""
        return QUIET_CYCLES * self.cycle_s

    @property
    def look_pause_s(self) -> float:
        """The pause from one look to the next, in seconds."""
        return LOOK_SHARE * self.cycle_s

    def quiet_s(self) -> float:
        """How long an asker waits for a new version, in seconds."""
        return self.patience_s * random.uniform(0.5, 1)
