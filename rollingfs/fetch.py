"""Reading bytes: from a snapshot and segment offsets to ranges of files, many at a time."""

from __future__ import annotations

import contextlib
import errno
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from rollingfs import layout, names
from rollingfs.backend.contract import Backend
from rollingfs.errors import CorruptChunkError, CorruptHeaderError, SegmentTruncatedError
from rollingfs.header import Chunk, Header, Page
from rollingfs.headers import Loaded
from rollingfs.lookup import Lookup, View, modified_ms
from rollingfs.pages import PAGE_READS_MAX, Pages
from rollingfs.runtime import Runtime
from rollingfs.words import crc32c

RANGE_BYTES_MIN = 2 * 1024 * 1024
"""A larger read is split into ranges that are read at once."""
RANGE_BYTES_MAX = 8 * 1024 * 1024
SYNC_RANGE_BYTES_MAX = 64 * 1024 * 1024
"""Where nothing is read at once, ranges are only there to bound what is held beside the answer."""

Request = tuple[View, int, int]
"""What is to be read: a snapshot, and the segment offsets ``[start, end)``."""


class Fetcher:
    """Reads the bytes of segments and plain files."""

    def __init__(self, backend: Backend, runtime: Runtime, lookup: Lookup, pages: Pages) -> None:
        self.backend = backend
        self.runtime = runtime
        self.lookup = lookup
        self.pages = pages

    async def read(
        self, view: View, start: int, end: int, *, limit: int | None = None, range_bytes: int | None = None
    ) -> bytes:
        """The bytes ``[start, end)`` of a snapshot, in segment offsets.

        Parameters
        ----------
        limit
            How many reads of the backend may be under way; by default what the backend says makes sense.
        range_bytes
            Ask the backend for at most so many bytes at once; by default as suits the size of the read.

        Raises
        ------
        SegmentTruncatedError
            They, or their beginning, have been truncated away.
        ValueError
            The range is negative, or ends beyond the snapshot.
        FileNotFoundError
            What the snapshot was taken of is gone: deleted, or replaced by something else.
        CorruptChunkError
            A chunk that the header names is missing, too short, or fails its checksum.
        """
        [result] = await self.read_many([(view, start, end)], limit, range_bytes=range_bytes)
        if isinstance(result, Exception):
            raise result
        return result

    async def read_many(
        self, requests: Sequence[Request], limit: int | None = None, *, range_bytes: int | None = None
    ) -> list[bytes | Exception]:
        """Read many ranges in one batch; each is its bytes, or the error that `read` would raise.

        Parameters
        ----------
        limit
            How many reads of the backend may be under way; by default what the backend says makes sense.
        """
        limit = limit or self.backend.requests_max
        jobs = [_Job(view, start, end) for view, start, end in requests]
        todo = [job for job in jobs if job.error is None]
        while todo:
            await self._round(todo, limit, range_bytes)
            todo = [job for job in todo if job.gone is not None]
            await self._look_again(todo)
            todo = [job for job in todo if job.error is None]
        return [job.result() for job in jobs]

    async def _round(self, jobs: Sequence[_Job], limit: int, range_bytes: int | None) -> None:
        """Read all of some jobs; one that meets a file that is gone says so."""
        pages = await self._load_pages(jobs)
        calls = []
        for job in jobs:
            job.plan(pages, range_bytes or self._range_bytes(job.end - job.start))
            calls += [partial(self._read_piece, job, piece) for piece in job.pieces]
        if calls:
            await self.runtime.gather(calls, limit)

    def _range_bytes(self, size: int) -> int:
        if not self.backend.is_async:
            return SYNC_RANGE_BYTES_MAX
        return max(RANGE_BYTES_MIN, min(RANGE_BYTES_MAX, size // self.backend.requests_max))

    async def _load_pages(self, jobs: Sequence[_Job]) -> Mapping[str, Sequence[Chunk] | Exception]:
        """The index pages that some jobs need, by path."""
        wanted = {path: page for job in jobs for path, page in job.pages()}
        loaded: dict[str, Sequence[Chunk] | Exception] = {}

        async def load(path: str, page: Page) -> None:
            try:
                loaded[path] = await self.pages.raw(path, page)
            except OSError as error:  # each job that needs it raises it
                loaded[path] = error

        if wanted:
            await self.runtime.gather([partial(load, path, page) for path, page in wanted.items()], PAGE_READS_MAX)
        return loaded

    async def _read_piece(self, job: _Job, piece: _Piece) -> None:
        if job.failed:
            return  # another piece of it said so
        try:
            if job.is_buffered and not _is_whole(piece):
                with job.place(piece) as target:
                    job.placed(piece, await self.backend.read_into(piece.path, piece.start, target))
            else:
                job.put(piece, await self.backend.read_range(piece.path, piece.start, piece.end))
        except FileNotFoundError:
            job.gone = piece.path
        except OSError as error:
            job.error = error

    async def _look_again(self, jobs: Sequence[_Job]) -> None:
        """Give jobs that met a missing file the map as it is now, or the error that says why there is none."""
        found: dict[str, Loaded | Exception] = {}

        async def load(path: str) -> None:
            try:
                found[path] = await self.lookup.headers.load(path)
            except OSError as error:  # each job that needs it raises it
                found[path] = error

        paths = {job.view.path for job in jobs}
        if paths:
            await self.runtime.gather([partial(load, path) for path in paths], self.backend.requests_max)
        for job in jobs:
            loaded = found[job.view.path]
            if isinstance(loaded, Exception):
                job.error = loaded
            else:
                job.go_on(loaded)


@dataclass(frozen=True, slots=True)
class _Piece:
    """A range of one file, and where in the answer it goes."""

    path: str
    start: int
    end: int
    at: int
    chunk: Chunk | None
    """None for a plain file."""


class _Job:
    """One request under way: its map, which may have to be looked at again, and its answer."""

    __slots__ = ("_answer", "_buffer", "_missing", "end", "error", "gone", "origin", "pieces", "start", "view")

    def __init__(self, view: View, start: int, end: int) -> None:
        self.origin = view
        self.view = view
        self.start = start
        self.end = end
        self.pieces: list[_Piece] = []
        self.gone: str | None = None
        """A file that was missing in this round."""
        self._missing: set[str] = set()
        """Files that were missing in earlier rounds."""
        self._answer: bytes = b""
        self._buffer: io.BytesIO | None = None
        self.error: Exception | None = self._out_of_range()

    @property
    def failed(self) -> bool:
        return self.error is not None or self.gone is not None

    def result(self) -> bytes | Exception:
        if self.error is not None:
            return self.error
        return self._answer if self._buffer is None else self._buffer.getvalue()

    def _out_of_range(self) -> Exception | None:
        view = self.view
        if self.start < 0 or self.start > self.end or self.end > view.length:
            return ValueError(
                f"{view.path}: bytes {self.start} to {self.end} cannot be read; it has {view.start} to {view.length}"
            )
        return self._truncated(view) if self.start < min(view.start, self.end) else None

    def _truncated(self, view: View) -> SegmentTruncatedError:
        return SegmentTruncatedError(
            f"{view.path}: offset {self.start} was truncated away; what is left is {view.start} to {view.length}"
        )

    # -- the plan ------------------------------------------------------------------------------------------

    def _entries(self, header: Header) -> Sequence[Chunk | Page]:
        return layout.overlapping(header.entries, self.start, min(self.end, header.tail_start))

    def pages(self) -> list[tuple[str, Page]]:
        """The index pages that are needed, with their paths."""
        if self.view.header is None:
            return []
        entries = self._entries(self.view.header)
        return [(names.resolve(self.view.path, entry.file), entry) for entry in entries if isinstance(entry, Page)]

    def plan(self, pages: Mapping[str, Sequence[Chunk] | Exception], range_bytes: int) -> None:
        """Set `pieces`, and the buffer that they go to if they are several."""
        self.pieces, self._buffer, self._answer = [], None, b""
        header = self.view.header
        if header is None:
            self._cut(self.view.path, 0, self.start, self.end, None, range_bytes)
        else:
            for entry in self._entries(header):
                self._plan_entry(entry, pages, range_bytes)
        if self.failed:
            self.pieces = []
            return
        tail = self._tail(header) if header else b""
        if len(self.pieces) + bool(tail) <= 1:
            self._answer = tail
            return
        # one buffer, filled in place: joining the pieces would hold everything twice
        self._buffer = io.BytesIO(bytes(self.end - self.start))
        self._fill(self.end - self.start - len(tail), tail)

    def _plan_entry(
        self, entry: Chunk | Page, pages: Mapping[str, Sequence[Chunk] | Exception], range_bytes: int
    ) -> None:
        part = layout.clip(entry, self.start, self.end)
        chunks: Sequence[Chunk]
        if isinstance(part, Page):
            path = names.resolve(self.view.path, part.file)
            found = pages[path]
            if isinstance(found, FileNotFoundError):
                self.gone = path
                return
            if isinstance(found, Exception):
                self.error = found
                return
            try:
                chunks = layout.unfold(part, found, self.view.path)
            except CorruptHeaderError as error:
                self.error = error
                return
        else:
            chunks = [part]
        for chunk in chunks:
            path = names.resolve(self.view.path, chunk.file)
            if self.origin.header is None and not _is_copy(chunk, self.origin):
                self.error = _gone(self.origin)
                return
            self._cut(path, chunk.start - chunk.offset, chunk.start, chunk.end, chunk, range_bytes)

    def _cut(self, path: str, shift: int, start: int, end: int, chunk: Chunk | None, range_bytes: int) -> None:
        """Add the segment's bytes ``[start, end)``, which lie in a file `shift` before their offset."""
        for first in range(start, end, range_bytes):
            last = min(first + range_bytes, end)
            self.pieces.append(_Piece(path, first - shift, last - shift, first - self.start, chunk))

    def _tail(self, header: Header) -> bytes:
        if self.end <= header.tail_start:
            return b""
        return header.tail[max(self.start - header.tail_start, 0) : self.end - header.tail_start]

    # -- the answer ----------------------------------------------------------------------------------------

    @property
    def is_buffered(self) -> bool:
        """Whether pieces go to their places in one buffer."""
        return self._buffer is not None

    @contextlib.contextmanager
    def place(self, piece: _Piece) -> Iterator[memoryview]:
        """Where a piece belongs."""
        assert self._buffer is not None
        with self._buffer.getbuffer() as whole, whole[piece.at : piece.at + piece.end - piece.start] as target:
            yield target

    def placed(self, piece: _Piece, count: int) -> None:
        """Take what was read to its place."""
        if count != piece.end - piece.start:
            self.error = self._too_short(piece, count)

    def put(self, piece: _Piece, data: bytes) -> None:
        """Take what was read, checked as far as it can be."""
        if len(data) != piece.end - piece.start:
            self.error = self._too_short(piece, len(data))
        elif _is_whole(piece) and crc32c(data) != piece.chunk.crc32c:  # type: ignore[union-attr]
            self.error = CorruptChunkError(f"{piece.path}: the chunk's bytes fail the checksum that its header says")
        elif self._buffer is None:
            self._answer = data
        else:
            self._fill(piece.at, data)

    def _fill(self, at: int, data: bytes) -> None:
        assert self._buffer is not None
        with self._buffer.getbuffer() as target:
            target[at : at + len(data)] = data

    def _too_short(self, piece: _Piece, size: int) -> Exception:
        if piece.chunk is None:
            return _gone(self.view)
        return CorruptChunkError(
            f"{piece.path}: the chunk ends at byte {piece.start + size}, but the header of {self.view.path} says that "
            f"it has {piece.chunk.size} bytes"
        )

    # -- another look --------------------------------------------------------------------------------------

    def go_on(self, loaded: Loaded) -> None:
        """Take the newest header as the map, if it still has what this job wants."""
        assert self.gone is not None
        gone, self.gone = self.gone, None
        if not self._is_same(loaded):
            self.error = _gone(self.origin)
            return
        self.view = View(self.view.path, loaded.header, loaded.token)
        if self.start < self.view.start:
            self.error = self._truncated(self.view)
        elif gone in self._missing:
            self.error = CorruptChunkError(f"{gone}: the file is missing, but the header of {self.view.path} names it")
        self._missing.add(gone)

    def _is_same(self, loaded: Loaded) -> bool:
        """Whether a header is that of what the snapshot was taken of."""
        header = loaded.header
        if header is None or not loaded.live:
            return False
        if self.view.header is not None:
            return header.segment == self.view.header.segment
        # a plain file, adopted since; `_is_copy` checks each chunk, because an overwrite names it as well
        return header.adopted is not None and header.adopted.token == self.view.token


def _is_whole(piece: _Piece) -> bool:
    """Whether a piece is a whole chunk file with a known checksum."""
    chunk = piece.chunk
    return chunk is not None and chunk.crc32c is not None and (piece.start, piece.end) == (0, chunk.size)


def _is_copy(chunk: Chunk, plain: View) -> bool:
    """Whether a chunk is the copy that adoption made of a plain file."""
    info = plain.plain
    if info is None or chunk.crc32c is not None or chunk.start != chunk.offset:
        return False
    return (chunk.size, chunk.at_ms) == (info.size, modified_ms(info))


def _gone(view: View) -> FileNotFoundError:
    what = f"segment {view.header.segment}" if view.header else "plain file"
    text = f"the {what} that was opened here is gone: deleted or overwritten since; open it again"
    return FileNotFoundError(errno.ENOENT, text, view.path)
