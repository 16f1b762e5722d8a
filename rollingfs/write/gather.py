"""Appends: several that wait for the same segment are gathered into one commit.

The first thread that gets the segment's slot leads: it commits for all that wait. A thread that comes meanwhile waits
for its outcome, or for its turn to lead, and not for the slot: a lock of threads is not fair, so the next leader would
often be faster than those whose outcome is known, and they would append again one commit late.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from rollingfs.commit.attempt import Attempt, Change, Plain
from rollingfs.commit.chunk_files import Stored
from rollingfs.commit.commits import Commits
from rollingfs.commit.fairness import Slot
from rollingfs.commit.header_cache import Loaded
from rollingfs.commit.operation import Committed
from rollingfs.commit.uploads import Uploads
from rollingfs.errors import AppendInterrupted, AppendOutcomeUnknown, CommitTimeoutError, RollingError, interrupted
from rollingfs.format import asks, transitions
from rollingfs.format.asks import ASK_BYTES_MAX
from rollingfs.format.header import Header
from rollingfs.format.placement import Item
from rollingfs.format.transitions import Attrs, Guard
from rollingfs.runtime.logs import keeper
from rollingfs.runtime.values import value_class
from rollingfs.write.grow import as_items, grow, size_of

GROUP_APPENDS_MAX = 1024
GROUP_BYTES_MAX = 16 * 1024 * 1024
LINGER_SHARE = 0.4
"""The share of a commit's time that a leader waits for callers who were just answered and may append again."""
WAKE_S_MAX = 1.0
"""A thread that nobody has woken for so long leads: the leader may have been interrupted before it called the next."""
LINGER_STEP_SHARE = 0.05
"""The share of that time after which the leader looks whether they are there."""


@value_class
class Written:
    """An append that took place."""

    offset: int
    """Where its data begins."""
    header: Header
    """The header that its commit made, or met if there was nothing to do."""


Outcome = Written | Exception


@dataclass(eq=False, repr=False)
class Append:
    """One caller's append. It waits in the queue, or a group has it, or its outcome is known."""

    data: Sequence[bytes | Stored]
    guard: Guard = field(default_factory=Guard)
    attrs: Attrs = field(default_factory=dict)
    uploads: Uploads | None = None
    """The chunk files among its data that were uploaded for this append."""
    deadline_s: float = 0.0
    """When the append gives up, by the monotonic clock."""
    group: _Group | None = None
    """The newest group that has taken it out of the queue."""
    gate: threading.Lock = field(default_factory=threading.Lock)
    """Its thread waits here; who lets it on has the lock of the appender."""

    def let_on(self) -> None:
        """Wake its thread, now or when that waits the next time."""
        if self.gate.locked():
            self.gate.release()

    @property
    def inline_size(self) -> int:
        return sum(len(item) for item in self.data if isinstance(item, bytes))

    @property
    def is_plain(self) -> bool:
        """Whether it has no condition but the incarnation, and no attributes: then clients may share its commit."""
        guard = self.guard
        offsets = guard.expected_offset, guard.expected_start
        return not (guard.epoch is not None or offsets != (None, None) or guard.expected_attrs or self.attrs)

    def joins(self, other: Append) -> bool:
        """Whether both may be asked for as one: the bytes of an ask stay together."""
        return self.is_plain == other.is_plain and (not self.is_plain or self.guard.segment == other.guard.segment)

    @property
    def outcome(self) -> Outcome | None:
        """Its outcome; None while the outcome is unknown."""
        outcomes = self.group.outcomes if self.group is not None else None
        return outcomes.get(self) if outcomes is not None else None

    @property
    def is_waiting(self) -> bool:
        """Whether no attempt to commit it is under way, and none has taken place."""
        outcomes = self.group.outcomes if self.group is not None else {}
        return outcomes is not None and self not in outcomes


