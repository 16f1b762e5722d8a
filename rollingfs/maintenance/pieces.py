"""The plan of a plain copy: which bytes the store joins, and which are read and written. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rollingfs.format.header import Chunk


@dataclass(frozen=True, slots=True)
class Piece:
    """A range of a segment, to be copied from a chunk by the store, or else to be read and written."""

    start: int
    end: int
    chunk: Chunk | None = None


def plan_pieces(chunks: Sequence[Chunk], start: int, end: int, part_bytes_min: int) -> list[Piece]:
    """Cut the bytes ``[start, end)`` of a segment into pieces that a store can join, reading and writing few of them.

    Parameters
    ----------
    chunks
        Those that hold them, one after the other; what comes after the last is the inline tail.
    part_bytes_min
        Of all pieces but the last.
    """
    pieces: list[Piece] = []
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
                pieces.append(Piece(start, chunk.end, chunk))
            else:
                loose = start
        start = chunk.end
    if loose is not None or start < end:
        _add_loose(pieces, start if loose is None else loose, end)
    return pieces


def _add_loose(pieces: list[Piece], start: int, end: int) -> None:
    """Neighbours that are both read and written are one."""
    if pieces and pieces[-1].chunk is None and pieces[-1].end == start:
        start = pieces.pop().start
    pieces.append(Piece(start, end))
