"""The files in which the writers of one segment ask, as one client writes its own and reads the others'."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from heapq import nlargest

from rollingfs.backend.contract import Backend, FileInfo
from rollingfs.format import names
from rollingfs.format.asks import Ask, ask_path, format_ask, parse_ask
from rollingfs.format.header import CARRIED_LINES_MAX
from rollingfs.runtime.concurrency import Runtime
from rollingfs.runtime.values import value_class

logger = logging.getLogger("rollingfs")

ASK_AGE_S_MAX = 10.0
"""No commit carries an older ask, by the store's clock: its writer may be dead. The clock is read as often."""
REQUEST_S_MAX = 5.0
"""Requests for asks are given up after this time: a commit does not depend on them."""


@value_class
class _Found:
    """An ask as it was read; None if its file says nothing."""

    ask: Ask | None
    token: str
    modified_s: float


class AskFiles:
    """Asks of one segment.

    Parameters
    ----------
    path
        The segment.
    """

    def __init__(self, backend: Backend, runtime: Runtime, path: str) -> None:
        self._backend = backend
        self._runtime = runtime
        self._path = path
        self._found: dict[str, _Found] = {}
        self._ahead_s: float | None = None
        """How far the store's clock is ahead of the monotonic clock; None if it is not known."""
        self._clock_s = 0.0
        """When the store's clock was read."""

    async def write(self, ask: Ask) -> bool:
        """Put an ask into its writer's file; False if that failed, or may have."""
        try:
            put = self._backend.put(ask_path(self._path, ask.writer), format_ask(ask))
            await self._runtime.limit(put, REQUEST_S_MAX)
        except (OSError, TimeoutError) as error:  # it is a courtesy: without it, the writer competes
            logger.info("%s: cannot ask others to carry an append: %r", self._path, error)
            return False
        return True

    async def read(
        self, writers: Collection[str], wait_s: float = REQUEST_S_MAX, *, skipped: Collection[str] = ()
    ) -> None:
        """Look at the asks of these writers, all at once; those that cannot be read in time are left out.

        Parameters
        ----------
        skipped
            Of these writers, what was read before still counts.
        """
        self._found = {writer: found for writer, found in self._found.items() if writer in writers}
        calls: list[Callable[[], Awaitable[None]]] = [
            partial(self._read_one, writer) for writer in writers if writer not in skipped
        ]
        if self._is_clock_old:
            calls.append(self._read_clock)
        limit = self._backend.small_requests_max or self._backend.requests_max
        try:
            await self._runtime.limit(self._runtime.gather(calls, limit), min(wait_s, REQUEST_S_MAX))
        except (OSError, TimeoutError) as error:
            logger.info("%s: not all asks of others could be read: %r", self._path, error)

    async def _read_one(self, writer: str) -> None:
        path, known = ask_path(self._path, writer), self._found.get(writer)
        try:
            if known is not None:
                blob = await self._backend.read_if_changed(path, known.token)
            else:
                blob = await self._backend.read(path)
        except FileNotFoundError:
            self._found.pop(writer, None)
            return
        except OSError as error:
            logger.info("%s: an ask cannot be read: %r", self._path, error)
            return
        if blob is None:
            return
        ask: Ask | None = None
        try:
            ask = parse_ask(blob.data, path)
        except OSError as error:
            logger.info("%s: an ask is ignored: %s", self._path, error)
        is_late = known is not None and known.ask is not None and ask is not None and ask.number < known.ask.number
        if ask is not None and (ask.writer != writer or is_late):
            ask = None
        self._found[writer] = _Found(ask, blob.token, blob.modified)

    async def find(self, wait_s: float) -> set[str]:
        """The writers of young asks, those first that asked last; none if the store does not say it in time.

        Where neither the listing nor an answer of before has told the store's clock, those of all asks: a commit waits
        for this, so it does not ask for the clock. The reader of these asks does.
        """
        try:
            young = await self._runtime.limit(self._list_young(), wait_s)
        except (OSError, TimeoutError) as error:
            logger.info("%s: asks of others could not be listed: %r", self._path, error)
            return set()
        young = nlargest(CARRIED_LINES_MAX, young, key=lambda file: file.modified)
        return {file.path.rpartition(names.ASK_PREFIX)[2] for file in young}

    async def _list_young(self) -> list[FileInfo]:
        listing = await self._backend.list_prefix(names.chunks_folder(self._path), names.ASK_PREFIX)
        now_s = listing.now
        if now_s is None and self._ahead_s is not None:  # files of the dead may lie there for ever
            now_s = time.monotonic() + self._ahead_s
        return [file for file in listing.entries if now_s is None or file.modified >= now_s - ASK_AGE_S_MAX]

    @property
    def _is_clock_old(self) -> bool:
        return self._ahead_s is None or time.monotonic() - self._clock_s > ASK_AGE_S_MAX

    async def _read_clock(self) -> None:
        now_s = await self._backend.now(self._path)
        self._clock_s = time.monotonic()
        self._ahead_s = now_s - self._clock_s

    def young(self) -> list[Ask]:
        """The asks that were read and are young enough to be carried."""
        if self._ahead_s is None:
            return []
        since_s = time.monotonic() + self._ahead_s - ASK_AGE_S_MAX
        return [found.ask for found in self._found.values() if found.ask is not None and found.modified_s >= since_s]