class Appender:
    """Gathers appends, one queue for each segment."""

    def __init__(self, commits: Commits) -> None:
        self._commits = commits
        self._runtime = commits.store.runtime
        self._shares = commits.sharing is not None
        self._queues: dict[str, deque[Append]] = {}
        self._led: set[str] = set()
        """Segments for which a leader is at work."""
        # reentrant, as all locks that are taken without a slot: garbage collection within may log, and a handler append
        self._lock = threading.RLock()

    def after_fork(self) -> None:
        """In a child process: nobody waits, and nobody holds the lock."""
        self._queues, self._led = {}, set()
        self._lock = threading.RLock()

    async def append(self, path: str, append: Append) -> Written:
        """Commit an append, alone or with others. The caller shields this from cancellation.

        Raises
        ------
        AppendOutcomeUnknown
            Whether it took place cannot be said.
        RollingError, FileNotFoundError
            Its guard, or the segment's state, forbids it; nothing was written.
        """
        append.deadline_s = time.monotonic() + self._commits.timeout_s
        slot = self._commits.slots.of(path)
        try:
            with self._lock:
                self._queues.setdefault(path, deque()).append(append)
                # a thread that is in the middle of a commit is told by the slot what it must not do
                waits = path in self._led and not (self._runtime.is_async or keeper().is_holding)
                self._led.add(path)
                if waits:
                    append.gate.acquire()
            if waits:
                await self._runtime.wait(append.gate, WAKE_S_MAX)
            outcome = append.outcome if waits else None
            while outcome is None:
                await self._lead(path, slot, append)
                outcome = append.outcome
            if isinstance(outcome, Written):
                return outcome
            raise outcome
        except BaseException as error:  # noqa: BLE001 - judged there
            return self._leave(path, append, error)

    async def _lead(self, path: str, slot: Slot, append: Append) -> None:
        try:
            await slot.lock.run(partial(self._commit_group, path, slot, append))
        except transitions.MergeFoundError as found:
            await self._commits.settle(path, found, append.deadline_s)
        finally:
            with self._lock:
                self._call_next(path)

    def _leave(self, path: str, append: Append, error: BaseException) -> Written:
        """What is known of an append whose caller breaks off; takes it out of the queue.

        Raises
        ------
        BaseException
            The error itself, or what it means for the append.
        """
        with self._lock:
            queue = self._queues.get(path, deque())
            if append in queue:
                queue.remove(append)
            is_waiting, outcome = append.is_waiting, append.outcome
            if not queue:
                self._queues.pop(path, None)
            self._call_next(path)
        if isinstance(error, KeyboardInterrupt):
            raise interrupted(path, _verdict(outcome, is_waiting)) from error
        if isinstance(outcome, Written):
            return outcome
        if outcome is not None or (is_waiting and isinstance(error, Exception)):
            raise outcome or error
        raise _unknown(path, error) from error

    def _call_next(self, path: str) -> None:
        """Let the first that waits lead; the caller, who has the lock, leads no more."""
        if queue := self._queues.get(path):
            queue[0].let_on()
        else:
            self._led.discard(path)

    async def _linger(self, path: str, slot: Slot) -> None:
        """Wait for as many appends as there were last time; otherwise threads split into two groups that take turns."""
        linger_s = slot.turns.commit_s * LINGER_SHARE
        until_s = time.monotonic() + linger_s
        while self._waiting(path) < slot.turns.together and time.monotonic() < until_s:
            await self._runtime.sleep(linger_s * LINGER_STEP_SHARE)

    def _waiting(self, path: str) -> int:
        return len(self._queues.get(path, ()))

    async def _commit_group(self, path: str, slot: Slot, leader: Append) -> None:
        """Commit for all that wait, unless another leader has committed the leader's append meanwhile."""
        if leader.group is not None:
            self._recover(path, leader)
            if leader.outcome is not None:
                return
        if self._commits.interval_s:
            await self._commits.wait_for_store(slot, leader.deadline_s)
        if slot.turns.together > 1:
            await self._linger(path, slot)
        group = _Group(path, leader)
        committed: Committed | None = None
        try:
            self._take(path, slot, group)
            plain, deadline_s, uploads = group.plain if self._shares else None, leader.deadline_s, group.uploads
            large, prompt, anywhere = group.is_large, group.is_prompt, group.size if group.is_plain else None
            change = Change(path, group.step, deadline_s, large, None, uploads, False, prompt, plain, anywhere)
            committed = await self._commits.commit_held(slot, change)
            self._finish(path, group, group.succeeded(committed))
        except transitions.MergeFoundError:
            self._finish(path, group, {})
            raise
        except BaseException as error:
            outcomes = group.failed(error) if committed is None else group.succeeded(committed)
            self._finish(path, group, outcomes)
            if not group.members or not isinstance(error, Exception):
                raise
        finally:
            slot.turns.together = len(group.members) + len(self._queues.get(path, ()))

    def _take(self, path: str, slot: Slot, group: _Group) -> None:
        """Move appends from the queue into a group.

        A leader may die between any two statements here and in `_finish`. Then an append whose outcome is known may
        stay in the queue, and one without an outcome may be missing: its own thread puts that right (`_recover`).
        """
        size, shares = 0, self._shares
        size_max = ASK_BYTES_MAX if shares and slot.turns.is_racing else GROUP_BYTES_MAX
        with self._lock:
            queue = self._queues.get(path, deque())
            while queue and len(group.members) < GROUP_APPENDS_MAX:
                append = queue[0]
                if append.group is None or append.outcome is None:
                    if group.members or len(queue) > 1:
                        size += append.inline_size
                    if group.members and size > size_max:
                        break
                    if shares and group.members and not append.joins(group.members[0]):
                        break
                    group.add(append)
                queue.popleft()
            if not queue:
                self._queues.pop(path, None)

    def _finish(self, path: str, group: _Group, outcomes: Mapping[Append, Outcome]) -> None:
        """Publish the outcomes of a group, all at once; appends without an outcome wait again, at the front."""
        with self._lock:
            group.outcomes = outcomes
            for append in outcomes:
                if append is not group.leader:  # its thread is here
                    append.let_on()
            if len(outcomes) == len(group.members):
                return
            waiting = [one for one in group.members if one.group is group and one not in outcomes]
            if waiting:
                queue = self._queues.setdefault(path, deque())
                there = set(queue)
                queue.extendleft(one for one in reversed(waiting) if one not in there)

    def _recover(self, path: str, append: Append) -> None:
        """Repair an append after its last leader broke off. The caller holds the slot, so no leader is at work."""
        group = append.group
        if group is not None and group.outcomes is None:
            self._finish(path, group, group.failed(_unknown(path, None)) if group.is_open else {})
        with self._lock:
            if append.outcome is None and append not in self._queues.get(path, ()):
                self._queues.setdefault(path, deque()).appendleft(append)


