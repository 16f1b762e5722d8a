"""The change that is wanted, the attempts to commit it, and the verdict of a header on them."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from rollingfs.errors import AppendOutcomeUnknown, CommitTimeoutError, CorruptHeaderError
from rollingfs.format import names
from rollingfs.format.commit_lines import Acknowledged
from rollingfs.format.header import AGE_S_MAX, COMMITS_MAX, RECORDS_MAX, Header
from rollingfs.format.records import Record, Tip
from rollingfs.runtime.system import Moment
from rollingfs.runtime.values import cached, value_class
from rollingfs.segment.commit.chunk_files import NewFiles, Uploads
from rollingfs.segment.commit.store import Store
from rollingfs.segment.commit.turns import LOOKS_MAX, Turns
from rollingfs.segment.segment import Grown, Segment

logger = logging.getLogger("rollingfs")

LAST_LOOK_S = 1.0
"""A look at the header may take this long even at the deadline: it shows that a conflict has written no byte."""
BELIEVED_S_MAX = 60.0
"""No commit is based on a header of many writers that is older than this: too many may have committed since."""
REQUEST_SHARE = 1 / 3
"""Share of a commit's time for a single request; a look at the header needs the rest."""


class Verdict(Enum):
    """Verdict of the present header on an attempt to replace its predecessor."""

    MINE = "it took place"
    SAME = "it has not taken place, but still may"
    NOT_MINE = "it did not take place and never will"
    UNKNOWN = "nothing can be said"


def judge(base: Header | Segment | None, same: bool, current: Header | None, writer: str, number: int) -> Verdict:
    """Return whether operation `number` of `writer`, conditioned on `base`, took place.

    Parameters
    ----------
    base
        The header that the attempt would have replaced; or None.
    same
        Whether the file still has the token of the attempt's condition.
    current
        The header that is there now; None without a file (or for an empty file).
    """
    if same:
        return Verdict.SAME
    if current is None:
        return Verdict.UNKNOWN
    base_version = base.version if base else 0
    mine = current.commit_of(writer)
    if mine is not None and mine.number == number:
        return Verdict.MINE
    if current.version <= base_version or (mine is not None and mine.number > number):
        return Verdict.UNKNOWN
    if mine is None and current.evicted > base_version:
        return Verdict.UNKNOWN  # with a line of mine, it has not gone: it says what it said before
    return Verdict.NOT_MINE


def is_crowded(base: Header | None) -> bool:
    """Return whether the line of a commit after `base` may soon be evicted."""
    if base is None:
        return False
    return sum(line.version > base.version - COMMITS_MAX for line in base.commits) > COMMITS_MAX // 2


@value_class
class Committed:
    """The segment before and after a commit; the same value if no commit was needed."""

    before: Segment
    after: Segment

    @property
    def base(self) -> Header | None:
        """Return the header before the commit."""
        return self.before.header

    @property
    def header(self) -> Header | None:
        """Return the header after the commit."""
        return self.after.header

    @property
    def made(self) -> Header:
        """Return the header that is there, of a commit whose step always leaves a header."""
        header = self.after.header
        assert header is not None
        return header


@dataclass(eq=False, repr=False)
class Change:
    """A change of a segment, before its commit."""

    path: str
    """The segment."""
    step: Step
    """Called once for each header that the commit may be conditioned on."""
    deadline_s: float
    """When the commit gives up, by the monotonic clock."""
    fresh: bool = False
    """Whether to load the header first, rather than to begin with the header as last seen."""
    seen: Segment | None = None
    """A header of the segment that the caller has seen, to begin with where the cache has lost it."""
    uploads: Sequence[Uploads] = ()
    """The files written for this change: each attempt notes its files here before it is sent."""
    slow: bool = False
    """Whether `step` is so slow that others may win every race: the commit then asks them to wait."""
    prompt: bool = False
    """Whether the commit never waits for a turn: while it waits, its condition can only become false."""

    def plain(self, base: Segment, now_ms: int) -> bytes | None:
        """Return the bytes that may come after a header at a time, and after bytes that their writer does not know of.

        None: `step` must decide.
        """
        return None


@value_class
class Sent:
    """A request for the next header: a whole file, or a record that is put after the header before."""

    base: Segment
    """The header before."""
    wanted: Header | None = None
    """The next header; None for a record."""
    data: bytes = b""
    """The file of that header."""
    named: frozenset[str] = frozenset()
    """The files that it names, also those that its new index pages list."""
    record: tuple[Record, Tip] | None = None
    """The record, and the tip after it."""
    is_plain: bool = False
    """Whether the record may follow other records that came after its base."""


