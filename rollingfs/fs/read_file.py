"""Files opened for reading: one snapshot, buffered, read ahead where reads follow each other."""

from __future__ import annotations

import concurrent.futures
import io
import itertools
import os
import threading
from collections.abc import Callable, Coroutine
from dataclasses import asdict
from typing import Any

from fsspec.caching import BaseCache, caches

from rollingfs.client import Client
from rollingfs.errors import ConflictError, SegmentTruncatedError
from rollingfs.folders.listing import info_of
from rollingfs.fs.file_caches import cached, check_cache_type, prepared
from rollingfs.read.piece_checks import RUNS_MAX, PieceChecks
from rollingfs.read.prefetch import PREFETCH_RANGE_BYTES, Prefetch
from rollingfs.read.snapshot import Snapshot
from rollingfs.read.tuning import Tuning
from rollingfs.runtime.bridge import Bridge

BLOCK_BYTES = 5 * 1024 * 1024
"""What `blocksize` says if nobody set it: how much a consumer that asks may read at once."""
LINE_BYTES = 64 * 1024
"""Fetched by a `readline` that finds nothing in the buffer."""
SYNC_BUFFER_BYTES = 256 * 1024
"""Fetched by a small read that follows another, where there is nothing to be prefetched."""
BUFFER_KEPT_BYTES_MAX = 4 * 1024 * 1024
OPEN_TRIES_MAX = 8
"""How often a plain file is looked at that others replace while it is opened."""


