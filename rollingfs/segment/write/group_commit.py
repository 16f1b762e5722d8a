"""Group commit: appends that wait for the same segment are committed together.

The first thread that gets the segment's slot leads: it commits for all that wait. A thread that comes in the meantime
waits for its outcome, or for its turn to lead, and not for the slot: a lock of threads is not fair, so the next leader
would often be faster than threads whose outcome is known, and they would append again a commit late.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from rollingfs.errors import AppendInterrupted, AppendOutcomeUnknown, CommitTimeoutError, RollingError, interrupted
from rollingfs.format import transitions
from rollingfs.format.header import Header, Phase
from rollingfs.format.placement import Item
from rollingfs.format.transitions import Attrs, Guard
from rollingfs.runtime.concurrency import keeper
from rollingfs.runtime.values import value_class
from rollingfs.segment.commit.attempt import Attempt, Change, Committed, unknown
from rollingfs.segment.commit.chunk_files import Stored, Uploads
from rollingfs.segment.commit.commits import Commits
from rollingfs.segment.commit.turns import Slot
from rollingfs.segment.segment import Segment
from rollingfs.segment.write.append_to_header import as_items, grow, is_aged

GROUP_APPENDS_MAX = 1024
GROUP_BYTES_MAX = 16 * 1024 * 1024
LINGER_SHARE = 0.4
"""The share of a commit's time that a leader waits for callers who were just answered and may append again."""
WAKE_S_MAX = 1.0
"""Seconds until a thread leads that was not woken: its leader may have been interrupted before it woke the next."""
LINGER_STEP_SHARE = 0.05
"""The share of that time after which the leader looks whether they are there."""


@value_class
class Written:
    """An append that took place."""

    offset: int
    """Offset of the first byte of its data."""
    segment: Segment
    """The segment that its commit made, or met if the data was there."""

    @property
    def header(self) -> Header:
        """Return the header of that segment."""
        assert self.segment.header is not None
        return self.segment.header


Outcome = Written | Exception


@dataclass(eq=False, repr=False)
class Append:
    """An append of a caller. It waits in the queue, or a group has it, or its outcome is known."""

    data: Sequence[bytes | Stored]
    guard: Guard = field(default_factory=Guard)
    attrs: Attrs = field(default_factory=dict)
    uploads: Uploads | None = None
    """The chunk files among its data that were uploaded for this append."""
    deadline_s: float = 0.0
    """When the append gives up, by the monotonic clock."""
    group: Group | None = None
    """The newest group that has taken it out of the queue."""
    gate: threading.Lock = field(default_factory=threading.Lock)
    """Its thread waits here; who lets it on has the lock of the appender."""

    def let_on(self) -> None:
        """Wake its thread, now or when that waits the next time."""
        if self.gate.locked():
            self.gate.release()

    @property
    def size(self) -> int:
        return sum(len(item) if isinstance(item, bytes) else item.size for item in self.data)

    @property
    def inline_size(self) -> int:
        return sum(len(item) for item in self.data if isinstance(item, bytes))

    @property
    def outcome(self) -> Outcome | None:
        """Its outcome; None while the outcome is unknown."""
        outcomes = self.group.outcomes if self.group is not None else None
        return outcomes.get(self) if outcomes is not None else None

    @property
    def is_waiting(self) -> bool:
        """Whether no attempt to commit it is under way or has taken place."""
        outcomes = self.group.outcomes if self.group is not None else {}
        return outcomes is not None and self not in outcomes