@dataclass(eq=False, repr=False)
class Attempt:
    """The attempts to commit an operation, in their order: a change as its commit line names it.

    It refers neither to the change nor to the slot: a step that keeps its attempt must not keep these from being freed.
    """

    path: str
    """The segment."""
    writer: str
    """The id of the client that commits."""
    number: int
    """Of the operation, by this writer's count."""
    deadline_s: float
    """When the commit gives up, by the monotonic clock."""
    began: Moment
    store: Store
    turns: Turns
    timeout_s: float
    uploads: Sequence[Uploads] = ()
    """The files that were written for the change."""
    prompt: bool = False
    """Whether it never waits for a turn."""
    sent: Sent | None = None
    """The newest request, if it took place, or may still take place."""
    fresh: bool = False
    """Whether the base that `step` is given was read for this commit."""
    adapted: tuple[Segment, tuple[Record, Tip]] | None = None
    """The header file with such records, or another, and the record after them, with the tip then."""
    may_lose: bool = False
    """Whether the store may lose what it acknowledges: it is no kernel of this machine that decides who wins."""
    has_turns: bool = False
    """Whether the store lets it look and change the header before anybody else changes that."""
    took_turn: bool = False
    """Whether it has asked for that, so that its turn may have to be given up."""
    count: int = 0
    """The number of requests to replace the header that were sent."""
    gone: int = 0
    """The number of times that an index page was missing although the header was fresh."""

    @cached
    def files(self) -> NewFiles:
        """The files of the change; a plain append has none, and so does not make this."""
        return NewFiles(self.store, self.path, self.uploads)

    def judge(self, current: Segment, *, may_be_gone: bool = True) -> Verdict:
        """Return the verdict of a look at the header on the newest attempt.

        Parameters
        ----------
        may_be_gone
            Whether the attempt may have made a header that was moved or deleted whole since, where the store does that.
        """
        assert self.sent is not None
        base = self.sent.base
        is_same = current.token == base.token
        found = None if is_same else current.header
        verdict = judge(base, is_same, found, self.writer, self.number)
        if verdict is Verdict.NOT_MINE and may_be_gone and self.store.backend.capability.removes_whole:
            ours = {header.segment for header in (base.text, self.sent.wanted) if header is not None}
            if found is not None and found.segment not in ours:
                return Verdict.UNKNOWN  # the attempt's segment may have been moved or deleted, with the commit's line
        return verdict

    def adapt(self, plain: Plain, others: bytes, token: str | None) -> bytes | None:
        """Return the record after later records on its base, or after another header, of this token, in its place.

        None: a look must judge it again, in a turn where the store has turns.
        """
        assert self.sent is not None
        assert self.sent.record is not None
        self.turns.meet()
        record, _ = self.sent.record
        base = self._later(self.sent.base, others) if token is None else self._instead(plain, others, token)
        if base is not None and base.text is not None:
            adapted = base.tip.record(self.writer, self.number, record.at_ms, record.data)
            if adapted is not None:
                self.adapted = base, adapted
                return adapted[0].encode(base.text.segment)
        self.took_turn = self.took_turn or self.has_turns
        return None

    def _later(self, base: Segment, others: bytes) -> Segment | None:
        text = base.text
        if text is None:
            return None
        tip = base.tip.behind(others, text.segment, self.writer)
        return Grown(base, others, tip) if tip is not None else None

    def _instead(self, plain: Plain, content: bytes, token: str) -> Segment | None:
        """Return another header, if a record may follow on it, and the newest attempt did not make it."""
        try:
            found = self.store.headers.parsed(self.path, token, content)
        except CorruptHeaderError:
            return None
        is_free = self.judge(found) is Verdict.NOT_MINE and plain(found, self.store.now_ms())
        return found if is_free else None

    def result(self, token: str | None = None) -> Committed:
        """Return the commit of the newest attempt; other records before its own belong to its base.

        Parameters
        ----------
        token
            The token of what it made; None if a look has shown that: others may have gone on before the look.
        """
        assert self.sent is not None
        base, record = self.adapted or (self.sent.base, self.sent.record)
        if record is not None:
            return Committed(base, Grown(base, *record, token))
        return Committed(base, Segment(self.path, self.sent.wanted, token, room=RECORDS_MAX))

    def acknowledged(self, done: Committed) -> Acknowledged:
        """Return the commit as the client remembers it where the store may lose it."""
        return Acknowledged.of(done.base, done.made, self.writer, self.number, time.monotonic())

    def left_s(self) -> float:
        """Return the seconds that are left for the commit."""
        if self.began.age_s(self.store.clock) > AGE_S_MAX:
            return 0.0
        return self.deadline_s - time.monotonic()

    def share_s(self) -> float:
        """Return the seconds for a request; the first may take its whole share, however slow its chunks were."""
        share_s = self.timeout_s * REQUEST_SHARE
        is_first = self.count == 1 and self.began.age_s(self.store.clock) <= AGE_S_MAX
        return share_s if is_first else min(self.left_s(), share_s)

    async def load(self) -> Segment:
        """Return the header to begin with, read within the time that is left."""
        try:
            load = self.store.headers.load(self.path)
            return await self.store.runtime.limit(load, max(self.left_s(), LAST_LOOK_S))
        except TimeoutError as error:
            raise CommitTimeoutError(
                f"{self.path}: the store did not give its header in time ({error!r}); nothing was written"
            ) from error

    # -- what it is based on -----------------------------------------------------------------------------

    def believed(self, seen: Segment, given: Segment | None) -> Segment | None:
        """Return the header as last seen, or given, unless that was long ago, or many writers commit here.

        An attempt on an old header of many writers would fail anyway, and its commit line could be evicted. Then the
        client could not see that it failed. A segment that was collected and made again is such a case, too.
        """
        headers, path = self.store.headers, self.path
        if seen.header is None:
            return seen
        if seen is not given and headers.recent(path, AGE_S_MAX) is None:
            return None
        is_alone = all(line.writer == self.writer for line in seen.header.commits)
        is_first = seen is given and self.turns.believed_s == math.inf  # none of its own lines can go
        if not (is_alone or is_first) and headers.recent(path, self.turns.believed_s) is None:
            return None
        if len(seen.header.commits) <= COMMITS_MAX // 2:
            return seen
        is_old = headers.recent(path, BELIEVED_S_MAX) is None
        return None if is_old or is_crowded(seen.header) else seen

    async def in_turn(self, base: Segment) -> Segment:
        """Return the header to base an attempt on, once it is this writer's turn."""
        turns, sleep = self.turns, self.store.runtime.sleep
        if not self.count:
            turns.begin()
        if base.turn == self.writer:
            return base
        if self.has_turns:
            base = await self._ahead(base)
        while turns.is_claimed(base) and self.left_s() > self.timeout_s * (1 - REQUEST_SHARE):
            self.end_turn()
            await sleep(turns.claimed_pause_s)
            base, self.fresh = await self.load(), True
            if self.has_turns:
                base = await self._ahead(base)
        if self.has_turns:
            return base
        for _ in range(LOOKS_MAX):
            turn_wait_s = turns.turn_wait_s(base.header, fresh=self.fresh, prompt=self.prompt)
            if turn_wait_s is None or self.left_s() <= turn_wait_s:
                break
            await sleep(turn_wait_s)
            began = time.monotonic()
            now = await self.load()
            turns.looked(base, now, time.monotonic() - began)
            base, self.fresh = now, True
        return base

    async def _ahead(self, base: Segment) -> Segment:
        """Return the header to base an attempt on; with other writers, the present header in our turn.

        A commit that ends without a change gives its turn up in `Commits.commit_held`.
        """
        turns, store = self.turns, self.store
        if not (self.count or turns.is_racing or turns.is_stale(base)):
            return base
        began, self.took_turn = time.monotonic(), True
        try:
            turn = store.backend.take_turn(names.header_path(self.path))
            await store.runtime.limit(turn, self.share_s())
        except OSError as error:  # the attempt meets it, too, and has it judged
            logger.debug("%s: it takes no turn: %s", self.path, error)
            return base
        now, self.fresh = await self.load(), True
        turns.looked(base, now, time.monotonic() - began)
        return now

    def end_turn(self) -> None:
        """Let others change the header, if this commit's turn still keeps them out."""
        self.store.backend.end_turn(names.header_path(self.path))


