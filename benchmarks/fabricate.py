"""Makes segments of a million chunks in seconds: the whole map, and only some of the chunk files."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any

from rollingfs.format import names
from rollingfs.format.codec import format_header
from rollingfs.format.crc import crc32c
from rollingfs.format.header import LARGE_PAGE_CHUNKS, LOOSE_CHUNKS_MAX, PAGE_CHUNKS, PAGES_JOINED, Chunk, Header, Page
from rollingfs.format.placement import place
from rollingfs.format.side_files import format_page
from rollingfs.policy import RollingPolicy

AT_MS = 1_760_000_000_000
WRITES_MAX = 32


def chunk_data(number: int, size: int) -> bytes:
    """The bytes of a chunk."""
    return (b"%019d " % number * (size // 20 + 1))[:size]


def _chunk(number: int, start: int, size: int, crc: int) -> Chunk:
    return Chunk(start, size, f"{number * size:020d}-{number:012x}", crc, AT_MS + number)


def page_counts(count: int) -> list[int]:
    """The number of chunks in each index page of a segment of `count` chunks, as appends would have left it."""
    folded = -(-max(0, count - LOOSE_CHUNKS_MAX) // PAGE_CHUNKS)
    large, small = divmod(folded, PAGES_JOINED)
    return [LARGE_PAGE_CHUNKS] * large + [PAGE_CHUNKS] * small


async def fabricate(
    backend: Any, paths: Sequence[str], count: int, policy: RollingPolicy, present: Iterable[int]
) -> int:
    """Write open segments of `count` chunks of `max_bytes`, with the files of `present` only.

    Returns
    -------
    int
        The size of each header.
    """
    size = policy.max_bytes
    calls: list[Callable[[], Awaitable[None]]] = []
    pages, first = [], 0
    for nth, length in enumerate(page_counts(count)):
        # a file that nobody reads needs no true checksum
        chunks = tuple(_chunk(number, (number - first) * size, size, 0) for number in range(first, first + length))
        data = format_page(chunks)
        pages.append(Page(first * size, length * size, f"index-{nth:012x}", length, crc32c(data), len(data)))
        calls += [_write(backend, path, pages[-1].file, data) for path in paths]
        first += length
    loose = [_chunk(number, number * size, size, 0) for number in range(first, count)]
    for number in sorted(set(present)):
        chunk = _chunk(number, 0, size, 0)
        calls += [_write(backend, path, chunk.file, chunk_data(number, size)) for path in paths]
    await at_once(calls)
    header = format_header(
        Header(
            segment="7b0c2f6e-0000-4000-8000-000000000000",
            version=1,
            policy=policy,
            entries=place([*pages, *loose], 0),
            created_ms=AT_MS,
            modified_ms=AT_MS,
        )
    )
    await at_once([partial(backend.create, names.header_path(path), header) for path in paths])
    return len(header)


def _write(backend: Any, path: str, file: str, data: bytes) -> Callable[[], Awaitable[None]]:
    return partial(backend.write, names.resolve(path, file), [data])


async def at_once(calls: Iterable[Callable[[], Awaitable[Any]]]) -> None:
    """Make calls, some of them at a time."""
    gate = asyncio.Semaphore(WRITES_MAX)

    async def one(call: Callable[[], Awaitable[Any]]) -> None:
        async with gate:
            await call()

    await asyncio.gather(*map(one, calls))
