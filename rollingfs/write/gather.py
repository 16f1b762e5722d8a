"""Appends: several that wait for the same segment are gathered into one commit.

The first thread that gets the segment's slot leads: it commits for all that wait. A thread that comes meanwhile waits
for its outcome, or for its turn to lead, and not for the slot: a lock of threads is not fair, so the next leader would
often be faster than those whose outcome is known, and they would append again one commit late.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial

from rollingfs.commit.attempt import Change
from rollingfs.commit.commits import Commits
from rollingfs.commit.fairness import Slot
from rollingfs.commit.operation import Committed
from rollingfs.errors import AppendOutcomeUnknown, interrupted
from rollingfs.format import transitions
from rollingfs.runtime.logs import keeper
from rollingfs.write.group import Append, Group, Outcome, Written, unknown

GROUP_APPENDS_MAX = 1024
GROUP_BYTES_MAX = 16 * 1024 * 1024
LINGER_SHARE = 0.4
"""The share of a commit's time that a leader waits for callers who were just answered and may append again."""
WAKE_S_MAX = 1.0
"""A thread that nobody has woken for so long leads: the leader may have been interrupted before it called the next."""
LINGER_STEP_SHARE = 0.05
"""The share of that time after which the leader looks whether they are there."""


class Appender:
    """Gathers appends, one queue for each segment."""

    def __init__(self, commits: Commits) -> None:
        self._commits = commits
        self._runtime = commits.store.runtime
        self._slots = commits.slots

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
        slot = self._slots.of(path)
        try:
            with self._slots.lock:
                slot.queue.append(append)
                # a thread that is in the middle of a commit is told by the slot what it must not do
                waits = slot.is_led and not (self._runtime.is_async or keeper().is_holding)
                slot.is_led = True
                if waits:
                    append.gate.acquire()
            if waits:
                await self._runtime.wait(append.gate, WAKE_S_MAX)
            outcome = append.outcome if waits else None
            while outcome is None:
                await self._lead(slot, append)
                outcome = append.outcome
            if isinstance(outcome, Written):
                return outcome
            raise outcome
        except BaseException as error:  # noqa: BLE001 - judged there
            return self._leave(slot, append, error)

    async def _lead(self, slot: Slot, append: Append) -> None:
        try:
            await slot.lock.run(partial(self._commit_group, slot, append))
        except transitions.MergeFoundError as found:
            await self._commits.settle(slot.path, found, append.deadline_s)
        finally:
            with self._slots.lock:
                _call_next(slot)

    def _leave(self, slot: Slot, append: Append, error: BaseException) -> Written:
        """What is known of an append whose caller breaks off; takes it out of the queue.

        Raises
        ------
        BaseException
            The error itself, or what it means for the append.
        """
        with self._slots.lock:
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
        raise unknown(slot.path, error) from error

    async def _linger(self, slot: Slot) -> None:
        """Wait for as many appends as there were last time; otherwise threads split into two groups that take turns."""
        linger_s = slot.turns.commit_s * LINGER_SHARE
        until_s = time.monotonic() + linger_s
        while len(slot.queue) < slot.turns.together and time.monotonic() < until_s:
            await self._runtime.sleep(linger_s * LINGER_STEP_SHARE)

    async def _commit_group(self, slot: Slot, leader: Append) -> None:
        """Commit for all that wait, unless another leader has committed the leader's append meanwhile."""
        if leader.group is not None:
            self._recover(slot, leader)
            if leader.outcome is not None:
                return
        if self._commits.interval_s:
            await self._commits.wait_for_store(slot, leader.deadline_s)
        if slot.turns.together > 1:
            await self._linger(slot)
        group = Group(slot.path, leader)
        committed: Committed | None = None
        try:
            self._take(slot, group)
            large, prompt, anywhere = group.is_large, group.is_prompt, group.size if group.is_plain else None
            deadline_s, uploads = leader.deadline_s, group.uploads
            change = Change(slot.path, group.step, deadline_s, large, None, uploads, False, prompt, anywhere)
            group.attempt = self._commits.attempt(slot, change)
            committed = await self._commits.commit_held(slot, change, group.attempt)
            self._finish(slot, group, group.succeeded(committed))
        except transitions.MergeFoundError:
            self._finish(slot, group, {})
            raise
        except BaseException as error:
            outcomes = group.failed(error) if committed is None else group.succeeded(committed)
            self._finish(slot, group, outcomes)
            if not group.members or not isinstance(error, Exception):
                raise
        finally:
            slot.turns.together = len(group.members) + len(slot.queue)

    def _take(self, slot: Slot, group: Group) -> None:
        """Move appends from the queue into a group.

        A leader may die between any two statements here and in `_finish`. Then an append whose outcome is known may
        stay in the queue, and one without an outcome may be missing: its own thread puts that right (`_recover`).
        """
        size = 0
        with self._slots.lock:
            queue = slot.queue
            while queue and len(group.members) < GROUP_APPENDS_MAX:
                append = queue[0]
                if append.group is None or append.outcome is None:
                    if group.members or len(queue) > 1:
                        size += append.inline_size
                    if group.members and size > GROUP_BYTES_MAX:
                        break
                    group.add(append)
                queue.popleft()

    def _finish(self, slot: Slot, group: Group, outcomes: Mapping[Append, Outcome]) -> None:
        """Publish the outcomes of a group, all at once; appends without an outcome wait again, at the front."""
        with self._slots.lock:
            group.outcomes = outcomes
            for append in outcomes:
                if append is not group.leader:  # its thread is here
                    append.let_on()
            if len(outcomes) == len(group.members):
                return
            there = set(slot.queue)
            waiting = [one for one in group.members if one.group is group and one not in outcomes]
            slot.queue.extendleft(one for one in reversed(waiting) if one not in there)

    def _recover(self, slot: Slot, append: Append) -> None:
        """Repair an append after its last leader broke off. The caller holds the slot, so no leader is at work."""
        group = append.group
        if group is not None and group.outcomes is None:
            self._finish(slot, group, group.failed(unknown(slot.path, None)) if group.is_open else {})
        with self._slots.lock:
            if append.outcome is None and append not in slot.queue:
                slot.queue.appendleft(append)


def _call_next(slot: Slot) -> None:
    """Let the first that waits lead; the caller, who has the lock, leads no more."""
    if slot.queue:
        slot.queue[0].let_on()
    else:
        slot.is_led = False


def _verdict(outcome: Outcome | None, is_waiting: bool) -> str:
    """What the error after Ctrl-C says of an append."""
    if isinstance(outcome, Written):
        return "committed"
    if is_waiting or (outcome is not None and not isinstance(outcome, AppendOutcomeUnknown)):
        return "not committed"
    return "unknown"  # another thread is committing it
