"""`Outcome`: what became of a plain append whose bytes others may commit.

No error leaves while the ask may still be carried: it is withdrawn first. Specified under "Asks" in
``docs/protocol.md``.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Iterator
from dataclasses import replace
from typing import TypeVar

from rollingfs.commit.attempt import LAST_LOOK_S, Attempt, unknown
from rollingfs.commit.header_cache import Loaded
from rollingfs.commit.operation import Committed
from rollingfs.format import names, transitions
from rollingfs.format.codec import format_header
from rollingfs.format.verdict import Verdict

logger = logging.getLogger("rollingfs")

T = TypeVar("T")

WITHDRAWALS_MAX = 3
"""Number of times that a client tries to withdraw an ask."""


class Outcome:
    """Whether one append took place, by the headers that it has seen.

    Parameters
    ----------
    attempt
        The attempts of the append.
    numbers
        Gives new operation numbers of this writer.
    """

    def __init__(self, attempt: Attempt, numbers: Iterator[int]) -> None:
        self._attempt = attempt
        self._numbers = numbers

    async def so_far(self, found: Loaded) -> Committed | None:
        """The result, if a header shows that the append took place; None if the header is clean.

        Raises
        ------
        AppendOutcomeUnknown
            The header does not tell.
        """
        attempt = self._attempt
        if attempt.sent.asked is None:
            return None
        verdict = attempt.judge(found)
        if verdict is Verdict.MINE:
            await attempt.store.headers.secure(attempt.path, found)
            return self._took_place(found)
        if verdict is Verdict.UNKNOWN:
            raise unknown(attempt.path, "the header was replaced so often that no trace is left")
        attempt.sent = attempt.sent.cleaned(found)
        return None

    async def for_good(self) -> Committed | None:
        """The result, if the append took place; None once it never will, because its ask is withdrawn.

        Raises
        ------
        AppendOutcomeUnknown
            Nobody knows.
        """
        attempt = self._attempt
        numbers: set[int] = set()
        for _ in range(WITHDRAWALS_MAX):
            try:
                current = await self._soon(attempt.store.headers.load_durable(attempt.path))
                verdict = self._final(current, numbers)
                if verdict is None:
                    numbers.add(number := next(self._numbers))
                    await self._withdraw(current, number)
                    verdict = Verdict.NOT_MINE
            except Exception as error:  # noqa: BLE001 - whatever comes, another look says what is true now
                logger.info("%s: an append is not withdrawn yet: %r", attempt.path, error)
                continue
            if verdict is Verdict.MINE:
                return self._took_place(current)
            if verdict is Verdict.NOT_MINE:
                attempt.sent = replace(attempt.sent, asked=None, is_open=False)
                return None
            break
        raise unknown(attempt.path, "another client may still commit it")

    def _took_place(self, current: Loaded) -> Committed:
        """The result of an append whose commit line a header shows.

        Raises
        ------
        AppendOutcomeUnknown
            It took place, and nothing says where its bytes begin.
        """
        attempt, header = self._attempt, current.header
        sent = attempt.sent
        assert header is not None
        line = header.commit_of(attempt.operation.writer)
        place = line.offset if line is not None and sent.asked is not None else None
        if place is not None and sent.asked is not None:
            # of a segment that is gone, what was there before: a result is neither a tombstone nor another incarnation
            clean = sent.seen or sent.base
            before, is_gone = clean.header if clean is not None else None, header.segment != sent.asked.segment
            attempt.done = Committed(before, before if is_gone or header.deleted else header, place)
            attempt.turns.carried(header)
        elif sent.wanted is not None:
            # the result is what this commit made: others may have gone on from it before the look
            attempt.done = Committed(sent.base.header if sent.base is not None else None, sent.wanted)
        else:
            raise unknown(attempt.path, "it took place, but nothing says where its bytes begin")
        attempt.sent = replace(sent, asked=None)
        return attempt.done

    def _final(self, current: Loaded, withdrawals: set[int]) -> Verdict | None:
        """What a header says for good; None if the append may still take place."""
        attempt = self._attempt
        mine = current.header.commit_of(attempt.operation.writer) if current.header is not None else None
        if mine is not None and mine.number in withdrawals:
            return Verdict.NOT_MINE  # each withdrawal replaced a header that was judged
        verdict = attempt.judge(current)
        if verdict in (Verdict.MINE, Verdict.UNKNOWN):
            return verdict
        is_dead = not attempt.sent.is_open or verdict is Verdict.NOT_MINE
        attempt.sent = attempt.sent.cleaned(current)
        return Verdict.NOT_MINE if attempt.sent.asked is None and is_dead else None

    async def _withdraw(self, current: Loaded, number: int) -> None:
        """Commit no bytes, under a higher number, on a header that was judged: then the ask is too old for ever."""
        attempt, headers = self._attempt, self._attempt.store.headers
        header, token = current.header, current.token
        assert header is not None
        assert token is not None
        now_ms = attempt.store.now_ms()
        wanted = transitions.stamp(replace(header, turn=None), header, attempt.operation.writer, number, now_ms)
        began = headers.begin()
        call = attempt.store.backend.replace(names.header_path(attempt.path), format_header(wanted), token)
        headers.keep(attempt.path, Loaded(wanted, await self._soon(call)), began, is_own=True)

    async def _soon(self, call: Awaitable[T]) -> T:
        return await self._attempt.store.runtime.limit(call, max(self._attempt.share_s(), LAST_LOOK_S))
