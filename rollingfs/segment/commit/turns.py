"""Turns: a client sends a single commit at a time to each segment, and its writers take turns.

Without turns, the writer that has just committed commits again: the others must load the header before they try, and
when their attempts arrive it has been replaced once more. So writers take turns, and need no other messages than the
commit lines: these show who else commits just now. The writer whose last commit is the oldest goes next; each of the
others waits a commit's time for every writer before it. The last writer stays at times: two commits by a writer
cost less time than a change of writers.

The time that a writer usually lets pass between two of its commits counts as waited: the others go since. So
writers that do not saturate the segment do not wait. But such a writer looks before it tries, if others probably have
committed since it last did: its attempt would be in vain.

A writer takes turns only after it has lost a race, or has seen others commit while it waited: writers that come in
sequence do not wait. The content of a commit never depends on a pause: pauses make it fair, and spare requests.

A commit that takes long to prepare, as a concat of many sources does, would lose for ever to a single writer of
small appends, which never loses and so never waits. So its writer claims the next turn by a line in the header,
written by a commit that is as quick as an append. Writers that see this line wait until it is gone, but not for long.
"""

from __future__ import annotations

import itertools
import math
import random
import threading
import time
import uuid
import weakref
from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from rollingfs.format.drops import clear_drops
from rollingfs.format.header import COMMITS_MAX, Drop, Header, MergeOutcome
from rollingfs.format.merging import settle
from rollingfs.runtime.concurrency import BACKOFF_S_MAX, Lock, Runtime, backoff_s
from rollingfs.segment.segment import Segment

RIVAL_VERSIONS = 16
"""A writer among this many last versions is believed to go on. With 64, p99 of 8 writers was 15 % longer."""
STAY_PROBABILITY = 0.25
"""With 0, 8 writers made 24 appends a second instead of 29."""
RACE_TURNS = 320
"""A writer keeps taking turns for this many commit times after the last race that it lost or saw."""
LOOKS_MAX = 4
"""After this many looks at whose turn it is, a writer tries in any case.

With 1, the 99th of 100 appends of two writers took 400 ms instead of 170 (simulated, 12 ms away).
"""
SAME_LOOKS_MAX = 2
"""After this many looks at the same header, the writers whose turn it was are believed to have stopped.

Without this, the 99th of 100 appends of 8 writers that pause 0.3 s took 280 ms instead of 240.
"""
NEWCOMER_LOSSES_MAX = 3
"""A writer that has never committed, and gives way to no writer, pauses as after this many losses at most: 40 ms.

Without this, some of 100 writers starve.
"""
CLAIMED_S_MAX = 5.0
"""Other writers wait this long for a writer that has claimed the next turn: that writer may be dead."""
CLAIMED_PAUSE_S_MIN = 0.01
JITTER = 0.2
"""Maximum part of a pause that is added to it at random."""
LEARNED_SHARE = 0.25
"""The weight of the newest observation in the averages of pauses and of others' commits."""
AWAY_CYCLES_MAX = 128
"""Changes of writers that the longest counted pause stands for, so that a long pause is soon forgotten.

Without the average of pauses, the 99th of 100 appends of 8 writers that pause 1 s took 650 ms instead of 90.
"""
STALE_COMMITS = 0.5
"""A writer looks before it tries if the others have probably committed this often since it last did.

Without the look, the median of 8 writers that pause 0.3 s was 59 ms instead of 42.
"""
TICK_S = time.get_clock_info("monotonic").resolution
"""Commits within a tick of the clock, 15.6 ms on Windows, have the same time."""
FIRST_AGE_S_MAX = 1.0
"""Time for which a writer that has committed once believes a header of others."""
SLOTS_MAX = 1024
"""Maximum segments for which a client remembers the speed of commits, and the lines whose work is done: a deleted
segment may never see the commit that clears them. A forgotten entry is done once more, by the next commit or
collection.
"""


