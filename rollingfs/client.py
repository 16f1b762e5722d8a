"""A client: everything that works on the segments of one backend, wired together."""

from __future__ import annotations

import time

from rollingfs.backend.contract import Backend
from rollingfs.commit.chunk_files import Chunks
from rollingfs.commit.header_cache import Headers
from rollingfs.commit.index_pages import Pages
from rollingfs.commit.loop import Committer
from rollingfs.commit.recovery import Merges
from rollingfs.maintenance.collect import Collector
from rollingfs.maintenance.export import Exporter
from rollingfs.policy import RollingPolicy
from rollingfs.read.contents import Contents
from rollingfs.read.ranges import Fetcher
from rollingfs.read.snapshot import Lookup
from rollingfs.runtime.clock import Clock
from rollingfs.runtime.concurrency import AsyncRuntime, Runtime, SyncRuntime
from rollingfs.write.concat import Concats
from rollingfs.write.segment_operations import Segments

HEADER_CACHE_S = 1.0
COMMIT_TIMEOUT_S = 60.0


class Client:
    """One writer on one backend: an id of its own, its caches, and the operations.

    Parameters
    ----------
    policy
        Of the segments that it creates.
    header_cache_s
        For how many seconds a header seen is believed without asking.
    commit_timeout_s
        How many seconds a commit tries before it gives up.
    clock
        The wall clock, seconds since 1970.
    """

    def __init__(
        self,
        backend: Backend,
        policy: RollingPolicy | None = None,
        *,
        header_cache_s: float = HEADER_CACHE_S,
        commit_timeout_s: float = COMMIT_TIMEOUT_S,
        clock: Clock = time.time,
    ) -> None:
        self.backend = backend
        self.runtime: Runtime = AsyncRuntime() if backend.is_async else SyncRuntime()
        self.headers = Headers(backend, header_cache_s)
        self.pages = Pages(backend, self.runtime)
        self.chunks = Chunks(backend, clock)
        self.lookup = Lookup(backend, self.headers)
        self.fetcher = Fetcher(backend, self.runtime, self.lookup, self.pages)
        self.committer = Committer(
            backend, self.runtime, self.headers, self.chunks, self.pages, timeout_s=commit_timeout_s, clock=clock
        )
        self.contents = Contents(backend, self.runtime, self.headers, self.lookup)
        self.segments = Segments(self.committer, self.lookup, self.contents, policy or RollingPolicy())
        self.merges = Merges(self.committer, self.headers)
        self.committer.resolve = self.merges.resolve
        self.committer.settle = self.merges.settle
        self.concats = Concats(self.committer, self.segments, self.merges)
        self.collector = Collector(self.committer, self.lookup, self.merges)
        self.exporter = Exporter(self.fetcher)

    def after_fork(self) -> None:
        """In a child process: another writer, no connection and no lock of the parent's."""
        self.backend.after_fork()
        self.committer.after_fork()
        self.segments.appender.after_fork()
        self.headers.after_fork()
        self.pages.after_fork()