def _unknown(path: str, cause: BaseException | None) -> AppendOutcomeUnknown:
    why = f"was interrupted by {cause!r}" if cause is not None else "was interrupted"
    return AppendOutcomeUnknown(f"{path}: the commit of this append {why}; read the segment before repeating it")


def _verdict(outcome: Outcome | None, is_waiting: bool) -> str:
    """What the error after Ctrl-C says of an append."""
    if isinstance(outcome, Written):
        return "committed"
    if is_waiting or (outcome is not None and not isinstance(outcome, AppendOutcomeUnknown)):
        return "not committed"
    return "unknown"  # another thread is committing it


class _Group:
    """A group of appends as one step of the commit loop.

    Attributes
    ----------
    members : list
        In the order of their bytes.
    outcomes : mapping or None
        None while its leader is at work. An append that is not in it waits again.
    """

    def __init__(self, path: str, leader: Append) -> None:
        self.path = path
        self.leader = leader
        self.members: list[Append] = []
        self.uploads: list[Uploads] = []
        self.is_large = False
        """Whether chunk files were uploaded for it: then its commit begins with a fresh header. If that forbids the
        append, no attempt has named the files, and they can go; beside an upload the request is cheap."""
        self.is_prompt = False
        """Whether one of its appends is meant for one offset, which others reach meanwhile."""
        self.is_plain = True
        """Whether no append has a condition or attributes."""
        self.outcomes: Mapping[Append, Outcome] | None = None
        self._attempt: Attempt | None = None
        self._offsets: dict[Append, int] = {}
        self._refused: dict[Append, Exception] = {}
        self._base: Header | None = None
        """The base that the offsets are meant for."""

    def add(self, append: Append) -> None:
        """Take an append in, which still is in the queue."""
        self.members.append(append)
        append.group = self
        self.is_large = self.is_large or Stored in map(type, append.data)
        self.is_prompt = self.is_prompt or append.guard.expected_offset is not None
        self.is_plain = self.is_plain and append.is_plain
        if append.uploads:
            self.uploads.append(append.uploads)

    def size(self) -> int:
        """Bytes of its appends, without those in chunk files."""
        return sum(append.inline_size for append in self.members)

    @property
    def plain(self) -> Plain | None:
        """What others may know of the group; None if one of its appends has a condition or attributes."""
        if not self.is_plain:
            return None
        items = [item for append in self.members for item in append.data]
        data = b"".join(item for item in items if isinstance(item, bytes))
        is_small = 1 <= len(data) <= ASK_BYTES_MAX and not self.is_large
        return Plain(data if is_small else None, self.members[0].guard.segment, self._begin)

    def _begin(self, attempt: Attempt) -> None:
        self._attempt = attempt

    @property
    def is_open(self) -> bool:
        """Whether an attempt or an ask was sent that took place, or may have."""
        return self._attempt is not None and self._attempt.is_out

    def _carried(self, committed: Committed) -> Mapping[Append, Outcome]:
        """The outcomes of a group whose bytes another writer's commit has carried."""
        outcomes: dict[Append, Outcome] = {}
        offset, header = committed.offset, committed.header
        assert offset is not None
        assert header is not None
        for append in self.members:
            outcomes[append] = Written(offset, header)
            offset += append.inline_size
        return outcomes

    def succeeded(self, committed: Committed) -> Mapping[Append, Outcome]:
        """The outcomes of a commit that took place, or that had nothing to do."""
        if committed.offset is not None:
            return self._carried(committed)
        outcomes: dict[Append, Outcome] = dict(self._refused)
        moved = 0
        if committed.base is not None and self._base is not None and committed.base is not self._base:
            moved = committed.base.length - self._base.length  # others' records, which came before
        for append, offset in self._offsets.items():
            assert committed.header is not None
            outcomes[append] = Written(offset + moved, committed.header)
        return outcomes

    def failed(self, error: BaseException) -> Mapping[Append, Outcome]:
        """The outcomes of a commit that did not take place or whose outcome is unknown.

        No refusal counts: it rests on what was not committed, or on a header that was not made durable since.
        """
        waiting = set(self._refused) if self._offsets else set()  # they are judged again, without the others
        if isinstance(error, CommitTimeoutError):
            # nothing was written, and those that came later have time left
            now_s = time.monotonic()
            waiting |= {append for append in self.members if append.deadline_s > now_s}
            waiting.discard(self.leader)
        elif isinstance(error, AppendInterrupted) and error.outcome == "committed":
            assert self._attempt is not None
            done, sent = self._attempt.done, self._attempt.sent
            if done is not None and done.offset is not None:
                return self._carried(done)
            assert sent.base is not None
            assert sent.wanted is not None
            base, wanted = self._attempt.made(sent.base, sent.wanted)
            return self.succeeded(Committed(base.header, wanted))
        elif not isinstance(error, Exception):
            if not self.is_open or (isinstance(error, AppendInterrupted) and error.outcome == "not committed"):
                return {}
            error = _unknown(self.path, error)
        return {append: error for append in self.members if append not in waiting}

    async def step(self, base: Loaded, attempt: Attempt) -> Header | None:
        """The header with all appends of the group that it allows; it refuses the others if it is fresh."""
        header = base.header
        items: list[Item] = []
        self._attempt = attempt
        self._offsets, self._refused = {}, {}
        self._base, offset = header, header.length if header else 0
        for append in self.members:
            try:
                admitted = transitions.check(header, append.guard, self.path, length=offset)
                transitions.check_open(admitted, self.path)
                if append.attrs:
                    admitted = transitions.with_attrs(admitted, append.attrs, self.path, offset)
                added = await as_items(append.data, attempt.files)
            except transitions.MergeFoundError:
                raise
            except (RollingError, FileNotFoundError, ValueError) as error:
                if not attempt.fresh:
                    raise
                self._refused[append] = error
                attempt.anywhere = None  # a refusal holds for this base
                continue
            header = admitted
            self._offsets[append] = offset
            if len(self.members) > 1 or attempt.shared is not None:
                offset += sum(map(size_of, added))
            items += added
        if not self._offsets or header is None:
            return None
        if not items and header is base.header:
            return None
        if attempt.shared is not None and base.header is not None:
            chosen = asks.select(base.header, attempt.others, attempt.operation.writer)
            attempt.carry = asks.carry(base.header, chosen, offset)
            items += [ask.data for ask in chosen]
        return await grow(header, items, attempt.files)