class Turns:
    """A writer's turns at a segment.

    Parameters
    ----------
    writer : str
        Its id.
    """

    def __init__(self, writer: str) -> None:
        self.writer = writer
        self.commit_s = 0.0
        """The average time of the last requests that replaced the header."""
        self.together = 1
        """The number of this client's appends when its last group of appends was done."""
        self._look_s = 0.0
        self._away_s: float | None = None
        """The average time from this writer's commits to its next operations."""
        self._others_per_s = 0.0
        """The average rate of the others' commits."""
        self._crowd_per_s: float | None = None
        """The rate of the others' commits between this writer's last two commits, or None."""
        self._done_version = 0
        self._done_s = 0.0
        self._same_looks = 0
        self._quiet_version = 0
        self._race_until_s = 0.0
        self._claimed_version = 0
        self._claimed_s = 0.0

    def is_claimed(self, seen: Header | Segment | None) -> bool:
        """Return whether another writer has claimed the next turn, not long ago by this client's clock."""
        if seen is None or seen.turn in (None, self.writer):
            return False
        if self._claimed_version != seen.version:
            self._claimed_version, self._claimed_s = seen.version, time.monotonic()
        return time.monotonic() - self._claimed_s < CLAIMED_S_MAX

    @property
    def claimed_pause_s(self) -> float:
        """Return a pause, in seconds, before the look whether the writer that has claimed a turn is done."""
        return min(BACKOFF_S_MAX, max(CLAIMED_PAUSE_S_MIN, self._cycle_s))

    def begin(self) -> None:
        """Note that an operation begins, which may wait for turns."""
        if self._done_version:
            away_s = min(time.monotonic() - self._done_s, AWAY_CYCLES_MAX * (self.commit_s + self._look_s))
            average_s = away_s if self._away_s is None else self._away_s
            self._away_s = average_s + (away_s - average_s) * LEARNED_SHARE

    def took(self, seconds: float, version: int) -> None:
        """Note the version that a request of this writer has made, and how long the request took."""
        self.commit_s = (self.commit_s + seconds) / 2 if self.commit_s else seconds
        now_s, others = time.monotonic(), version - self._done_version - 1
        apart_s = max(now_s - self._done_s, self.commit_s, TICK_S)
        self._crowd_per_s = others / apart_s if self._done_version else None
        if self._crowd_per_s is not None and others >= 0:
            self._others_per_s += (self._crowd_per_s - self._others_per_s) * LEARNED_SHARE
        self._done_version, self._done_s = version, now_s

    @property
    def _cycle_s(self) -> float:
        """Return how long a change of writers takes."""
        return self.commit_s + self._look_s

    def looked(self, before: Header | Segment | None, now: Header | Segment | None, seconds: float) -> None:
        """Note how long a look took, and whether a commit came since the look before."""
        self._look_s = (self._look_s + seconds) / 2 if self._look_s else seconds
        is_same = before is not None and now is not None and before.version == now.version
        self._same_looks = self._same_looks + 1 if is_same else 0
        if is_same:
            self._others_per_s /= 2
        else:
            self.meet()
        if now is not None and self._same_looks >= SAME_LOOKS_MAX:
            self._quiet_version = now.version  # the writers before this one have stopped

    def meet(self) -> None:
        """Note that others want to commit: the race goes on."""
        self._race_until_s = time.monotonic() + RACE_TURNS * self._cycle_s

    @property
    def is_racing(self) -> bool:
        """Return whether others commit just now."""
        return time.monotonic() < self._race_until_s

    def before_me(self, header: Header | None) -> int:
        """Return the number of active writers that have waited longer than this writer since their last commit."""
        if header is None:
            return 0
        mine = header.commit_of(self.writer)
        since = max(header.version - RIVAL_VERSIONS, self._quiet_version)
        last = since if mine is None else mine.version
        return sum(since < line.version < last for line in header.commits)

    @property
    def believed_s(self) -> float:
        """Return the seconds for which this writer believes a header.

        Later the line of a commit on it may soon be evicted.

        A writer that has committed once does not know yet how many others there are.
        """
        if self._done_version and self._crowd_per_s is None:
            return FIRST_AGE_S_MAX
        return COMMITS_MAX / 2 / self._crowd_per_s if self._crowd_per_s else math.inf

    def turn_wait_s(self, header: Header | None, *, fresh: bool, prompt: bool = False) -> float | None:
        """Return the pause in seconds for the writers before this writer, or None.

        Parameters
        ----------
        fresh
            Whether the header was read for this operation.
        prompt
            Whether this writer gives way to no other.
        """
        if header is None:
            return None
        is_stale = not fresh and self.is_stale(header)
        others = self.before_me(header) if not prompt and time.monotonic() < self._race_until_s else 0
        if others:
            mine = header.commit_of(self.writer)
            is_last = mine is not None and mine.version == header.version
            if not (is_last and not is_stale and random.random() < STAY_PROBABILITY):
                turn_s = self._turn_s(header, others)
                if turn_s > 0:
                    return turn_s
        return 0.0 if is_stale else None

    def is_stale(self, seen: Header | Segment) -> bool:
        """Return whether others probably have replaced the header that this writer's last commit made."""
        if not self._others_per_s or seen.version != self._done_version:
            return False
        return self._others_per_s * (time.monotonic() - self._done_s) >= STALE_COMMITS

    def pause_s(self, header: Header | None, losses: int) -> float:
        """Return a pause, in seconds, before the look after loss 1, 2, … against a commit based on `header`."""
        self.meet()
        others = self.before_me(header)
        turn_s = self._turn_s(header, others) if header is not None and others else 0.0
        if turn_s > 0:
            return turn_s
        if self.commit_s:
            return random.uniform(0, min(BACKOFF_S_MAX, self.commit_s * losses * JITTER))
        return backoff_s(min(losses, NEWCOMER_LOSSES_MAX))

    def _turn_s(self, header: Header, others: int) -> float:
        """Return the time of a look and a commit for each other writer, less an own look.

        The time between this writer's operations counts as waited.
        """
        pause_s = others * self._cycle_s - self._look_s - (self._away_s or 0.0)
        return min(BACKOFF_S_MAX, pause_s * random.uniform(1, 1 + JITTER))


