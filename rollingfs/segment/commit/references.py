"""The files that headers refer to, by folder; an index page of thousands of chunks is read and sorted once.

A collection looks at the target of a concat for the folder of each source, and wants only the files of that folder.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from functools import partial

from rollingfs.format import names, placement
from rollingfs.format.header import Chunk, Drop, Header, Page
from rollingfs.segment.commit.index_pages import PAGE_READS_MAX, Pages

FILES_KNOWN_MAX = 64 * 4096
"""When more files than this are known, all are forgotten."""

Files = Mapping[str, frozenset[str]]
"""Paths of files, by the folder they lie in; a file in a tier belongs to the parallel folder of the hot store."""


def _path(segment: str, line: Chunk | Page | Drop) -> str:
    return names.locate(segment, line.file, "" if isinstance(line, Page) else line.tier)


def _folder(path: str) -> str:
    return names.parent(names.split_tier(path)[1])


class References:
    """Finds the files that headers refer to; remembers what index pages list, because they never change."""

    def __init__(self, pages: Pages) -> None:
        self.pages = pages
        self._known: dict[tuple[str, int, int], Files] = {}
        """By a page's path, and a range of it."""
        self._count = 0

    async def of(self, path: str, header: Header, folder: str) -> frozenset[str]:
        """The paths in a folder that the header of the segment at `path` refers to.

        Among them are files that it has dropped, but keeps for a while for readers with older snapshots.

        Raises
        ------
        PageGoneError
            The header has been replaced.
        CorruptHeaderError
            A page cannot be believed.
        """
        waiting = [drop for drop in header.drops if drop.after_ms and not drop.is_hint]
        named = (_path(path, one) for one in (*header.entries, *waiting))
        pages = [entry for entry in header.entries if isinstance(entry, Page)]
        calls = [partial(self._of_page, path, entry, header.start) for entry in pages]
        calls += [partial(self._of_drop, path, drop) for drop in waiting if drop.is_page]
        found = [files.get(folder, frozenset()) for files in await self.pages.runtime.gather(calls, PAGE_READS_MAX)]
        return frozenset(file for file in named if _folder(file) == folder).union(*found)

    async def _of_page(self, path: str, page: Page, start: int) -> Files:
        """The files that the retained part of a page lists; a page may begin before the start of the segment."""
        first = page.offset + max(0, start - page.start)
        return await self._listed(names.resolve(path, page.file), first, page.offset + page.length, page)

    async def _of_drop(self, path: str, drop: Drop) -> Files:
        try:
            return await self._listed(names.resolve(path, drop.file), drop.start, drop.end)
        except FileNotFoundError:
            return {}  # the page is deleted after its chunks

    async def _listed(self, file: str, first: int, last: int, page: Page | None = None) -> Files:
        known = self._known.get((file, first, last))
        if known is not None:
            return known
        home = names.segment_of_folder(names.parent(file))
        listed: defaultdict[str, set[str]] = defaultdict(set)
        for chunk in placement.overlapping(await self.pages.raw(file, page), first, last):
            path = _path(home, chunk)
            listed[_folder(path)].add(path)
        found = {folder: frozenset(paths) for folder, paths in listed.items()}
        size = sum(map(len, found.values()))
        self._count += size
        if self._count > FILES_KNOWN_MAX:
            self._known, self._count = {}, size
        self._known[file, first, last] = found
        return found
