"""What a client recovers from: an answer that is lost, and the mark of a concat or rename that was broken off.

`LostAnswers` reads the header after a lost answer, and finds out whether the commit took place. Only success is a
verdict by itself (P5.7 to P5.17).

`Merges` finishes or undoes a broken-off operation. A source that is *merging* belongs to a transaction of a mover that
may be dead. If its target has the transaction, the source becomes a tombstone. If not, the target first records that
the transaction is aborted, so that the mover cannot win any more; then the source gets its prior state back.
Anybody who may write a folder can write a mark there that names a target elsewhere. So no file is written in another
folder than the source's, unless a pin in the target's chunk folder shows that a mover wrote there, too.
"""

from __future__ import annotations

import errno
import itertools
import logging
from collections.abc import Awaitable, Callable
from functools import partial

from rollingfs.backend.patience import look_for, read_fitting
from rollingfs.errors import (
    UNSUPPORTED,
    AppendInterrupted,
    ConflictError,
    LockedError,
    LostCommitError,
    NoBucketError,
    RollingError,
    UnflushedError,
    interrupted,
    not_committed,
)
from rollingfs.format import merging, names
from rollingfs.format.drops import with_hints
from rollingfs.format.header import Header, MergeOutcome, Phase
from rollingfs.format.merging import is_merging
from rollingfs.format.side_files import Pin, parse_pin, pin_path
from rollingfs.runtime.concurrency import backoff_s
from rollingfs.segment.commit.attempt import LAST_LOOK_S, Attempt, Committed, Verdict, check_time, is_crowded, unknown
from rollingfs.segment.commit.index_pages import PageGoneError
from rollingfs.segment.commit.removals import delete_shadowed, wait_for_new_date
from rollingfs.segment.commit.store import Store
from rollingfs.segment.segment import Segment

logger = logging.getLogger("rollingfs")

MARK_AGE_S_MAX = 5.0
"""The mover of a younger mark is presumably alive: others wait for it."""
MARK_POLL_S = 0.1
SOURCES_AT_ONCE_MAX = 8


