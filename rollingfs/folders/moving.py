"""Copies segments, and gives segments, plain files and whole folders other names."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator
from functools import partial

from rollingfs.backend import shared_errors
from rollingfs.errors import ConflictError
from rollingfs.folders.folders import above, check_readable, keep, make_all, needs_mark, remove_all, take_link, unmark
from rollingfs.folders.info import is_ours, remove_rows
from rollingfs.folders.listing import REPORT, info, is_there, tree
from rollingfs.format import names
from rollingfs.format.transitions import exists, missing
from rollingfs.segment.at import At
from rollingfs.segment.commit.removals import take_whole
from rollingfs.segment.files.adopt import ADOPTIONS_MAX, remove_plain
from rollingfs.segment.files.intakes import replacement
from rollingfs.segment.read.folder_contents import kept_path
from rollingfs.segment.segment import Segment
from rollingfs.segment.verbs.create import overwrite as overwrite_segment
from rollingfs.segment.verbs.rename import rename as rename_segment
from rollingfs.segment.write.ingest import PIECE_BYTES


async def copy(client: At, view: Segment, parts: AsyncIterator[bytes], target: str, *, overwrite: bool = True) -> None:
    """Give `target` the bytes of a snapshot, in one commit.

    Parameters
    ----------
    parts
        These bytes.
    overwrite
        Replace `target`; otherwise a taken name refuses the copy (`FileExistsError`).
    """
    try:
        intake = replacement(client, target, create_only=not overwrite)
        try:
            async for data in parts:
                await intake.take(data)
        except BaseException:
            await intake.abort()
            raise
        await overwrite_segment(client, target, intake, create_only=not overwrite)
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        from rollingfs.segment.verbs.export import export

        await export(client, view, client.backend, target, overwrite=overwrite)


async def rename(client: At, source: str, target: str, *, overwrite: bool) -> None:
    """Give a segment or plain file another name.

    A plain file that cannot become a segment is copied, then deleted if it still is the file that was copied.

    Raises
    ------
    FileNotFoundError, FileExistsError, FencedError, FolderOccupiedError
        As the verb `rename` of a segment.
    ConflictError
        Other programs keep changing a plain file: it is still there, and `target` has a copy of what it was.
    """
    try:
        await rename_segment(client, source, target, overwrite=overwrite)
        return
    except OSError as error:
        view = await client.headers.view(source, fresh=True) if error.errno == errno.ENAMETOOLONG else None
        if view is None or view.plain is None:
            raise
    for _ in range(ADOPTIONS_MAX if overwrite else 1):
        view = await client.headers.view(source, fresh=True)
        await copy(client, view, _parts(client, view), target, overwrite=overwrite)
        if await remove_plain(client, source, view.incarnations[0]):
            return
    raise ConflictError(f"{source}: the plain file changes too often to be moved; it is still there, and copied")


async def _parts(client: At, view: Segment) -> AsyncIterator[bytes]:
    for start in range(view.start, view.length, PIECE_BYTES):
        yield await client.fetcher.read(view, start, min(start + PIECE_BYTES, view.length))


async def move(at: At, source: str, given: str, *, into: bool | None = None, overwrite: bool = True) -> None:
    """Give a segment, a plain file or a whole folder another name; no bytes are moved.

    If the target is a folder, the source goes into it under its own name; if it is a file, the source replaces it.
    Each segment moves by itself; segments that others delete or move away are passed over. An interrupted move of a
    folder may be repeated.

    Parameters
    ----------
    given
        The target, as the caller wrote it: a disk that ignores case changes the spelling of the name.
    into
        Whether the target is a folder to move into, even if it does not exist; None: look.
    overwrite
        Replace files that have the new names, and put a folder's content into a folder that has its new name.

    Raises
    ------
    FileNotFoundError
        `source` does not exist.
    FileExistsError
        Without `overwrite`: the new name is taken.
    FencedError
        An exclusive owner holds a segment.
    ValueError
        A folder would move into itself.
    """
    if names.is_reserved(source):
        raise missing(source)
    target = at.backend.strip(given)
    if into is None:
        is_folder = source != target and await at.contents.is_folder(target)
        into = is_folder and (await info(at, target, fresh=True))["type"] == "directory"
    if into:
        target = at.backend.strip(f"{target}/{source.rpartition('/')[2]}")
    elif source == target:
        await at.backend.respell(source, given)
    if names.is_listing(target):
        names.check_new_name(target)
    if not overwrite and source != target and await is_there(at, target):
        raise exists(target)  # the commit decides; this spares the source a mark
    try:
        await rename(at, source, target, overwrite=overwrite)
    except FileNotFoundError:
        if source != target and await take_link(at, source, target):
            return
        if not await at.contents.is_folder(source):
            raise
    else:
        await unmark(at, above(at, source))
        return
    if source != target:
        try:
            await _move_tree(at, source, target, overwrite)
        finally:  # what the folders say went with them; a plain file that became a segment has asked before
            at.inherited.forget()


async def _move_tree(at: At, source: str, target: str, overwrite: bool) -> None:
    if target.startswith(f"{source}/"):
        raise ValueError(f"the folder {source!r} cannot move into itself, to {target!r}; nothing was moved")
    scans = await tree(at, source, hidden=True, on_error=REPORT)
    check_readable(source, scans.values(), "moved")
    links = [link for scan in scans.values() for link in scan.found.links]
    for link in links:
        if names.is_reserved(link):  # the header, the chunks or the lock of a segment
            raise shared_errors.linked(link)
    if not overwrite:
        await _claim(at, target)
    for folder in scans:
        await make_all(at, target + folder[len(source) :], exist_ok=True)
        if scans[folder].stays:
            await keep(at, target + folder[len(source) :])
    for link in links:
        await take_link(at, link, target + link[len(source) :])
    views = {path: view for scan in scans.values() for path, view in scan.views.items()}
    rows = {path for path, view in views.items() if names.is_listing(path) and is_ours(view.header)}
    targets = {path: target + path[len(source) :] for path in views if path not in rows}
    # a segment that has a folder's name goes first: it would be refused once that folder holds something
    try:
        done = [await _move_one(at, file, targets.pop(file), overwrite) for file in list(targets) if file in scans]
        seen = {path: views[path] for path in targets}
        moved = await take_whole(at, target, seen, targets)
        calls = [partial(_move_one, at, *one, overwrite) for one in targets.items() if one[0] not in moved]
        done += await at.each(calls)
    except FileExistsError as error:
        text = f"another writer has made {error.filename} in it; what had moved by then is in it, the rest at {source}"
        raise OSError(errno.ENOTEMPTY, text, target) from error
    if done and not (moved or any(done)):
        raise missing(source)  # all of it went away meanwhile
    for folder in scans:
        if names.listing_path(folder) in scans[folder].views:
            await remove_rows(at, folder)  # the moved headers have other tokens
    await remove_all(at, scans, source)


async def _claim(at: At, target: str) -> None:
    """Make the target of a moved folder; a single mover or maker wins.

    Raises
    ------
    FileExistsError
        Another was faster.
    """
    if needs_mark(at, target):
        await at.abilities(target)
        try:
            await at.backend.create(kept_path(target), b"")
        except FileExistsError:
            raise exists(target) from None
    elif not (await at.backend.make_folder(target) or await at.contents.is_removed(target)):
        raise exists(target)


async def _move_one(at: At, source: str, target: str, overwrite: bool) -> bool:
    """Move a segment or plain file of a tree; returns whether it was still there."""
    try:
        await rename(at, source, target, overwrite=overwrite)
    except FileNotFoundError:
        if await is_there(at, source):
            raise
        return False
    return True
