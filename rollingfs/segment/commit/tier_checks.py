"""Refuses to drop anything of a tier that is not there, or that keeps a segment's files by another path."""

from __future__ import annotations

from collections.abc import Container

from rollingfs.backend.tier_marks import check_mark, elsewhere, has_files, is_placed
from rollingfs.errors import CorruptHeaderError
from rollingfs.format import names
from rollingfs.format.header import Header, Tier
from rollingfs.segment.commit.header_cache import Headers
from rollingfs.segment.commit.index_pages import Pages


async def check_there(
    headers: Headers, pages: Pages, path: str, header: Header, aliases: Container[str] | None = None
) -> None:
    """Refuse missing tiers of a segment, or of some aliases.

    Raises
    ------
    UnknownTierError, MissingTierError
        The message names the tier.
    """
    for line in header.tiers:
        if aliases is None or line.alias in aliases:
            await check_line(headers, pages, path, header, line)


async def check_line(headers: Headers, pages: Pages, path: str, header: Header, line: Tier) -> str:
    """Return the id of the tier of a line; otherwise as `check_there`.

    Without files below this path, the tree was moved, unless the header names a file, or the segment is still there
    under the path of the line.
    """
    backend = headers.backend
    found = await check_mark(backend, headers.runtime, line, path)
    if is_placed(backend, line, path) or await has_files(backend, line, path):
        return found
    chunks = [chunk for chunk in await pages.unfold(path, header.entries) if chunk.end > header.start]
    if any(chunk.tier == line.alias and names.key_of(chunk.file) == line.key for chunk in chunks):
        raise elsewhere(line, path)
    if line.path and await _is_at(headers, line.path, header.segment):
        raise elsewhere(line, path)
    return found


async def _is_at(headers: Headers, path: str, segment: str) -> bool:
    try:
        found = (await headers.load_durable(path)).header
    except CorruptHeaderError:
        return True  # nobody knows
    return found is not None and found.segment == segment
