"""The commit loop: the only way in which a header is replaced.

Load the header, compute the next one, replace it on condition that nobody did first. No answer of the store is
a verdict by itself: after anything but success the header is loaded and looked at (`transitions.judge`).
Specified in ``docs/protocol.md``; checked there by explicit-state model checking.
"""

from __future__ import annotations

import errno
import itertools
import logging
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

from rollingfs.backend.contract import Backend
from rollingfs.backend.probe import Abilities, probe
from rollingfs.commit.attempt import Attempt, Committed, Resolver, Slot, Step, Writer
from rollingfs.commit.chunk_files import Chunks
from rollingfs.commit.fairness import LOOKS_MAX, Turns
from rollingfs.commit.header_cache import Headers, Loaded
from rollingfs.commit.index_pages import PAGE_READS_MAX, PageGoneError, Pages
from rollingfs.commit.uploads import Uploads
from rollingfs.errors import (
    TELLING,
    AppendInterrupted,
    AppendOutcomeUnknown,
    CommitTimeoutError,
    ConflictError,
    CorruptHeaderError,
    LockedError,
    RollingError,
    if_interrupted,
    interrupted,
    not_committed,
)
from rollingfs.format import names, placement, transitions
from rollingfs.format.codec import format_header
from rollingfs.format.drops import clear_drops
from rollingfs.format.header import AGE_S_MAX, COMMITS_MAX, Drop, Header, Mark
from rollingfs.format.transitions import Verdict
from rollingfs.runtime.clock import Clock, Moment
from rollingfs.runtime.concurrency import Runtime, backoff_s

logger = logging.getLogger("rollingfs")

REFUSALS_MAX = 2
GONE_MAX = 3
"""So often is an index page looked for that a header names; it may be another segment's, which is being replaced."""
TURNS_MAX = 1024
"""Segments of which it is remembered how fast commits to them are."""
LOSSES_BEFORE_ASKING = 2
"""After so many requests that were in vain, a slow commit asks the others to wait."""
REMEMBERED_MAX = 1024
"""Segments whose done lines are remembered. A deleted one may never see the commit that clears them; lines that are
forgotten are done once more, by whoever commits or collects next."""
BELIEVED_S_MAX = 60.0
"""A header of many writers, seen longer ago, is not the base of a commit: too many may have committed since."""
LAST_LOOK_S = 1.0
"""At the deadline, the header is looked at once more: then a conflict is known to have written nothing."""
ATTEMPT_SHARE = 1 / 3
"""Of the time for a commit: so long one request may take, so that an answer that never comes leaves time to look."""
PROBES_MAX = 5
_REFUSED = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.ENAMETOOLONG, errno.ENOTDIR}
"""Errors that resending the same bytes will not mend."""
_MENDABLE = {errno.EBUSY, errno.ETIMEDOUT}
"""A busy store, a slow answer."""


