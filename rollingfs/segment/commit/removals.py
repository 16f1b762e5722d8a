"""What a segment removes: dropped files, the plain file that its header hides, and whole segments without files.

No file is dropped of a tier that is not there, or that keeps the segment's files under another path.
A whole segment goes in a single step, if the store has such a step, and leaves no tombstone. A tombstone refuses a
request that arrives late; if conflicts are certain, it is not needed. It also names what is still to be deleted or
settled, so a segment keeps it while another file has bytes of the segment.
"""

from __future__ import annotations

import errno
import itertools
import logging
import time
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from functools import partial
from typing import TypeVar

from rollingfs.backend.contract import Backend
from rollingfs.backend.tier_marks import check_mark, elsewhere, has_files, is_placed
from rollingfs.backend.tiers import check_tiers
from rollingfs.errors import (
    CommitTimeoutError,
    CorruptHeaderError,
    MissingTierError,
    UnknownTierError,
    if_interrupted,
    worded,
)
from rollingfs.format import names
from rollingfs.format.drops import dropped_chunks, is_deletable, is_due, is_own
from rollingfs.format.header import Adopted, Chunk, Drop, Header, Page, Phase, Tier
from rollingfs.format.side_files import ListedChunks
from rollingfs.segment.commit.header_cache import Headers
from rollingfs.segment.commit.index_pages import PAGE_READS_MAX, Pages
from rollingfs.segment.commit.store import Store
from rollingfs.segment.segment import Segment, shadow

logger = logging.getLogger("rollingfs")


async def check_there(store: Store, path: str, header: Header, aliases: Container[str] | None = None) -> None:
    """Refuse missing tiers of a segment, or of some aliases.

    Raises
    ------
    UnknownTierError, MissingTierError
        The message names the tier.
    """
    for line in header.tiers:
        if aliases is None or line.alias in aliases:
            await check_line(store, path, header, line)


async def check_line(store: Store, path: str, header: Header, line: Tier) -> str:
    """Return the id of the tier of a line; otherwise as `check_there`.

    Without files below this path, the tree was moved, unless the header names a file, or the segment is still there
    under the path of the line.
    """
    backend = store.backend
    found = await check_mark(backend, store.runtime, line, path)
    if is_placed(backend, line, path) or await has_files(backend, line, path):
        return found
    chunks = [chunk for chunk in await store.pages.unfold(path, header.entries) if chunk.end > header.start]
    if any(chunk.tier == line.alias and names.key_of(chunk.file) == line.key for chunk in chunks):
        raise elsewhere(line, path)
    if line.path and await _is_at(store.headers, line.path, header.segment):
        raise elsewhere(line, path)
    return found


async def _is_at(headers: Headers, path: str, segment: str) -> bool:
    try:
        found = (await headers.load_durable(path)).header
    except CorruptHeaderError:
        return True  # nobody knows
    return found is not None and found.segment == segment


async def finish_drops(store: Store, path: str, header: Header) -> None:
    """Delete the files in the segment's own folder that the drop lines of a committed header name.

    The next commit clears the lines. Hints are left to the collection of the folders that they name.
    """
    due, files = await due_files(store, path, header)
    await delete_dropped(store.backend, path, files)
    store.slots.remember(path, drops=due, header=header)


async def due_files(store: Store, path: str, header: Header) -> tuple[list[Drop], list[str]]:
    """Return the drop lines of a committed header that are due and not done, and their files: `dropped_files`.

    A page stays as long as a source that is not buried yet may name it, too.
    """
    done, now_ms = store.slots.of(path).done_drops, store.now_ms()
    due = [drop for drop in header.drops if is_due(drop, now_ms) and drop not in done]
    if header.merges:
        due = [drop for drop in due if not names.is_index(drop.file)]
    try:
        files = await dropped_files(store.pages, path, due)
        aliases = {names.split_tier(file)[0] for file in files}
        await check_there(store, path, header, aliases)
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


async def try_drops(store: Store, path: str, header: Header) -> None:
    """Finish drops, and only log an error: the caller must hear of the commit, and the drop lines stay."""
    try:
        with if_interrupted(path, "committed"):
            await finish_drops(store, path, header)
    except OSError as error:
        logger.info("%s: committed, but not all of the old files could be deleted yet: %s", path, error)


async def dropped_files(pages: Pages, path: str, due: Sequence[Drop]) -> list[str]:
    """Return the files that due drop lines name: chunks, then index pages."""
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
    """Return the files of a segment's map that go with the segment: own chunks that were not staged, then own pages."""
    chunks = await pages.unfold(path, header.entries)
    files = [names.locate(path, chunk.file, chunk.tier) for chunk in chunks if is_deletable(chunk.file)]
    check_tiers(pages.backend, files)
    own_pages = [entry.file for entry in header.entries if isinstance(entry, Page) and is_own(entry.file)]
    return files + [names.resolve(path, file) for file in own_pages]


