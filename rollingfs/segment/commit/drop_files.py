"""The files that a segment itself deletes, by its drop lines or by its map.

No file is dropped of a tier that is not there, or that keeps the segment's files under another path.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Container, Sequence
from functools import partial

from rollingfs.backend.contract import Backend
from rollingfs.backend.tier_marks import check_mark, elsewhere, has_files, is_placed
from rollingfs.backend.tiers import check_tiers
from rollingfs.errors import CorruptHeaderError, MissingTierError, UnknownTierError, if_interrupted, worded
from rollingfs.format import names
from rollingfs.format.drops import dropped_chunks, is_deletable, is_due, is_own
from rollingfs.format.header import Chunk, Drop, Header, Page, Tier
from rollingfs.format.side_files import ListedChunks
from rollingfs.segment.commit.commits import Commits
from rollingfs.segment.commit.header_cache import Headers
from rollingfs.segment.commit.index_pages import PAGE_READS_MAX, Pages

logger = logging.getLogger("rollingfs")


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


async def finish_drops(commits: Commits, path: str, header: Header) -> None:
    """Delete the files in the segment's own folder that the drop lines of a committed header name.

    The next commit clears the lines. Hints are left to the collection of the folders that they name.
    """
    due, files = await due_files(commits, path, header)
    await delete_dropped(commits.store.backend, path, files)
    commits.slots.remember(path, drops=due, header=header)


async def due_files(commits: Commits, path: str, header: Header) -> tuple[list[Drop], list[str]]:
    """The drop lines of a committed header that are due and not done, and the files that they name: `dropped_files`.

    A page stays as long as a source that is not buried yet may name it, too.
    """
    done, now_ms = commits.slots.of(path).done_drops, commits.store.now_ms()
    due = [drop for drop in header.drops if is_due(drop, now_ms) and drop not in done]
    if header.merges:
        due = [drop for drop in due if not names.is_index(drop.file)]
    try:
        files = await dropped_files(commits.store.pages, path, due)
        aliases = {names.split_tier(file)[0] for file in files}
        await check_there(commits.store.headers, commits.store.pages, path, header, aliases)
        return due, files
    except (UnknownTierError, MissingTierError) as error:
        raise type(error)(
            f"{path}: committed, but the files that it has dropped cannot be deleted yet: {error}"
        ) from error


async def delete_dropped(backend: Backend, what: str, files: Sequence[str]) -> None:
    """Delete the files that `what` has dropped; index pages go last, because they name chunks.

    Raises
    ------
    OSError
        Some are still there; the commit stands, and collection finishes this.
    """
    try:
        for is_page in (False, True):
            if group := [file for file in files if names.is_index(file) is is_page]:
                await backend.delete(group)
    except OSError as error:
        why = error.strerror or error
        text = f"{what}: committed, but the dropped files could not be deleted yet, {worded('collect')} will: {why}"
        raise OSError(error.errno or errno.EIO, text) from error


async def try_drops(commits: Commits, path: str, header: Header) -> None:
    """`finish_drops`, whose error is only logged: the caller must hear of the commit, and the drop lines stay."""
    try:
        with if_interrupted(path, "committed"):
            await finish_drops(commits, path, header)
    except OSError as error:
        logger.info("%s: committed, but not all of the old files could be deleted yet: %s", path, error)


async def dropped_files(pages: Pages, path: str, due: Sequence[Drop]) -> list[str]:
    """The files that drop lines name which are due: chunks, then index pages."""
    of_pages = [drop for drop in due if drop.is_page]
    lists = await pages.runtime.gather([partial(_listed, pages, path, drop) for drop in of_pages], PAGE_READS_MAX)
    listed = dict(zip(of_pages, lists, strict=True))
    chunks = [file for drop in due for file in dropped_chunks(path, drop, listed.get(drop, ()))]
    check_tiers(pages.backend, chunks)
    return chunks + [names.resolve(path, drop.file) for drop in due if drop.whole]


async def _listed(pages: Pages, path: str, drop: Drop) -> Sequence[Chunk] | ListedChunks:
    try:
        return await pages.raw(names.resolve(path, drop.file))
    except (FileNotFoundError, CorruptHeaderError):
        return ()  # the page goes last, so its chunks are gone; if it is damaged, collection takes them


async def mapped_files(pages: Pages, path: str, header: Header) -> list[str]:
    """The files of a segment's map that go with the segment: own chunks that were not staged, then own pages."""
    chunks = await pages.unfold(path, header.entries)
    files = [names.locate(path, chunk.file, chunk.tier) for chunk in chunks if is_deletable(chunk.file)]
    check_tiers(pages.backend, files)
    own_pages = [entry.file for entry in header.entries if isinstance(entry, Page) and is_own(entry.file)]
    return files + [names.resolve(path, file) for file in own_pages]
