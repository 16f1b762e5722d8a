"""`LostAnswers` reads the header after a lost answer, and finds out whether the commit took place.

Only success is a verdict by itself. Rules P5.7 to P5.17 of the protocol.
"""

from __future__ import annotations

import errno
import itertools
import logging

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
from rollingfs.runtime.concurrency import backoff_s
from rollingfs.segment.commit.attempt import LAST_LOOK_S, Attempt, check_time, unknown, untold
from rollingfs.segment.commit.operation import Verdict, is_crowded
from rollingfs.segment.segment import Segment

logger = logging.getLogger("rollingfs")

REFUSALS_MAX = 2
_REFUSED = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.ENAMETOOLONG, errno.ENOTDIR}
_REFUSED |= {errno.EILSEQ, errno.EFBIG, errno.ENOSYS} | UNSUPPORTED
"""Errors that resending the same bytes will not mend."""
_DEFINITE = (ConflictError, FileExistsError, LockedError)
"""Whether conflicts are final: the request wrote no byte."""


class LostAnswers:
    """The unconfirmed requests on a base, and their outcomes by the header."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._refusals = 0
        self._doubts = 0
        self._is_certain = attempt.store.backend.capability.conflicts_are_final
        """Whether the store has refused every request before it wrote anything."""
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
        assert attempt.sent.base is not None
        if isinstance(cause, UnflushedError):
            raise unknown(attempt.operation.path, str(cause)) from cause
        self._is_refused = self._is_refused and isinstance(cause, _DEFINITE)
        self._is_certain = self._is_certain and self._is_refused
        has_bucket = not isinstance(cause, NoBucketError)
        pause_s = self._pause_s(cause)
        looks_first = not self._is_certain and is_crowded(attempt.sent.base.header)
        if pause_s > 0 and not looks_first and has_bucket:  # in a turn, there is none
            await attempt.store.runtime.sleep(pause_s)
        current = await self._look(cause)
        verdict = attempt.judge(current, may_be_gone=not self._is_refused)
        logger.debug("%s: attempt %d (%s): %s", attempt.operation.path, attempt.count, cause, verdict.value)
        if not has_bucket and current.token is None:
            self._check_bucket(cause)
        if verdict is Verdict.SAME and current.token is None and self._may_be_gone(cause):
            raise unknown(
                attempt.operation.path, "the segment may have been made, and moved or deleted since"
            ) from cause
        if verdict is Verdict.UNKNOWN and not self._is_certain:
            raise untold(attempt.operation.path, current.header) from cause
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
        """Whether the request may have made a segment that a later rename or delete would leave no trace of."""
        is_definite = isinstance(cause, _DEFINITE) or _is_refusal(cause)
        return self._attempt.store.backend.capability.removes_whole and not is_definite

    def _pause_s(self, cause: Exception) -> float:
        attempt = self._attempt
        if (attempt.prompt or attempt.has_turns) and isinstance(cause, ConflictError):
            attempt.turns.meet()
            return 0.0
        pause_s = backoff_s(attempt.count)
        if isinstance(cause, ConflictError) and attempt.sent.base is not None:
            pause_s = attempt.turns.pause_s(attempt.sent.base.header, attempt.count)
        return min(pause_s, max(attempt.left_s(), 0))

    async def _look(self, cause: Exception) -> Segment:
        """The header as it is now; looked for until the deadline, because only the header has the outcome."""
        attempt, store = self._attempt, self._attempt.store
        for count in itertools.count(1):
            if attempt.left_s() <= 0 and count > 1:
                break
            try:
                load = store.headers.load(attempt.operation.path)
                found = await store.runtime.limit(load, max(attempt.share_s(), LAST_LOOK_S))
                if attempt.judge(found) is Verdict.MINE:
                    await store.headers.secure(attempt.operation.path, found)
                return found
            except LostCommitError:
                raise
            except (OSError, TimeoutError) as error:
                if isinstance(error, RollingError):
                    raise unknown(attempt.operation.path, f"its header cannot be read: {error}") from cause
                logger.info("%s: cannot look at the header after %s: %s", attempt.operation.path, cause, error)
                await store.runtime.sleep(min(backoff_s(count + 3), max(attempt.left_s(), 0)))
        raise unknown(attempt.operation.path, "the store did not answer in time") from cause

    def _check_bucket(self, cause: Exception) -> None:
        """Raise for a bucket that does not exist: no byte is written, unless an earlier request may still arrive."""
        if self._doubts or self._refusals:
            raise unknown(
                self._attempt.operation.path, "its bucket is gone, but an earlier request may still arrive"
            ) from cause
        raise cause

    def _check_refusals(self, cause: Exception) -> None:
        """Raise if another request is useless: the store refuses it for good, or no time is left."""
        path = self._attempt.operation.path
        self._refusals += _is_refusal(cause)
        self._doubts += not (_is_refusal(cause) or isinstance(cause, LockedError))
        if self._refusals >= REFUSALS_MAX and self._doubts:
            raise unknown(path, "the store refuses now, but an earlier request may still arrive") from cause
        if self._refusals >= REFUSALS_MAX:
            raise not_committed(cause, path) if isinstance(cause, OSError) else cause from cause
        check_time(self._attempt, is_void=not (self._refusals or self._doubts), cause=cause)


def _is_refusal(error: Exception) -> bool:
    """Whether the store refuses the request itself, rather than that another writer was first."""
    if isinstance(error, ConflictError | FileExistsError):
        return False
    return isinstance(error, PermissionError) or (isinstance(error, OSError) and error.errno in _REFUSED)


# -- interrupted by an error that is not an answer of the store -----------------------------------------------------


async def after_interrupt(attempt: Attempt) -> AppendInterrupted:
    """Return the error for a commit that Ctrl-C interrupted, with the outcome by a look at the header."""
    verdict = await _looked_once(attempt)
    outcome = {Verdict.MINE: "committed", Verdict.NOT_MINE: "not committed"}.get(verdict, "unknown")
    return interrupted(attempt.operation.path, outcome)


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
        raise unknown(attempt.operation.path, f"{error!r} interrupted it") from error
    logger.info("%s: committed, although %r came after the request", attempt.operation.path, error)


async def _looked_once(attempt: Attempt) -> Verdict:
    """Return the verdict of a look at the header on the requests."""
    if not attempt.is_out:
        return Verdict.NOT_MINE
    try:
        return attempt.judge(await attempt.store.headers.load_durable(attempt.operation.path))
    except Exception as error:  # noqa: BLE001 - memory may still be short: whatever comes, nothing is known
        logger.info("%s: cannot look at the header: %s", attempt.operation.path, error)
        return Verdict.UNKNOWN
