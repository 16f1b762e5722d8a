"""What a commit is made of: who commits, what for, what was prepared, and what came of it."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from rollingfs.chunks import Stored
from rollingfs.clock import Moment
from rollingfs.header import Drop, Entry, Header, Mark, Page
from rollingfs.headers import Loaded
from rollingfs.runtime import Lock
from rollingfs.turns import Turns


@dataclass
class Attempt:
    """What one commit has prepared so far, kept across its attempts."""

    path: str
    number: int
    began: Moment
    deadline_s: float
    """By the monotonic clock."""
    fresh: bool = False
    """Whether the base that `step` is given was read for this commit."""
    base: Loaded | None = None
    """What the newest attempt was conditioned on."""
    uploads: dict[tuple[bytes, int], Stored] = field(default_factory=dict)
    """Chunks written for this commit, by their bytes and which of several equal ones they are."""
    renewed: dict[Stored, Stored] = field(default_factory=dict)
    pages: dict[tuple[Entry, ...], Page] = field(default_factory=dict)
    named: set[str] = field(default_factory=set)
    """Files that an attempt which was sent has named: from then on only collection may delete them."""
    count: int = 0
    gone: int = 0
    """How often an index page was gone although the header was fresh."""


Step = Callable[[Loaded, Attempt], Awaitable[Header | None]]
"""From what is there, the header that should be there (not stamped), or None if it is there already."""

Resolver = Callable[[str, Header], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Committed:
    """What a commit found and left."""

    base: Header | None
    header: Header | None


class Slot:
    """One segment as this writer sees it: at most one commit is in flight."""

    def __init__(self, lock: Lock, turns: Turns) -> None:
        self.lock = lock
        self.turns = turns
        self.done_drops: set[Drop] = set()
        self.settled: set[Mark] = set()


class Writer:
    """The identity of a client instance: an id, and a counter that never goes back.

    A forked, unpickled or copied client takes a new id, because two writers with one id could take each
    other's commits for their own.
    """

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        self.id = uuid.uuid4().hex
        self._numbers = itertools.count(1)

    def next_number(self) -> int:
        return next(self._numbers)
