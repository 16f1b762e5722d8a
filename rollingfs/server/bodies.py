"""Bodies of appends, as shippers of logs send them: compressed, or without the line feed at their end."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import AsyncIterable, AsyncIterator

from starlette.exceptions import HTTPException

UNPACKED_BYTES_MAX = 256 * 1024 * 1024
"""Bytes of a compressed body, unpacked: a few KiB may stand for GiB."""
PIECE_BYTES = 256 * 1024
GZIP_WBITS = 31


class Body:
    """The bytes to append, in parts.

    Parameters
    ----------
    parts
        The bytes as they come.
    newline
        End it with a line feed if it has none.
    is_keyed
        Compute the checksum for `key`.

    Attributes
    ----------
    size : int
        The bytes so far.
    """

    def __init__(self, parts: AsyncIterable[bytes], *, newline: bool, is_keyed: bool) -> None:
        self._parts = self._ended(parts, newline)
        self._checksum = hashlib.sha256() if is_keyed else None
        self.size = 0

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._parts

    async def _ended(self, parts: AsyncIterable[bytes], newline: bool) -> AsyncIterator[bytes]:
        last = b""
        async for part in parts:
            last = part or last
            yield self._counted(part)
        if newline and last and not last.endswith(b"\n"):
            yield self._counted(b"\n")

    def _counted(self, part: bytes) -> bytes:
        self.size += len(part)
        if self._checksum is not None:
            self._checksum.update(part)
        return part

    def key(self) -> str | None:
        """Return a key that stands for the bytes so far; None without `is_keyed`."""
        return None if self._checksum is None else f"sha256 {self._checksum.hexdigest()}"

    async def check_repeat(self, size: int) -> None:
        """Read the rest, and refuse a body of another size than that of the append that had its key.

        Raises
        ------
        HTTPException
            It has another size: it is no repeat, and its bytes are not in the segment.
        """
        async for _ in self._parts:
            pass
        if self.size != size:
            text = f"an append of {size} bytes had this key, and this body has {self.size}; nothing was changed"
            raise HTTPException(409, f"{text}: a repeat must be the same, and other data needs another key")


async def unpacked(parts: AsyncIterable[bytes], bytes_max: float) -> AsyncIterator[bytes]:
    """Yield the bytes of a body of gzip, whose members follow each other.

    Parameters
    ----------
    bytes_max
        The limit of the server for a body.

    Raises
    ------
    HTTPException
        It is no gzip, its end is missing, or it has more than `bytes_max` or `UNPACKED_BYTES_MAX` bytes.
    """
    member, size, bytes_max = zlib.decompressobj(GZIP_WBITS), 0, min(bytes_max, UNPACKED_BYTES_MAX)
    async for part in parts:
        left, piece = part, b""
        while left or (len(piece) == PIECE_BYTES and not member.eof):
            if member.eof:
                member = zlib.decompressobj(GZIP_WBITS)
            try:
                piece = member.decompress(left, PIECE_BYTES)
            except zlib.error as error:
                raise HTTPException(400, f"the body is no gzip ({error}); nothing was changed") from error
            left = member.unused_data if member.eof else member.unconsumed_tail
            size += len(piece)
            if size > bytes_max:
                raise HTTPException(413, f"the unpacked body has more than {bytes_max} bytes; nothing was changed")
            yield piece
    if not member.eof:
        raise HTTPException(400, "the end of the gzip body is missing; nothing was changed")
