"""Where to cut a segment: at its end, at a point in time, behind a whole record."""

from __future__ import annotations

from rollingfs.backend.contract import FileInfo
from rollingfs.client import Client
from rollingfs.format.header import Chunk, Header
from rollingfs.read.snapshot import Snapshot

WINDOW_BYTES_MIN = 64 * 1024
WINDOW_BYTES_MAX = 16 * 1024 * 1024
"""How far back the end of a record is looked for; a longer record is kept, and all that is before it."""


class Cutter:
    """Finds the offsets of stream cuts."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def offset(self, view: Snapshot, at: float | None = None, align: bytes | None = None) -> int:
        """Where to cut what a snapshot shows.

        Parameters
        ----------
        at
            Cut before everything that may have been written after this time (seconds since 1970), as far as the
            chunks' times tell; by default at the end.
        align
            Cut behind the last of these delimiters that is not behind the offset found so; where there is none
            within `WINDOW_BYTES_MAX`, at the start.
        """
        offset = view.length if at is None else await self._offset_at(view, at)
        return offset if align is None else await self._aligned(view, offset, align)

    async def _offset_at(self, view: Snapshot, at: float) -> int:
        at_ms = round(at * 1000)
        if view.header is None:
            assert view.plain is not None
            return _offset_of_plain(view.plain, at)
        return await self._offset_in(view.path, view.header, at_ms)

    async def _offset_in(self, path: str, header: Header, at_ms: int) -> int:
        """The end of the leading chunks that were all written by then.

        A chunk's time is that of its newest byte, so the first that is newer may begin with older bytes: those stay.
        The inline tail counts as older only if nothing at all was committed since.
        """
        if header.modified_ms <= at_ms:
            return header.length
        offset = header.start
        for entry in header.entries:
            chunks = [entry] if isinstance(entry, Chunk) else await self.client.pages.chunks(path, entry)
            for chunk in chunks:
                if chunk.at_ms > at_ms:
                    return offset
                offset = max(offset, chunk.end)
        return offset

    async def _aligned(self, view: Snapshot, offset: int, delimiter: bytes) -> int:
        if not delimiter:
            raise ValueError("a delimiter to align to must not be empty")
        window = WINDOW_BYTES_MIN
        while offset > view.start:
            first = max(view.start, offset - window)
            data = await self.client.fetcher.read(view, first, offset)
            found = data.rfind(delimiter)
            if found >= 0:
                return first + found + len(delimiter)
            if first == view.start or window >= WINDOW_BYTES_MAX:
                break
            window *= 16
        return view.start


def _offset_of_plain(plain: FileInfo, at: float) -> int:
    return plain.size if plain.modified <= at else 0
