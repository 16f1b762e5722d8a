"""`Share`: one plain append whose bytes others may commit, and whose commit carries the bytes of others."""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial

from rollingfs.commit.attempt import LAST_LOOK_S, Attempt, Plain, check_time
from rollingfs.commit.fairness import SLOTS_MAX, Writer
from rollingfs.commit.header_cache import Loaded
from rollingfs.commit.operation import Committed
from rollingfs.commit.sharing.files import AskFiles
from rollingfs.commit.sharing.others import LOSSES_MAX, PASSED_VERSIONS_MAX, Others
from rollingfs.commit.sharing.outcome import Outcome
from rollingfs.commit.store import Store
from rollingfs.errors import ConflictError
from rollingfs.format import asks
from rollingfs.format.asks import Ask
from rollingfs.format.header import Header

logger = logging.getLogger("rollingfs")


class Share:
    """The part of one plain append in what several writers commit."""

    def __init__(self, attempt: Attempt, plain: Plain, others: Others, files: AskFiles, outcome: Outcome) -> None:
        self._attempt = attempt
        self._plain = plain
        self._others = others
        self._files = files
        self._outcome = outcome
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
        done = await (self._outcome.for_good() if found is None else self._outcome.so_far(found))
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
        found: list[Loaded] = []

        async def look() -> None:
            began_s = time.monotonic()
            found.append(await self._attempt.load())
            self._others.looked(time.monotonic() - began_s)

        calls: list[Callable[[], Awaitable[object]]] = [look]
        if known is not None:
            calls.append(partial(self._read, known))
        await self._runtime.gather(calls, len(calls))
        self._attempt.fresh = True
        return found[0]

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


class Sharing:
    """What a client that shares commits remembers of each segment."""

    def __init__(self, store: Store, writer: Writer) -> None:
        self._store = store
        self._writer = writer
        self.after_fork()

    def after_fork(self) -> None:
        """In a child process: another writer, which has seen nothing."""
        self._segments: OrderedDict[str, tuple[Others, AskFiles]] = OrderedDict()
        self._lock = threading.RLock()

    def of(self, attempt: Attempt, plain: Plain) -> Share:
        """The share of one plain append; its caller holds the segment's slot."""
        path, store = attempt.path, self._store
        with self._lock:
            known = self._segments.get(path)
            if known is None or known[0].turns is not attempt.turns:
                known = self._segments[path] = Others(attempt.turns), AskFiles(store.backend, store.runtime, path)
            self._segments.move_to_end(path)
            if len(self._segments) > SLOTS_MAX:
                self._segments.popitem(last=False)
        others, files = known
        return Share(attempt, plain, others, files, Outcome(attempt, self._writer.numbers))