class Group(Change):
    """A group of appends as a change.

    If chunk files were uploaded for it, its commit begins with a fresh header. If that forbids the append, no attempt
    has named the files, and they can go; the upload costs more than this request. It is prompt if an append in it is
    meant for a certain offset, which appends of others may reach first.

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
        self.deadline_s = leader.deadline_s
        self.members: list[Append] = []
        self.uploads: list[Uploads] = []
        self.outcomes: Mapping[Append, Outcome] | None = None
        self.attempt: Attempt | None = None
        """The operation that its commit has sent."""
        self._refused: dict[Append, Exception] = {}

    @property
    def is_open(self) -> bool:
        """Whether an attempt was sent that took place, or may have."""
        return self.attempt is not None and self.attempt.sent is not None

    def succeeded(self, committed: Committed) -> Mapping[Append, Outcome]:
        """Return the outcomes of a commit that took place, or that found the data there."""
        outcomes: dict[Append, Outcome] = dict(self._refused)
        offset = committed.before.length if committed.before.text is not None else 0
        for append in self.members:
            if append not in self._refused:
                outcomes[append] = Written(offset, committed.after)
                offset += append.size if len(self.members) > 1 else 0
        return outcomes

    def failed(self, error: BaseException) -> Mapping[Append, Outcome]:
        """Return the outcomes of a commit that did not take place or whose outcome is unknown.

        No refusal counts: it rests on what was not committed, or on a header that was not made durable since.
        """
        # some are judged again, without the others
        waiting = set(self._refused) if len(self._refused) < len(self.members) else set()
        if isinstance(error, CommitTimeoutError):
            # nothing was written, and those that came later have time left
            now_s = time.monotonic()
            waiting |= {append for append in self.members if append.deadline_s > now_s}
            waiting.discard(self.leader)
        elif isinstance(error, AppendInterrupted) and error.outcome == "committed":
            assert self.attempt is not None
            return self.succeeded(self.attempt.result())
        elif not isinstance(error, Exception):
            if not self.is_open or (isinstance(error, AppendInterrupted) and error.outcome == "not committed"):
                return {}
            error = unknown(self.path, f"{error!r} interrupted it")
        return {append: error for append in self.members if append not in waiting}

    def plain(self, base: Segment, now_ms: int) -> bytes | None:
        """Return the bytes of its appends, if `step` would allow each after this header, and after more bytes."""
        text = base.text
        if text is None or not base.room or text.phase is not Phase.OPEN or text.owner is not None or base.turn:
            return None
        if text.policy.max_age is not None and (not text.tail or is_aged(text, now_ms)):
            return None  # the tail that others have begun may be too old
        pieces: list[bytes] = []
        for append in self.members:
            guard = append.guard
            numbers = guard.epoch, guard.expected_offset, guard.expected_start
            if append.attrs or self.fresh or guard.expected_attrs or numbers != (None, None, None):
                return None  # it has more conditions than the incarnation, or attributes, or chunks
            if guard.segment is not None and guard.segment not in text.incarnations:
                return None
            pieces += append.data  # type: ignore[arg-type]  # no chunk is among them
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def step(self, base: Segment, attempt: Attempt) -> Header | None:
        """Return the header with all appends of the group that it allows; it refuses the others if it is fresh."""
        header = base.header
        items: list[Item] = []
        self._refused, offset = {}, header.length if header else 0
        for append in self.members:
            try:
                admitted = transitions.check(header, append.guard, self.path, length=offset)
                transitions.check_open(admitted, self.path)
                if append.attrs:
                    admitted = transitions.with_attrs(admitted, append.attrs, self.path, offset)
                added = await as_items(append.data, attempt.files, base.header)
            except transitions.MergeFoundError:
                raise
            except (RollingError, FileNotFoundError, ValueError) as error:
                if not attempt.fresh:
                    raise
                self._refused[append] = error
                continue
            header = admitted
            if len(self.members) > 1:
                offset += append.size
            items += added
        if len(self._refused) == len(self.members) or header is None or not (items or header is not base.header):
            return None
        return await grow(header, items, attempt)


async def append_together(commits: Commits, path: str, append: Append) -> Written:
    """Commit an append, with others that wait. The caller shields this from cancellation.

    Raises
    ------
    AppendOutcomeUnknown
        It is not known if it took place.
    RollingError, FileNotFoundError
        Its guard, or the segment's state, forbids it; it was not written.
    """
    append.deadline_s = time.monotonic() + commits.timeout_s
    slot = commits.store.slots.of(path)
    try:
        with commits.store.slots.lock:
            slot.queue.append(append)
            # a thread that is in the middle of a commit is told by the slot what it must not do
            waits = slot.is_led and not (commits.store.runtime.is_async or keeper().is_holding)
            slot.is_led = True
            if waits:
                append.gate.acquire()
        if waits:
            await commits.store.runtime.wait(append.gate, WAKE_S_MAX)
        outcome = append.outcome if waits else None
        while outcome is None:
            await _lead(commits, slot, append)
            outcome = append.outcome
        if isinstance(outcome, Written):
            return outcome
        raise outcome
    except BaseException as error:  # noqa: BLE001 - judged there
        return _leave(commits, slot, append, error)


async def _lead(commits: Commits, slot: Slot, append: Append) -> None:
    try:
        await slot.lock.run(partial(_commit_group, commits, slot, append))
    except transitions.MergeFoundError as found:
        await commits.settle(slot.path, found, append.deadline_s)
    finally:
        with commits.store.slots.lock:
            _call_next(slot)


def _leave(commits: Commits, slot: Slot, append: Append, error: BaseException) -> Written:
    """Return the outcome of an append whose caller breaks off, and take it out of the queue.

    Raises
    ------
    BaseException
        The error itself, or an error with the outcome of the append.
    """
    with commits.store.slots.lock:
        if append in slot.queue:
            slot.queue.remove(append)
        is_waiting, outcome = append.is_waiting, append.outcome
        _call_next(slot)
    if isinstance(error, KeyboardInterrupt):
        raise interrupted(slot.path, _verdict(outcome, is_waiting)) from error
    if isinstance(outcome, Written):
        return outcome
    if outcome is not None or (is_waiting and isinstance(error, Exception)):
        raise outcome or error
    raise unknown(slot.path, f"{error!r} interrupted it") from error


async def _linger(commits: Commits, slot: Slot) -> None:
    """Wait for as many appends as there were last time; otherwise threads split into two groups that take turns."""
    linger_s = slot.turns.commit_s * LINGER_SHARE
    until_s = time.monotonic() + linger_s
    while len(slot.queue) < slot.turns.together and time.monotonic() < until_s:
        await commits.store.runtime.sleep(linger_s * LINGER_STEP_SHARE)


async def _commit_group(commits: Commits, slot: Slot, leader: Append) -> None:
    """Commit for all that wait, unless another leader has committed the leader's append.

    A leader may die between any two statements here and in `_finish`. Then an append whose outcome is known may stay in
    the queue, and an append without an outcome may be missing: its own thread repairs that (`_recover`).
    """
    if leader.group is not None:
        _recover(commits, slot, leader)
        if leader.outcome is not None:
            return
    if commits.interval_s:
        await commits.wait_for_store(slot, leader.deadline_s)
    if slot.turns.together > 1:
        await _linger(commits, slot)
    group = Group(slot.path, leader)
    committed: Committed | None = None
    try:
        with commits.store.slots.lock:
            size, queue = 0, slot.queue
            while queue and len(group.members) < GROUP_APPENDS_MAX:
                append = queue[0]
                if append.group is None or append.outcome is None:
                    if group.members or len(queue) > 1:
                        size += append.inline_size
                    if group.members and size > GROUP_BYTES_MAX:
                        break
                    group.members.append(append)
                    append.group = group
                    group.fresh = group.fresh or Stored in map(type, append.data)
                    group.prompt = group.prompt or append.guard.expected_offset is not None
                    if append.uploads:
                        group.uploads.append(append.uploads)
                queue.popleft()
        group.attempt = commits.attempt(slot, group)
        committed = await commits.commit_held(slot, group, group.attempt)
        _finish(commits, slot, group, group.succeeded(committed))
    except transitions.MergeFoundError:
        _finish(commits, slot, group, {})
        raise
    except BaseException as error:
        outcomes = group.failed(error) if committed is None else group.succeeded(committed)
        _finish(commits, slot, group, outcomes)
        if not group.members or not isinstance(error, Exception):
            raise
    finally:
        slot.turns.together = len(group.members) + len(slot.queue)


def _finish(commits: Commits, slot: Slot, group: Group, outcomes: Mapping[Append, Outcome]) -> None:
    """Publish the outcomes of a group, all at once; appends without an outcome wait again, at the front."""
    with commits.store.slots.lock:
        group.outcomes = outcomes
        for append in outcomes:
            if append is not group.leader:  # its thread is here
                append.let_on()
        if len(outcomes) == len(group.members):
            return
        there = set(slot.queue)
        waiting = [one for one in group.members if one.group is group and one not in outcomes]
        slot.queue.extendleft(one for one in reversed(waiting) if one not in there)


def _recover(commits: Commits, slot: Slot, append: Append) -> None:
    """Repair an append after its last leader broke off. The caller holds the slot, so no leader is at work."""
    group = append.group
    if group is not None and group.outcomes is None:
        _finish(commits, slot, group, group.failed(unknown(slot.path, "it was interrupted")) if group.is_open else {})
    with commits.store.slots.lock:
        if append.outcome is None and append not in slot.queue:
            slot.queue.appendleft(append)


def _call_next(slot: Slot) -> None:
    """Let the first that waits lead; the caller, who has the lock, leads no more."""
    if slot.queue:
        slot.queue[0].let_on()
    else:
        slot.is_led = False


def _verdict(outcome: Outcome | None, is_waiting: bool) -> str:
    """Return the text about an append for the error after Ctrl-C."""
    if isinstance(outcome, Written):
        return "committed"
    if is_waiting or (outcome is not None and not isinstance(outcome, AppendOutcomeUnknown)):
        return "not committed"
    return "unknown"  # another thread is committing it