CLOCKS_APART_MS_MAX = 24 * 3600 * 1000
"""For a file older than this by the client's clock, the store is not asked for its own clock."""


async def wait_for_new_date(store: Store, path: str, adopted: Adopted | None, deadline_s: float) -> None:
    """Wait until the store gives new files another date than a plain file has which a tombstone is to name.

    Otherwise the tombstone would hide a file with the same bytes that comes after it in the same second.

    Raises
    ------
    CommitTimeoutError
        That date comes after the deadline.
    """
    while left_s := await check_passes(store, path, adopted, deadline_s):
        await store.runtime.sleep(min(left_s, store.backend.capability.date_step_s))


async def check_passes(store: Store, path: str, adopted: Adopted | None, deadline_s: float) -> float:
    """Return the seconds that `wait_for_new_date` has to wait, for a caller that has sent no request yet.

    Raises
    ------
    CommitTimeoutError
        The date of the plain file comes after the deadline.
    """
    step_s = store.backend.capability.date_step_s
    if adopted is None or not step_s or store.now_ms() - adopted.modified_ms > CLOCKS_APART_MS_MAX:
        return 0.0
    left_s = adopted.modified_ms / 1000 + step_s - await store.backend.now(path)
    if left_s > deadline_s - time.monotonic():
        raise CommitTimeoutError(
            f"{path}: the plain file of this name is dated {left_s:.0f} s ahead of the store's clock, and the segment "
            "cannot be deleted or renamed before that time; nothing was written: try again then"
        )
    return max(left_s, 0.0)


async def delete_shadowed(store: Store, path: str, adopted: Adopted | None) -> bool:
    """Delete the plain file that a header names, if it still is that file and the store can delete conditionally.

    The date is looked at right before, because a store compares only the token. So another file is deleted only
    if another tool writes it between the two requests, with the very same bytes.
    """
    if adopted is None or not (await store.abilities(path)).delete_if:
        return False
    try:
        info = await store.backend.stat(path)
    except FileNotFoundError:
        return False
    return adopted == shadow(info) and await store.backend.delete_if(path, adopted.token)


T = TypeVar("T")

BATCH_MAX = 1024
"""Maximum segments that a call of the backend deletes or moves."""


def is_alone(header: Header) -> bool:
    """Return whether a segment is a header without other files, which no client holds."""
    return not (
        header.owner is not None
        or header.entries
        or header.drops
        or header.merges
        or header.aborts
        or header.tiers
        or header.adopted
    )


async def take_whole(
    store: Store, what: str, seen: Mapping[str, Segment], targets: Mapping[str, str] | None = None
) -> set[str]:
    """Delete segments of the tree `what` that have no other files, or move them to free names; return their paths."""
    alone = {
        path: (names.header_path(path), loaded.token)
        for path, loaded in (seen.items() if store.backend.capability.removes_whole else ())
        if loaded.live and (header := loaded.header) is not None and loaded.token is not None
        if header.phase is not Phase.MERGING and is_alone(header)
    }
    with if_interrupted(what, "unknown"):
        if targets is None:
            return await _taken(store, alone, store.backend.remove_whole)
        moves = {path: (header, token, names.header_path(targets[path])) for path, (header, token) in alone.items()}
        taken = await _taken(store, moves, store.backend.move_whole)
    for path in taken:
        store.headers.forget(targets[path])
    return taken


async def remove_grave(store: Store, path: str, grave: Header) -> None:
    """Delete a tombstone that a commit has just made, if no file of the segment is left and the store can do that.

    The caller has deleted all files that the tombstone itself may name, or has not found them.
    """
    if grave.deleted and not (grave.must_settle or grave.tiers or any(drop.is_hint for drop in grave.drops)):
        await remove_header(store, path, grave)


async def remove_header(store: Store, path: str, header: Header) -> bool:
    """Delete the header that a commit has just made, if the store can do that in one step."""
    seen = store.headers.seen(path)
    if not store.backend.capability.removes_whole or seen is None or not seen.token:
        return False
    if seen.header is not header and seen.header != header:
        return False
    try:
        (is_taken,) = await store.backend.remove_whole([(names.header_path(path), seen.token)])
    finally:  # after an error nobody knows
        store.headers.forget(path)
    return is_taken


async def _taken(
    store: Store, files: Mapping[str, T], take: Callable[[Sequence[T]], Awaitable[Sequence[bool]]]
) -> set[str]:
    """Call a verb of the backend for the files of several segments, a batch at a time."""
    taken: set[str] = set()
    paths = list(files)
    for start in range(0, len(paths), BATCH_MAX):
        batch = paths[start : start + BATCH_MAX]
        try:
            taken.update(itertools.compress(batch, await take([files[path] for path in batch])))
        finally:  # after an error nobody knows
            for path in batch:
                store.headers.forget(path)
    return taken
