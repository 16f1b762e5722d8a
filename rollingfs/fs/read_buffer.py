"""The read buffer of an open file: the bytes of a snapshot, fetched ahead if reads follow each other.

Also bytes that Arrow holds: the end of a program waits a moment until Arrow has given them back.
"""

from __future__ import annotations

import atexit
import concurrent.futures
import time
import weakref
from collections.abc import Callable, Coroutine
from typing import Any

from rollingfs.backend.contract import Buffer
from rollingfs.errors import ConflictError
from rollingfs.fs.core import Tuning
from rollingfs.runtime.bridge import Bridge
from rollingfs.segment.at import At
from rollingfs.segment.read.piece_checks import RUNS_MAX, PieceChecks
from rollingfs.segment.read.prefetch import PREFETCH_RANGE_BYTES, Ahead, Prefetch
from rollingfs.segment.read.revalidate import OUTDATED, Current, Span, Trust, read_current
from rollingfs.segment.segment import Segment

LINE_BYTES = 64 * 1024
"""Bytes fetched for a line that is not in the buffer."""
SYNC_BUFFER_BYTES = 256 * 1024
"""Fetched by a small read that follows another, without fetching ahead."""
BUFFER_KEPT_BYTES_MAX = 4 * 1024 * 1024
OPEN_TRIES_MAX = 8
"""Maximum number of looks at a plain file that others replace while it is opened."""
WAIT_S_MIN = 0.01
"""Lets threads of Arrow, which wait for Python's lock, go first."""
WAIT_S_MAX = 0.25
"""The program itself holds the memory that Arrow still has then, as for a table of an Arrow file."""
WAIT_STEP_S = 0.001