class Slot:
    """A segment as this client writes it: at most a single commit is in flight."""

    def __init__(self, path: str, lock: Lock, turns: Turns) -> None:
        self.path = path
        self.lock = lock
        self.turns = turns
        self.queue: deque[Any] = deque()
        """The appends that wait for it; whoever changes this has the lock of all slots."""
        self.may_lose: bool | None = None
        """Whether the store may lose what it acknowledges; None before the first question."""
        self.is_able = False
        """Whether the store of this segment, which loses nothing, is known to take conditional writes."""
        self.is_led = False
        """Whether a thread leads the others."""
        self.free_s = 0.0
        """Time of the next commit on a store that limits writes, by the monotonic clock."""
        self.done_drops: set[Drop] = set()
        self.settled: set[MergeOutcome] = set()

    def cleared(self, base: Segment) -> Segment:
        """Return what was loaded, without the lines that the next commit leaves out: their work is done."""
        header = base.header
        if header is None or not (self.done_drops or self.settled or header.turn is not None):
            return base
        header = settle(clear_drops(header, self.done_drops), self.settled)
        return Segment(base.path, replace(header, turn=None), base.token, room=base.room)


class Slots:
    """The slots of a client, and its identity: an id, and a counter that never goes back.

    A forked, unpickled or copied client takes a new id, because two writers with the same id could take each
    other's commits for their own.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.after_fork()

    def after_fork(self) -> None:
        """Begin again in a child process, as another writer with free locks."""
        self.writer = uuid.uuid4().hex
        self.numbers = itertools.count(1)
        """Gives the number of each operation."""
        self._slots: OrderedDict[str, Slot] = OrderedDict()
        self._in_use: weakref.WeakValueDictionary[str, Slot] = weakref.WeakValueDictionary()
        """Slots that a commit holds stay: a segment has a single slot at any time."""
        # reentrant, as all locks that are taken without a slot: garbage collection within may log, and a handler append
        self.lock = threading.RLock()

    def of(self, path: str) -> Slot:
        """Return the slot of a segment in this client."""
        with self.lock:
            slot = self._slots.get(path)
            if slot is not None:
                self._slots.move_to_end(path)
                return slot
            slot = self._in_use.get(path) or Slot(path, self._runtime.lock(path), Turns(self.writer))
            self._slots[path] = self._in_use[path] = slot
            if len(self._slots) > SLOTS_MAX:
                self._slots.popitem(last=False)
            return slot

    def remember(
        self, path: str, *, drops: Iterable[Drop] = (), marks: Iterable[MergeOutcome] = (), header: Header | None = None
    ) -> None:
        """Let the next commit clear these lines, whose work is done.

        Parameters
        ----------
        header
            Forget drops of before that this header does not have.
        """
        slot = self.of(path)
        with self.lock:
            if header is not None:
                slot.done_drops.intersection_update(header.drops)
            slot.done_drops.update(drops)
            slot.settled.update(marks)

    def committed(self, slot: Slot, header: Header) -> None:
        """Forget the lines that a commit has cleared."""
        with self.lock:
            slot.done_drops.intersection_update(header.drops)
            slot.settled.intersection_update({*header.merges, *header.aborts})
