"""The place of bytes and chunks: the inline tail, new chunks, index pages. Pure plans, no I/O."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from rollingfs.format import line_codec, names
from rollingfs.format.header import LARGE_PAGE_CHUNKS, LOOSE_CHUNKS_MAX, PAGE_CHUNKS, PAGES_JOINED, Chunk, Entry, Page
from rollingfs.format.side_files import ListedChunks
from rollingfs.policy import RollingPolicy

PAGE_LINE_BYTES_MAX = 128
"""The longest line of an index page in the own folder, with any numbers."""


E = TypeVar("E", bound=Entry)
Item = bytes | Chunk | Page
"""An addition by an append or a concat: bytes, or an existing entry (`place` sets its start)."""


def arrange(
    tail: bytes, items: Sequence[Item], policy: RollingPolicy, *, spill_all: bool = False
) -> tuple[list[Item], bytes]:
    """Place items after an inline tail.

    Parameters
    ----------
    tail
        The present inline tail.
    items
        The additions after it, in order.
    policy
        The policy of the segment.
    spill_all
        Leave no tail (rolling by age).

    Returns
    -------
    placed : list
        In order: bytes that become new chunks, and entries.
    tail : bytes
        The new inline tail.
    """
    placed: list[Item] = []
    pending: list[bytes] = [tail] if tail else []
    for item in items:
        if isinstance(item, bytes):
            pending.append(item)
            continue
        placed += _split(b"".join(pending), policy.max_bytes)
        pending = []
        placed.append(item)
    rest = b"".join(pending)
    if len(rest) <= policy.inline_bytes and len(rest) <= policy.max_bytes and not spill_all:
        return placed, rest
    pieces = _split(rest, policy.max_bytes)
    keeps_last = len(pieces) > 1 and len(pieces[-1]) <= policy.tail_bytes_max and not spill_all
    new_tail = pieces.pop() if keeps_last else b""
    return [*placed, *pieces], new_tail


def _split(data: bytes, size: int) -> list[bytes]:
    if len(data) <= size:
        return [data] if data else []
    return [data[start : start + size] for start in range(0, len(data), size)]


def place(entries: Sequence[Entry], start: int) -> tuple[Entry, ...]:
    """Give entries consecutive offsets, from `start` on."""
    placed = []
    for entry in entries:
        placed.append(replace(entry, start=start))
        start += entry.length
    return tuple(placed)


def clip(entry: E, start: int, end: int) -> E:
    """Return the part of an entry within ``[start, end)``; the part must not be empty."""
    first, last = max(start, entry.start), min(end, entry.end)
    if (first, last) == (entry.start, entry.end):
        return entry
    return replace(entry, start=first, length=last - first, offset=entry.offset + first - entry.start)


def overlapping(entries: Sequence[Entry] | ListedChunks, start: int, end: int) -> Sequence[Entry]:
    """Return the entries that hold a byte of ``[start, end)``, of entries that are contiguous and sorted."""
    if start >= end:
        return []
    if isinstance(entries, ListedChunks):
        return entries.overlapping(start, end)
    first = bisect.bisect_right(entries, start, key=lambda entry: entry.end)
    last = bisect.bisect_left(entries, end, key=lambda entry: entry.start)
    return entries[first:last]


def transplant(entries: Sequence[Entry], start: int, end: int, source: str, target: str) -> list[Entry]:
    """Return a source's entries within ``[start, end)`` as a target's: clipped, with new references."""
    return [
        replace(clip(entry, start, end), file=names.relate(target, names.resolve(source, entry.file)))
        for entry in overlapping(entries, start, end)
    ]


def unfold(page: Page, chunks: ListedChunks, segment: str) -> tuple[Chunk, ...]:
    """Return a page's chunks as loose chunks of the header of `segment`: clipped, shifted, with references from it."""
    home = names.segment_of_folder(names.parent(names.resolve(segment, page.file)))
    used = overlapping(chunks, page.offset, page.offset + page.length)
    shift = page.start - page.offset
    found = []
    for chunk in used:
        assert isinstance(chunk, Chunk)
        part = clip(chunk, page.offset, page.offset + page.length)
        file = chunk.file if home == segment else names.relate(segment, names.resolve(home, chunk.file))
        found.append(replace(part, start=part.start + shift, file=file))
    return tuple(found)


def plan_fold(entries: Sequence[Entry], *, loose_max: int = LOOSE_CHUNKS_MAX) -> slice | None:
    """Return the slice of entries that becomes an index page next, or None.

    1. If more than `loose_max` chunks are loose, 128 of the longest run (4,096 of a run that long), oldest first.
    2. Otherwise 32 neighbouring small pages, which become a page of up to 4,096 chunks.
    """
    if len(entries) < PAGES_JOINED and len(entries) <= loose_max:
        return None  # too few for either
    loose = sum(isinstance(entry, Chunk) for entry in entries)
    if loose > loose_max:
        return _loose_run(entries)
    return _small_pages(entries)


def _runs(entries: Sequence[Entry]) -> list[tuple[int, int]]:
    """Return the runs of loose chunks, as index ranges."""
    runs: list[tuple[int, int]] = []
    for index, entry in enumerate(entries):
        if isinstance(entry, Chunk):
            if runs and runs[-1][1] == index:
                runs[-1] = (runs[-1][0], index + 1)
            else:
                runs.append((index, index + 1))
    return runs


def _loose_run(entries: Sequence[Entry]) -> slice:
    """Return the longest run of loose chunks, or its oldest part."""
    first, last = max(_runs(entries), key=lambda run: min(run[1] - run[0], PAGE_CHUNKS))  # the oldest of equal ones
    count = last - first
    size = LARGE_PAGE_CHUNKS if count > LARGE_PAGE_CHUNKS else min(count, PAGE_CHUNKS)
    return slice(first, first + size)


def _small_pages(entries: Sequence[Entry]) -> slice | None:
    first = 0
    while first < len(entries):
        last, count = first, 0
        while last < len(entries) and _is_small(entries[last]) and count + _count(entries[last]) <= LARGE_PAGE_CHUNKS:
            count += _count(entries[last])
            last += 1
        if last - first >= PAGES_JOINED:
            return slice(first, last)
        first = max(last, first + 1)
    return None


def _is_small(entry: Entry) -> bool:
    return isinstance(entry, Page) and entry.count <= PAGE_CHUNKS


def _count(entry: Entry) -> int:
    return entry.count if isinstance(entry, Page) else 1


def plan_squeeze(entries: Sequence[Entry]) -> slice | None:
    """Return the neighbours that save the most text as a page, for a long text.

    That may be a single entry with a long reference: the page is in the own folder, so its own reference is short.
    """
    lines = [line_codec.format_chunk(one) if isinstance(one, Chunk) else line_codec.format_page(one) for one in entries]
    sizes = [len(line.encode()) + 1 for line in lines]
    best: slice | None = None
    saved_most = 0
    first = count = size = 0
    for last, entry in enumerate(entries, start=1):
        count += _count(entry)
        size += sizes[last - 1]
        while count > LARGE_PAGE_CHUNKS:
            count -= _count(entries[first])
            size -= sizes[first]
            first += 1
        if size - PAGE_LINE_BYTES_MAX > saved_most:
            best, saved_most = slice(first, last), size - PAGE_LINE_BYTES_MAX
    return best