class ReadBuffer:
    """The bytes of a path for a reader that makes a single call at a time.

    All reads are of a single snapshot. If the client knows the header already, the first read goes by that, and over an
    async backend the store is asked during the first request for data whether that header is still the newest. Within
    the cache time of headers (0 by default), the store is asked only if the read finds the header out of date.

    Parameters
    ----------
    snapshot
        The snapshot to read; by default the present snapshot.
    tuning
        The limits of requests under way and of bytes fetched ahead, and whether to fetch ahead.
    verify
        Read chunks whole and verify them before any of their bytes is given, without fetching ahead.
    """

    _ahead: Ahead | None = None

    def __init__(
        self, client: At, bridge: Bridge, path: str, snapshot: Segment | None, tuning: Tuning, *, verify: bool
    ) -> None:
        self.source: Callable[[int, int], bytes] | None = None
        """Gives the bytes between two segment offsets instead of the store: a cache of fsspec's."""
        self._fetcher = client.fetcher
        self._bridge = bridge
        self._tuning = tuning
        self._limit = tuning.max_concurrency or client.backend.capability.requests_max
        self._verify = verify
        self._checks = PieceChecks(RUNS_MAX)
        self._held_file: object | None = None
        self._current = Current(client.headers, path, snapshot)
        if snapshot is None:
            self._current.believe(old=bridge.is_async)
        self.is_unsure = snapshot is None and self._current.snapshot is not None and self._current.trust is Trust.OLD
        """Whether a caller must call `settle` before it uses the snapshot."""
        self._open()

    def _open(self) -> None:
        """Take a snapshot at first; a plain file is held, so that it stays the same file."""
        if self._current.snapshot is not None:
            self._begin()
            return
        for _ in range(OPEN_TRIES_MAX):
            self._bridge.run(self._current.look(fresh=False))
            if self._begin():
                return

    def _begin(self) -> bool:
        """Begin to read by the snapshot that is current now; whether it could be held, if it is to be."""
        self.snapshot = self._current.known
        """The segment that is read."""
        self._data, self._start = b"", 0
        """The buffered bytes, and their segment offset."""
        self._fetched_end = self.snapshot.start
        if self._bridge.is_async:
            self.plan_ahead()
        try:
            self._held_file = None if self.snapshot.header is not None else self._fetcher.hold(self.snapshot)
        except (FileNotFoundError, ConflictError):
            return False  # the first read raises its error
        return True

    def count_chunks(self) -> int:
        """Return the number of the snapshot's chunks; it is exact, as in `info` of the path."""
        header = self.snapshot.header
        assert header is not None
        return self._bridge.run(self._fetcher.pages.count(self.snapshot.path, header))

    def close(self, *, is_ours: bool) -> None:
        """Drop everything; cancel the requests if they are `is_ours`, and not a parent process's."""
        ahead = self._ahead
        self._ahead = self._held_file = self.source = None
        self._data = b""
        if is_ours and ahead is not None:
            ahead.close()

    # -- the snapshot --------------------------------------------------------------------------------------

    def settle(self, span: Span | None) -> None:
        """Ask the store for the snapshot if it is unsure, and at the same time for the first data.

        Parameters
        ----------
        span
            Segment offsets that are wanted first, or None.
        """
        if not self.is_unsure:
            return  # another thread was faster
        answer: bytes | Exception = b""
        if span is None:
            self._bridge.run(self._current.look())
        else:
            wanted = [(self._current, span)]
            read = read_current(self._fetcher, wanted, looks_max=0, limit=self._limit, **self._options())
            [answer] = self._bridge.run(read)
        self.is_unsure = self._current.trust is Trust.OLD  # if the look failed
        if self._current.known.token != self.snapshot.token:
            self._restart()
        if isinstance(answer, Exception):
            raise answer
        if span is not None and answer:
            self._fetched(span(self.snapshot)[0], answer)

    def first(self, read: Callable[[], bytes]) -> bytes:
        """Read; if the very first read finds that a cached header is out of date, read by a new snapshot."""
        try:
            data = read()
        except OUTDATED:
            if self._current.trust is not Trust.RECENT:
                raise
            self._bridge.run(self._current.look())
            self._restart()
            data = read()
        self._current.trust = Trust.LOOKED
        return data

    def _restart(self) -> None:
        if self._ahead is not None:
            self._ahead.close()
        self._begin()

    # -- bytes, by segment offsets -------------------------------------------------------------------------

    def fetch(self, snapshot: Segment, start: int, end: int) -> Coroutine[Any, Any, bytes]:
        """Return the bytes ``[start, end)``, past the buffer; many threads at once may."""
        return self._fetcher.read(snapshot, start, end, limit=self._limit, **self._options())

    def _options(self) -> dict[str, Any]:
        return {"checks": None if self._verify else self._checks, "verify": self._verify}

    def held(self, offset: int) -> int:
        """Return the number of bytes from an offset on that the buffer holds."""
        return len(self._data) - (offset - self._start) if 0 <= offset - self._start < len(self._data) else 0

    def held_line(self, offset: int) -> bytes:
        """Return the line that begins at an offset, its end included; None if its end is not in the buffer."""
        first = offset - self._start
        return self._data[first : self._data.find(b"\n", first) + 1] if 0 <= first < len(self._data) else b""

    def read(self, start: int, end: int) -> bytes:
        """Return the bytes ``[start, end)``."""
        parts = []
        while start < end:
            self._load(start, end)
            parts.append(self._data[start - self._start : end - self._start])
            start += len(parts[-1])
        if start == self._fetched_end and len(self._data) > BUFFER_KEPT_BYTES_MAX:
            self._data = b""
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def line(self, start: int, end: int) -> bytes:
        """Return the bytes from `start` to the end of the line, that included, or to `end`."""
        parts = []
        while start < end:
            self._load(start, min(start + LINE_BYTES, end))
            first, last = start - self._start, end - self._start
            found = self._data.find(b"\n", first, last) + 1
            parts.append(self._data[first : found or last])
            start += len(parts[-1])
            if found:
                break
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _load(self, start: int, end: int) -> None:
        """Get the byte at `start` into the buffer, and what else of ``[start, end)`` comes with it."""
        if 0 <= start - self._start < len(self._data):
            return
        if self.source is not None:
            self._keep(start, self.source(start, end))
            return
        ahead = self._ahead  # another thread may close the file
        if ahead is not None and (found := self._taken(ahead, start, end)) is not None:
            self._keep(*found)
            return
        if self._verify:  # the rest of its chunks is read anyway: it is buffered, if memory allows
            first, last = self._bridge.run(self._fetcher.whole_chunks(self.snapshot, start, end))
            if last - first <= max(self._tuning.memory_bytes, end - start):
                start, end = first, last
        elif not self._bridge.is_async and start == self._fetched_end:
            end = max(end, min(start + SYNC_BUFFER_BYTES, self.snapshot.length))
        tail = self._fetcher.at_hand(self.snapshot, start, end)
        self._fetched(start, self._bridge.run(self.fetch(self.snapshot, start, end)) if tail is None else tail)

    def _taken(self, ahead: Ahead, start: int, end: int) -> tuple[int, bytes] | None:
        """Return the bytes that were fetched ahead."""
        try:
            return ahead.take(start, end)
        except Exception as error:
            if self._ahead is not ahead:
                raise ValueError(f"{self.snapshot.path}: the file was closed while it was read") from error
            raise
        finally:
            if self._ahead is not ahead:
                ahead.close()  # what it has begun since

    def _fetched(self, start: int, data: bytes) -> None:
        """Keep bytes that were fetched here, and let the fetcher note the bytes that it gives."""
        self._keep(start, data)
        if (ahead := self._ahead) is not None:
            ahead.read(start, data)

    def _keep(self, start: int, data: bytes) -> None:
        self._data, self._start = data, start
        self._fetched_end = start + len(data)

    def plan_ahead(self) -> None:
        """Begin again with an empty plan of bytes to fetch ahead."""
        self._ahead = None
        if not (self._bridge.is_async and self._tuning.prefetch) or self._verify:
            return
        snapshot, fetcher, bridge, checks = self.snapshot, self._fetcher, self._bridge, self._checks

        def begin(first: int, last: int, limit: int | None = None) -> concurrent.futures.Future[Buffer]:
            how = {"range_bytes": PREFETCH_RANGE_BYTES, "checks": checks}
            return bridge.start(fetcher.read_view(snapshot, first, last, limit=limit, **how))

        row = Prefetch(begin, snapshot.start, snapshot.length, self._limit, self._tuning.memory_bytes)
        self._ahead = Ahead(row, fetcher.footers, (snapshot.path, snapshot.token) if snapshot.token else None)


# -- bytes that Arrow holds ------------------------------------------------------------------------------------
# Threads of Arrow that give a Python object back while the interpreter ends abort the process (exit code 134,
# apache/arrow#34314). They do so just after a read has returned, so a short program that reads Parquet aborted often.

_lent: dict[int, weakref.ref[Any]] = {}
_was_used = False


def lent(data: bytes, file: object) -> memoryview:
    """Return the data of a file, for Arrow, which may give both back late."""
    global _was_used
    _was_used = True
    view = memoryview(data)
    for thing in (view, file):
        key = id(thing)
        _lent[key] = weakref.ref(thing, lambda _, key=key: _lent.pop(key, None))  # type: ignore[misc]  # key is an int
    return view


@atexit.register
def _at_end() -> None:
    if not _was_used:
        return
    began_s = time.monotonic()
    time.sleep(WAIT_S_MIN)
    while _lent and time.monotonic() - began_s < WAIT_S_MAX:
        time.sleep(WAIT_STEP_S)