class Merges:
    """Resolves the marks that concat and rename leave while they are under way.

    Parameters
    ----------
    commit
        `Commits.commit`.
    """

    def __init__(self, store: Store, commit: Callable[..., Awaitable[Committed]]) -> None:
        self.store = store
        self._commit = commit

    # -- one source ----------------------------------------------------------------------------------------

    async def resolve(self, path: str, header: Header) -> None:
        """Finish or undo the merge of the source at `path`, or wait until its mover has done so.

        Raises
        ------
        AppendOutcomeUnknown, CommitTimeoutError
            The store does not answer, or others were faster for too long.
        """
        merge = header.merge
        assert merge is not None
        waited_s = 0.0
        while waited_s < MARK_AGE_S_MAX and self.store.now_ms() - merge.at_ms < MARK_AGE_S_MAX * 1000:
            await self.store.runtime.sleep(MARK_POLL_S)
            waited_s += MARK_POLL_S
            if not is_merging((await self.store.headers.load(path)).header, merge.txn):
                return
        target = names.find(names.parent(path), merge.target)
        logger.info("%s: resolving the merge %s into %s", path, merge.txn, target)
        if target is None or target == path:
            took_place = False  # no mover made this mark, or another tool has moved the tree away from the target
        elif await self._is_evident(path, target, header):
            took_place = not await self.abort(path, target, header)
        else:  # the mover is done with the target, if there ever was one: its header tells
            found = (await self.store.headers.load_durable(target)).header
            took_place = found is not None and merging.has_merged(found, merge)
        if took_place:
            await self.finish(path, merge.txn)
        else:
            await self.reset(path, merge.txn)

    async def _is_evident(self, source: str, target: str, header: Header) -> bool:
        """Return whether the target's folder shows, by the mark or a pin, that a mover moves the source there."""
        if names.parent(source) == names.parent(target):
            return True
        assert header.merge is not None
        folder, txn = names.chunks_folder(target), header.merge.txn
        path, backend, runtime = pin_path(folder, txn), self.store.backend, self.store.runtime

        async def look() -> Pin | None:
            try:
                return await read_fitting(backend, runtime, path, lambda blob: parse_pin(blob.data, folder, path))
            except FileNotFoundError:
                return None

        pin = await look_for(backend, runtime, path, look)
        return pin is not None and pin.folded() == Pin(txn, source, target, header.segment).folded()

    async def abort(self, source: str, target: str, header: Header) -> bool:
        """Make sure that a merge never takes place; False if it has taken place already."""
        took_place = False
        merge = header.merge
        assert merge is not None

        async def pinned() -> list[str]:
            try:
                return await self.store.pages.hints(source, header.entries, target)
            except PageGoneError:
                if is_merging((await self.store.headers.load(source)).header, merge.txn):
                    raise
                return []  # another client has resolved the mark, and noted the folders

        async def step(base: Segment, attempt: Attempt) -> Header | None:
            nonlocal took_place
            found = base.header
            took_place = found is not None and merging.has_merged(found, merge)
            if took_place or (found is not None and merging.has_aborted(found, merge.txn)):
                return None
            mark = MergeOutcome(merge.txn, names.relative(names.parent(target), source))
            if found is None:
                # nothing is there that could carry the line: a rename's target, not made yet
                found = Header(merge.target_segment, 1, phase=Phase.DELETED, created_ms=self.store.now_ms())
            # the pins in these folders name it: its tombstone, when it becomes one, must stay until they are gone
            found = with_hints(found, await pinned(), self.store.now_ms())
            return merging.with_aborted(found, mark)

        await self._commit(target, step, fresh=True)
        return not took_place

    async def reset(self, source: str, txn: str) -> None:
        """Give a source its prior state back, after its transaction can not take place any more."""

        async def step(base: Segment, attempt: Attempt) -> Header | None:
            found = base.header
            return merging.unmark(found) if found is not None and is_merging(found, txn) else None

        await self._commit(source, step)

    async def finish(self, source: str, txn: str) -> Header | None:
        """Turn a source into a tombstone, after its transaction took place; return it, if the source still is there."""

        async def step(base: Segment, attempt: Attempt) -> Header | None:
            found = base.header
            if found is None or not is_merging(found, txn):
                return None
            hints = await self.store.pages.hints(source, found.entries)
            await wait_for_new_date(self.store, source, found.adopted, attempt.deadline_s)
            return with_hints(merging.bury(found, txn), hints, self.store.now_ms())

        header = (await self._commit(source, step)).header
        if header is None and is_merging((await self.store.headers.load_durable(source)).header, txn):
            header = (await self._commit(source, step)).header  # one look has not found it
        if header is None or header.merged != txn:
            return None
        await delete_shadowed(self.store, source, header.adopted)
        return header

    async def settled(self, path: str) -> Segment:
        """Return a header whose own merge is over, once those are settled that it has marks of."""
        loaded = await self.store.headers.load(path)
        while loaded.header is not None and loaded.header.phase is Phase.MERGING:
            await self.resolve(path, loaded.header)
            loaded = await self.store.headers.load(path)
        if loaded.header is not None and (loaded.header.merges or loaded.header.aborts):
            await self.settle(path)
        return loaded

    # -- all marks of a target -------------------------------------------------------------------------------

    async def settle(self, target: str) -> None:
        """Resolve the sources of all marks that a segment has, so that the next commit may drop the lines."""
        header = (await self.store.headers.load(target)).header
        if header is None:
            return
        merges = [partial(self._settle, target, header.segment, mark, True) for mark in header.merges]
        aborts = [partial(self._settle, target, header.segment, mark, False) for mark in header.aborts]
        await self.store.runtime.gather([*merges, *aborts], SOURCES_AT_ONCE_MAX)
        self.store.slots.remember(target, marks=[*header.merges, *header.aborts])

    async def _settle(self, target: str, segment: str, mark: MergeOutcome, took_place: bool) -> None:
        """Bring the source of a line to the state of the line, if its own mark names this target and incarnation.

        Otherwise the line has no owner, and may go: the source has been resolved, another tool has moved the tree, or
        somebody has made the line up.
        """
        source = names.find(names.parent(target), mark.source)
        if source is None or source == target:
            return
        header = (await self.store.headers.load_durable(source)).header
        merge = header.merge if header is not None else None
        if header is None or merge is None or merge.txn != mark.txn:
            return
        if names.folded(names.find(names.parent(source), merge.target) or "") != names.folded(target):
            return
        if took_place and merge.target_segment == segment:
            await self.finish(source, mark.txn)
        # a rename that was aborted has found another incarnation than the one that it would have made
        elif not took_place and (merge.target_segment == segment or await self._is_evident(source, target, header)):
            await self.reset(source, mark.txn)


