"""A read under way: from segment offsets to pieces of files, and from the pieces to the answer."""

from __future__ import annotations

import contextlib
import errno
import io
from collections.abc import Container, Iterator, Mapping, Sequence

from rollingfs.backend.contract import Backend, Buffer
from rollingfs.errors import ConflictError, CorruptChunkError, CorruptHeaderError, SegmentTruncatedError
from rollingfs.format import names, placement
from rollingfs.format.header import Chunk, Page
from rollingfs.format.side_files import ListedChunks
from rollingfs.format.tokens import format_time
from rollingfs.runtime.values import value_class
from rollingfs.segment.commit.index_pages import lost_page
from rollingfs.segment.segment import Segment, modified_ms

UNSEEN_BYTES_MAX = 4 * 1024**3
"""A longer part of a chunk file is read only once its size was seen."""


@value_class
class ReadPiece:
    """A range of a file, and its place in the answer."""

    path: str
    start: int
    end: int
    at: int
    chunk: Chunk | None
    """None for a plain file."""
    token: str | None = None
    """The token of a plain file, which others may replace."""

    @property
    def size(self) -> int:
        return self.end - self.start


class Job:
    """A read under way: its map, which may change while chunks go, and its answer."""

    def __init__(self, snapshot: Segment, start: int, end: int) -> None:
        self.origin = snapshot
        self.snapshot = snapshot
        self.start = start
        self.end = end
        self._entries: Sequence[Chunk | Page] = ()
        """The part of the map that this job wants."""
        self.pieces: list[ReadPiece] = []
        self.large: dict[str, Chunk] = {}
        """Large chunk files, whose sizes must be seen first: no header is believed about that."""
        self._sizes: dict[str, int] = {}
        self.gone: str | None = None
        """A file that this round did not find."""
        self._missing: set[str] = set()
        """The files that earlier rounds did not find."""
        self.answer: Buffer = b""
        """All bytes, if they are not put together in a buffer."""
        self.buffer: io.BytesIO | None = None
        self.error: Exception | None = self._out_of_range()

    @property
    def failed(self) -> bool:
        return self.error is not None or self.gone is not None

    def result(self) -> Buffer | Exception:
        """Return the bytes, in the backend's piece if there is a single piece, or the error."""
        if self.error is not None:
            return self.error
        return self.answer if self.buffer is None else self.buffer.getvalue()

    def _out_of_range(self) -> Exception | None:
        snapshot = self.snapshot
        if self.start < 0 or self.start > self.end or self.end > snapshot.length:
            return ValueError(f"{snapshot.path}: bytes {self.start} to {self.end} cannot be read; {snapshot.extent}")
        return self._truncated(snapshot) if self.start < min(snapshot.start, self.end) else None

    def _truncated(self, snapshot: Segment) -> SegmentTruncatedError:
        return SegmentTruncatedError(f"{snapshot.path}: offset {self.start} was truncated away; {snapshot.extent}")

    # -- the plan ------------------------------------------------------------------------------------------

    def pages(self) -> list[tuple[str, Page]]:
        """Return the index pages that this job needs before its plan, with their paths."""
        header = self.snapshot.header
        if header is None:
            return []
        found = self._entries = placement.overlapping(header.entries, self.start, min(self.end, header.tail_start))
        try:
            return [(names.resolve(self.snapshot.path, one.file), one) for one in found if isinstance(one, Page)]
        except CorruptHeaderError as error:
            self.error = error
            return []

    def plan(self, pages: Mapping[str, ListedChunks | Exception], range_bytes: int) -> None:
        """Set `pieces`, and make a buffer for the answer if there are several."""
        self.pieces, self.large, self.buffer, self.answer = [], {}, None, b""
        header = self.snapshot.header
        if header is None:
            for first, last in even(self.start, self.end, range_bytes):
                self.pieces.append(
                    ReadPiece(self.snapshot.path, first, last, first - self.start, None, self.snapshot.token)
                )
        else:
            try:
                for entry in self._entries:
                    self._plan_entry(entry, pages, range_bytes)
            except CorruptHeaderError as error:
                self.error = error
            if self.origin.header is None and self.end > max(header.tail_start, self.start):
                # an adopted plain file lies in a chunk: bytes that are inline, or missing, were written over it
                self.error = gone(self.origin, self.snapshot)
        if self.failed or self.large:
            self.pieces = []
            return
        tail, size = b"", self.end - self.start
        if header is not None:
            tail = header.tail[max(self.start - header.tail_start, 0) : max(self.end - header.tail_start, 0)]
        if len(self.pieces) + bool(tail) <= 1:
            self.answer = tail
            return
        # one buffer is filled in place, because joining the pieces would take twice the memory
        self.buffer = io.BytesIO(bytes(size))
        with self.buffer.getbuffer() as target:
            target[size - len(tail) :] = tail

    def _plan_entry(self, entry: Chunk | Page, pages: Mapping[str, ListedChunks | Exception], range_bytes: int) -> None:
        chunks: Sequence[Chunk]
        if isinstance(entry, Page):
            path = names.resolve(self.snapshot.path, entry.file)
            found = pages[path]
            if isinstance(found, FileNotFoundError):
                self.gone = path
                return
            if isinstance(found, Exception):
                self.error = found
                return
            part = placement.clip(entry, self.start, self.end)
            assert isinstance(part, Page)
            chunks = placement.unfold(part, found, self.snapshot.path)
        else:
            chunks = [entry]
        for chunk in chunks:
            path = names.locate(self.snapshot.path, chunk.file, chunk.tier)
            if self.origin.header is None and not is_copy(chunk, self.origin):
                self.error = gone(self.origin, self.snapshot)
                return
            self._cut(path, max(self.start, chunk.start), min(self.end, chunk.end), chunk, range_bytes)

    async def see(self, backend: Backend) -> None:
        """Look at the files that `large` names."""
        for path in self.large:
            try:
                self._sizes[path] = (await backend.stat(path)).size
            except OSError as error:
                self.fail(path, error)

    def _cut(self, path: str, start: int, end: int, chunk: Chunk, range_bytes: int) -> None:
        """Add the segment's bytes ``[start, end)``, which are in a chunk's file."""
        if end - start > UNSEEN_BYTES_MAX and path not in self._sizes:
            self.large[path] = chunk
            return
        if self._sizes.get(path, chunk.size) < chunk.size:
            self.error = too_short(path, chunk, self._sizes[path])
            return
        shift = chunk.start - chunk.offset
        for first, last in even(start, end, range_bytes):
            self.pieces.append(ReadPiece(path, first - shift, last - shift, first - self.start, chunk))

    # -- the answer ----------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def place(self, piece: ReadPiece) -> Iterator[memoryview]:
        """Return the part of the buffer that a piece fills."""
        assert self.buffer is not None
        with self.buffer.getbuffer() as whole, whole[piece.at : piece.at + piece.end - piece.start] as target:
            yield target

    def check_size(self, piece: ReadPiece, count: int) -> None:
        """Fail if a piece had another size than was asked for."""
        if count == piece.size:
            return
        if piece.chunk is None:
            self.gone = piece.path  # the file is shorter than the snapshot, so it is another
        else:
            self.error = too_short(piece.path, piece.chunk, piece.start + count)

    def fail(self, path: str, error: OSError) -> None:
        """Note an error of a file that this job reads of."""
        if isinstance(error, FileNotFoundError | ConflictError):
            self.gone = path
        else:
            self.error = error

    def reads(self, paths: Container[str]) -> str | None:
        """Return the first of some files that this job reads, or None."""
        return next((piece.path for piece in self.pieces if piece.path in paths), None)

    # -- another look --------------------------------------------------------------------------------------

    def go_on(self, loaded: Segment) -> str | None:
        """Go on by the newest header of the same segment, if it still has the bytes that this job wants.

        Returns
        -------
        str or None
            A file that is missing, although that header names it.
        """
        assert self.gone is not None
        path, self.gone = self.gone, None
        self.snapshot = loaded
        if self.start < self.snapshot.start:
            self.error = self._truncated(self.snapshot)
        elif path in self._missing:
            return path
        self._missing.add(path)
        return None

    def is_same(self, loaded: Segment) -> bool:
        """Return whether a header belongs to what the snapshot was taken of."""
        header = loaded.header
        if header is None or not loaded.live:
            return False
        if self.snapshot.header is not None:
            return header.segment == self.snapshot.header.segment
        # a plain file that was adopted since; the header of an overwrite names it too, so `is_copy` checks each chunk
        return header.adopted is not None and header.adopted.token == self.snapshot.token


