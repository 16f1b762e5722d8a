"""Contents of folders: segments, plain files and folders, as of the call.

The backend lists headers with their tokens, so a scan reads only headers that it has not seen and for which
the folder has no row (`info`). An entry that cannot be read fails the listing of its folder, or is shown with
its error: the caller chooses.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Literal

from rollingfs.backend.contract import Listing
from rollingfs.errors import CorruptHeaderError
from rollingfs.folders.info import (
    Info,
    Scan as Scan,
    info_of,
    info_of_folder,
    info_of_row,
    info_of_unreadable,
    keep_rows,
    rows_of,
)
from rollingfs.format import names
from rollingfs.format.listing_codec import Row
from rollingfs.format.transitions import missing
from rollingfs.segment.at import At
from rollingfs.segment.read.folder_contents import Sorted
from rollingfs.segment.segment import Segment

Wanted = Callable[[str], object]
"""Predicate: does a caller want a segment or plain file of this name?"""
OnError = Literal["raise", "report"]
"""Treatment of an entry that cannot be read: fail, or show it with its error."""
RAISE: OnError = "raise"
REPORT: OnError = "report"
UNSEEN_MIN = 32
"""A listing with fewer headers that were not seen before reads them, rather than the rows of the folder."""
ROWLESS_MAX = 1000
"""A listing that finds more headers without a row that counts writes the rows again."""


def check_on_error(on_error: str) -> OnError:
    """Check the option `on_error` of a caller.

    Raises
    ------
    ValueError
        It is neither ``"raise"`` nor ``"report"``.
    """
    if on_error not in (RAISE, REPORT):
        raise ValueError(f"on_error is {on_error!r}: it must be 'raise' or 'report'")
    return on_error


# -- one path ------------------------------------------------------------------------------------------


async def info(at: At, path: str, *, fresh: bool = False, on_error: OnError = RAISE) -> Info:
    """Return the info of a path: a segment, else a plain file, else a folder.

    Raises
    ------
    FileNotFoundError
        The name does not exist.
    CorruptHeaderError
        It is a segment whose header is damaged, or too new.
    """
    if names.is_reserved(path):
        raise missing(path)
    try:
        return await _info_of_file(at, path, on_error, fresh=fresh)
    except FileNotFoundError:
        if await at.contents.is_folder(path):
            return info_of_folder(path)
        raise


async def _info_of_file(at: At, path: str, on_error: OnError, *, fresh: bool = True) -> Info:
    try:
        return await exact_info(at, await at.headers.view(path, fresh=fresh))
    except CorruptHeaderError as error:
        if on_error == RAISE:
            raise
        return info_of_unreadable(path, error)


async def exact_info(at: At, view: Segment) -> Info:
    """Return the info of a segment or plain file, with the exact number of its chunks."""
    return info_of(view, None if view.header is None else await at.pages.count(view.path, view.header))


async def infos_of(at: At, scan: Scan) -> dict[str, Info]:
    """Return the infos of the segments and plain files of a folder that listings show, by path."""
    found: dict[str, Info] = {}
    cut = []
    for path, view in scan.views.items():
        if names.is_hidden_segment(path):
            continue
        found[path] = info_of(view)
        if view.header is not None and view.header.entries and view.header.cut_pages:
            cut.append(partial(exact_info, at, view))
    for info in await at.contents.gather(cut) if cut else ():
        found[info["name"]] = info
    for path, row in scan.rows.items():
        found[path] = info_of_row(path, row)
    for path, error in scan.unreadable.items():
        if not names.is_hidden_segment(path):
            found[path] = info_of_unreadable(path, error)
    return found


async def is_there(at: At, path: str) -> bool:
    """Return whether there is a segment, a plain file or a folder of this name now."""
    try:
        await info(at, path, fresh=True, on_error=REPORT)
    except FileNotFoundError:
        return False
    return True


# -- one folder ----------------------------------------------------------------------------------------


async def scan(
    at: At,
    folder: str,
    on_error: OnError = RAISE,
    *,
    with_rows: bool = False,
    rowless_max: int | None = None,
    wanted: Wanted | None = None,
    by_names: bool = False,
) -> Scan:
    """List a folder.

    Parameters
    ----------
    with_rows
        Whether the folder's rows may stand for headers, so that the caller gets no `Header` of those segments.
    rowless_max
        With more headers than this that have no row, the rows are written again; by default `ROWLESS_MAX`.
    wanted
        Leave out segments and plain files of other names, and do not read their headers.
    by_names
        Read no header, and return only the entries.

    Raises
    ------
    FileNotFoundError, NotADirectoryError
        The backend has no such folder.
    CorruptHeaderError, PermissionError
        An entry that listings show cannot be read, and `on_error` is ``"raise"``.
    """
    headers = at.headers
    began = headers.begin()
    listing = await at.backend.list(folder)
    found = Sorted.of(listing.entries)
    if by_names:
        return Scan(folder, found)
    rowless_max = ROWLESS_MAX if rowless_max is None else rowless_max
    if wanted is not None:
        found, rowless_max = found.only(wanted), sys.maxsize  # what was read is not all that the rows are of
    loads: dict[str, Segment | OSError] = dict(headers.by_tokens(found.headers))
    unseen = [path for path in found.headers if path not in loads]
    rows: Mapping[str, Row] | None = None
    if with_rows and (len(unseen) > UNSEEN_MIN or not rowless_max):
        rows = await rows_of(at, folder, found.headers)
        loads = {path: loaded for path, loaded in loads.items() if path not in rows}
        unseen = [path for path in unseen if path not in rows]
    if unseen:
        look = at.contents.loaded_or_error
        calls = [partial(look, path, found.headers[path], found.read.get(path), began) for path in unseen]
        loads |= zip(unseen, await at.contents.gather(calls), strict=True)
    rows_path = names.listing_path(folder)
    is_by_rows = (
        rows_path in found.headers
        and headers.by_token(rows_path, found.headers[rows_path]) is not None
        and all(map(names.is_hidden_segment, loads))
        and (not rows or min(rows) > rows_path)  # so the store listed these later
    )
    scanned = await _complete(at, folder, listing, found, loads, rows, rowless_max, is_by_rows)
    if on_error == RAISE and (errors := scanned.errors):
        raise errors[min(errors)]
    return scanned


async def _complete(
    at: At,
    folder: str,
    listing: Listing,
    found: Sorted,
    loads: Mapping[str, Segment | OSError],
    rows: Mapping[str, Row] | None,
    rowless_max: int,
    is_by_rows: bool,
) -> Scan:
    unreadable: dict[str, OSError] = {}
    read: dict[str, Segment] = {}
    for path, loaded in loads.items():
        if isinstance(loaded, OSError):
            unreadable[path] = loaded
        else:
            read[path] = loaded
    views = {path: loaded for path, loaded in read.items() if loaded.live}
    live = {path: row for path, row in rows.items() if row.live} if rows else {}
    for file in found.files:
        if file.path in views or file.path in unreadable or file.path in live:
            continue
        visible = await at.contents.is_visible_or_error(file, read.get(file.path))
        if isinstance(visible, OSError):
            unreadable[file.path] = visible
        elif visible:
            views[file.path] = Segment.of_plain(file)
    stays = not found.is_removed if at.backend.capability.has_folders else found.is_kept or not listing.entries
    if rows is not None and len(read) > rowless_max:
        await keep_rows(at, folder, rows.values(), read, rowless_max, at.contents.refused)
    stays = stays or at.contents.is_top(folder)
    return Scan(folder, found, views, stays, unreadable, None, live, listing.now, is_by_rows)


async def ls(at: At, path: str, on_error: OnError = REPORT) -> list[Info]:
    """Return the infos of a folder's content, sorted by name; for a file, its own info.

    Raises
    ------
    FileNotFoundError
        The name does not exist.
    """
    segment = await _segment_first(at, path, on_error)
    if segment is not None:
        return [segment]
    try:
        scanned = await scan(at, path, on_error, with_rows=True)
    except (FileNotFoundError, NotADirectoryError):
        return [await _info_of_file(at, path, on_error)]
    found = await infos_of(at, scanned)
    if shown := scanned.shown:
        for folder, is_alive in zip(shown, await _alive(at, shown), strict=True):
            if is_alive:
                found.setdefault(folder, info_of_folder(folder))
    if not found and not scanned.stays:
        seen = await info(at, path, fresh=True, on_error=on_error)  # a segment may have come before the last one ended
        return [seen] if seen["type"] == "file" else await ls(at, path, on_error)
    return list(map(found.__getitem__, sorted(found)))


async def _alive(at: At, folders: Iterable[str]) -> list[bool]:
    return await at.contents.gather([partial(at.contents.is_alive, folder) for folder in folders])


async def _segment_first(at: At, path: str, on_error: OnError) -> Info | None:
    """Return the segment of this name, which hides a folder of the same name.

    On a store without folders it is not looked for unless a segment was seen there: a look would double the cost
    of a listing.
    """
    if names.is_reserved(path):
        raise missing(path)
    seen = at.headers.seen(path)
    if not at.backend.capability.has_folders and (seen is None or not seen.live):
        return None
    try:
        loaded = await at.headers.load(path)
    except CorruptHeaderError as error:
        if on_error == RAISE:
            raise
        return info_of_unreadable(path, error)
    return await exact_info(at, loaded) if loaded.live else None


# -- trees ---------------------------------------------------------------------------------------------


async def tree(
    at: At,
    folder: str,
    depth_max: int | None = None,
    *,
    hidden: bool = False,
    on_error: OnError = RAISE,
    into: Wanted = bool,
    **how: Any,
) -> dict[str, Scan]:
    """List a folder and the folders below it, from the top.

    Parameters
    ----------
    depth_max
        Number of levels of folders to list; None: all.
    hidden
        Also list folders that have the name of a segment, and do not go through symbolic links: for a caller that
        changes what it finds.
    into
        Predicate of the folders below that are listed; by default all.
    how
        `with_rows`, `wanted` and `by_names`, as in `scan`.
    """

    async def one(path: str) -> Scan | None:
        try:
            return await scan(at, path, on_error, **how)
        except (FileNotFoundError, NotADirectoryError):
            return None  # deleted meanwhile
        except PermissionError as error:
            if path == folder or on_error == RAISE:
                raise
            return Scan(path, Sorted.of(()), error=error)

    scans: dict[str, Scan] = {}
    level = [folder]
    while level and (depth_max is None or depth_max > 0):
        found = [scan for scan in await at.contents.gather([partial(one, path) for path in level]) if scan]
        scans.update({scan.path: scan for scan in found})
        level = [inner for scan in found for inner in (scan.unlinked if hidden else scan.shown) if into(inner)]
        depth_max = None if depth_max is None else depth_max - 1
    return scans


async def find(
    at: At,
    path: str,
    depth_max: int | None = None,
    *,
    with_folders: bool = False,
    on_error: OnError = REPORT,
    wanted: Wanted | None = None,
) -> dict[str, Info]:
    """Return the infos of everything below a path, by name; of a file, its own.

    Folders that cannot be listed are shown with their errors, also without `with_folders`. With `wanted`, segments
    and plain files of other names are left out; the folders with them are not defined.
    """
    segment = await _segment_first(at, path, on_error)
    if segment is not None:
        return {path: segment}
    scans = await tree(at, path, depth_max, on_error=on_error, with_rows=True, wanted=wanted)
    found: dict[str, Info] = {}
    if with_folders:
        alive = await _alive_in(at, scans)
        if wanted is not None:  # nothing was read of what else lies in a folder
            asked = [folder for folder in scans if folder not in alive and (wanted(folder) or wanted(f"{folder}/"))]
            alive |= {one for one, is_one in zip(asked, await _alive(at, asked), strict=True) if is_one}
        found |= {folder: info_of_folder(folder) for folder in alive if folder != ""}
    for scan in scans.values():
        if scan.error is not None:
            found[scan.path] = {**info_of_folder(scan.path), "error": str(scan.error)}
    for scan in scans.values():
        found |= await infos_of(at, scan)
    if not found and wanted is None:
        try:
            return {path: await _info_of_file(at, path, on_error)}
        except FileNotFoundError:
            return {}
    return dict(sorted(found.items()))


async def _alive_in(at: At, scans: dict[str, Scan]) -> set[str]:
    """Return the folders of a tree that exist for users."""
    edge = [folder for scan in scans.values() for folder in scan.shown if folder not in scans]
    alive = {folder for folder, is_alive in zip(edge, await _alive(at, edge), strict=True) if is_alive}
    for path, scan in reversed(scans.items()):
        below = scan.found.folders
        if scan.stays or scan.listed or scan.rows or scan.errors or not alive.isdisjoint(below):
            alive.add(path)
    return alive
