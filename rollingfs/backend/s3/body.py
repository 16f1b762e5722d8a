"""Request bodies that are not copied together, and cannot be sent twice."""

from __future__ import annotations

import io
import os
from collections.abc import AsyncIterator, Sequence
from io import BytesIO
from typing import Any

from rollingfs.backend.contract import Buffer

SEND_BYTES = 256 * 1024


class Pieces(io.RawIOBase):
    """A request body that lies in several pieces, which nobody copies together."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        super().__init__()
        self.pieces = pieces
        self.size = sum(map(len, pieces))
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        origin = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self.size}[whence]
        self._at = origin + offset
        return self._at

    def readinto(self, target: Any, /) -> int:
        start = 0
        for piece in self.pieces:
            if self._at < start + len(piece):
                data = memoryview(piece)[self._at - start :][: len(target)]
                target[: len(data)] = data
                self._at += len(data)
                return len(data)
            start += len(piece)
        return 0


class BodyOnce:
    """A request body that can be sent once: aiohttp does not repeat a request whose body it cannot rewind.

    It is sent in larger steps than aiohttp's own, each of which costs a turn of the event loop.
    """

    def __init__(self, source: BytesIO | Pieces) -> None:
        self._source = source

    async def __aiter__(self) -> AsyncIterator[memoryview]:
        pieces: Sequence[Buffer] = (
            self._source.pieces if isinstance(self._source, Pieces) else [self._source.getbuffer()]
        )
        for piece in pieces:
            view = memoryview(piece)
            for start in range(0, len(view), SEND_BYTES):
                yield view[start : start + SEND_BYTES]

    def seek(self, offset: int) -> int:
        """For botocore, which rewinds when S3 names another region, and then makes a new request."""
        return self._source.seek(offset)
