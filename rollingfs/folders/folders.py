"""Makes and removes folders, with the segments and plain files in them.

A tombstone outlives the removal of its folder, because it carries the version of its segment. So on a store with
folders, a folder that holds tombstones cannot go. It is marked instead, by a hidden file (`names.REMOVED_NAME`):
it does not exist for users unless something lives in it. A writer of a segment in it need not remove the mark.
Whoever deletes a segment removes the mark, as `make` does: the folder stays, perhaps empty, until it is removed.
"""

from __future__ import annotations

import contextlib
import errno
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from rollingfs.backend import shared_errors
from rollingfs.backend.patience import read_fitting
from rollingfs.errors import CorruptHeaderError, worded
from rollingfs.folders.listing import REPORT, Scan, is_there, ls, tree
from rollingfs.format import names
from rollingfs.format.codec import parse_header
from rollingfs.format.transitions import missing
from rollingfs.segment.at import At
from rollingfs.segment.commit.removals import BATCH_MAX, take_whole
from rollingfs.segment.files.adopt import remove_plain
from rollingfs.segment.read.folder_contents import kept_path, removed_path
from rollingfs.segment.segment import Segment

if TYPE_CHECKING:
    from rollingfs.segment.verbs.delete import Buried

logger = logging.getLogger("rollingfs")

ERRORS_SHOWN_MAX = 3


def _how_to_delete() -> str:
    return f"To delete such a segment with all its bytes: {worded('rm', path=..., damaged=True)}"


# -- making --------------------------------------------------------------------------------------------


async def make(at: At, path: str, *, parents: bool = True) -> None:
    """Make a folder that is not there yet.

    Raises
    ------
    FileExistsError
        A segment, a plain file or a folder is there.
    FileNotFoundError
        The folder that it would be in is missing, and `parents` is false.
    """
    if await is_there(at, path):
        raise FileExistsError(errno.EEXIST, "There is a file or folder already", path)
    names.check_new_name(path)
    parent = above(at, path)
    if not parents and at.backend.capability.has_folders and not await at.contents.is_folder(parent):
        raise FileNotFoundError(errno.ENOENT, "The folder above it is missing", parent)
    if not needs_mark(at, path):  # else the first file in it makes it
        await at.backend.make_folder(path)
        await unmark(at, path)


async def make_all(at: At, path: str, *, exist_ok: bool = False) -> None:
    """Make a folder and its parents; with `exist_ok`, do not make a bucket.

    fsspec calls this for each file that it opens for writing: a bucket whose name is mistyped must not be made so.

    Raises
    ------
    NoBucketError
        With `exist_ok`: the bucket is missing.
    FileExistsError
        A folder is there, and `exist_ok` is false; or a segment or plain file is there.
    """
    if exist_ok and not at.backend.capability.has_folders:
        if at.contents.is_top(path) and not await at.contents.is_folder(path):
            raise shared_errors.no_bucket(path, "bucket", f"make it first, with {worded('fs.mkdir')}")
        return
    if not exist_ok or not await at.contents.is_folder(path):
        try:
            await make(at, path)
        except FileExistsError:  # with `exist_ok`, another caller may make the folder meanwhile
            if not exist_ok or not await at.contents.is_folder(path):
                raise
    elif at.backend.capability.has_folders:
        await at.backend.make_folder(path)  # it is there; this makes it durable, whoever made it


async def keep(at: At, path: str) -> None:
    """Let a folder be there although it is empty, on a store without folders too."""
    if needs_mark(at, path):
        await at.backend.write(kept_path(path), [b""])


def needs_mark(at: At, path: str) -> bool:
    return not at.backend.capability.has_folders and not at.contents.is_top(path)


async def unmark(at: At, folder: str) -> None:
    """Remove the marks by which a folder and those above it count as removed."""
    while at.backend.capability.has_folders and not at.contents.is_top(folder):
        if await at.contents.is_removed(folder):
            await at.backend.delete([removed_path(folder)])
        folder = above(at, folder)


def above(at: At, path: str) -> str:
    """Return the folder that a path is in."""
    return at.backend.strip(names.parent(path))


# -- removing ------------------------------------------------------------------------------------------


async def remove_empty(at: At, path: str) -> None:
    """Remove an empty folder (on an object store: a bucket).

    Raises
    ------
    FileNotFoundError, NotADirectoryError
        It is not a folder.
    OSError
        It is not empty (``errno.ENOTEMPTY``).
    """
    infos = await ls(at, path)
    if [info["name"] for info in infos if info["type"] == "file"] == [path]:
        raise NotADirectoryError(errno.ENOTDIR, "It is a file, not a folder", path)
    if infos:
        raise shared_errors.not_empty(path)
    is_gone = await _remove(at, path, is_kept=True)
    if not is_gone and await at.contents.is_folder(path):  # another writer has put something in it since
        await keep(at, path)
        raise shared_errors.not_empty(path)
    await unmark(at, above(at, path))


