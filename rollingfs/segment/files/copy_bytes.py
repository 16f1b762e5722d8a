"""Bytes that pass through this client: read from a segment, and written to a new file, in bounded memory."""

from __future__ import annotations

from functools import partial

from rollingfs.backend.contract import Backend, Upload, finished, frozen
from rollingfs.format.crc import crc32c
from rollingfs.runtime.steps import Steps
from rollingfs.segment.at import At
from rollingfs.segment.commit.chunk_files import CHECK_BYTES_MAX
from rollingfs.segment.read.piece_checks import PieceChecks
from rollingfs.segment.segment import Segment

READ_BYTES_MAX = 16 * 1024 * 1024


async def pass_through(
    at: At, view: Segment, start: int, end: int, upload: Upload, checks: PieceChecks, steps: Steps
) -> int:
    """Append the bytes ``[start, end)`` of a snapshot to an upload; returns their checksum.

    The next bytes are read while the last are written.
    """

    async def read(first: int) -> bytes:
        return await at.fetcher.read(view, first, min(first + READ_BYTES_MAX, end), checks=checks)

    async def write(data: bytes) -> bytes:
        await upload.write(data)
        steps.add(len(data))
        return b""

    crc, data = 0, await read(start)
    while data:
        start += len(data)
        crc = crc32c(data, crc)
        following = [partial(read, start)] if start < end else []
        data = (await at.runtime.gather([partial(write, data), *following], 2))[-1]
    return crc


async def copy_range(backend: Backend, file: str, start: int, end: int, target: str) -> int:
    """Write bytes ``[start, end)`` of a file as a new one; returns their checksum."""
    crc = 0
    async with finished(await backend.open_write(target)) as upload:
        for first in range(start, end, CHECK_BYTES_MAX):
            data = frozen(await backend.read_range(file, first, min(first + CHECK_BYTES_MAX, end)))
            crc = crc32c(data, crc)
            await upload.write(data)
    return crc
