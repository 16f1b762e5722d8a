"""`Carrier`: one plain append whose bytes others may commit, and whose commit carries the bytes of others.

Every header that the append loads is judged here before an attempt is based on it, because another's commit may have
carried the bytes. No error leaves while the ask may still be carried: it is withdrawn first. Specified under "Asks" in
``docs/protocol.md``.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import TypeVar

from rollingfs.commit.ask_files import AskFiles
from rollingfs.commit.attempt import LAST_LOOK_S, Attempt, Committed, Plain
from rollingfs.commit.fairness import SLOTS_MAX, Slots
from rollingfs.commit.header_cache import Loaded
from rollingfs.commit.lost_answers import check_time, unknown
from rollingfs.commit.sharing import PASSED_VERSIONS_MAX, Sharing
from rollingfs.commit.store import Store
from rollingfs.errors import AppendOutcomeUnknown
from rollingfs.format import asks, names, transitions
from rollingfs.format.asks import Ask, Carry
from rollingfs.format.codec import format_header
from rollingfs.format.header import Header
from rollingfs.format.verdict import Verdict

logger = logging.getLogger("rollingfs")

T = TypeVar("T")

LOSSES_BEFORE_ASKING = 2
"""A writer that pauses between its appends asks after so many lost races."""
WITHDRAWALS_MAX = 3
"""A client tries to withdraw an ask so many times."""


class Carrier:
    """The part of one plain append in what others commit.

    Parameters
    ----------
    attempt
        The attempts of the append.
    data
        Its bytes, as one ask; None if they cannot be asked for.
    segment
        The incarnation that it is bound to; None for any.
    next_number
        A new operation number of this writer.
    """

    def __init__(
        self,
        attempt: Attempt,
        data: bytes | None,
        segment: str | None,
        sharing: Sharing,
        files: AskFiles,
        next_number: Callable[[], int],
    ) -> None:
        self.attempt = attempt
        self._data = data
        self._segment = segment
        self._sharing = sharing
        self._files = files
        self._next_number = next_number
        self._has_read = False
        """Whether the others' asks were read for the attempt that comes next."""
        self._vain_waits = 0
        self._comings = 0

    # -- before an attempt ---------------------------------------------------------------------------------------

    async def prepare(self, base: Loaded, turn: Callable[[Loaded], Awaitable[Loaded]]) -> Loaded | Committed:
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
        attempt, sharing = self.attempt, self._sharing
        if (done := await self._judged(base)) is not None:
            return done
        header = base.header
        if not sharing.is_shared(header) or header is None or not asks.takes_plain(header) or self._tries_again:
            return await turn(base) if attempt.asked is None else base
        if sharing.turns.is_asked(header):
            found = await self._leave_turn(base)
            return await self.prepare(found, turn) if isinstance(found, Loaded) else found
        if sharing.is_outside(header, attempt.count):
            return await self._come_in(base)
        if sharing.stays(header) and sharing.is_recent(header):
            await self._read(header)
        elif attempt.asked is not None or (attempt.count == 0 and sharing.is_recent(header)):
            if sharing.waits(header) and (attempt.asked is not None or await self._ask(base)):
                return await self._wait(base)
        elif not attempt.fresh and sharing.is_stale(header):
            found = await self._look(header)
            attempt.fresh = True
            return await self.prepare(found, turn)
        return base

    @property
    def _tries_again(self) -> bool:
        """Whether a writer that pauses has lost no more than one race for this append."""
        return self._sharing.pauses and self.attempt.count < LOSSES_BEFORE_ASKING

    def believes(self, header: Header) -> bool:
        """Whether a header of many writers was seen so short a time ago that an attempt may be based on it."""
        return self._sharing.is_shared(header) and self._sharing.is_recent(header)

    async def lost(self, base: Loaded, look: Callable[[], Awaitable[Loaded]]) -> Loaded | None:
        """Look at the header that has replaced `base`; at the same time ask, and read the others' asks.

        None, and no look, where few writers commit, or seldom: who has lost a race then pauses, as ever.
        """
        self._sharing.lost()
        header = base.header
        if header is None or not self._sharing.is_shared(header) or self._tries_again:
            return None
        found: list[Loaded] = []

        async def looks() -> None:
            began_s = time.monotonic()
            found.append(await look())
            self._sharing.looked(found[0].header, time.monotonic() - began_s)

        calls: list[Callable[[], Awaitable[object]]] = [looks]
        if not self._sharing.is_outside(header, self.attempt.count):
            calls.append(partial(self._read, header))
            if self.attempt.asked is None:
                calls.insert(0, partial(self._ask, base))
        await self.attempt.store.runtime.gather(calls, len(calls))
        return found[0]

    def carry(self, base: Header, size: int) -> tuple[Carry, list[bytes]]:
        """What the next attempt adds to its header, and the bytes of others behind its own `size` bytes."""
        chosen = asks.select(base, self._files.young(), self.attempt.writer)
        self._has_read = False
        return asks.carry(base, chosen, base.length + size), [ask.data for ask in chosen]

    def committed(self, header: Header, carried: Carry | None) -> None:
        """Note that an own attempt took place."""
        self._sharing.committed(header, len(carried.placed) if carried is not None else 0)
        self.attempt.asked = None

    # -- steps ---------------------------------------------------------------------------------------------------

    async def _ask(self, base: Loaded) -> bool:
        """Ask others to carry the bytes; False if they cannot be asked for. The base was judged."""
        attempt, header = self.attempt, base.header
        is_meant = header is not None and (self._segment is None or self._segment in header.incarnations)
        if self._data is None or header is None or not is_meant or not asks.takes_plain(header):
            return False
        ask = Ask(attempt.writer, attempt.number, header.segment, header.version, self._data)
        attempt.ask(base, ask)  # before it is sent: it may be carried from then on
        return await self._files.write(ask)

    async def _read(self, header: Header) -> None:
        if not self._has_read:
            await self._files.read(self._sharing.known(header), max(self.attempt.left_s(), LAST_LOOK_S))
            self._has_read = True

    async def _look(self, header: Header | None = None) -> Loaded:
        """The header as it is now; with `header`, the others' asks are read at the same time."""
        if header is not None:
            self._has_read = False
            found: list[Loaded] = []

            async def looks() -> None:
                found.append(await self._look())

            calls: list[Callable[[], Awaitable[object]]] = [looks, partial(self._read, header)]
            await self.attempt.store.runtime.gather(calls, len(calls))
            return found[0]
        began_s = time.monotonic()
        loaded = await self.attempt.load()
        self._sharing.looked(loaded.header, time.monotonic() - began_s)
        return loaded

    async def _judged(self, loaded: Loaded) -> Committed | None:
        """The result, if a header shows that the bytes were carried; None if it is clean.

        Raises
        ------
        AppendOutcomeUnknown
            The header does not tell.
        """
        attempt = self.attempt
        if attempt.asked is None:
            return None
        verdict = attempt.judge(loaded)
        if verdict is Verdict.MINE:
            await attempt.store.headers.secure(attempt.path, loaded)
            return self.took_place(loaded)
        if verdict is Verdict.UNKNOWN:
            raise unknown(attempt.path, "the header was replaced so often that no trace is left")
        attempt.clean(loaded)
        return None

    def took_place(self, current: Loaded) -> Committed:
        """The result of an append whose commit line a header shows.

        Raises
        ------
        AppendOutcomeUnknown
            It took place, and nothing says where its bytes begin.
        """
        attempt, header = self.attempt, current.header
        assert header is not None
        place = header.placed_of(attempt.writer, attempt.number) if attempt.asked is not None else None
        is_own = attempt.asked is None or (attempt.wanted is not None and attempt.wanted.segment == header.segment)
        if place is not None:
            # of a deleted segment, what was there before: a result is never a tombstone
            clean = attempt.seen or attempt.base
            before = clean.header if clean is not None else None
            attempt.done = Committed(before, before if header.deleted else header, place)
            self._sharing.carried(header)
        elif is_own:
            # the result is what this commit made: others may have gone on from it before the look
            attempt.done = Committed(attempt.base.header if attempt.base is not None else None, attempt.wanted)
        else:
            raise unknown(attempt.path, "it took place, but the segment was replaced before its offset could be read")
        attempt.asked = None
        return attempt.done

    async def _wait(self, base: Loaded) -> Loaded | Committed:
        """Wait until another's commit has carried the bytes, or until it is time to compete."""
        attempt, sharing, sleep = self.attempt, self._sharing, self.attempt.store.runtime.sleep
        assert base.header is not None
        passed_max, quiet_s = base.header.version + PASSED_VERSIONS_MAX, sharing.quiet_s(self._vain_waits)
        newest_s = time.monotonic()
        attempt.fresh = True
        await sleep(sharing.first_look_s)
        while True:
            check_time(attempt, is_void=True)
            is_quiet = time.monotonic() - newest_s > quiet_s
            now = await self._look(base.header if is_quiet else None)
            if (done := await self._judged(now)) is not None:
                return done
            if now.header is None or not asks.takes_plain(now.header):
                return now
            if sharing.is_outside(now.header, attempt.count):
                return await self._come_in(now)
            if attempt.asked is None and not await self._ask(now):  # a commit of another kind has voided it
                return now
            if now.token != base.token:
                newest_s, base = time.monotonic(), now
                if now.header.version >= passed_max:
                    return now
            elif is_quiet:
                self._vain_waits += 1
                return now
            await sleep(sharing.look_pause_s)

    async def _come_in(self, base: Loaded) -> Loaded | Committed:
        """Pause, then read the asks and look: the many writers that nobody looks for do not try at once."""
        attempt, sharing, sleep = self.attempt, self._sharing, self.attempt.store.runtime.sleep
        assert base.header is not None
        pause_s = sharing.newcomer_pause_s(base.header, attempt.count, self._comings)
        self._comings += 1
        until_s = time.monotonic() + min(pause_s, max(attempt.left_s() / 2, 0))
        while True:
            left_s = max(until_s - time.monotonic(), 0)
            # an ask may still be carried: its line must be seen before it goes
            await sleep(left_s if attempt.asked is None else min(left_s, sharing.look_pause_s))
            check_time(attempt, is_void=True)
            is_last = time.monotonic() >= until_s
            base, attempt.fresh = await self._look(base.header if is_last else None), True
            if (done := await self._judged(base)) is not None:
                return done
            if base.header is None or not asks.takes_plain(base.header):
                return base
            if is_last:  # the slowest of many answers takes long, and the header may have been replaced
                base = await self._look()
                return done if (done := await self._judged(base)) is not None else base

    async def _leave_turn(self, base: Loaded) -> Loaded | Committed:
        """Wait for a writer that has asked for the next commit, as long as appends do that share nothing."""
        attempt, turns = self.attempt, self._sharing.turns
        while turns.is_asked(base.header):
            check_time(attempt, is_void=True)
            await attempt.store.runtime.sleep(turns.asked_pause_s)
            base, attempt.fresh = await self._look(), True
            if (done := await self._judged(base)) is not None:
                return done
        return base

    # -- the end -------------------------------------------------------------------------------------------------

    async def definite(self, call: Awaitable[Committed]) -> Committed:
        """The result of the commit loop, once nobody can carry the bytes any more.

        Raises
        ------
        Exception
            The loop's error: the append did not take place and never will.
        AppendOutcomeUnknown
            Nobody knows.
        """
        attempt = self.attempt
        why: Exception | None = None
        try:
            result = await call
        except AppendOutcomeUnknown:
            raise
        except Exception as error:
            if attempt.asked is None:
                raise
            why = error
        if attempt.asked is None and why is None:
            return result
        verdict = await self.conclude()
        if verdict is Verdict.MINE and attempt.done is not None:
            return attempt.done
        if verdict is not Verdict.NOT_MINE:
            raise unknown(attempt.path, f"another client may still commit it, after {why!r}") from why
        if why is not None:
            raise why
        return result

    async def conclude(self) -> Verdict:
        """Find out for good whether the append took place; if it did not so far, withdraw it."""
        attempt = self.attempt
        numbers: set[int] = set()
        for _ in range(WITHDRAWALS_MAX):
            try:
                current = await self._soon(attempt.store.headers.load_durable(attempt.path))
                verdict = self._final(current, numbers)
                if verdict is None:
                    numbers.add(number := self._next_number())
                    await self._withdraw(current, number)
                    verdict = Verdict.NOT_MINE
            except Exception as error:  # noqa: BLE001 - whatever comes, another look says what is true now
                logger.info("%s: an append is not withdrawn yet: %r", attempt.path, error)
                continue
            if verdict is Verdict.NOT_MINE:
                attempt.asked, attempt.is_open = None, False
            return verdict
        return Verdict.UNKNOWN

    def _final(self, current: Loaded, withdrawals: set[int]) -> Verdict | None:
        """What a header says for good; None if the append may still take place."""
        attempt = self.attempt
        mine = current.header.commit_of(attempt.writer) if current.header is not None else None
        if mine is not None and mine.number in withdrawals:
            return Verdict.NOT_MINE  # each withdrawal replaced a header that was judged
        verdict = attempt.judge(current)
        if verdict is Verdict.MINE:
            self.took_place(current)
        elif verdict is not Verdict.UNKNOWN:
            is_dead = not attempt.is_open or verdict is Verdict.NOT_MINE
            attempt.clean(current)
            return Verdict.NOT_MINE if attempt.asked is None and is_dead else None
        return verdict

    async def _withdraw(self, current: Loaded, number: int) -> None:
        """Commit no bytes, under a higher number, on a header that was judged: then the ask is too old for ever."""
        attempt, headers = self.attempt, self.attempt.store.headers
        header, token = current.header, current.token
        assert header is not None
        assert token is not None
        now_ms = attempt.store.now_ms()
        wanted = transitions.stamp(replace(header, turn=None), header, attempt.writer, number, now_ms)
        began = headers.begin()
        call = attempt.store.backend.replace(names.header_path(attempt.path), format_header(wanted), token)
        headers.keep(attempt.path, Loaded(wanted, await self._soon(call)), began, is_own=True)

    async def _soon(self, call: Awaitable[T]) -> T:
        return await self.attempt.store.runtime.limit(call, max(self.attempt.share_s(), LAST_LOOK_S))


class Carriers:
    """What a client that shares commits remembers of each segment."""

    def __init__(self, store: Store, slots: Slots) -> None:
        self._store = store
        self._slots = slots
        self.after_fork()

    def after_fork(self) -> None:
        """In a child process: another writer, which has seen nothing."""
        self._segments: OrderedDict[str, tuple[Sharing, AskFiles]] = OrderedDict()
        self._lock = threading.RLock()

    def of(self, attempt: Attempt, plain: Plain) -> Carrier:
        """The carrier of one plain append; its caller holds the segment's slot."""
        path, store = attempt.path, self._store
        with self._lock:
            known = self._segments.get(path)
            if known is None or known[0].turns is not attempt.turns:
                known = self._segments[path] = Sharing(attempt.turns), AskFiles(store.backend, store.runtime, path)
            self._segments.move_to_end(path)
            if len(self._segments) > SLOTS_MAX:
                self._segments.popitem(last=False)
        return Carrier(attempt, plain.data, plain.segment, *known, self._slots.writer.next_number)

    def is_racing(self, path: str) -> bool:
        """Whether others commit to a segment, so that a group of appends should fit one ask."""
        with self._lock:
            known = self._segments.get(path)
        return known is not None and not known[0].is_alone