def even(start: int, end: int, range_bytes: int) -> Iterator[tuple[int, int]]:
    """Cut a range into as few parts of at most `range_bytes` as possible, all of nearly the same size.

    They come back at the same time then; a short last part would cost the same round trip.
    """
    count = -(-(end - start) // range_bytes)
    for number in range(count):
        yield start + (end - start) * number // count, start + (end - start) * (number + 1) // count


def is_copy(chunk: Chunk, plain: Segment) -> bool:
    """Return whether a chunk is the copy that adoption made of a plain file."""
    info = plain.plain
    if info is None or chunk.crc32c is not None or chunk.start != chunk.offset:
        return False
    return (chunk.size, chunk.at_ms) == (info.size, modified_ms(info))


def gone(snapshot: Segment, now: Segment | None) -> FileNotFoundError:
    """Return the error for a reader whose snapshot is of a file that is gone.

    Parameters
    ----------
    now
        The present content of the path.
    """
    there = "nothing" if now is None else _said(now)
    text = f"{_said(snapshot)} was opened here and is gone, deleted or replaced since; now {there} is there; "
    return FileNotFoundError(errno.ENOENT, f"{text}open it again", snapshot.path)


def _said(snapshot: Segment) -> str:
    if snapshot.header is not None:
        return f"segment {snapshot.header.segment}"
    assert snapshot.plain is not None
    return f"a plain file of {snapshot.plain.size} bytes, dated {format_time(modified_ms(snapshot.plain))},"


def missing_chunk(path: str, segment: str) -> CorruptChunkError | CorruptHeaderError:
    """Return the error for a chunk, or an index page, that is not there."""
    if names.is_index(path):
        return lost_page(segment, path)
    return CorruptChunkError(
        f"{path}: the chunk file is missing, but the header of {segment} names it; its bytes are lost"
    )


def corrupt(path: str) -> CorruptChunkError:
    """Return the error for a chunk that was read whole and is damaged."""
    return CorruptChunkError(f"{path}: the chunk's bytes fail the checksum that its header says; it is damaged")


def too_short(path: str, chunk: Chunk, size: int) -> CorruptChunkError:
    """Return the error for a chunk whose file ends too early."""
    return CorruptChunkError(
        f"{path}: the chunk ends at byte {size}, but the header says that it has {chunk.size} bytes; it is damaged"
    )