class ReadFile(io.BufferedIOBase):
    """A segment or plain file, opened for reading at one snapshot.

    Position 0 is the first retained byte. A file may be shared by threads, each call is atomic, and used in a
    forked child.

    Parameters
    ----------
    fs : RollingFileSystem
        What opens it again where it is unpickled.
    client
        Reads it.
    bridge
        Reaches the client's coroutines.
    path : str
        Of the segment.
    view
        The snapshot; by default what is there. Over an async backend a header that this client knows, but has
        not looked at within the cache time, is looked at again beside the first request for data.
    absolute : bool
        Positions are segment offsets; the first is that of the first retained byte, and `size` is the length.
    block_size : int, optional
        Only what `blocksize` says.
    cache_type, cache_options
        fsspec's ``"parts"`` (ranges that are known already; others are fetched, unless it is strict) is used. Of its
        other caches there is no need: they are taken for none.
    verify
        Read chunks whole and verify them before any of their bytes is given. Nothing is fetched ahead then.
    tuning
        How many requests may be under way, and whether and how much is fetched ahead.

    Raises
    ------
    ValueError
        More requests at once than the filesystem allows; a cache that fsspec does not know.
    FileNotFoundError
        Nothing is there.
    """

    mode = "rb"
    _cache: BaseCache | None = None
    _prefetch: Prefetch | None = None  # `close` runs also if the constructor raised

    def __init__(
        self,
        fs: Any,
        client: Client,
        bridge: Bridge,
        path: str,
        view: Snapshot | None = None,
        *,
        absolute: bool = False,
        block_size: int | str | None = None,
        cache_type: str | None = None,
        cache_options: dict[str, Any] | None = None,
        tuning: Tuning | None = None,
        verify: bool = False,
    ) -> None:
        super().__init__()
        check_cache_type(path, cache_type)
        self._tuning = tuning or Tuning()
        self._requests_max = self._tuning.max_concurrency or client.backend.requests_max
        if self._requests_max > client.backend.requests_max:
            raise ValueError(
                f"{path}: max_concurrency is {self._requests_max}, but the filesystem's is "
                f"{client.backend.requests_max}: make the filesystem with a larger max_concurrency"
            )
        self.fs = fs
        self.path = path
        self.absolute = absolute
        self.blocksize = block_size if isinstance(block_size, int) else BLOCK_BYTES
        self._client = client
        self._bridge = bridge
        self._process = os.getpid()
        self._lock = threading.RLock()
        self._provisional = False
        self._believed = False
        self._verify = verify
        self._checks = PieceChecks(RUNS_MAX)
        self._held_file: object | None = None
        self._view = self._opened(view or self._known())
        if absolute:
            self._settle()
        self.loc = self._view.start if absolute else 0
        self._buffer, self._buffer_start = b"", 0
        self._fetched_end = self._view.start
        self._prefetch = self._new_prefetch()
        if cache_type == "parts":
            self.cache = caches[cache_type](self.blocksize, self._fetch_range, self.size, **(cache_options or {}))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.path}>"

    def __reduce__(self) -> tuple[Callable[..., ReadFile], tuple[Any, ...]]:
        return _reopen, (self.fs, self.path, self.absolute, self.blocksize, self.loc, self._tuning, self._verify)

    # -- what it is ----------------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """Where the file ends, as a position; bytes retained unless it is `absolute`."""
        self._settle()
        return self._view.length - self._base

    @property
    def cache(self) -> BaseCache | None:
        """The cache that reads go through: fsspec's block cache gives one to each file that it has opened."""
        return self._cache

    @cache.setter
    def cache(self, cache: BaseCache | None) -> None:
        self._cache = prepared(cache)

    @property
    def details(self) -> dict[str, Any]:
        """What `info` says of the snapshot."""
        self._settle()
        return info_of(self._view)

    def info(self) -> dict[str, Any]:
        """What `RollingFileSystem.info` would have said when the file was opened."""
        return self.details

    @property
    def full_name(self) -> str:
        """The file's URL."""
        url: str = self.fs.unstrip_protocol(self.path)
        return url

    def readable(self) -> bool:
        return not self.closed

    def seekable(self) -> bool:
        return not self.closed

    def writable(self) -> bool:
        return False

    # -- positions -----------------------------------------------------------------------------------------

    def tell(self) -> int:
        return self.loc

    def seek(self, loc: int, whence: int = io.SEEK_SET, /) -> int:
        """Set the position; beyond the end there is nothing to read.

        Raises
        ------
        ValueError
            It would be negative, or `whence` is none of 0, 1 and 2.
        """
        with self._held():
            if whence not in (io.SEEK_SET, io.SEEK_CUR, io.SEEK_END):
                raise ValueError(f"{self.path}: whence is {whence}; it must be 0, 1 or 2")
            origin = self.loc if whence == io.SEEK_CUR else self.size if whence == io.SEEK_END else 0
            position = int(loc) + origin
            if position < 0:
                raise ValueError(f"{self.path}: position {position} lies before the file's beginning")
            self.loc = position
            return position

    # -- reading -------------------------------------------------------------------------------------------

    def read(self, size: int | None = -1, /) -> bytes:
        """Read up to `size` bytes, fewer only at the end; all that is left by default.

        Raises
        ------
        SegmentTruncatedError
            They have been truncated away since the file was opened, or (absolute) before.
        FileNotFoundError
            What was opened is gone.
        CorruptChunkError
            A chunk is missing, too short or fails its checksum. That is known with the last of its bytes: the ones
            before may have been given. After it, each read of that chunk fails.
        """
        size = -1 if size is None else int(size)
        with self._held():
            if size == 0:
                return b""
            self._settle(size)
            data = self._from_snapshot(self._get_span, size)
            self.loc += len(data)
            return data

    def _get_span(self, size: int) -> bytes:
        return self._get(*self._span(size))

    def read_at(self, nbytes: int, offset: int) -> bytes:
        """Read up to `nbytes` bytes from a position, and leave the file's own as it is; many threads at once may.

        Raises
        ------
        ValueError
            The position or the number of bytes is negative.
        SegmentTruncatedError, FileNotFoundError, CorruptChunkError
            As for `read`.
        """
        if nbytes < 0 or offset < 0:
            raise ValueError(f"{self.path}: {nbytes} bytes at position {offset} cannot be read")
        with self._held():
            self._settle()
            view, start = self._view, offset + self._base
        end = min(start + nbytes, view.length)
        if start >= end:
            return b""
        return self._bridge.run(self._read(view, start, end))

    def read1(self, size: int = -1, /) -> bytes:
        """Read up to `size` bytes with at most one wait: what is in the buffer, else like `read`."""
        with self._held():
            held = self._buffer_start + len(self._buffer) - self.loc - self._base
            if 0 < held <= len(self._buffer):
                return self.read(held if size < 0 else min(size, held))
            return self.read(LINE_BYTES if size < 0 else size)

    def read_buffer(self, size: int | None = -1) -> bytes:
        """`read`, for pyarrow, which takes what has a buffer without copying it."""
        return self.read(size)

    def readline(self, size: int | None = -1, /) -> bytes:
        """Read to the end of the line, that included, or up to `size` bytes."""
        limit = -1 if size is None else int(size)
        with self._held():
            first = self.loc + self._base - self._buffer_start
            if limit < 0 and 0 <= first < len(self._buffer):
                last = self._buffer.find(b"\n", first) + 1
                if last:
                    self.loc += last - first
                    return self._buffer[first:last]
            return self._line(limit)

    def _line(self, limit: int) -> bytes:
        self._settle(LINE_BYTES if limit < 0 else min(limit, LINE_BYTES))
        return self._from_snapshot(self._line_here, limit)

    def _line_here(self, limit: int) -> bytes:
        start, end = self._span(limit)
        parts = []
        while start < end:
            self._load(start, min(start + LINE_BYTES, end))
            first, last = start - self._buffer_start, end - self._buffer_start
            found = self._buffer.find(b"\n", first, last) + 1
            parts.append(self._buffer[first : found or last])
            start += len(parts[-1])
            if found:
                break
        self.loc = start - self._base
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def readuntil(self, char: bytes = b"\n", blocks: int | None = None) -> bytes:
        """Read to the first occurrence of some bytes, those included, or to the end.

        Parameters
        ----------
        char
            What to find.
        blocks
            How many bytes to read at once.
        """
        with self._held():
            start = self.loc
            found = bytearray()
            while part := self.read(blocks or LINE_BYTES):
                searched = max(0, len(found) - len(char) + 1)  # it may begin in the part before
                found += part
                at = found.find(char, searched)
                if at >= 0:
                    del found[at + len(char) :]
                    break
            self.loc = start + len(found)
            return bytes(found)

    def close(self) -> None:
        """Close the file and give up what is on its way; closing it again does nothing."""
        if self.closed:
            return
        if self._prefetch is not None and self._process == os.getpid():
            self._prefetch.close()
        self._prefetch = None
        self._held_file = None
        self._buffer = b""
        self.cache = None
        super().close()

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        is_closed: bool = super().closed
        return is_closed

    @closed.setter
    def closed(self, is_closed: bool) -> None:
        # fsspec's block cache says so of each file that it has closed
        if not is_closed:
            raise ValueError(f"{self.path}: a closed file cannot be opened by saying so; open it again")
        self.close()

    # -- the snapshot --------------------------------------------------------------------------------------

    def _known(self) -> Snapshot | None:
        """What this client knows of the segment, if that is recent or may be looked at again later."""
        headers = self._client.headers
        loaded = headers.recent(self.path)
        self._believed = loaded is not None and loaded.live
        if loaded is None and self._bridge.is_async and headers.cache_s > 0:
            loaded = headers.seen(self.path)
            self._provisional = loaded is not None and loaded.live
        return Snapshot(self.path, loaded.header, loaded.token) if loaded is not None and loaded.live else None

    def _opened(self, view: Snapshot | None) -> Snapshot:
        """The snapshot to read, by default what is there; a plain file is held, so that it stays the same file."""
        given = view
        for attempt in itertools.count(1):
            found = given or self._bridge.run(self._client.lookup.view(self.path))
            try:
                self._held_file = self._client.fetcher.hold(found)
            except (FileNotFoundError, ConflictError):
                if given is not None or attempt == OPEN_TRIES_MAX:
                    return found  # what has become of it, the first read says
                continue
            return found
        raise AssertionError("itertools.count ends")

    def _from_snapshot(self, read: Callable[[int], bytes], size: int) -> bytes:
        """Read; if the very first read meets a change that the header cache did not know of, from a new snapshot."""
        try:
            data = read(size)
        except (SegmentTruncatedError, FileNotFoundError):
            if not self._believed:
                raise
            self._renew()
            data = read(size)
        self._believed = False
        return data

    def _renew(self) -> None:
        self._take_snapshot(self._bridge.run(self._client.lookup.view(self.path, fresh=True)))

    def _take_snapshot(self, view: Snapshot) -> None:
        if self._prefetch is not None:
            self._prefetch.close()
        self._view = self._opened(view)
        self._prefetch = self._new_prefetch()
        self._buffer, self._fetched_end = b"", view.start

    def _settle(self, size: int = 0) -> None:
        """Make sure of the snapshot; the next `size` bytes (-1: all) are fetched beside the look."""
        if self._provisional:
            with self._held():
                self._settle_held(size)

    def _settle_held(self, size: int) -> None:
        if not self._provisional:
            return  # another thread was faster
        start, end = self._span(size) if size else (0, 0)
        view, data = self._bridge.run(self._look(start, end))
        self._provisional = False
        if view.token != self._view.token:
            self._take_snapshot(view)
        elif isinstance(data, Exception):
            raise data
        elif data:
            self._fetched(start, data)

    async def _look(self, start: int, end: int) -> tuple[Snapshot, bytes | Exception]:
        """The snapshot as it is now and, beside it, bytes of the one that is believed."""
        believed = self._view
        found: list[bytes | Exception] = [b""]

        async def look() -> Snapshot:
            return await self._client.lookup.view(self.path, fresh=True)

        async def fetch() -> Snapshot:
            found[:] = await self._client.fetcher.read_many(
                [(believed, start, end)], self._requests_max, checks=self._own_checks(), verify=self._verify
            )
            return believed

        calls = [look, fetch] if start < end else [look]
        view = (await self._client.runtime.gather(calls, len(calls)))[0]
        return view, found[0]

    # -- fetching, in segment offsets ----------------------------------------------------------------------

    @property
    def _base(self) -> int:
        """The segment offset of position 0."""
        return 0 if self.absolute else self._view.start

    def _held(self) -> threading.RLock:
        """The lock, if the file is open; in a forked child a new one, and nothing on its way."""
        if self._process != os.getpid():
            self._process = os.getpid()
            self._lock = threading.RLock()
            self._prefetch = self._new_prefetch()  # the other one is the parent's
        if self.closed:
            raise ValueError(f"{self.path}: the file is closed")
        return self._lock

    def _span(self, size: int) -> tuple[int, int]:
        """The next `size` bytes (-1: all) as segment offsets."""
        start = self.loc + self._base
        end = self._view.length if size < 0 else min(start + size, self._view.length)
        return start, max(start, end)

    def _fetch_range(self, start: int, end: int) -> bytes:
        """The bytes between two positions, for fsspec's caches: from any thread, and past what is buffered."""
        base, length = self._base, self._view.length
        first, last = min(start + base, length), min(end + base, length)
        return self._bridge.run(self._read(self._view, first, last)) if first < last else b""

    def _read(self, view: Snapshot, start: int, end: int) -> Coroutine[Any, Any, bytes]:
        return self._client.fetcher.read(
            view, start, end, limit=self._requests_max, checks=self._own_checks(), verify=self._verify
        )

    def _own_checks(self) -> PieceChecks | None:
        return None if self._verify else self._checks

    def _get(self, start: int, end: int) -> bytes:
        parts = []
        while start < end:
            self._load(start, end)
            parts.append(self._buffer[start - self._buffer_start : end - self._buffer_start])
            start += len(parts[-1])
        if start == self._fetched_end and len(self._buffer) > BUFFER_KEPT_BYTES_MAX:
            self._buffer = b""
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _load(self, start: int, end: int) -> None:
        """Get the byte at `start` into the buffer, and what else of ``[start, end)`` comes with it."""
        if 0 <= start - self._buffer_start < len(self._buffer):
            return
        if self.cache is not None:
            first, last = start - self._base, end - self._base
            self._keep(start, cached(self.cache, self.path, first, last, self._fetch_range))
            return
        found = self._prefetch.take(start, end) if self._prefetch is not None else None
        if found is not None:
            self._keep(*found)
            return
        if self._verify:
            start, end = self._widened(start, end)
        elif not self._bridge.is_async and start == self._fetched_end:
            end = max(end, min(start + SYNC_BUFFER_BYTES, self._view.length))
        self._fetched(start, self._bridge.run(self._read(self._view, start, end)))

    def _widened(self, start: int, end: int) -> tuple[int, int]:
        """A range with the rest of its chunks, which are read anyway: to be buffered, if memory allows."""
        first, last = self._bridge.run(self._client.fetcher.whole_chunks(self._view, start, end))
        return (first, last) if last - first <= max(self._tuning.memory_bytes, end - start) else (start, end)

    def _fetched(self, start: int, data: bytes) -> None:
        """Keep what was fetched here; the prefetch, which notes what it gives, is told of it."""
        self._keep(start, data)
        if self._prefetch is not None:
            self._prefetch.read(start, self._fetched_end)

    def _keep(self, start: int, data: bytes) -> None:
        self._buffer, self._buffer_start = data, start
        self._fetched_end = start + len(data)

    def _new_prefetch(self) -> Prefetch | None:
        if not (self._bridge.is_async and self._tuning.prefetch) or self._verify:
            return None
        view, fetcher, bridge, checks = self._view, self._client.fetcher, self._bridge, self._checks

        def begin(first: int, last: int) -> concurrent.futures.Future[bytes]:
            return bridge.start(fetcher.read(view, first, last, range_bytes=PREFETCH_RANGE_BYTES, checks=checks))

        return Prefetch(begin, view.length, self._requests_max, self._tuning.memory_bytes)


def _reopen(
    fs: Any, path: str, absolute: bool, block_size: int, loc: int, tuning: Tuning, verify: bool = False
) -> ReadFile:
    options = {name: True for name, is_set in (("absolute", absolute), ("verify", verify)) if is_set}
    file: ReadFile = fs.open(path, "rb", block_size=block_size, **options, **asdict(tuning))
    file.seek(loc)
    return file
