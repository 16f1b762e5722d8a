"""Turns among several writers of one segment, without a word between them: by when each committed last.

Left alone, the writer that has just committed commits again: the others must load the header before they try, and when
their attempts arrive it has been replaced once more. So they take turns: commit lines say who else commits just now,
and whose last commit is the oldest goes next; the others wait one commit's time for each before them. Who was last
may stay now and then: two commits by one cost less time than a change.

Only who has just lost a race, or has seen others commit while it waited, takes turns: writers that come one after the
other do not wait. Pauses are for fairness and for fewer vain requests only: what is committed never depends on them.

A commit that takes long to prepare, as that of a concat of many sources, would lose for ever to a single writer of
small appends, which never loses and so never waits. It asks for the next commit by a line in the header, written by a
commit that is as quick as theirs; who sees that line waits until it is gone, but not for long.
"""

from __future__ import annotations

import random
import time

from rollingfs.format.header import Header
from rollingfs.runtime.concurrency import BACKOFF_S_MAX, backoff_s

RIVAL_VERSIONS = 16
"""Who has committed among so many versions is believed to go on."""
STAY_PROBABILITY = 0.25
RACE_TURNS = 320
"""For the time of so many turns after a race was lost or seen, it is believed to go on."""
LOOKS_MAX = 4
"""How often a writer looks whose turn it is before it tries all the same."""
SAME_LOOKS_MAX = 2
"""After so many looks at the same header, those whose turn it was are believed to have stopped."""
NEWCOMER_LOSSES_MAX = 3
"""Who has never committed yet, and gives way to nobody, pauses no longer than after so many losses: 40 ms."""
ASKED_S_MAX = 5.0
"""So long is waited for a writer that has asked for the next commit: it may be dead."""
ASKED_PAUSE_S_MIN = 0.01
JITTER = 0.2
"""Of a pause, at most so much is added."""


class Turns:
    """One writer's turns at one segment.

    Parameters
    ----------
    writer : str
        Its id.
    """

    def __init__(self, writer: str) -> None:
        self.writer = writer
        self.commit_s = 0.0
        """How long a request takes that replaces the header, by the last ones."""
        self.together = 1
        """How many appends of this writer were there when the last group of them was done."""
        self._look_s = 0.0
        self._same_looks = 0
        self._quiet_version = 0
        self._race_until_s = 0.0
        self._asked_version = 0
        self._asked_s = 0.0

    def is_asked(self, header: Header | None) -> bool:
        """Whether another has asked for the next commit, not long ago by the clock of who sees it."""
        if header is None or header.turn in (None, self.writer):
            return False
        if self._asked_version != header.version:
            self._asked_version, self._asked_s = header.version, time.monotonic()
        return time.monotonic() - self._asked_s < ASKED_S_MAX

    @property
    def asked_pause_s(self) -> float:
        """How long to wait before the look whether who has asked is done."""
        return min(BACKOFF_S_MAX, max(ASKED_PAUSE_S_MIN, self.commit_s + self._look_s))

    def took(self, seconds: float) -> None:
        """Note how long a request took that replaced the header."""
        self.commit_s = (self.commit_s + seconds) / 2 if self.commit_s else seconds

    def looked(self, before: Header | None, now: Header | None, seconds: float) -> None:
        """Note how long a look took, and whether anybody has committed since the one before it."""
        self._look_s = (self._look_s + seconds) / 2 if self._look_s else seconds
        is_same = before is not None and now is not None and before.version == now.version
        self._same_looks = self._same_looks + 1 if is_same else 0
        if not is_same:
            self._race_goes_on()
        if now is not None and self._same_looks >= SAME_LOOKS_MAX:
            self._quiet_version = now.version  # those before us have stopped

    def _race_goes_on(self) -> None:
        self._race_until_s = time.monotonic() + RACE_TURNS * (self.commit_s + self._look_s)

    def before_me(self, header: Header | None) -> int:
        """How many others, who commit just now, have waited longer since their last commit."""
        if header is None:
            return 0
        mine = header.commit_of(self.writer)
        since = max(header.version - RIVAL_VERSIONS, self._quiet_version)
        last = since if mine is None else mine.version
        return sum(since < line.version < last for line in header.commits)

    def way_s(self, header: Header | None) -> float:
        """A pause, in seconds, before another look: for others whose turn it is; 0 if it is one's own."""
        others = self.before_me(header) if time.monotonic() < self._race_until_s else 0
        if not others or header is None:
            return 0.0
        mine = header.commit_of(self.writer)
        if mine is not None and mine.version == header.version and random.random() < STAY_PROBABILITY:
            return 0.0
        return self._turn_s(others)

    def pause_s(self, header: Header | None, losses: int) -> float:
        """A pause, in seconds, before the look after loss 1, 2, … against a commit based on `header`."""
        self._race_goes_on()
        others = self.before_me(header)
        if others:
            return self._turn_s(others)
        if self.commit_s:
            return random.uniform(0, min(BACKOFF_S_MAX, self.commit_s * losses * JITTER))
        return backoff_s(min(losses, NEWCOMER_LOSSES_MAX))

    def _turn_s(self, others: int) -> float:
        """How long so many others need for a look and a commit each; one's own look may be under way by then."""
        pause_s = others * (self.commit_s + self._look_s) - self._look_s
        return min(BACKOFF_S_MAX, pause_s * random.uniform(1, 1 + JITTER))