async def _remove(at: At, path: str, is_kept: bool) -> bool:
    """Remove a folder, or mark it as removed; returns whether the store itself has removed it, and all in it."""
    try:
        if is_kept and needs_mark(at, path):
            await at.backend.delete([kept_path(path)])
        await at.backend.remove_folder(path)
    except FileNotFoundError:
        return True  # on an object store it went with its last file
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST) or at.contents.is_top(path):
            raise
    else:
        return True
    if at.backend.capability.has_folders:
        with contextlib.suppress(FileExistsError):
            await at.backend.write(removed_path(path), [b""])
    return False


async def delete(
    at: At, paths: Iterable[str], *, recursive: bool = False, depth_max: int | None = None, damaged: bool = False
) -> None:
    """Delete segments and plain files; with `recursive`, also folders and all that is in them.

    A path in another path goes with it.

    Parameters
    ----------
    depth_max
        Number of levels of a folder to empty; the folders then stay. None: all.
    damaged
        Also delete segments whose header cannot be read.

    Raises
    ------
    FileNotFoundError
        A name does not exist.
    IsADirectoryError
        It is a folder, and `recursive` is false.
    FencedError
        An exclusive owner holds a segment.
    CorruptHeaderError
        The header of a segment cannot be read, and `damaged` is false; no file of its folder was deleted.
    """
    from rollingfs.segment.verbs.delete import bury_all

    listed = sorted(set(paths))
    outer = [path for path in listed if not (recursive and any(path.startswith(f"{other}/") for other in listed))]
    gone = await _take_headers(at, outer) if len(outer) > 1 else set()
    delete = partial(_delete, at, recursive=recursive, depth_max=depth_max, damaged=damaged)
    await bury_all(at, [partial(delete, path) for path in outer if path not in gone])


async def _take_headers(at: At, paths: Sequence[str]) -> set[str]:
    """Delete the segments that have only a header; a disk flushes their folder once, and not for each."""
    gone: set[str] = set()
    what = f"{paths[0]} and {len(paths) - 1} more"
    for start in range(0, len(paths), BATCH_MAX) if at.backend.capability.removes_whole else ():
        seen: dict[str, Segment] = {}  # a batch at a time: with their tails, all would fill the memory
        for path in paths[start : start + BATCH_MAX]:
            with contextlib.suppress(OSError):  # the delete of this path raises it again
                if not names.is_reserved(path):
                    seen[path] = await at.headers.load(path)
        gone |= await at.with_room(paths[0], partial(take_whole, at, what, seen))
    for folder in {above(at, path) for path in gone}:
        await unmark(at, folder)
    return gone


async def _delete(at: At, path: str, *, recursive: bool, depth_max: int | None, damaged: bool) -> Buried | None:
    if names.is_reserved(path):
        raise missing(path)
    try:
        if path and not at.backend.capability.has_folders and at.contents.is_top(path):
            raise missing(path)  # a bucket is not a file, and a request for a file of its name would be invalid
        return await _bury_file(at, path, damaged=damaged)
    except FileNotFoundError:
        if recursive and await take_link(at, path):
            return None
        if not await at.contents.is_folder(path):
            raise
    if not recursive:
        raise IsADirectoryError(
            errno.EISDIR, f"It is a folder, and still there: remove it with {worded(recursive=True)}", path
        )
    try:
        await _delete_tree(at, path, depth_max, damaged)
    finally:  # what the folders said went with them
        at.inherited.forget()
    return None


async def delete_file(at: At, path: str) -> None:
    """Delete a segment or plain file; the folder it is in stays, perhaps empty."""
    from rollingfs.segment.verbs.delete import bury_all

    await bury_all(at, [partial(_bury_file, at, path, damaged=False)])


async def _bury_file(at: At, path: str, *, damaged: bool) -> Buried | None:
    buried = await _bury(at, path, damaged)
    await unmark(at, above(at, path))
    return buried


async def _bury(at: At, path: str, damaged: bool, seen: Segment | None = None) -> Buried | None:
    from rollingfs.segment.verbs.delete import bury

    try:
        return await bury(at, path, seen=seen)
    except CorruptHeaderError as error:
        if not damaged:
            raise CorruptHeaderError(f"{error}. {_how_to_delete()}") from error
        await _delete_damaged(at, path)
        return None


