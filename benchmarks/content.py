"""Bytes that show where they belong: a tile, repeated, whose length divides no block."""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

TILE_BYTES = 4 * 2**20 + 4099
"""No multiple of this lies near a multiple of a range or a chunk, so that `check` notices misplaced bytes."""


@functools.cache
def _twice() -> bytes:
    return 2 * random.Random(4).randbytes(TILE_BYTES)


def content(start: int, size: int) -> bytes:
    """The bytes ``[start, start + size)`` of the repeated tile."""
    return b"".join(map(bytes, views(start, size)))


def views(start: int, size: int) -> Iterator[memoryview]:
    """`content` in pieces, without a copy."""
    tile = memoryview(_twice())
    while size > 0:
        first = start % TILE_BYTES
        piece = tile[first : first + min(size, TILE_BYTES)]
        yield piece
        start += len(piece)
        size -= len(piece)


def check(data: Any, start: int) -> int:
    """The number of bytes in a buffer, which must be those of `content` from `start` on.

    Raises
    ------
    AssertionError
        The bytes differ.
    """
    found, at = pa.py_buffer(data), 0  # compares by memcmp, which memoryview does not
    for expected in views(start, found.size):
        if not found.slice(at, len(expected)).equals(pa.py_buffer(expected)):
            raise AssertionError(f"wrong bytes between {start + at} and {start + at + len(expected)}")
        at += len(expected)
    return at


class ContentFile:
    """`content` as a file that is read from front to back."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.at = 0

    def read(self, size: int = -1) -> bytes:
        size = self.size - self.at if size < 0 else min(size, self.size - self.at)
        data = content(self.at, size)
        self.at += size
        return data
