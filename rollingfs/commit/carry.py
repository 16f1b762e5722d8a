"""`Carrier`: one plain append whose bytes others may commit, and whose commit carries the bytes of others.

Every header that the append loads is judged here before an attempt is based on it, because another's commit may have
carried the bytes. Specified under "Asks" in ``docs/protocol.md``.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from functools import partial

from rollingfs.commit.ask_files import AskFiles
from rollingfs.commit.ask_outcome import AskOutcome
from rollingfs.commit.attempt import LAST_LOOK_S, Attempt, Committed, Plain
from rollingfs.commit.fairness import SLOTS_MAX, Slots
from rollingfs.commit.glance import GLANCE_BYTES, version_to_wait_at
from rollingfs.commit.header_cache import Loaded
from rollingfs.commit.lost_answers import check_time
from rollingfs.commit.sharing import HOPED_VERSIONS_MAX, KNOWN_VERSIONS, PASSED_VERSIONS_MAX, Sharing
from rollingfs.commit.store import Store
from rollingfs.format import asks, names
from rollingfs.format.asks import Ask, Carry
from rollingfs.format.header import Header
from rollingfs.format.verdict import is_crowded

logger = logging.getLogger("rollingfs")

LOSSES_BEFORE_ASKING = 2
"""A writer that pauses between its appends asks after so many lost races."""

LIST_CYCLES_MAX = 4.0
"""A commit waits at most so many times as long as usual for the listing of asks beside it."""
LIST_S_MAX = 1.0


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
        self.outcome = AskOutcome(attempt, sharing, next_number)
        self._has_read = False
        """Whether the others' asks were read for the attempt that comes next."""
        self._has_hoped = False
        """Whether the append has waited for others since its last lost race, although nobody looks for its ask."""
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
        if (done := await self.outcome.judged(base)) is not None:
            return done
        header = base.header
        if header is not None and attempt.asked is not None and not self._has_hoped and sharing.hopes(header):
            self._has_hoped = True
            return await self._wait(base, HOPED_VERSIONS_MAX)
        if not sharing.is_shared(header) or header is None or not asks.takes_plain(header) or self._tries_again:
            base = await turn(base)
            return await self.outcome.judged(base) or base
        if sharing.turns.is_asked(header):
            found = await self._leave_turn(base)
            return await self.prepare(found, turn) if isinstance(found, Loaded) else found
        if sharing.is_outside(header, attempt.count):
            return await self._come_in(base)
        if sharing.stays(header) and sharing.is_recent(header):
            self._has_read = self._has_read or sharing.has_read_ahead(header)
            if not self._has_read and attempt.asked is None:
                await attempt.store.runtime.sleep(sharing.linger_s())
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
        return self.attempt.count < LOSSES_BEFORE_ASKING and self._sharing.pauses

    def believes(self, header: Header) -> bool:
        """Whether a header of many writers was seen so short a time ago that an attempt may be based on it."""
        return self._sharing.is_shared(header) and self._sharing.is_recent(header)

    async def lost(self, base: Loaded, look: Callable[[], Awaitable[Loaded]]) -> Loaded | None:
        """Look at the header that has replaced `base`; at the same time ask, and read the others' asks.

        None, and no look, where few writers commit, or seldom: who has lost a race then pauses, as ever.
        """
        attempt, sharing = self.attempt, self._sharing
        sharing.lost()
        self._has_hoped = False
        header = base.header
        if header is None or self._tries_again:
            return None
        is_shared, is_outside = sharing.is_shared(header), sharing.is_outside(header, attempt.count)
        if not is_shared and (attempt.asked is not None or is_outside or not sharing.is_unheard(header)):
            return None  # else it asks all the same: who wins every race lists asks now and then
        found: list[Loaded] = []

        async def looks() -> None:
            began_s = time.monotonic()
            found.append(await look())
            self._sharing.looked(found[0].header, time.monotonic() - began_s)

        calls: list[Callable[[], Awaitable[object]]] = [looks]
        if not is_outside:
            if is_shared and not sharing.waits(header):
                calls.append(partial(self._read, header))
            if self.attempt.asked is None:
                calls.insert(0, partial(self._ask, base))
        await self.attempt.store.runtime.gather(calls, len(calls))
        return found[0]

    async def beside(self, base: Loaded, call: Awaitable[str]) -> str:
        """Replace `base` by this call; at the same time, now and then, look who asks, or read the asks for the next."""
        header, sharing, runtime = base.header, self._sharing, self.attempt.store.runtime
        if header is None:
            return await call
        carried = {line.writer for line in self.attempt.carry.lines} if self.attempt.carry is not None else set()

        async def replace() -> str:
            return await call

        calls: list[Callable[[], Awaitable[str | None]]] = [replace]
        if sharing.lists(header):
            calls.append(partial(self._aside, partial(self._list, header)))
        if runtime.is_async and sharing.reads_ahead(header, len(carried)):
            calls.append(partial(self._aside, partial(self._read_ahead, header, carried)))
        if len(calls) == 1:
            return await call
        token = (await runtime.gather(calls, len(calls)))[0]
        assert token is not None
        return token

    async def _aside(self, call: Callable[[], Awaitable[None]]) -> None:
        """Do something beside a request whose outcome must not depend on it, whatever goes wrong."""
        try:
            await call()
        except Exception as error:  # noqa: BLE001 - else the request would be cancelled on its way
            logger.info("%s: asks of others could not be looked for: %r", self.attempt.path, error)

    async def _list(self, header: Header) -> None:
        sharing, began_s = self._sharing, time.monotonic()
        writers = await self._files.find(min(sharing.cycle_s * LIST_CYCLES_MAX, LIST_S_MAX))
        is_after = not self.attempt.store.runtime.is_async  # otherwise it goes on beside the commit
        sharing.listed(header, writers, time.monotonic() - began_s if is_after else 0.0)

    async def _read_ahead(self, header: Header, carried: set[str]) -> None:
        sharing = self._sharing
        skipped = carried | sharing.just_carried(header)  # these cannot have asked again
        if await self._files.read(sharing.known(header), sharing.ahead_s, skipped=skipped):
            sharing.read_ahead(header.version + 1)

    def carry(self, base: Header, size: int) -> tuple[Carry, list[bytes]]:
        """What the next attempt adds to its header, and the bytes of others behind its own `size` bytes."""
        chosen = asks.select(base, self._files.young(), self.attempt.writer)
        self._has_read = False
        return asks.carry(base, chosen, base.length + size), [ask.data for ask in chosen]

    def committed(self, header: Header, carried: Carry | None) -> None:
        """Note that an own attempt took place."""
        self._sharing.committed(header, len(carried.lines) if carried is not None else 0)
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
            known, skipped = self._sharing.known(header), self._sharing.just_carried(header)
            await self._files.read(known, max(self.attempt.left_s(), LAST_LOOK_S), skipped=skipped)
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

    async def _glance(self) -> int | None:
        """The version of the header, if its text shows that it is to be waited on; None if a look must tell."""
        attempt, sharing, backend = self.attempt, self._sharing, self.attempt.store.backend
        ask, path = attempt.asked, names.header_path(attempt.path)
        if ask is None or not backend.has_quick_ranges:
            return None
        try:
            data = await attempt.store.runtime.limit(backend.read_range(path, 0, GLANCE_BYTES), LAST_LOOK_S)
        except (OSError, TimeoutError):
            return None  # a look tells what there is to say
        version = version_to_wait_at(bytes(data), ask, KNOWN_VERSIONS)
        if version is not None:
            sharing.saw_version(ask.segment, version)
        return version

    async def _wait(self, base: Loaded, versions_max: int = PASSED_VERSIONS_MAX) -> Loaded | Committed:
        """Wait until another's commit has carried the bytes, or until it is time to compete."""
        attempt, sharing, sleep = self.attempt, self._sharing, self.attempt.store.runtime.sleep
        assert base.header is not None
        passed_max, quiet_s = base.header.version + versions_max, sharing.quiet_s(self._vain_waits)
        began_s = newest_s = time.monotonic()
        version = base.header.version
        attempt.fresh = True
        await sleep(sharing.first_look_s)
        while True:
            check_time(attempt, is_void=True)
            is_quiet = time.monotonic() - newest_s > quiet_s
            glanced = None if is_quiet or is_crowded(base.header) else await self._glance()
            if glanced is not None and glanced < passed_max:
                if glanced != version:
                    version, newest_s = glanced, time.monotonic()
                await sleep(sharing.look_pause_s)
                continue
            now = await self._look(base.header if is_quiet else None)
            if (done := await self.outcome.judged(now)) is not None:
                if attempt.store.backend.has_quick_ranges:  # elsewhere a late look misses the next commit, simulated
                    sharing.waited(time.monotonic() - began_s)
                return done
            if now.header is None or not asks.takes_plain(now.header):
                return now
            if sharing.is_outside(now.header, attempt.count):
                return await self._come_in(now)
            if attempt.asked is None and not await self._ask(now):  # a commit of another kind has voided it
                return now
            is_new = now.token != base.token and now.header.version != version
            base, version = now, now.header.version
            if version >= passed_max:
                return now
            if is_new:
                newest_s = time.monotonic()
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
            if (done := await self.outcome.judged(base)) is not None:
                return done
            if base.header is None or not asks.takes_plain(base.header):
                return base
            if is_last:  # the slowest of many answers takes long, and the header may have been replaced
                base = await self._look()
                return done if (done := await self.outcome.judged(base)) is not None else base

    async def _leave_turn(self, base: Loaded) -> Loaded | Committed:
        """Wait for a writer that has asked for the next commit, as long as appends do that share nothing."""
        attempt, turns = self.attempt, self._sharing.turns
        while turns.is_asked(base.header):
            check_time(attempt, is_void=True)
            await attempt.store.runtime.sleep(turns.asked_pause_s)
            base, attempt.fresh = await self._look(), True
            if (done := await self.outcome.judged(base)) is not None:
                return done
        return base


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
