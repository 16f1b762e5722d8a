"""Files opened for reading: positions, fsspec's ways, and a lock, over a `ReadBuffer`."""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any

from fsspec.caching import BaseCache, KnownPartsOfAFile, MMapCache, caches

from rollingfs.folders.info import info_of
from rollingfs.fs.core import Core, Tuning
from rollingfs.fs.read_buffer import LINE_BYTES, ReadBuffer, lent
from rollingfs.segment.segment import Segment

BLOCK_BYTES = 5 * 1024 * 1024
"""Default of `blocksize`: bytes that a consumer may read at once."""


class ReadFile(io.BufferedIOBase):
    """A segment or plain file, opened for reading at a single snapshot.

    Position 0 is the first retained byte. Threads may share a file, and a forked child may use it: each call is atomic,
    and `_take` explains the position that threads share.

    Parameters
    ----------
    core
        Of the filesystem that opens the file again where it is unpickled.
    path : str
        The segment's path.
    snapshot
        The snapshot to read; by default the present snapshot (`ReadBuffer` has the rule for cached headers).
    absolute : bool
        Positions are segment offsets: the first belongs to the first retained byte, and `size` is the length.
    block_size : int, optional
        Only the value of `blocksize`.
    cache_type, cache_options
        fsspec's ``"parts"`` is used: ranges that are known already; others are fetched, unless it is strict. Its other
        caches are not needed, and ignored.
    verify
        Read chunks whole and verify them before any of their bytes is given, without fetching ahead.
    tuning
        The limits of requests under way and of bytes fetched ahead, and whether to fetch ahead.

    Raises
    ------
    ValueError
        `tuning` allows more requests at once than the filesystem does; fsspec does not know the cache.
    FileNotFoundError
        The path does not exist.
    """

    mode = "rb"
    _cache: BaseCache | None = None
    _buffer: ReadBuffer

    def __init__(
        self,
        core: Core,
        path: str,
        snapshot: Segment | None = None,
        *,
        absolute: bool = False,
        block_size: int | str | None = None,
        cache_type: str | None = None,
        cache_options: dict[str, Any] | None = None,
        tuning: Tuning | None = None,
        verify: bool = False,
    ) -> None:
        super().__init__()
        if cache_type is not None and cache_type not in caches:
            raise ValueError(f"{path}: fsspec knows no cache_type {cache_type!r}; leave it out: no cache is needed")
        self._tuning = tuning or Tuning()
        if (requests_max := self._tuning.max_concurrency or 0) > core.backend.capability.requests_max:
            raise ValueError(
                f"{path}: max_concurrency is {requests_max}, but the filesystem's is "
                f"{core.backend.capability.requests_max}: make the filesystem with a larger max_concurrency"
            )
        self.fs: Any = core.fs
        self.path = path
        self.absolute = absolute
        self.blocksize = block_size if isinstance(block_size, int) else BLOCK_BYTES
        self._bridge = core.bridge
        self._process = os.getpid()
        self._lock = threading.RLock()
        self._verify = verify
        self._buffer = ReadBuffer(core.client, core.bridge, path, snapshot, self._tuning, verify=verify)
        if absolute:
            self._settle()
        self.loc = self._buffer.snapshot.start if absolute else 0
        self._sought: dict[int, int] = {}
        if cache_type == "parts":
            self.cache = caches[cache_type](self.blocksize, self._fetch_range, self.size, **(cache_options or {}))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.path}>"

    def __reduce__(self) -> tuple[Callable[..., ReadFile], tuple[Any, ...]]:
        return _reopen, (self.fs, self.path, self.absolute, self.blocksize, self.loc, self._tuning, self._verify)

    # -- facts about the file ------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """Return the end of the file, as a position; bytes retained unless it is `absolute`."""
        self._settle()
        return self._buffer.snapshot.length - self._base

    @property
    def cache(self) -> BaseCache | None:
        """The cache that reads go through; fsspec's block cache gives a cache to each file that it opens."""
        return self._cache

    @cache.setter
    def cache(self, cache: BaseCache | None) -> None:
        if isinstance(cache, MMapCache):
            cache.multi_fetcher = None  # it would fetch the present file, not the opened one
        self._cache = cache
        self._buffer.source = None if cache is None else self._from_cache

    @property
    def details(self) -> dict[str, Any]:
        """The `info` of the snapshot."""
        self._settle()
        view = self._buffer.snapshot
        return info_of(view, self._buffer.count_chunks() if view.header and view.header.cut_pages else None)

    def info(self) -> dict[str, Any]:
        """Return the `info` of the path as it was when the file was opened."""
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
        return self._sought.get(_owner(), self.loc)

    def seek(self, loc: int, whence: int = io.SEEK_SET, /) -> int:
        """Set the position, which may be beyond the end.

        Raises
        ------
        ValueError
            The position would be negative, or `whence` is not 0, 1 or 2.
        """
        with self._held():
            if whence not in (io.SEEK_SET, io.SEEK_CUR, io.SEEK_END):
                raise ValueError(f"{self.path}: whence is {whence}; it must be 0, 1 or 2")
            origin = self.tell() if whence == io.SEEK_CUR else self.size if whence == io.SEEK_END else 0
            position = int(loc) + origin
            if position < 0:
                raise ValueError(f"{self.path}: position {position} lies before the file's beginning")
            self.loc = self._sought[_owner()] = position
            return position

    def _take(self) -> None:
        """Go to the position that the calling thread has sought, even if another thread has moved the file since.

        DuckDB shares a file between its threads, and each seeks and reads in two calls. So a thread that native code
        has started reads where it sought; Python's threads share a position, as with any file. A read without
        a seek goes on where the last call ended.
        """
        if not self._sought:
            return
        sought = self._sought.pop(_owner(), None)
        if sought is None:
            self._sought.clear()
        else:
            self.loc = sought

    # -- reading -------------------------------------------------------------------------------------------

    def read(self, size: int | None = -1, /) -> bytes:
        """Read `size` bytes, by default all that is left; fewer only at the end.

        Raises
        ------
        SegmentTruncatedError
            The bytes have been truncated away since the file was opened, or (absolute) before.
        FileNotFoundError
            The opened segment is gone.
        CorruptChunkError
            A chunk is missing, too short or fails its checksum. A checksum is known with the last byte of a chunk, so
            reads may have returned the bytes before it. After the error, each read of that chunk fails.
        """
        with self._held():
            self._take()
            return self._read(-1 if size is None else int(size))

    def _read(self, size: int) -> bytes:
        """Read from `loc` as `read` does."""
        if size == 0:
            return b""
        if self._buffer.is_unsure:
            self._settle(size)
        data = self._buffer.first(lambda: self._buffer.read(*self._span(size)))
        self.loc += len(data)
        return data

    def read_at(self, nbytes: int, offset: int) -> bytes:
        """Read up to `nbytes` bytes from a position; the file's own stays. Many threads may do so at once.

        Raises
        ------
        ValueError
            The position or the number of bytes is negative.
        SegmentTruncatedError, FileNotFoundError, CorruptChunkError
            The same as in `read`.
        """
        if nbytes < 0 or offset < 0:
            raise ValueError(f"{self.path}: {nbytes} bytes at position {offset} cannot be read")
        with self._held():
            self._settle()
        return self._fetch_range(offset, offset + nbytes)

    def read1(self, size: int = -1, /) -> bytes:
        """Read up to `size` bytes with at most one wait: from the buffer, else as `read` does."""
        with self._held():
            self._take()
            if held := self._buffer.held(self.loc + self._base):
                return self._read(held if size < 0 else min(size, held))
            return self._read(LINE_BYTES if size < 0 else size)

    def read_buffer(self, size: int | None = -1) -> memoryview:
        """Read as pyarrow does for objects that it need not copy."""
        return lent(self.read(size), self)

    def readline(self, size: int | None = -1, /) -> bytes:
        """Read the rest of the line, its end included, or up to `size` bytes of it."""
        limit = -1 if size is None else int(size)
        with self._held():
            self._take()
            line = self._buffer.held_line(self.loc + self._base) if limit < 0 else b""
            if not line:
                self._settle(LINE_BYTES if limit < 0 else min(limit, LINE_BYTES))
                line = self._buffer.first(lambda: self._buffer.line(*self._span(limit)))
            self.loc += len(line)
            return line

    def readuntil(self, char: bytes = b"\n", blocks: int | None = None) -> bytes:
        """Read up to the first occurrence of some bytes, those included, or to the end of the file.

        Parameters
        ----------
        char
            The bytes to find.
        blocks
            The number of bytes to read at once.
        """
        with self._held():
            self._take()
            start = self.loc
            found = bytearray()
            while part := self._read(blocks or LINE_BYTES):
                searched = max(0, len(found) - len(char) + 1)  # an occurrence may begin in the part before
                found += part
                at = found.find(char, searched)
                if at >= 0:
                    del found[at + len(char) :]
                    break
            self.loc = start + len(found)
            return bytes(found)

    def close(self) -> None:
        """Close the file and cancel its requests; closing it again has no effect."""
        if super().closed:
            return
        if hasattr(self, "_buffer"):  # else the constructor has raised
            self._cache = None
            self._buffer.close(is_ours=self._process == os.getpid())
        super().close()

    @property
    def closed(self) -> bool:
        """Whether the file is closed."""
        is_closed: bool = super().closed
        return is_closed

    @closed.setter
    def closed(self, is_closed: bool) -> None:
        # fsspec's block cache sets this on each file that it has closed
        if not is_closed:
            raise ValueError(f"{self.path}: a closed file stays closed; open it again")
        self.close()

    # -- segment offsets -----------------------------------------------------------------------------------

    @property
    def _base(self) -> int:
        """The segment offset of position 0."""
        return 0 if self.absolute else self._buffer.snapshot.start

    def _span(self, size: int, snapshot: Segment | None = None) -> tuple[int, int]:
        """Return the next `size` bytes (-1: all) of a snapshot, by default the file's own, as segment offsets."""
        snapshot = snapshot or self._buffer.snapshot
        start = self.loc + (0 if self.absolute else snapshot.start)
        end = snapshot.length if size < 0 else min(start + size, snapshot.length)
        return start, max(start, end)

    def _settle(self, size: int = 0) -> None:
        """Make sure of the snapshot; the next `size` bytes (-1: all) are fetched during the look."""
        if self._buffer.is_unsure:
            with self._held():
                self._buffer.settle(partial(self._span, size) if size else None)

    def _held(self) -> threading.RLock:
        """Return the lock of an open file; a forked child gets a new lock, and drops the parent's requests."""
        if self._process != os.getpid():
            self._lock = threading.RLock()
            self._buffer.plan_ahead()
            self._process = os.getpid()
        if self.closed:
            raise ValueError(f"{self.path}: the file is closed")
        return self._lock

    def _from_cache(self, start: int, end: int) -> bytes:
        """Return the bytes between two segment offsets, by fsspec's cache, or past a cache that would make them up.

        Raises
        ------
        ValueError
            A cache of known parts is strict and does not know these bytes.
        """
        cache, start, end = self._cache, start - self._base, end - self._base
        assert cache is not None
        parts = cache.data if isinstance(cache, KnownPartsOfAFile) else None
        if parts is not None and not any(first <= start and end <= last for first, last in parts):
            if cache.strict:
                why = f"bytes {start} to {end} are not among the parts that are known, and the cache is strict"
                raise ValueError(f"{self.path}: {why}")
            return self._fetch_range(start, end)  # the cache would give zeros
        blocks: Any = getattr(cache, "blocks", None)
        known = set(blocks) if isinstance(cache, MMapCache) else None
        try:
            data: bytes = cache._fetch(start, end)
        except BaseException:
            if known is not None:  # the cache notes blocks before it has them, and would give zeros next time
                blocks.intersection_update(known)
            raise
        return data

    def _fetch_range(self, start: int, end: int) -> bytes:
        """Return the bytes between two positions, past the buffer; any thread may call it."""
        snapshot = self._buffer.snapshot
        base = 0 if self.absolute else snapshot.start
        first, last = min(start + base, snapshot.length), min(end + base, snapshot.length)
        return self._bridge.run(self._buffer.fetch(snapshot, first, last)) if first < last else b""


def _owner() -> int:
    """Return the owner of the calling thread's position: 0 for all Python threads together, else the native thread."""
    thread = threading.current_thread()
    return threading.get_ident() if isinstance(thread, threading._DummyThread) else 0


def _reopen(
    fs: Any, path: str, absolute: bool, block_size: int, loc: int, tuning: Tuning, verify: bool = False
) -> ReadFile:
    choices = {"absolute": absolute, "verify": verify, **asdict(tuning)}
    file: ReadFile = fs.open(path, "rb", block_size=block_size, **choices)
    file.seek(loc)
    return file