async def _delete_tree(at: At, path: str, depth_max: int | None, damaged: bool) -> None:
    from rollingfs.segment.verbs.delete import bury_all

    scans = await tree(at, path, depth_max, hidden=True, on_error=REPORT)
    check_readable(path, scans.values(), "deleted", damaged=damaged)
    for link in [link for scan in scans.values() for link in scan.found.links]:
        await take_link(at, link)  # first, so that nothing is deleted through one
    seen = {path: view for scan in scans.values() for path, view in scan.views.items()}
    gone = await at.with_room(path, partial(take_whole, at, path, seen))
    files = [*seen, *(file for scan in scans.values() for file in scan.unreadable)]
    calls = [partial(_bury_gone, at, file, damaged, seen.get(file)) for file in files if file not in gone]
    await bury_all(at, calls)
    full = await remove_all(at, scans, path) if depth_max is None else list(scans)
    await at.headers.secure(path)  # the client that deleted others of its files may not have flushed that
    await _check_gone(at, path, full, seen)


async def _check_gone(at: At, path: str, folders: Iterable[str], files: Collection[str]) -> None:
    """Report deleted files that a listing still shows, where no tombstone may hide a plain file."""
    store, there = at.backend.capability, set[str]()
    for folder in folders if store.has_folders and store.can_delete_if else ():
        with contextlib.suppress(FileNotFoundError):  # somebody else has removed it
            there |= {file.path for file in (await at.backend.list(folder)).entries if not file.is_folder}
    if left := there & set(files):
        why = "this system refuses the name, or another program has made the file again"
        said = f"{len(left)} of {len(files)} files are still there, as {min(left)!r}: {why}"
        raise OSError(errno.ENOTEMPTY, said, path)


async def take_link(at: At, path: str, target: str | None = None) -> bool:
    return at.backend.capability.has_folders and await at.backend.take_link(path, target)


async def remove_all(at: At, scans: Mapping[str, Scan], top: str) -> list[str]:
    """Remove the emptied folders of a tree, the lowest first; return the full folders."""
    folders = [folder for folder in reversed(list(scans)) if not at.contents.is_top(folder)]
    full = [folder for folder in folders if not await _remove(at, folder, scans[folder].stays)]
    await unmark(at, above(at, top))
    return full


async def _bury_gone(at: At, path: str, damaged: bool, seen: Segment | None) -> Buried | None:
    try:
        return await _bury(at, path, damaged, seen)
    except OSError as error:  # somebody else has deleted it; or no name of this system: `_check_gone` reports the rest
        if error.errno != errno.EILSEQ and not isinstance(error, FileNotFoundError):
            raise
        return None


async def _delete_damaged(at: At, path: str) -> None:
    """Delete an unreadable header, and the plain file of its name; collection takes the chunks.

    The delete names the header's token. A writer that saw the header before cannot commit after it.
    """
    from rollingfs.segment.verbs.delete import bury_all, bury_unread

    header = names.header_path(path)
    while True:
        try:
            blob = await at.backend.read(header)
            await read_fitting(at.backend, at.runtime, header, lambda found: parse_header(found.data, header), blob)
        except CorruptHeaderError:
            pass  # still unreadable: delete this version
        except FileNotFoundError:
            break
        else:
            # an index page is lost, or somebody has repaired the header
            await bury_all(at, [partial(bury_unread, at, path)])
            return
        if not (await at.abilities(path)).delete_if:
            await at.backend.delete([header])
            break
        if await at.backend.delete_if(header, blob.token):
            break
    at.headers.forget(path)
    collect = worded("collect", recursive=True)
    logger.warning("%s: deleted with its header unread; its chunks are left to %s", path, collect)
    await remove_plain(at, path)


def check_readable(path: str, scans: Iterable[Scan], what: str, *, damaged: bool = False) -> None:
    """Refuse a tree in which something cannot be read, before anything is changed.

    Raises
    ------
    CorruptHeaderError
        A header is damaged, and `damaged` is false.
    PermissionError
        We may not read a header or a folder.
    """
    found = [error for scan in scans for error in (scan.error, *scan.unreadable.values()) if error is not None]
    bad = [error for error in found if not (damaged and isinstance(error, CorruptHeaderError))]
    if not bad:
        return
    shown = "; ".join(str(error) for error in bad[:ERRORS_SHOWN_MAX])
    rest = f"; and {len(bad) - ERRORS_SHOWN_MAX} more" if len(bad) > ERRORS_SHOWN_MAX else ""
    said = f"{path}: nothing was {what}, because not all in the folder can be read: {shown}{rest}"
    if all(isinstance(error, CorruptHeaderError) for error in bad):
        raise CorruptHeaderError(f"{said}. {_how_to_delete()}") from bad[0]
    raise PermissionError(errno.EACCES, said) from bad[0]
