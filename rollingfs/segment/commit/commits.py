"""`Commits`: the only way in which a header is replaced.

Load the header, compute the next, replace it on condition that no other writer replaced it first. If that is not
confirmed, `recovery` judges what the header shows. Specified in ``docs/protocol/commit.md`` (P5); checked by
explicit-state model checking.

A commit that finds a merge in its way has it settled (`recovery`), and begins again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from time import perf_counter_ns

from rollingfs.errors import (
    TELLING,
    AppendOutcomeUnknown,
    BadOffsetError,
    CommitTimeoutError,
    CorruptHeaderError,
    RollingError,
    UnflushedError,
    if_interrupted,
    not_committed,
)
from rollingfs.format import names, placement, records, transitions
from rollingfs.format.codec import format_header, format_text, within_text
from rollingfs.format.header import AGE_S_MAX, FILE, OFFSET_MAX, TEXT_BYTES_MAX, Header
from rollingfs.format.transitions import MarksFullError, MergeFoundError
from rollingfs.runtime.meters import COMMIT, CONFLICT, UNKNOWN
from rollingfs.runtime.system import Moment
from rollingfs.segment.commit.attempt import Attempt, Change, Committed, Plain, Sent, Step, Verdict, check_time
from rollingfs.segment.commit.chunk_files import Uploads
from rollingfs.segment.commit.index_pages import PageGoneError, names_page
from rollingfs.segment.commit.recovery import LostAnswers, Merges, after_error, after_interrupt
from rollingfs.segment.commit.store import Store
from rollingfs.segment.commit.turns import Slot
from rollingfs.segment.segment import Segment

logger = logging.getLogger("rollingfs")

GONE_MAX = 3
"""Maximum reloads when an index page that a header names is missing: its segment may be about to be replaced."""
LOSSES_BEFORE_CLAIM = 2
"""After this many requests without success, a slow commit claims the next turn."""


IN_THE_WAY = (MergeFoundError, MarksFullError)
"""A step raises such an error to have merges settled first."""


class Commits:
    """Replaces headers, a single commit in flight per segment; settles the merges that are found under way.

    Parameters
    ----------
    timeout_s
        A commit gives up after this many seconds.
    """

    def __init__(self, store: Store, timeout_s: float) -> None:
        self.store = store
        self.timeout_s = min(timeout_s, AGE_S_MAX)
        self.interval_s = store.backend.capability.commit_interval_s
        self.merges = Merges(store, self.commit)

    def deadline_s(self) -> float:
        """Return when an operation that begins now gives up, by the monotonic clock."""
        return time.monotonic() + self.timeout_s

    async def commit(
        self,
        path: str,
        step: Step,
        *,
        fresh: bool = False,
        seen: Segment | None = None,
        uploads: Sequence[Uploads] = (),
        slow: bool = False,
        deadline_s: float | None = None,
    ) -> Committed:
        """Commit the header that `step` makes; the other arguments are as of `Change`.

        Parameters
        ----------
        deadline_s
            By default, the time for a commit begins now.

        Raises
        ------
        AppendOutcomeUnknown
            It is not known whether the commit took place.
        CommitTimeoutError
            It did not take place within the time allowed.
        """
        deadline_s = self.deadline_s() if deadline_s is None else deadline_s
        return await self.store.runtime.shield(self._commit(Change(path, step, deadline_s, fresh, seen, uploads, slow)))

    async def _commit(self, change: Change) -> Committed:
        while True:
            try:
                slot = self.store.slots.of(change.path)
                return await slot.lock.run(partial(self._in_time, slot, change, time.monotonic()))
            except IN_THE_WAY as found:
                await self.settle(change.path, found, change.deadline_s)
                change = replace(change, fresh=True)

    async def settle(self, path: str, found: MergeFoundError | MarksFullError, deadline_s: float) -> None:
        """Settle the merges that a step has found in the way of a commit, whose caller does not hold the slot.

        Raises
        ------
        CommitTimeoutError
            There are more and more of them.
        """
        if isinstance(found, MarksFullError) and time.monotonic() >= deadline_s:
            within = f"nothing was written within {self.timeout_s} s"
            raise CommitTimeoutError(f"{path}: {found}; {within}") from found
        with if_interrupted(path, "not committed"):
            try:
                if isinstance(found, MergeFoundError):
                    await self.merges.resolve(path, found.header)
                else:
                    await self.merges.settle(path)
            except UnflushedError as error:  # of a look at another header
                raise not_committed(error, path) from error

    async def _in_time(self, slot: Slot, change: Change, queued_s: float) -> Committed:
        """Commit, unless the time has passed while it waited for the slot: the times of many that wait would add up."""
        if queued_s < change.deadline_s <= time.monotonic():
            others = f"other commits of this client took all of its {self.timeout_s} s"
            raise CommitTimeoutError(f"{change.path}: {others}; nothing was written")
        if self.interval_s:
            await self.wait_for_store(slot, change.deadline_s)
        return await self.commit_held(slot, change, self.attempt(slot, change))

    async def wait_for_store(self, slot: Slot, deadline_s: float) -> None:
        """Wait until the store takes another commit of this client, unless that is too late, with the slot."""
        pause_s = slot.free_s - time.monotonic()
        if pause_s > 0 and slot.free_s < deadline_s:
            await self.store.runtime.sleep(pause_s)

    async def commit_held(self, slot: Slot, change: Change, attempt: Attempt) -> Committed:
        """Commit a change, by a caller that holds the slot, is not cancelled, and settles what is in the way.

        Raises
        ------
        MergeFoundError, MarksFullError
            The step asks for merges to be settled first.
        """
        meters, began_ns = self.store.meters, perf_counter_ns()
        try:
            try:
                if not self.store.backend.capability.has_folders:
                    await self.store.abilities(change.path)  # it is the first to say that a bucket is missing
                committed = await self._loop(slot, change, attempt)
                if committed.after is not committed.before:
                    meters.count(COMMIT, began_ns)
                return committed
            except BaseException as error:
                if attempt.sent is not None:
                    self.store.headers.forget(change.path)  # a read that follows must show what is there
                if isinstance(error, AppendOutcomeUnknown):
                    meters.count(UNKNOWN, began_ns)
                else:
                    meters.failed(COMMIT, began_ns, error)
                raise
            finally:
                if attempt.took_turn:
                    attempt.end_turn()
                if "files" in vars(attempt):
                    await attempt.files.discard()
        except KeyboardInterrupt as interrupt:
            attempt.end_turn()  # it may have come before the turn was given up
            raise await after_interrupt(attempt) from interrupt
        except UnflushedError as error:  # of what a look has shown: that of an own record is judged
            raise not_committed(error, change.path) from error
        except OSError as error:
            if attempt.sent is not None or isinstance(error, TELLING):
                raise
            raise not_committed(error, change.path) from error
        except Exception as error:  # noqa: BLE001 - no answer of the store, but out of memory or a bug: it is judged
            await after_error(attempt, error)
            return self._shown(attempt)

    def attempt(self, slot: Slot, change: Change, began: Moment | None = None) -> Attempt:
        """Return the state of a commit before its first request."""
        path, slots = change.path, self.store.slots
        began, turns, timeout_s = began or Moment.now(self.store.clock), slot.turns, self.timeout_s
        number, deadline_s = next(slots.numbers), change.deadline_s
        attempt = Attempt(path, slots.writer, number, deadline_s, began, self.store, turns, timeout_s)
        attempt.uploads, attempt.prompt = change.uploads, change.prompt
        attempt.has_turns = self.store.backend.capability.has_turns and not (self.store.runtime.is_async or change.slow)
        if slot.may_lose is None:
            backend = self.store.backend
            slot.may_lose = backend.capability.must_race or backend.may_tear(names.header_path(path))
        attempt.may_lose = slot.may_lose
        return attempt

    async def _loop(self, slot: Slot, change: Change, attempt: Attempt) -> Committed:
        path, headers, capability = attempt.path, self.store.headers, self.store.backend.capability
        seen = None if change.fresh else headers.seen(path) or change.seen
        if seen is not None and not capability.conflicts_are_final:
            seen = attempt.believed(seen, change.seen)
        attempt.fresh = seen is None
        base = await attempt.load() if seen is None else seen
        while True:
            now_ms = round(self.store.clock() * 1000)
            # without conditions: no step, no turn, and no header of what it makes
            may_follow = capability.can_extend and not (slot.done_drops or slot.settled)
            plain = change.plain(base, now_ms) if may_follow else None
            record = base.tip.record(attempt.writer, attempt.number, now_ms, plain) if plain else None
            sent = Sent(base, record=record, is_plain=True) if record is not None else None
            if sent is None:
                base = await attempt.in_turn(base)
                try:
                    sent = await self._stepped(slot, change, attempt, base)
                except PageGoneError as gone:
                    base, attempt.fresh = await self._without_page(base, attempt, gone), True
                    continue
                except (RollingError, FileNotFoundError, FileExistsError, ValueError):
                    if attempt.fresh:
                        await headers.secure(path, base)  # it may say that an earlier commit took place
                        raise
            if sent is None:  # errors and "nothing to do" are judged by a fresh header only
                if attempt.fresh:
                    await headers.secure(path, base)
                    return Committed(base, base)
                base, attempt.fresh = await headers.load(path), True
                continue
            if not slot.is_able:
                await self.store.abilities(path)  # not before: a refusal leaves none of the probe's folders
                slot.is_able = not attempt.may_lose
            if sent.named:
                attempt.files.name(sent.named)
            attempt.sent = sent
            found = await self._try(attempt, sent, change.plain)
            if isinstance(found, Committed):
                if slot.done_drops or slot.settled:
                    self.store.slots.committed(slot, found.made)
                if self.interval_s:
                    slot.free_s = time.monotonic() + self.interval_s
                return found
            self.store.meters.note(CONFLICT)
            attempt.sent = None
            attempt.files.lose()
            check_time(attempt, is_void=True)
            base, attempt.fresh = found, True
            if change.slow and attempt.count >= LOSSES_BEFORE_CLAIM and base.live:
                base = await self._claim_turn(slot, attempt)

    async def _claim_turn(self, slot: Slot, attempt: Attempt) -> Segment:
        """Commit the claim that others wait for this writer; returns the header that its own commit may replace now.

        This is a quick commit, which wins its race as often as other commits do. It never decides anything:
        what comes after it is conditional as usual.
        """

        async def step(found: Segment, claim: Attempt) -> Header | None:
            is_free = found.live and found.header is not None and found.header.merge is None
            return replace(found.header, turn=claim.writer) if is_free and found.header is not None else None

        change = Change(attempt.path, step, attempt.deadline_s)
        claim = self.attempt(slot, change, attempt.began)
        # the judge takes a line with a higher number as unknown
        attempt.number = next(self.store.slots.numbers)
        try:
            await self._loop(slot, change, claim)
        except (AppendOutcomeUnknown, CommitTimeoutError) as error:
            logger.debug("%s: the turn could not be claimed: %s", attempt.path, error)
        finally:
            if claim.took_turn:
                claim.end_turn()  # a claim that changed nothing still has it
        await self.wait_for_store(slot, attempt.deadline_s)
        check_time(attempt, is_void=True)
        return self.store.headers.seen(attempt.path) or await attempt.load()

    async def _without_page(self, base: Segment, attempt: Attempt, gone: PageGoneError) -> Segment:
        """Return a header that names no lost page."""
        path = attempt.path
        current = await self.store.headers.load(path)
        is_named = current.token == base.token or names_page(path, current.header, gone.filename)
        attempt.gone += attempt.fresh and is_named
        if attempt.gone >= GONE_MAX:
            raise CorruptHeaderError(f"{path}: an index page that a header names is missing: {gone.filename}") from gone
        check_time(attempt, is_void=True)
        return current

    async def _stepped(self, slot: Slot, change: Change, attempt: Attempt, base: Segment) -> Sent | None:
        """Return the request for what a step wants; None if it wants no change."""
        wanted, old = await change.step(slot.cleared(base), attempt), base.header
        if wanted is None:
            return None
        can_extend = base.room and self.store.backend.capability.can_extend
        if old is not None and can_extend and (data := records.data_of(old, wanted)):
            at_ms = wanted.tail_until_ms or wanted.tail_at_ms
            if (record := base.tip.record(attempt.writer, attempt.number, at_ms, data)) is not None:
                return Sent(base, record=record)
        now_ms, entries = self.store.now_ms(), wanted.entries
        stamp = old, attempt.writer, attempt.number, now_ms
        made = transitions.stamp(wanted, *stamp)
        text = None if placement.plan_fold(entries) else format_text(made)
        if text is None or len(text) > TEXT_BYTES_MAX:  # entries go to index pages, and then commit lines
            wanted = await self.store.pages.fold(attempt.path, wanted, partial(attempt.files.page, wanted), now_ms)
            made, text = within_text(transitions.stamp(wanted, *stamp)), None
        try:
            data = format_header(made, text)
        except ValueError as error:
            is_long = made.length > OFFSET_MAX
            raise BadOffsetError(f"{attempt.path}: {error}; nothing was written") if is_long else error from None
        # folding hides chunks in index pages; drops name pages that list dropped chunks
        return Sent(base, made, data, frozenset(map(FILE, (*entries, *made.entries, *made.drops))))

    async def _try(self, attempt: Attempt, sent: Sent, plain: Plain) -> Segment | Committed:
        """Replace a header, or extend it; returns what was committed, or the header that is there instead."""
        headers, backend, limit, lost = self.store.headers, self.store.backend, self.store.runtime.limit, None
        path, base = names.header_path(attempt.path), sent.base
        while True:
            attempt.count += 1
            attempt.adapted = token = None
            began, began_s = headers.begin(), time.monotonic()
            try:
                if sent.record is not None and base.text is not None and base.token is not None:
                    adapt = partial(attempt.adapt, plain) if sent.is_plain else None
                    call = backend.extend(path, sent.record[0].encode(base.text.segment), base.token, adapt)
                    token = await limit(call, attempt.share_s())
                    if token is None:  # the file cannot be extended
                        attempt.adapted = None
                        wanted = attempt.result().made
                        attempt.sent = sent = Sent(base, wanted, format_header(wanted))
                if token is None:
                    data = sent.data
                    send = backend.create(path, data) if base.token is None else backend.replace(path, data, base.token)
                    token = await limit(send, attempt.share_s())
            except (OSError, TimeoutError) as error:
                lost = lost or LostAnswers(attempt)
                verdict, current = await lost.judge(error)
                if verdict is Verdict.NOT_MINE:
                    return current
                if verdict is Verdict.MINE:
                    return self._shown(attempt)
            else:
                done = attempt.result(token)
                attempt.turns.took(time.monotonic() - began_s, done.after.version)
                mine = attempt.acknowledged(done) if attempt.may_lose else None
                headers.keep(attempt.path, done.after, began, is_own=True, mine=mine)
                return done

    def _shown(self, attempt: Attempt) -> Committed:
        """Return the result of a commit that a look has shown."""
        done = attempt.result()
        if attempt.may_lose and done.header is not None:
            self.store.headers.acknowledge(attempt.path, attempt.acknowledged(done), done.header)
        return done
