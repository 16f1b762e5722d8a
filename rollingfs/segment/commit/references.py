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

File = tuple[str, str]
"""A file's tier and name."""
Files = Mapping[str, frozenset[File]]
"""Files by their folder; a file in a tier belongs to the parallel folder of the hot store.

Folders are folded: a disk that ignores case may have renamed a folder since the reference was written. Elsewhere, two
such folders never have files of the same name.
"""


def _place(segment: str, line: Chunk | Page | Drop) -> tuple[str, File]:
    folder, _, name = names.resolve(segment, line.file).rpartition("/")
    return names.folded(folder), ("" if isinstance(line, Page) else line.tier, name)


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
        key, lines = names.folded(folder), (*header.entries, *waiting)
        named = {file for place, file in (_place(path, one) for one in lines) if place == key}
        pages = [entry for entry in header.entries if isinstance(entry, Page)]
        calls = [partial(self._of_page, path, entry, header.start) for entry in pages]
        calls += [partial(self._of_drop, path, drop) for drop in waiting if drop.is_page]
        for files in await self.pages.runtime.gather(calls, PAGE_READS_MAX):
            named |= files.get(key, frozenset())
        return frozenset(
            names.in_tier(tier, f"{folder}/{name}") if tier else f"{folder}/{name}" for tier, name in named
        )

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
        listed: defaultdict[str, set[File]] = defaultdict(set)
        for chunk in placement.overlapping(await self.pages.raw(file, page), first, last):
            folder, name = _place(home, chunk)
            listed[folder].add(name)
        found = {folder: frozenset(files) for folder, files in listed.items()}
        size = sum(map(len, found.values()))
        self._count += size
        if self._count > FILES_KNOWN_MAX:
            self._known, self._count = {}, size
        self._known[file, first, last] = found
        return found
