"""One read under way: from segment offsets to pieces of files, and from the pieces to the answer."""

from __future__ import annotations

import contextlib
import errno
import io
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rollingfs.commit.header_cache import Loaded
from rollingfs.commit.shadowing import modified_ms
from rollingfs.errors import ConflictError, CorruptChunkError, CorruptHeaderError, SegmentTruncatedError
from rollingfs.format import names, placement
from rollingfs.format.header import Chunk, Header, Page
from rollingfs.format.tokens import format_time
from rollingfs.read.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Piece:
    """A range of one file, and where in the answer it goes."""

    path: str
    start: int
    end: int
    at: int
    chunk: Chunk | None
    """None for a plain file."""
    token: str | None = None
    """Of a plain file, which others may replace."""

    @property
    def size(self) -> int:
        return self.end - self.start


class Job:
    """One request under way: its map, which may have to be looked at again, and its answer."""

    __slots__ = ("_answer", "_buffer", "_missing", "end", "error", "gone", "origin", "pieces", "start", "view")

    def __init__(self, view: Snapshot, start: int, end: int) -> None:
        self.origin = view
        self.view = view
        self.start = start
        self.end = end
        self.pieces: list[Piece] = []
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

    def _truncated(self, view: Snapshot) -> SegmentTruncatedError:
        return SegmentTruncatedError(
            f"{view.path}: offset {self.start} was truncated away; what is left is {view.start} to {view.length}"
        )

    # -- the plan ------------------------------------------------------------------------------------------

    def _entries(self, header: Header) -> Sequence[Chunk | Page]:
        return placement.overlapping(header.entries, self.start, min(self.end, header.tail_start))

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
            for first in range(self.start, self.end, range_bytes):
                last = min(first + range_bytes, self.end)
                self.pieces.append(Piece(self.view.path, first, last, first - self.start, None, self.view.token))
        else:
            for entry in self._entries(header):
                self._plan_entry(entry, pages, range_bytes)
            if self.origin.header is None and self.end > max(header.tail_start, self.start):
                # an adopted file lies in a chunk: what is inline, or is not there, was written over it
                self.error = gone(self.origin, said_now(self.view))
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
        part = placement.clip(entry, self.start, self.end)
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
                chunks = placement.unfold(part, found, self.view.path)
            except CorruptHeaderError as error:
                self.error = error
                return
        else:
            chunks = [part]
        for chunk in chunks:
            path = names.resolve(self.view.path, chunk.file)
            if self.origin.header is None and not is_copy(chunk, self.origin):
                self.error = gone(self.origin, said_now(self.view))
                return
            self._cut(path, chunk.start - chunk.offset, chunk.start, chunk.end, chunk, range_bytes)

    def _cut(self, path: str, shift: int, start: int, end: int, chunk: Chunk, range_bytes: int) -> None:
        """Add the segment's bytes ``[start, end)``, which lie in a file `shift` before their offset."""
        for first in range(start, end, range_bytes):
            last = min(first + range_bytes, end)
            self.pieces.append(Piece(path, first - shift, last - shift, first - self.start, chunk))

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
    def place(self, piece: Piece) -> Iterator[memoryview]:
        """Where a piece belongs."""
        assert self._buffer is not None
        with self._buffer.getbuffer() as whole, whole[piece.at : piece.at + piece.end - piece.start] as target:
            yield target

    def check_size(self, piece: Piece, count: int) -> None:
        """Take note of how many bytes of a piece there were."""
        if count == piece.size:
            return
        if piece.chunk is None:
            self.gone = piece.path  # it ends before the snapshot did, so it is another
        else:
            self.error = too_short(piece.path, piece.chunk, piece.start + count)

    def put(self, piece: Piece, data: bytes) -> None:
        """Take what was read to its place."""
        if self._buffer is None:
            self._answer = data
        else:
            self._fill(piece.at, data)

    def fail(self, path: str, error: OSError) -> None:
        """Take note of an error with a file that this job reads of."""
        if isinstance(error, FileNotFoundError | ConflictError):
            self.gone = path
        else:
            self.error = error

    def reads(self, paths: Container[str]) -> str | None:
        """The first of some files that this job reads of."""
        return next((piece.path for piece in self.pieces if piece.path in paths), None)

    def _fill(self, at: int, data: bytes) -> None:
        assert self._buffer is not None
        with self._buffer.getbuffer() as target:
            target[at : at + len(data)] = data

    # -- another look --------------------------------------------------------------------------------------

    def go_on(self, loaded: Loaded) -> None:
        """Take the newest header, of the same segment, as the map, if it still has what this job wants."""
        assert self.gone is not None
        path, self.gone = self.gone, None
        self.view = Snapshot(self.view.path, loaded.header, loaded.token)
        if self.start < self.view.start:
            self.error = self._truncated(self.view)
        elif path in self._missing:
            self.error = missing_chunk(path, self.view.path)
        self._missing.add(path)

    def is_same(self, loaded: Loaded) -> bool:
        """Whether a header is that of what the snapshot was taken of."""
        header = loaded.header
        if header is None or not loaded.live:
            return False
        if self.view.header is not None:
            return header.segment == self.view.header.segment
        # a plain file, adopted since; `is_copy` checks each chunk, because an overwrite names it as well
        return header.adopted is not None and header.adopted.token == self.view.token


def is_copy(chunk: Chunk, plain: Snapshot) -> bool:
    """Whether a chunk is the copy that adoption made of a plain file."""
    info = plain.plain
    if info is None or chunk.crc32c is not None or chunk.start != chunk.offset:
        return False
    return (chunk.size, chunk.at_ms) == (info.size, modified_ms(info))


def gone(view: Snapshot, now: str) -> FileNotFoundError:
    """The error for a snapshot of what is not there any more.

    Parameters
    ----------
    now
        What is there instead.
    """
    text = f"{_said(view)} was opened here and is gone, deleted or replaced since; {now}; open it again"
    return FileNotFoundError(errno.ENOENT, text, view.path)


def said_now(view: Snapshot | None) -> str:
    """What is at a path now, for `gone`."""
    return "now nothing is there" if view is None else f"now {_said(view)} is there"


def _said(view: Snapshot) -> str:
    if view.header is not None:
        return f"segment {view.header.segment}"
    assert view.plain is not None
    return f"a plain file of {view.plain.size} bytes, dated {format_time(modified_ms(view.plain))},"


def missing_chunk(path: str, segment: str) -> CorruptChunkError:
    """The error for a chunk that is not there."""
    return CorruptChunkError(f"{path}: the file is missing, but the header of {segment} names it")


def corrupt(path: str) -> CorruptChunkError:
    """The error for a chunk that was read whole and is damaged."""
    return CorruptChunkError(f"{path}: the chunk's bytes fail the checksum that its header says")


def too_short(path: str, chunk: Chunk, size: int) -> CorruptChunkError:
    """The error for a chunk whose file ends too early."""
    return CorruptChunkError(
        f"{path}: the chunk ends at byte {size}, but the header that names it says that it has {chunk.size} bytes"
    )
