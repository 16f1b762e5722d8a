"""What a commit is made of: who commits, what for, what was prepared, and what came of it."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Awaitable, Callable, Sequence, Set
from dataclasses import dataclass, field

from rollingfs.commit.chunk_files import Chunks, Stored
from rollingfs.commit.fairness import Turns
from rollingfs.commit.header_cache import Loaded
from rollingfs.commit.uploads import Uploads
from rollingfs.format.header import Drop, Entry, Header, Mark, Page
from rollingfs.runtime.clock import Moment
from rollingfs.runtime.concurrency import Lock


@dataclass
class Attempt:
    """What one commit has prepared so far, kept across its attempts."""

    path: str
    number: int
    began: Moment
    deadline_s: float
    """By the monotonic clock."""
    own: Uploads
    """The files that the commit itself has written."""
    carried: Sequence[Uploads] = ()
    """The files that its callers have written for it."""
    fresh: bool = False
    """Whether the base that `step` is given was read for this commit."""
    base: Loaded | None = None
    """What the newest attempt was conditioned on."""
    wanted: Header | None = None
    """What the newest attempt would make."""
    is_open: bool = False
    """Whether an attempt was sent of which it is not known that it did not, and will not, take place."""
    written: dict[tuple[bytes, int], Stored] = field(default_factory=dict)
    """Chunks written for this commit, by their bytes and which of several equal ones they are."""
    pages: dict[tuple[Entry, ...], Page] = field(default_factory=dict)
    count: int = 0
    gone: int = 0
    """How often an index page was gone although the header was fresh."""
    _renewed: dict[Stored, Stored] = field(default_factory=dict)

    def send(self, base: Loaded, wanted: Header, files: Set[str]) -> None:
        """Note, before it is sent, what an attempt is conditioned on, what it would make and which files it names."""
        for uploads in (self.own, *self.carried):
            uploads.name(files)
        self.base, self.wanted, self.is_open = base, wanted, True

    def keep(self, key: tuple[bytes, int], stored: Stored) -> Stored:
        """Keep a chunk that was written for this commit, for the attempts to come."""
        if self.written.get(key) is not stored:
            self.own.add([stored])
        self.written[key] = stored
        return stored

    async def young(self, chunks: Chunks, stored: Stored, store_now: float | None = None) -> Stored:
        """A chunk that the commit was given, or the copy that it has made because the chunk was too old."""
        known = self._renewed.get(stored, stored)
        renewed = await chunks.young(known, store_now)
        if renewed is not known:
            self._renewed[stored] = renewed
            if not renewed.staged:  # what is staged, only collection deletes
                self.own.add([renewed])
        return renewed


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
