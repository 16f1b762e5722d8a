"""Bytes of a segment in new files: the plan of an export, and bytes that pass through this client in bounded memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from rollingfs.backend.contract import Part, Upload
from rollingfs.format import names
from rollingfs.format.header import Chunk
from rollingfs.runtime.concurrency import Lock
from rollingfs.runtime.meters import Steps
from rollingfs.runtime.values import value_class
from rollingfs.segment.at import At
from rollingfs.segment.read.piece_checks import PieceChecks
from rollingfs.segment.segment import Segment

READ_PART_BYTES = 16 * 2**20
"""An upload cuts bytes that are read and written into parts of this size; the last before a copy may be shorter."""
COPY_PART_BYTES = 2**30
"""Maximum bytes that the store copies in a part."""
PARTS_MAX = 9_000
"""Maximum parts of a file. S3 takes 10,000."""


@value_class
class CopyPiece:
    """A range of a segment: the store copies it from a chunk, or else the client reads and writes it."""

    start: int
    end: int
    chunk: Chunk | None = None

    @property
    def size(self) -> int:
        """Bytes."""
        return self.end - self.start

    @property
    def parts(self) -> int:
        """The number of parts that it takes in an upload."""
        return -(-self.size // (READ_PART_BYTES if self.chunk is None else COPY_PART_BYTES))


def plan_pieces(chunks: Sequence[Chunk], start: int, end: int, part_bytes_min: int) -> list[CopyPiece]:
    """Cut the bytes ``[start, end)`` of a segment into pieces that a store can join, reading and writing few of them.

    Parameters
    ----------
    chunks
        The chunks with these bytes, in order; the bytes after the last chunk are the inline tail.
    part_bytes_min
        Minimum size of all pieces but the last.
    """
    pieces: list[CopyPiece] = []
    loose: int | None = None  # where bytes begin that are too few for a part
    for chunk in chunks:
        start = chunk.start
        if loose is not None:
            start = min(chunk.end, loose + part_bytes_min)
            if chunk.end - start < part_bytes_min and chunk.end != end:
                start = chunk.end  # its rest would be too few bytes again, and so on from chunk to chunk
            if start - loose >= part_bytes_min:
                _add_loose(pieces, loose, start)
                loose = None
        if loose is None and start < chunk.end:
            if chunk.end - start >= part_bytes_min or chunk.end == end:
                pieces.append(CopyPiece(start, chunk.end, chunk))
            else:
                loose = start
        start = chunk.end
    if loose is not None or start < end:
        _add_loose(pieces, start if loose is None else loose, end)
    return _without_short_ends(pieces, part_bytes_min)


def _add_loose(pieces: list[CopyPiece], start: int, end: int) -> None:
    """Join neighbours that are both read and written."""
    if pieces and pieces[-1].chunk is None and pieces[-1].end == start:
        start = pieces.pop().start
    pieces.append(CopyPiece(start, end))


def _without_short_ends(pieces: Sequence[CopyPiece], part_bytes_min: int) -> list[CopyPiece]:
    """Let no piece that is read end, before a piece that is copied, with a part that is too short: read on instead."""
    found: list[CopyPiece] = []
    for piece in pieces:
        before = found[-1] if found and found[-1].chunk is None else None
        start = piece.start
        if before is not None and piece.chunk is None:
            start = piece.end
        elif before is not None and 0 < (short := before.size % READ_PART_BYTES) < part_bytes_min:
            start = min(start + part_bytes_min - short, piece.end)
            if piece.end - start < part_bytes_min and piece is not pieces[-1]:
                start = piece.end
        if before is not None:
            found[-1] = replace(before, end=start)
        if start < piece.end:
            found.append(replace(piece, start=start))
    return found


def in_files(pieces: Sequence[CopyPiece], parts_max: int = PARTS_MAX) -> list[list[CopyPiece]]:
    """Cut a plan into runs, a run for each upload, and a piece with too many parts; a chunk never has."""
    files: list[list[CopyPiece]] = [[]]
    room = parts_max
    for piece in pieces:
        step = piece.size if piece.chunk is not None else parts_max * READ_PART_BYTES
        for start in range(piece.start, piece.end, step):
            part = replace(piece, start=start, end=min(start + step, piece.end))
            if part.parts > room:
                files.append([])
                room = parts_max
            files[-1].append(part)
            room -= part.parts
    return files


READ_BYTES_MAX = 16 * 1024 * 1024


async def pass_through(
    at: At, view: Segment, start: int, end: int, upload: Upload, checks: PieceChecks, steps: Steps
) -> None:
    """Append the bytes ``[start, end)`` of a snapshot to an upload.

    The next bytes are read while the last are written.
    """

    async def read(first: int) -> bytes:
        return await at.fetcher.read(view, first, min(first + READ_BYTES_MAX, end), checks=checks)

    async def write(data: bytes) -> bytes:
        await upload.write(data)
        steps.add(len(data))
        return b""

    data = await read(start)
    while data:
        start += len(data)
        following = [partial(read, start)] if start < end else []
        data = (await at.runtime.gather([partial(write, data), *following], 2))[-1]


async def fill(
    at: At, view: Segment, to: Upload, pieces: Sequence[CopyPiece], checks: PieceChecks, steps: Steps, turn: Lock | None
) -> None:
    """Append pieces of a snapshot to an upload; with `turn`, one caller at a time reads and writes."""
    for piece in pieces:
        if piece.chunk is None:
            call = partial(pass_through, at, view, piece.start, piece.end, to, checks, steps)
            await (call() if turn is None else turn.run(call))
            continue
        first = piece.chunk.offset + piece.start - piece.chunk.start
        file, token = names.locate(view.path, piece.chunk.file, piece.chunk.tier), None
        if view.header is None:
            file, token = view.path, view.token
        await to.copy(Part(file, first, first + piece.size, token))
        steps.add(piece.size)