REFUSALS_MAX = 2
_REFUSED = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.ENAMETOOLONG, errno.ENOTDIR}
_REFUSED |= {errno.EILSEQ, errno.EFBIG, errno.ENOSYS} | UNSUPPORTED
"""Errors that resending the same bytes will not mend."""
_NO_HEADER = "no header is there any more: the segment, or a folder above it, was moved or deleted"
_NO_TRACE = "the header was replaced so often, or was made anew, that no trace is left"
_DEFINITE = (ConflictError, FileExistsError, LockedError)
"""Whether conflicts are final: the request wrote no byte."""


class LostAnswers:
    """The unconfirmed requests on a base, and their outcomes by the header."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._refusals = 0
        self._doubts = 0
        self._is_refused = True
        """Whether every answer was a conflict, or that another holds the lock."""

    async def judge(self, cause: Exception) -> tuple[Verdict, Segment]:
        """Pause, look at the header and judge the newest request; `SAME` asks to send it again.

        The pause comes before the look, so that the next attempt is not based on a header that the pause has made old.
        But many writers could evict this writer's commit line during the pause. Then the verdict comes before the
        pause, and another look after it.

        Parameters
        ----------
        cause
            The store's answer to the request.

        Raises
        ------
        AppendOutcomeUnknown
            The header does not decide it, or there is no time left.
        OSError
            The store refuses the request for good, or the bucket does not exist.
        """
        attempt = self._attempt
        assert attempt.sent is not None
        if isinstance(cause, UnflushedError):
            raise unknown(attempt.path, str(cause)) from cause
        self._is_refused = self._is_refused and isinstance(cause, _DEFINITE)
        # whether the store has refused every request before it wrote anything
        is_certain = self._is_refused and attempt.store.backend.capability.conflicts_are_final
        has_bucket = not isinstance(cause, NoBucketError)
        pause_s = self._pause_s(cause)
        looks_first = not is_certain and is_crowded(attempt.sent.base.header)
        if pause_s > 0 and not looks_first and has_bucket:  # in a turn, there is none
            await attempt.store.runtime.sleep(pause_s)
        current = await self._look(cause)
        verdict = attempt.judge(current, may_be_gone=not self._is_refused)
        logger.debug("%s: attempt %d (%s): %s", attempt.path, attempt.count, cause, verdict.value)
        if not has_bucket and current.token is None:
            if not (self._doubts or self._refusals):
                raise cause  # no byte is written
            raise unknown(attempt.path, "its bucket is gone, but an earlier request may still arrive") from cause
        if verdict is Verdict.SAME and current.token is None and self._may_be_gone(cause):
            raise unknown(attempt.path, "the segment may have been made, and moved or deleted since") from cause
        if verdict is Verdict.UNKNOWN and not is_certain:
            is_there = current.header is not None
            raise unknown(attempt.path, _NO_TRACE if is_there else _NO_HEADER) from cause
        if verdict is Verdict.UNKNOWN:
            verdict = Verdict.NOT_MINE
        if looks_first and verdict is not Verdict.MINE:
            await attempt.store.runtime.sleep(pause_s)
        if looks_first and verdict is Verdict.NOT_MINE:
            current = await attempt.load()
        if verdict is Verdict.SAME:
            self._check_refusals(cause)
        return verdict, current

    def _may_be_gone(self, cause: Exception) -> bool:
        """Return whether the request may have made a segment that a later rename or delete would leave no trace of."""
        is_definite = isinstance(cause, _DEFINITE) or _is_refusal(cause)
        return self._attempt.store.backend.capability.removes_whole and not is_definite

    def _pause_s(self, cause: Exception) -> float:
        attempt = self._attempt
        if (attempt.prompt or attempt.has_turns) and isinstance(cause, ConflictError):
            attempt.turns.meet()
            return 0.0
        pause_s = backoff_s(attempt.count)
        if isinstance(cause, ConflictError) and attempt.sent is not None:
            pause_s = attempt.turns.pause_s(attempt.sent.base.header, attempt.count)
        return min(pause_s, max(attempt.left_s(), 0))

    async def _look(self, cause: Exception) -> Segment:
        """Return the header as it is now; looked for until the deadline, because only the header has the outcome."""
        attempt, store, why = self._attempt, self._attempt.store, ""
        for count in itertools.count(1):
            if attempt.left_s() <= 0 and count > 1:
                break
            try:
                load = store.headers.load(attempt.path)
                found = await store.runtime.limit(load, max(attempt.share_s(), LAST_LOOK_S))
                if attempt.judge(found) is Verdict.MINE:
                    await store.headers.secure(attempt.path, found)
                return found
            except LostCommitError:
                raise
            except (OSError, TimeoutError) as error:
                if isinstance(error, RollingError):
                    raise unknown(attempt.path, f"its header cannot be read: {error}") from cause
                logger.info("%s: cannot look at the header after %s: %s", attempt.path, cause, error)
                why = f": {error}" if str(error) else ""
                await store.runtime.sleep(min(backoff_s(count + 3), max(attempt.left_s(), 0)))
        raise unknown(attempt.path, f"its header could not be read in time{why}") from cause

    def _check_refusals(self, cause: Exception) -> None:
        """Raise if another request is useless: the store refuses it for good, or no time is left."""
        path = self._attempt.path
        self._refusals += _is_refusal(cause)
        self._doubts += not (_is_refusal(cause) or isinstance(cause, LockedError))
        if self._refusals >= REFUSALS_MAX and self._doubts:
            raise unknown(path, "the store refuses now, but an earlier request may still arrive") from cause
        if self._refusals >= REFUSALS_MAX:
            raise not_committed(cause, path) if isinstance(cause, OSError) else cause from cause
        check_time(self._attempt, is_void=not (self._refusals or self._doubts), cause=cause)


def _is_refusal(error: Exception) -> bool:
    """Return whether the store refuses the request itself, rather than that another writer was first."""
    if isinstance(error, ConflictError | FileExistsError):
        return False
    return isinstance(error, PermissionError) or (isinstance(error, OSError) and error.errno in _REFUSED)


# -- interrupted by an error that is not an answer of the store -----------------------------------------------------


async def after_interrupt(attempt: Attempt) -> AppendInterrupted:
    """Return the error for a commit that Ctrl-C interrupted, with the outcome by a look at the header."""
    verdict = await _looked_once(attempt)
    outcome = {Verdict.MINE: "committed", Verdict.NOT_MINE: "not committed"}.get(verdict, "unknown")
    return interrupted(attempt.path, outcome)


async def after_error(attempt: Attempt, error: Exception) -> None:
    """Return if a look at the header shows an interrupted commit.

    Raises
    ------
    AppendOutcomeUnknown
        The look does not decide it.
    Exception
        The error itself: the commit did not take place.
    """
    verdict = await _looked_once(attempt)
    if verdict is Verdict.NOT_MINE:
        raise error
    if verdict is not Verdict.MINE:
        raise unknown(attempt.path, f"{error!r} interrupted it") from error
    logger.info("%s: committed, although %r came after the request", attempt.path, error)


async def _looked_once(attempt: Attempt) -> Verdict:
    """Return the verdict of a look at the header on the requests."""
    if attempt.sent is None:
        return Verdict.NOT_MINE
    try:
        return attempt.judge(await attempt.store.headers.load_durable(attempt.path))
    except Exception as error:  # noqa: BLE001 - memory may still be short: whatever comes, nothing is known
        logger.info("%s: cannot look at the header: %s", attempt.path, error)
        return Verdict.UNKNOWN
