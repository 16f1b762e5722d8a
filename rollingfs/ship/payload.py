"""`payload`: the lines of a log as its segment gets them."""

from __future__ import annotations

from collections.abc import Iterator

from rollingfs.ship.generations import NUL
from rollingfs.ship.lineage import LINE_FEED, Piece


def payload(piece: Piece, prefix: bytes, *, ends: bool) -> Iterator[bytes]:
    """Yield the bytes of a piece as the segment gets them.

    Parameters
    ----------
    prefix
        Bytes before each line.
    ends
        Whether a line without an end gets a line feed, because lines of other files may follow.
    """
    begins, block = ends or piece.before in (b"", LINE_FEED, NUL), b""
    for block in piece.blocks():
        if prefix:
            yield (prefix if begins else b"") + block[:-1].replace(LINE_FEED, LINE_FEED + prefix) + block[-1:]
            begins = block.endswith(LINE_FEED)
        else:
            yield block
    if (ends or piece.is_last) and block and not block.endswith(LINE_FEED):
        yield LINE_FEED