Plain = Callable[[Segment, int], bytes | None]
"""`Change.plain`."""
Step = Callable[[Segment, Attempt], Awaitable[Header | None]]
"""Makes the wanted header (not stamped) from the present header; None if that is as wanted already."""


def check_time(attempt: Attempt, *, is_void: bool, cause: Exception | None = None) -> None:
    """Raise the error for the caller if there is no time for another request.

    Parameters
    ----------
    is_void
        Whether no request sent so far can still take effect.

    Raises
    ------
    CommitTimeoutError
        No request can.
    AppendOutcomeUnknown
        A request may.
    """
    if attempt.left_s() > 0:
        return
    path, timeout_s = attempt.path, attempt.timeout_s
    if not is_void:
        why = (
            f"{attempt.count} requests in {timeout_s} s were not confirmed, the last: {cause!r}; "
            "the header has not changed so far, but one of them may still arrive"
        )
        raise unknown(path, why) from cause
    raced = f"other writers were faster {attempt.count} times"
    raise CommitTimeoutError(f"{path}: {cause or raced}; nothing was written within {timeout_s} s") from cause


def unknown(path: str, why: str) -> AppendOutcomeUnknown:
    """Return the error for a commit with an unknown outcome."""
    return AppendOutcomeUnknown(
        f"{path}: whether the commit took place is unknown ({why}); read the segment before repeating it"
    )
