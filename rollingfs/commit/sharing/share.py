"""`Share`: one plain append whose bytes others may commit, and whose commit carries the bytes of others.

No error leaves while the ask may still be carried: it is withdrawn first. Specified under "Asks" in
``docs/protocol.md``.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TypeVar

from rollingfs.commit.attempt import LAST_LOOK_S, Attempt, Plain, check_time, unknown, untold
from rollingfs.commit.fairness import Slot
from rollingfs.commit.header_cache import Loaded
from rollingfs.commit.operation import Committed
from rollingfs.commit.sharing.files import AskFiles
from rollingfs.commit.sharing.others import LOSSES_MAX, PASSED_VERSIONS_MAX, Others
from rollingfs.errors import AppendOutcomeUnknown, ConflictError
from rollingfs.format import asks, names, transitions
from rollingfs.format.asks import Ask
from rollingfs.format.codec import format_header
from rollingfs.format.header import Commit, Header
from rollingfs.format.lost import Acknowledged
from rollingfs.format.verdict import Verdict

logger = logging.getLogger("rollingfs")

T = TypeVar("T")

WITHDRAWALS_MAX = 3
"""Number of times that a client tries to withdraw an ask."""


class Share:
    """The part of one plain append in what several writers commit."""

    def __init__(self, attempt: Attempt, plain: Plain, others: Others, files: AskFiles, numbers: Iterator[int]) -> None:
        self._attempt = attempt
        self._plain = plain
        self._others = others
        self._files = files
        self._numbers = numbers
        """Gives new operation numbers of this writer."""
        self._runtime = attempt.store.runtime
        self._goes_on: bool | None = None
        """Whether the append began a short time after a commit of others, or of this writer."""
        self._leads = False
        """Whether this writer made the last commit, a short time ago."""

    # -- the three calls -----------------------------------------------------------------------------------------

    async def before(self, base: Loaded, turn: Callable[[Loaded], Awaitable[Loaded]]) -> Loaded | Committed:
        """The header to base an attempt on, once it is time for one; or the result, if the bytes were carried.

        Parameters
        ----------
        turn
            Waits for this writer's turn, as appends do that share nothing.

        Raises
        ------
        AppendOutcomeUnknown
            A header does not tell whether they were.
        CommitTimeoutError
            No time is left.
        """
        attempt = self._attempt
        if (done := await self.judge(base)) is not None:
            return done
        others, header, is_recent = self._others, base.header, self._is_recent(base)
        if attempt.count and header is not None and header.asks is not None and not others.leads(header):
            others.met()
        self._goes_on = is_recent if self._goes_on is None else self._goes_on
        self._leads = is_recent and header is not None and others.leads(header)
        if header is not None and self._must_ask(header) and await self._ask(base):
            found = await self._wait(base)
        elif self._leads and header is not None:
            found = base
            if others.newcomers or not asks.select(header, self._files.young(), attempt.operation.writer):
                await self._read(header)
        else:
            found = await turn(base)
            found = await self.judge(found) or found
        attempt.others = self._files.young()
        return found

    async def beside(self, base: Loaded, call: Awaitable[str]) -> str:
        """Replace `base` by this call; at the same time, read the asks for the next commit, or look for asks."""
        attempt, others, header = self._attempt, self._others, base.header
        carried = {line.writer for line in attempt.carry.lines} if attempt.carry is not None else set()

        async def send() -> str:
            return await call

        calls: list[Callable[[], Awaitable[str | None]]] = [send]
        if header is not None and others.must_list:
            calls.append(partial(self._aside, partial(self._list, header)))
        if header is not None and self._leads:
            calls.append(partial(self._aside, partial(self._read_ahead, header, carried)))
        try:
            token = (await self._runtime.gather(calls, len(calls)))[0] if len(calls) > 1 else await call
        except ConflictError:
            others.lost()
            raise
        others.committed(len(carried))
        attempt.sent = replace(attempt.sent, asked=None)
        assert token is not None
        return token

    async def judge(self, found: Loaded | None = None) -> Committed | None:
        """The result, if a header shows that the append took place; None if it has not taken place so far.

        Parameters
        ----------
        found
            By default the header is loaded, and the ask is withdrawn: None then says that the append never will take
            place.

        Raises
        ------
        AppendOutcomeUnknown
            The header does not tell, or the ask could not be withdrawn.
        """
        done = await (self._for_good() if found is None else self._so_far(found))
        if done is not None:
            self._others.met()
        return done

    # -- asks of others -----------------------------------------------------------------------------------------

    def _is_recent(self, base: Loaded) -> bool:
        """Whether others share commits just now, and the header was seen so short a time ago that it is believed."""
        seen = self._attempt.store.headers.recent(self._attempt.path, self._others.patience_s)
        return not self._others.is_alone and seen is not None and seen.token == base.token

    def _must_ask(self, header: Header) -> bool:
        """Whether it is better to ask than to try: the last commit was a sharer's plain append."""
        attempt, others = self._attempt, self._others
        if header.asks is None or others.leads(header):
            return False
        is_outrun = attempt.sent.asked is not None or attempt.count >= LOSSES_MAX
        return is_outrun or (bool(self._goes_on) and others.are_carrying(header))

    async def _ask(self, base: Loaded) -> bool:
        """Ask others to carry the bytes; False if they cannot be asked for. The base was judged."""
        attempt, header, plain = self._attempt, base.header, self._plain
        if attempt.sent.asked is not None:
            return True
        is_meant = header is not None and (plain.segment is None or plain.segment in header.incarnations)
        if plain.data is None or header is None or not is_meant or not asks.takes_plain(header):
            return False
        ask = Ask(attempt.operation.writer, attempt.operation.number, header.segment, header.version, plain.data)
        attempt.sent = attempt.sent.asking(base, ask)  # before it is sent: it may be carried from then on
        return await self._files.write(ask)

    async def _wait(self, base: Loaded) -> Loaded | Committed:
        """Wait until another's commit has carried the bytes, or until it is time to compete."""
        attempt, others, sleep = self._attempt, self._others, self._runtime.sleep
        assert base.header is not None
        passed_max = base.header.version + PASSED_VERSIONS_MAX
        quiet_s = others.quiet_s()
        newest_s = time.monotonic()
        await sleep(others.look_s)
        while True:
            check_time(attempt, is_void=True)
            is_last = time.monotonic() - newest_s > quiet_s or base.header.version >= passed_max
            now = await self._look(base.header if is_last else None)
            if (done := await self.judge(now)) is not None:
                return done
            if now.header is None or now.header.asks is None or not await self._ask(now):
                return now
            if is_last:
                return now
            if now.token != base.token:
                newest_s = time.monotonic()
            base = now
            await sleep(others.look_pause_s)

    async def _look(self, known: Header | None = None) -> Loaded:
        """The header as it is now; with a header, the asks of the writers that it names are read at the same time."""

        async def look() -> Loaded:
            began_s = time.monotonic()
            found = await self._attempt.load()
            self._others.looked(time.monotonic() - began_s)
            return found

        calls: list[Callable[[], Awaitable[Loaded | None]]] = [look]
        if known is not None:
            calls.append(partial(self._read, known))
        found = (await self._runtime.gather(calls, len(calls)))[0]
        assert found is not None
        self._attempt.fresh = True
        return found

    # -- who carries ---------------------------------------------------------------------------------------------

    async def _read(self, header: Header) -> None:
        """Read the asks that the next attempt may carry."""
        await self._files.read(self._others.known(header), max(self._attempt.left_s(), LAST_LOOK_S))
        self._others.newcomers = frozenset()

    async def _read_ahead(self, header: Header, carried: set[str]) -> None:
        """Read the asks that the next append may carry; those that this one carries cannot have asked again."""
        others = self._others
        await self._files.read(others.known(header), others.patience_s, skipped=carried)

    async def _list(self, header: Header) -> None:
        others = self._others
        others.listed(await self._files.find(others.patience_s), header)

    async def _aside(self, call: Callable[[], Awaitable[None]]) -> None:
        """Do something beside a request whose outcome must not depend on it, whatever goes wrong."""
        try:
            await call()
        except Exception as error:  # noqa: BLE001 - else the request would be cancelled on its way
            logger.info("%s: asks of others could not be looked for: %r", self._attempt.path, error)

    # -- what became of it -----------------------------------------------------------------------------------------

    async def _so_far(self, found: Loaded) -> Committed | None:
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
            raise untold(attempt.path, found.header)
        attempt.sent = attempt.sent.cleaned(found)
        return None

    async def _for_good(self) -> Committed | None:
        """The result, if the append took place; None once it never will, because its ask is withdrawn.

        Raises
        ------
        AppendOutcomeUnknown
            Nobody knows.
        """
        attempt, numbers = self._attempt, set[int]()
        for _ in range(WITHDRAWALS_MAX):
            try:
                current = await self._soon(attempt.store.headers.load_durable(attempt.path))
                mine = current.header.commit_of(attempt.operation.writer) if current.header is not None else None
                # each withdrawal replaced a header that was judged
                is_withdrawn = mine is not None and mine.number in numbers
                verdict = Verdict.NOT_MINE if is_withdrawn else attempt.judge(current)
                if verdict is Verdict.MINE:
                    return self._took_place(current)
                if verdict is Verdict.UNKNOWN:
                    break
                if not is_withdrawn:
                    may_land = attempt.sent.is_open and verdict is Verdict.SAME
                    attempt.sent = attempt.sent.cleaned(current)
                    if may_land or attempt.sent.asked is not None:
                        numbers.add(number := next(self._numbers))
                        await self._withdraw(current, number)
            except AppendOutcomeUnknown:
                raise
            except Exception as error:  # noqa: BLE001 - whatever comes, another look says what is true now
                logger.info("%s: an append is not withdrawn yet: %r", attempt.path, error)
                continue
            attempt.sent = replace(attempt.sent, asked=None, is_open=False)
            return None
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
            self._acknowledge(line, before, header.segment, place, len(sent.asked.data))
        elif sent.wanted is not None:
            # the result is what this commit made: others may have gone on from it before the look
            attempt.done = Committed(sent.base.header if sent.base is not None else None, sent.wanted)
        else:
            raise unknown(attempt.path, "it took place, but nothing says where its bytes begin")
        attempt.sent = replace(sent, asked=None)
        return attempt.done

    def _acknowledge(self, line: Commit | None, before: Header | None, segment: str, start: int, size: int) -> None:
        """Note an append that another's commit has carried as this client's last commit."""
        if line is not None:
            own = before.commit_of(line.writer) if before is not None else None
            mine = Acknowledged(segment, line.writer, line.number, line.version, own, start, start + size)
            self._attempt.store.headers.acknowledge(self._attempt.path, mine)

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
        mine = Acknowledged.of(header, wanted, attempt.operation.writer, number)
        headers.keep(attempt.path, Loaded(wanted, await self._soon(call)), began, is_own=True, mine=mine)

    async def _soon(self, call: Awaitable[T]) -> T:
        return await self._runtime.limit(call, max(self._attempt.share_s(), LAST_LOOK_S))


def share_of(slot: Slot, attempt: Attempt, plain: Plain, numbers: Iterator[int]) -> Share:
    """The share of one plain append; its caller holds the segment's slot.

    Parameters
    ----------
    numbers
        Gives new operation numbers of this writer.
    """
    if slot.others is None:
        store = attempt.store
        slot.others = Others(attempt.turns), AskFiles(store.backend, store.runtime, attempt.path)
    others, files = slot.others
    return Share(attempt, plain, others, files, numbers)
