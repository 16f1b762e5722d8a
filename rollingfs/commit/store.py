"""The context of every operation: one record of the backend, its caches, its clock and the way to wait."""

from __future__ import annotations

import time
from dataclasses import dataclass

from rollingfs.backend.contract import Backend
from rollingfs.backend.probe import Abilities
from rollingfs.backend.verdicts import Verdicts
from rollingfs.commit.chunk_files import Chunks
from rollingfs.commit.header_cache import Headers
from rollingfs.commit.index_pages import Pages
from rollingfs.runtime.clock import Clock
from rollingfs.runtime.concurrency import Runtime


@dataclass(frozen=True, slots=True)
class Store:
    """The store that one client works on."""

    backend: Backend
    runtime: Runtime
    headers: Headers
    pages: Pages
    chunks: Chunks
    verdicts: Verdicts
    clock: Clock = time.time

    def now_ms(self) -> int:
        """The wall clock, milliseconds since 1970."""
        return round(self.clock() * 1000)

    async def abilities(self, path: str) -> Abilities:
        """What the store can really do where a segment lies: probed once for each root, before the first write.

        Raises
        ------
        UnsafeBackendError
            It cannot create or replace atomically.
        OSError
            It failed before it could be judged.
        """
        return await self.verdicts.abilities(path)

    def after_fork(self) -> None:
        """In a child process: no connection of the parent's, and caches that nobody has locked."""
        self.backend.after_fork()
        self.headers.after_fork()
        self.pages.after_fork()
        self.verdicts.after_fork()