class Committer:
    """Replaces headers, one commit in flight per segment."""

    def __init__(
        self,
        backend: Backend,
        runtime: Runtime,
        headers: Headers,
        chunks: Chunks,
        pages: Pages,
        *,
        timeout_s: float,
        clock: Clock = time.time,
    ) -> None:
        self.backend = backend
        self.runtime = runtime
        self.headers = headers
        self.chunks = chunks
        self.pages = pages
        self.timeout_s = min(timeout_s, AGE_S_MAX)
        self.clock = clock
        self.writer = Writer()
        self.resolve: Resolver | None = None
        self.settle: Callable[[str], Awaitable[None]] | None = None
        self._abilities: dict[str, Abilities] = {}
        self._slots: weakref.WeakValueDictionary[str, Slot] = weakref.WeakValueDictionary()
        self._turns: OrderedDict[str, Turns] = OrderedDict()
        self._remembering: OrderedDict[str, Slot] = OrderedDict()
        self._slots_lock = threading.RLock()

    def now_ms(self) -> int:
        """The wall clock, milliseconds since 1970."""
        return round(self.clock() * 1000)

    def slot(self, path: str) -> Slot:
        """The one slot of a segment in this client."""
        with self._slots_lock:
            slot = self._slots.get(path)
            if slot is None:
                turns = self._turns.setdefault(path, Turns(self.writer.id))
                self._turns.move_to_end(path)
                if len(self._turns) > TURNS_MAX:
                    self._turns.popitem(last=False)
                slot = self._slots[path] = Slot(self.runtime.lock(path), turns)
            return slot

    def after_fork(self) -> None:
        """In a child process: another writer, and locks that nobody holds."""
        self.writer.renew()
        self._slots = weakref.WeakValueDictionary()
        self._turns = OrderedDict()
        self._remembering = OrderedDict()
        self._slots_lock = threading.RLock()

    def remember(
        self, path: str, *, drops: Iterable[Drop] = (), marks: Iterable[Mark] = (), header: Header | None = None
    ) -> None:
        """Clear these lines, whose work is done, with the next commit; of others, only drops that `header` has."""
        slot = self.slot(path)
        with self._slots_lock:
            if header is not None:
                slot.done_drops.intersection_update(header.drops)
            slot.done_drops.update(drops)
            slot.settled.update(marks)
            if slot.done_drops or slot.settled:
                self._remembering[path] = slot
                self._remembering.move_to_end(path)
            if len(self._remembering) > REMEMBERED_MAX:
                self._remembering.popitem(last=False)

    def cleared(self, path: str, base: Loaded) -> Loaded:
        """What was loaded, without the lines whose work is done: the next commit leaves them out."""
        slot = self.slot(path)
        header = base.header
        if header is None or not (slot.done_drops or slot.settled or header.turn is not None):
            return base
        header = transitions.settle(clear_drops(header, slot.done_drops), slot.settled)
        return Loaded(replace(header, turn=None), base.token)

    async def abilities(self, path: str) -> Abilities:
        """What the store can really do where a segment lies: probed once for each root, before the first write.

        Raises
        ------
        UnsafeBackendError
            It cannot create or replace atomically.
        """
        root = self.backend.root(path)
        for count in itertools.count(1):
            if root in self._abilities:
                break
            try:
                self._abilities[root] = await probe(self.backend, names.chunks_folder(path))
            except OSError as error:
                if count >= PROBES_MAX or error.errno not in _MENDABLE:
                    raise
                await self.runtime.sleep(backoff_s(count + 3))
        return self._abilities[root]

    async def commit(
        self, path: str, step: Step, *, fresh: bool = False, uploads: Sequence[Uploads] = (), slow: bool = False
    ) -> Committed:
        """Commit what `step` makes of the header, resolving a merge that is found under way.

        Parameters
        ----------
        path
            The segment.
        step
            Called once for each header that the commit may be conditioned on.
        fresh
            Begin with the header as it is now, rather than as it was last seen.
        uploads
            Written for this commit: each attempt tells them, before it is sent, which files it names.
        slow
            `step` asks the store so much that others may be faster every time: then they are asked to wait.

        Raises
        ------
        AppendOutcomeUnknown
            Whether it took place cannot be said.
        CommitTimeoutError
            It did not take place within the time allowed.
        """
        return await self.runtime.shield(self._commit(path, step, fresh, uploads, slow))

    async def _commit(self, path: str, step: Step, fresh: bool, uploads: Sequence[Uploads], slow: bool) -> Committed:
        slot = self.slot(path)
        deadline_s = self.deadline_s()
        while True:
            queued_s = time.monotonic()
            held = partial(self.commit_held, fresh=fresh, deadline_s=deadline_s, uploads=uploads, slow=slow)
            call = partial(self._in_time, path, queued_s, deadline_s, partial(held, path, slot, step))
            try:
                return await slot.lock.run(call)
            except transitions.MergeFoundError as found:
                with if_interrupted(path, "not committed"):
                    await self.resolve_merge(path, found)
                fresh = True
            except transitions.MarksFullError as full:
                if time.monotonic() >= deadline_s:
                    raise CommitTimeoutError(f"{path}: {full}; nothing was written within {self.timeout_s} s") from full
                assert self.settle is not None
                with if_interrupted(path, "not committed"):
                    await self.settle(path)
                fresh = True

    async def _in_time(
        self, path: str, queued_s: float, deadline_s: float, held: Callable[[], Awaitable[Committed]]
    ) -> Committed:
        """Commit, unless its time has passed while it waited for the slot: many that wait would add up theirs."""
        if queued_s < deadline_s <= time.monotonic():
            others = f"other commits of this client took all of its {self.timeout_s} s"
            raise CommitTimeoutError(f"{path}: {others}; nothing was written")
        return await held()

    def deadline_s(self) -> float:
        """When an operation that begins now gives up, by the monotonic clock."""
        return time.monotonic() + self.timeout_s

    async def resolve_merge(self, path: str, found: transitions.MergeFoundError) -> None:
        """Finish or undo the merge that `path` is a source of, or wait for its mover; without holding the slot."""
        assert self.resolve is not None
        await self.resolve(path, found.header)

    async def commit_held(
        self,
        path: str,
        slot: Slot,
        step: Step,
        *,
        fresh: bool = False,
        deadline_s: float | None = None,
        uploads: Sequence[Uploads] = (),
        slow: bool = False,
    ) -> Committed:
        """`commit`, by a caller that holds the slot and sees to merges itself."""
        deadline_s = self.deadline_s() if deadline_s is None else deadline_s
        number, own = self.writer.next_number(), Uploads(self.chunks, path)
        attempt = Attempt(path, number, Moment.now(self.clock), deadline_s, own, uploads)
        try:
            try:
                if not self.backend.has_folders:
                    await self.abilities(path)  # it is the first to say that a bucket is missing
                return await self._loop(path, slot, step, fresh, attempt, slow=slow)
            finally:
                await own.discard()
        except KeyboardInterrupt as interrupt:
            raise await self._interrupted(path, attempt, interrupt) from interrupt
        except OSError as error:
            if attempt.count or isinstance(error, TELLING):
                raise
            raise not_committed(error, path) from error
        except Exception as error:  # noqa: BLE001 - no answer of the store, but out of memory or a bug: it is judged
            return await self._broken_off(path, attempt, error)

    async def _loop(
        self, path: str, slot: Slot, step: Step, fresh: bool, attempt: Attempt, *, slow: bool = False
    ) -> Committed:
        seen = None if fresh else self._believed(path)
        attempt.fresh = seen is None
        base = await self._first(path, attempt) if seen is None else seen
        while True:
            base = await self._in_turn(path, slot, base, attempt)
            try:
                wanted = await step(self.cleared(path, base), attempt)
                if wanted is not None:
                    named = {entry.file for entry in wanted.entries}  # before folding hides them in index pages
                    wanted = await self._finished(path, base, wanted, attempt)
                    data = format_header(wanted)  # before anything is sent: it may be refused
            except PageGoneError as gone:
                base, attempt.fresh = await self._without_page(path, base, attempt, gone), True
                continue
            except (RollingError, FileNotFoundError, FileExistsError, ValueError):
                if attempt.fresh:
                    await self.headers.secure(path, base)  # it may say that an earlier commit took place
                    raise
                wanted = None
            if wanted is None and attempt.fresh:
                await self.headers.secure(path, base)
                return Committed(base.header, base.header)
            if wanted is None:
                # errors and "nothing to do" are judged by a fresh header only
                base, attempt.fresh = await self.headers.load(path), True
                continue
            await self.abilities(path)  # not before, where the probe makes folders: a refusal leaves none
            attempt.send(base, wanted, named)
            outcome = await self._attempt(path, slot, base, wanted, data, attempt)
            if isinstance(outcome, Committed):
                return outcome
            attempt.is_open = False
            self._check_time(path, attempt, settled=True)
            base, attempt.fresh = outcome, True
            if slow and attempt.count >= LOSSES_BEFORE_ASKING and base.live:
                base = await self._ask(path, slot, base, attempt)

    async def _ask(self, path: str, slot: Slot, base: Loaded, attempt: Attempt) -> Loaded:
        """Commit the wish that others wait for this writer; returns the header that its own commit may replace now.

        This is a quick commit, which wins its race as often as those of the others do. It never decides anything:
        what comes after it is conditional as ever.
        """

        async def step(found: Loaded, asking: Attempt) -> Header | None:
            is_free = found.live and found.header is not None and found.header.merge is None
            return replace(found.header, turn=self.writer.id) if is_free and found.header is not None else None

        asking = Attempt(path, self.writer.next_number(), attempt.began, attempt.deadline_s, Uploads(self.chunks, path))
        attempt.number = self.writer.next_number()  # a commit line with a higher number than one's own means unknown
        try:
            await self._loop(path, slot, step, False, asking)
        except (AppendOutcomeUnknown, CommitTimeoutError) as error:
            logger.debug("%s: others could not be asked to wait: %s", path, error)
        self._check_time(path, attempt, settled=True)
        return self.headers.seen(path) or await self._first(path, attempt)

    def _believed(self, path: str) -> Loaded | None:
        """The header as it was last seen, unless so many may have committed since that an attempt on it left no trace.

        Then the request would be in vain anyway, and whether it was could not be said.
        """
        seen = self.headers.seen(path)
        if seen is None or seen.header is None or self.backend.conflicts_are_final:
            return seen
        if transitions.is_crowded(seen.header):
            return None
        is_old = self.headers.recent(path, BELIEVED_S_MAX) is None
        return None if is_old and len(seen.header.commits) > COMMITS_MAX // 2 else seen

    async def _first(self, path: str, attempt: Attempt) -> Loaded:
        """The header to begin with, read within the time that the commit has."""
        try:
            return await self.runtime.limit(self.headers.load(path), max(self._left_s(attempt), LAST_LOOK_S))
        except TimeoutError as error:
            raise CommitTimeoutError(
                f"{path}: the store did not give its header in time ({error!r}); nothing was written"
            ) from error

    async def _in_turn(self, path: str, slot: Slot, base: Loaded, attempt: Attempt) -> Loaded:
        """The header to base an attempt on, once it is this writer's turn."""
        if base.header is not None and base.header.turn == self.writer.id:
            return base
        while slot.turns.is_asked(base.header) and self._left_s(attempt) > self.timeout_s * (1 - ATTEMPT_SHARE):
            await self.runtime.sleep(slot.turns.asked_pause_s)
            base, attempt.fresh = await self._first(path, attempt), True
        for _ in range(LOOKS_MAX):
            way_s = slot.turns.way_s(base.header)
            if not way_s or self._left_s(attempt) <= way_s:
                break
            await self.runtime.sleep(way_s)
            began = time.monotonic()
            now = await self._first(path, attempt)
            slot.turns.looked(base.header, now.header, time.monotonic() - began)
            base, attempt.fresh = now, True
        return base

    async def _attempt(
        self, path: str, slot: Slot, base: Loaded, wanted: Header, data: bytes, attempt: Attempt
    ) -> Committed | Loaded:
        """Replace `base`: what was committed, or else what is there instead."""
        refusals = doubts = 0
        is_certain = self.backend.conflicts_are_final
        while True:
            attempt.count += 1
            began, began_s = self.headers.begin(), time.monotonic()
            try:
                token = await self._replace(path, base, data, attempt)
            except (OSError, TimeoutError) as error:
                cause: Exception = error
            else:
                slot.turns.took(time.monotonic() - began_s)
                self.headers.keep(path, Loaded(wanted, token), began, is_own=True)
                return self._took_place(path, slot, base, wanted)
            pause_s = self._pause_s(slot, attempt, cause)
            is_certain = is_certain and isinstance(cause, ConflictError)
            is_crowded = not is_certain and transitions.is_crowded(base.header)
            if not is_crowded:
                await self.runtime.sleep(pause_s)
            current = await self._look(path, attempt, cause)
            verdict = self._judge(attempt, current)
            logger.debug("%s: attempt %d (%s): %s", path, attempt.count, cause, verdict.value)
            if verdict is Verdict.MINE:
                # the result is what this commit made: others may have gone on from it before the look
                return self._took_place(path, slot, base, wanted)
            if verdict is Verdict.UNKNOWN and is_certain:
                return current
            if verdict is Verdict.UNKNOWN:
                raise self._unknown(path, "the header was replaced so often that no trace is left") from cause
            if is_crowded:
                await self.runtime.sleep(pause_s)
            if verdict is Verdict.NOT_MINE:
                return await self._first(path, attempt) if is_crowded else current
            refusals += _is_refusal(cause)
            doubts += not (_is_refusal(cause) or isinstance(cause, LockedError))
            if refusals >= REFUSALS_MAX and doubts:
                raise self._unknown(path, "the store refuses now, but an earlier request may still arrive") from cause
            if refusals >= REFUSALS_MAX:
                raise not_committed(cause, path) if isinstance(cause, OSError) else cause from cause
            self._check_time(path, attempt, settled=not (refusals or doubts), cause=cause)

    async def _without_page(self, path: str, base: Loaded, attempt: Attempt, gone: PageGoneError) -> Loaded:
        """The header that no longer names a page that is gone, its own or that of another segment that a step read."""
        current = await self.headers.load(path)
        attempt.gone += attempt.fresh and current.token == base.token
        if attempt.gone >= GONE_MAX:
            raise CorruptHeaderError(f"{path}: an index page that a header names is missing: {gone.filename}") from gone
        self._check_time(path, attempt, settled=True)
        return current

    async def _finished(self, path: str, base: Loaded, wanted: Header, attempt: Attempt) -> Header:
        """A step's header with all that every commit adds: done lines cleared, folded, stamped."""
        now_ms = self.now_ms()
        wanted = await self.pages.fold(path, wanted, attempt.pages, now_ms)
        return transitions.stamp(wanted, base.header, self.writer.id, attempt.number, now_ms)

    def _judge(self, attempt: Attempt, current: Loaded) -> Verdict:
        base = attempt.base
        assert base is not None
        same = current.token == base.token
        return transitions.judge(base.header, same, current.header, self.writer.id, attempt.number)

    async def _replace(self, path: str, base: Loaded, data: bytes, attempt: Attempt) -> str:
        header = names.header_path(path)
        if base.token is None:
            call = self.backend.create(header, data)
        else:
            call = self.backend.replace(header, data, base.token)
        return await self.runtime.limit(call, self._share_s(attempt))

    def _took_place(self, path: str, slot: Slot, base: Loaded, made: Header) -> Committed:
        with self._slots_lock:
            slot.done_drops.intersection_update(made.drops)
            slot.settled.intersection_update({*made.merges, *made.aborts})
            if not slot.done_drops and not slot.settled:
                self._remembering.pop(path, None)
        return Committed(base.header, made)

    def _pause_s(self, slot: Slot, attempt: Attempt, cause: Exception) -> float:
        """How long to wait after an attempt that was not confirmed.

        Before the look, not after it: the next attempt must not be conditioned on what a pause has made old. But where
        so many write that their commit lines could push out one's own meanwhile, the verdict comes before the pause,
        and another look after it.
        """
        pause_s = backoff_s(attempt.count)
        if isinstance(cause, ConflictError) and attempt.base is not None:
            pause_s = slot.turns.pause_s(attempt.base.header, attempt.count)
        return min(pause_s, max(self._left_s(attempt), 0))

    async def _look(self, path: str, attempt: Attempt, cause: Exception) -> Loaded:
        """The header as it is now; asked again until the deadline, because without it nothing is known."""
        for count in itertools.count(1):
            if self._left_s(attempt) <= 0 and count > 1:
                break
            try:
                found = await self.runtime.limit(self.headers.load(path), max(self._share_s(attempt), LAST_LOOK_S))
                if self._judge(attempt, found) is Verdict.MINE:
                    await self.headers.secure(path, found)
                return found
            except (OSError, TimeoutError) as error:
                if isinstance(error, RollingError):
                    raise self._unknown(path, f"its header cannot be read: {error}") from cause
                logger.info("%s: cannot look at the header after %s: %s", path, cause, error)
                await self.runtime.sleep(min(backoff_s(count + 3), max(self._left_s(attempt), 0)))
        raise self._unknown(path, "the store did not answer in time") from cause

    def _check_time(self, path: str, attempt: Attempt, *, settled: bool, cause: Exception | None = None) -> None:
        """Raise what is to be said if there is no time for another attempt; `settled`: what was sent is void."""
        if self._left_s(attempt) > 0:
            return
        if not settled:
            why = (
                f"{attempt.count} requests in {self.timeout_s} s were not confirmed, the last: {cause!r}; "
                "the header has not changed so far, but one of them may still arrive"
            )
            raise self._unknown(path, why) from cause
        raced = f"other writers were faster {attempt.count} times"
        raise CommitTimeoutError(f"{path}: {cause or raced}; nothing was written within {self.timeout_s} s") from cause

    def _left_s(self, attempt: Attempt) -> float:
        if attempt.began.age_s(self.clock) > AGE_S_MAX:
            return 0.0
        return attempt.deadline_s - time.monotonic()

    def _share_s(self, attempt: Attempt) -> float:
        """For how long one request may take; the first has all of it, however long its chunks took to write."""
        share_s = self.timeout_s * ATTEMPT_SHARE
        is_first = attempt.count == 1 and attempt.began.age_s(self.clock) <= AGE_S_MAX
        return share_s if is_first else min(self._left_s(attempt), share_s)

    @staticmethod
    def _unknown(path: str, why: str) -> AppendOutcomeUnknown:
        return AppendOutcomeUnknown(
            f"{path}: whether the commit took place is unknown ({why}); read the segment before repeating it"
        )

    async def _interrupted(self, path: str, attempt: Attempt, cause: KeyboardInterrupt) -> AppendInterrupted:
        """Say what is known of a commit that Ctrl-C broke off: look once."""
        verdict = await self._looked_once(path, attempt)
        outcome = {Verdict.MINE: "committed", Verdict.NOT_MINE: "not committed"}.get(verdict, "unknown")
        return interrupted(path, outcome)

    async def _broken_off(self, path: str, attempt: Attempt, error: Exception) -> Committed:
        """What came of a commit that an error broke off which is no answer of the store: look once.

        Raises
        ------
        AppendOutcomeUnknown
            The look does not tell.
        """
        if not attempt.is_open:
            raise error
        verdict = await self._looked_once(path, attempt)
        if verdict is Verdict.NOT_MINE:
            raise error
        if verdict is not Verdict.MINE:
            raise self._unknown(path, f"it was broken off by {error!r}") from error
        logger.info("%s: committed, though %r came after the request", path, error)
        assert attempt.base is not None
        return Committed(attempt.base.header, attempt.wanted)

    async def _looked_once(self, path: str, attempt: Attempt) -> Verdict:
        """The verdict on what was sent, by one look at the header."""
        if not attempt.is_open:
            return Verdict.NOT_MINE
        try:
            return self._judge(attempt, await self.headers.load_durable(path))
        except Exception as error:  # noqa: BLE001 - memory may still be short: whatever comes, nothing is known
            logger.info("%s: cannot look at the header: %s", path, error)
            return Verdict.UNKNOWN

    # -- drops ---------------------------------------------------------------------------------------------

    async def finish_drops(self, path: str, header: Header) -> None:
        """Delete what the drop lines of a committed header name, in the segment's own folder.

        The lines go with the next commit. Hints are left to the collection of the folders they point at.
        """
        done = self.slot(path).done_drops
        due = [
            drop
            for drop in header.drops
            if not drop.is_hint and "/" not in drop.file and drop.after_ms <= self.now_ms() and drop not in done
        ]
        files: list[str] = []
        pages: list[str] = []
        of_pages = [drop for drop in due if drop.is_page]
        calls = [partial(self._dropped_from, path, drop) for drop in of_pages]
        for drop, of_page in zip(of_pages, await self.runtime.gather(calls, PAGE_READS_MAX), strict=True):
            files += of_page
            pages += [drop.file] * drop.whole
        files += [drop.file for drop in due if not drop.is_page and not names.is_staged(drop.file)]
        try:
            for group in (files, pages):  # a page goes last: it alone names its chunks
                if group:
                    await self.backend.delete([names.resolve(path, file) for file in group])
        except OSError as error:
            why = error.strerror or error
            text = f"{path}: committed, but what was dropped could not be deleted yet, collect() will: {why}"
            raise OSError(error.errno or errno.EIO, text) from error
        self.remember(path, drops=due, header=header)

    async def _dropped_from(self, path: str, drop: Drop) -> list[str]:
        try:
            chunks = await self.pages.raw(names.resolve(path, drop.file))
        except FileNotFoundError:
            return []  # the page goes last, so its chunks are gone
        return [
            chunk.file
            for chunk in placement.overlapping(chunks, drop.start, drop.end)
            if drop.start < chunk.end <= drop.end and "/" not in chunk.file and not names.is_staged(chunk.file)
        ]


def _is_refusal(error: Exception) -> bool:
    """Whether the store said that it will not, rather than that somebody was first."""
    if isinstance(error, ConflictError | FileExistsError):
        return False
    return isinstance(error, PermissionError) or (isinstance(error, OSError) and error.errno in _REFUSED)
