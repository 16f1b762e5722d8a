"""Erasing: a truncation after which no file that the header names holds bytes before the start. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from rollingfs.format import placement
from rollingfs.format.drops import drop_line, is_deletable, is_own, merge_drops
from rollingfs.format.header import Chunk, Drop, Entry, Header, Page

Place = tuple[str, str]
"""A chunk file: the alias of its tier, and its reference."""


def place(chunk: Chunk) -> Place:
    """Return the file that a chunk names."""
    return chunk.tier, chunk.file


def parts(chunks: Iterable[Chunk], cut: int) -> list[Chunk]:
    """Return the retained parts of chunks that a cut has cut through."""
    kept = (clipped(chunk, cut) for chunk in chunks if chunk.end > cut)
    return [chunk for chunk in kept if chunk.length < chunk.size]


def clipped(chunk: Chunk, cut: int) -> Chunk:
    """Return the rest of a chunk that ends after a cut."""
    part = placement.clip(chunk, cut, chunk.end)
    assert isinstance(part, Chunk)
    return part


def to_rewrite(parts: Iterable[Chunk]) -> list[Chunk]:
    """Return the partial chunks whose files have unused bytes."""
    files: dict[Place, list[Chunk]] = {}
    for chunk in parts:
        files.setdefault(place(chunk), []).append(chunk)
    return [chunk for group in files.values() if not _is_covered(group) for chunk in group]


def _is_covered(group: Sequence[Chunk]) -> bool:
    """Return whether the chunks of a file use all of its bytes."""
    end = 0
    for chunk in sorted(group, key=lambda chunk: chunk.offset):
        if chunk.offset > end:
            return False
        end = max(end, chunk.offset + chunk.length)
    return end == group[0].size


def rewritten(
    header: Header, pages: Mapping[Page, Sequence[Chunk]], new: Mapping[Chunk, Chunk], now_ms: int
) -> tuple[Header, list[Chunk]]:
    """Replace retained parts by new chunks.

    Parameters
    ----------
    header
        It is truncated already: its start is the cut.
    pages
        The pages that list chunks to be replaced, unfolded into the segment's own terms.
    new
        The new chunks, by the retained parts whose place they take.

    Returns
    -------
    header : Header
        With the old files, and the pages that listed them, as drops.
    gone : list of Chunk
        The old chunks.
    """
    entries: list[Entry] = []
    gone: list[Chunk] = []
    unfolded: list[Page] = []
    for entry in header.entries:
        if isinstance(entry, Page) and entry not in pages:
            entries.append(entry)
            continue
        if isinstance(entry, Page):
            unfolded.append(entry)
        for chunk in pages[entry] if isinstance(entry, Page) else [entry]:
            if chunk.end <= header.start:
                continue
            part = clipped(chunk, header.start)
            if part in new:
                gone.append(chunk)
            entries.append(new.get(part, chunk))
    drops = _with_pages(header.drops, unfolded, now_ms)
    files = {place(chunk): chunk for chunk in gone}.values()
    drops = merge_drops(drops, [drop_line(chunk, now_ms) for chunk in files])
    return replace(header, entries=tuple(entries), drops=drops), gone


def _with_pages(drops: Sequence[Drop], unfolded: Sequence[Page], now_ms: int) -> tuple[Drop, ...]:
    """Drop the files of pages, each after the chunks that another line drops by it."""
    found = list(drops)
    for page in unfolded:
        if not is_own(page.file):
            found.append(drop_line(page, now_ms))
            continue
        by_it = [index for index, drop in enumerate(found) if drop.is_page and drop.file == page.file]
        if by_it:
            found[by_it[-1]] = replace(found[by_it[-1]], whole=True)
        else:
            found.append(drop_line(page, now_ms))
    return merge_drops((), found)


def without_lags(header: Header) -> Header:
    """Let no drop line keep files for readers any more."""
    drops = tuple(
        replace(drop, after_ms=0) for drop in header.drops if drop.is_hint or is_own(drop.file) or not drop.after_ms
    )
    return header if drops == header.drops else replace(header, drops=drops)


def deletable(chunks: Iterable[Chunk]) -> list[Chunk]:
    """Of chunks that are no longer part of a segment, those whose files the segment itself deletes, at once."""
    return [chunk for chunk in chunks if is_deletable(chunk.file)]
