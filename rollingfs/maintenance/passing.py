"""Bytes that pass through this client: read from a segment, and written to a new file, in bounded memory."""

from __future__ import annotations

from functools import partial

import google_crc32c

from rollingfs.backend.contract import Backend, Upload, frozen
from rollingfs.maintenance.steps import Steps
from rollingfs.read.piece_checks import PieceChecks
from rollingfs.read.ranges import Fetcher
from rollingfs.read.snapshot import Snapshot

READ_BYTES_MAX = 16 * 1024 * 1024
CHECK_BYTES_MAX = 8 * 1024 * 1024
"""Bytes of one request that only serves a checksum."""


async def pass_through(
    fetcher: Fetcher, view: Snapshot, start: int, end: int, upload: Upload, checks: PieceChecks, steps: Steps
) -> int:
    """Append the bytes ``[start, end)`` of a snapshot to an upload; returns their checksum.

    The next bytes are read while the last are written.
    """

    async def read(first: int) -> bytes:
        return await fetcher.read(view, first, min(first + READ_BYTES_MAX, end), checks=checks)

    async def write(data: bytes) -> bytes:
        await upload.write(data)
        steps.add(len(data))
        return b""

    crc, data = 0, await read(start)
    while data:
        start += len(data)
        crc = google_crc32c.extend(crc, data)
        following = [partial(read, start)] if start < end else []
        data = (await fetcher.runtime.gather([partial(write, data), *following], 2))[-1]
    return crc


async def checksum(backend: Backend, file: str, size: int) -> int | None:
    """The checksum of a file, read from end to end; None if it has another size."""
    crc = position = 0
    while position <= size:
        end = min(position + CHECK_BYTES_MAX, size + 1)
        data = frozen(await backend.read_range(file, position, end))
        crc = google_crc32c.extend(crc, data)
        position += len(data)
        if len(data) < end - (position - len(data)):
            break
    return crc if position == size else None
