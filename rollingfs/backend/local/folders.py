"""Folders of a disk: names that lead through no symbolic link, flushes, removals, and the reserve of a full disk.

No file elsewhere is made, deleted or locked by a link in place of a `$chunks` folder. A reserve is given up once the
disk is full: a new header needs a block and an inode before the old header is gone, so a log that has filled its disk
could not be cut.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from rollingfs.backend import shared_errors
from rollingfs.backend.local import system
from rollingfs.format import names

T = TypeVar("T")

FOLDERS_FLUSHED_MAX = 4096
"""This process remembers of this many folders that they survive a loss of power."""
CLOSE_PAUSES_S = (0.0005, 0.002, 0.01)
"""Pauses before a folder is tried again: a FUSE filesystem frees a file some time after `close` has returned."""
RESERVE_BYTES_MAX = 512 * 1024
"""Room for a header with a tail of twice the usual length."""
RESERVE_FILES = 8
"""A probe of a store, or a lock with its folder, needs several inodes at once."""
FREE_BYTES_MIN = 256 * 1024 * 1024
FREE_FILES_MIN = 4096
"""A disk with less than this is nearly full: its segments keep reserves."""
FREE_SHARE = 64
"""A reserve takes at most this part of what is free, so that reserves never fill a disk."""
GIVEN_UP_SHARE = 2
"""The same for a reserve that was given up."""
BLOCK_BYTES = 4096
OF_FILE_MANAGERS = frozenset({".ds_store", "thumbs.db", "desktop.ini"})
"""Files that Finder and Explorer make in each folder that they show, and make again."""
_APPLE_DOUBLE = "._"
GIVEN_UP_MAX = 64
"""This process remembers so many reserves that it has given up."""
_MADE = os.O_WRONLY | os.O_CREAT
_disks: dict[int, bool] = {}
"""Results of `is_local`, by the number of a disk."""
# folders whose own entries, and those of all folders above them, this process has flushed
_flushed: set[str] = set()
given_up: set[str] = set()
"""Headers whose reserves this process has given up: they take of what it frees before appends do."""
_NAMELESS = re.compile(r"\.(fuse_hidden[0-9a-f]{16}|nfs[0-9a-f]{8,32})")
_NOT_EMPTY = (errno.ENOTEMPTY, errno.EEXIST)


def is_local(path: str) -> bool:
    """Return whether only this kernel uses the filesystem of the folder that holds a path; False if it is missing."""
    folder, slash, _ = path.rpartition("/")
    folder = folder or slash
    try:
        device = os.stat(folder).st_dev
    except OSError:
        return False
    if not system.number_of_disk(device):  # the next filesystem without a disk that is mounted may get this number
        return system.is_local(folder)
    if device not in _disks:
        _disks[device] = system.is_local(folder)
    return _disks[device]


def in_place(path: str, call: Callable[..., T]) -> T:
    """Call with the name of a file, and with the descriptor of its folder as ``dir_fd``.

    The folders above a `$chunks` folder may be links. A file elsewhere keeps its path, without a descriptor.

    Raises
    ------
    PermissionError
        The `$chunks` folder is a symbolic link.
    """
    folder, _, name = path.rpartition("/")
    if not (system.PLACE and folder.endswith(names.CHUNKS_SUFFIX)):
        return call(path)
    places: list[int] = []
    try:
        # Ctrl-C comes between two calls of the interpreter, so what opens the folder notes that, in one call
        places.extend(map(system.open_file, [folder], [system.PLACE | system.NO_FOLLOW]))
        return call(name, dir_fd=places[0])
    except OSError as error:
        if not places:
            refuse_link(folder, error)
        elif error.filename == name:
            error.filename = path
        raise
    finally:
        any(map(os.close, places))


def refuse_link(path: str, error: OSError) -> None:
    """Raise the error that names a symbolic link, if that is why the system did not open it."""
    if error.errno in (errno.ELOOP, errno.ENOTDIR) and os.path.islink(path):
        raise shared_errors.linked(path) from None


def open_file(path: str, flags: int, mode: int) -> int:
    """Open a file, which may be new; a symbolic link of its name is refused."""
    try:
        return in_place(path, partial(system.open_file, flags=flags | system.NO_FOLLOW, mode=mode))
    except OSError as error:
        refuse_link(path, error)
        raise


def unlink(path: str) -> None:
    """Remove a file, or a symbolic link itself."""
    in_place(path, system.unlink)


# -- made, flushed and removed --------------------------------------------------------------------------------


def flush_folder_of(path: str) -> None:
    """Make the entries of the folder that holds a path survive a loss of power, in a tier also those above it."""
    folder, slash, name = path.rpartition("/")
    if name.startswith(names.TIER_PREFIX):  # no header's flush keeps the entry of a chunk folder in a tier
        flush_entries_of(folder)
    descriptor = system.open_folder(folder or slash)
    try:
        system.flush(descriptor)
    except OSError as error:
        error.filename = error.filename or path  # the system knows its descriptor only
        raise
    finally:
        os.close(descriptor)


def flush_entries_of(folder: str) -> None:
    """Make a folder itself survive a loss of power: flush the folders above it, each once in the life of a process.

    The process that made those folders may have died, or failed, before the flush. A folder that this process may not
    read was made by another user, and cannot be flushed. The walk ends where another disk begins.
    """
    above = os.path.dirname(folder)
    if folder in _flushed or above == folder or os.stat(above).st_dev != os.stat(folder).st_dev:
        return
    try:
        flush_folder_of(folder)
    except PermissionError:
        return
    flush_entries_of(above)
    if len(_flushed) >= FOLDERS_FLUSHED_MAX:
        _flushed.clear()
    _flushed.add(folder)


def make_folders(path: str, sync: bool) -> bool:
    """Make a folder and its parents, where they are missing; with `sync`, all of them are durable at the end.

    Returns
    -------
    bool
        Whether this call has made the folder itself.

    Raises
    ------
    FileExistsError
        A file has this name.
    NotADirectoryError
        A parent is a file.
    """
    is_new = True
    try:
        try:
            system.mkdir(path)
        except FileNotFoundError:
            above = os.path.dirname(path)
            if above == path:
                raise
            make_folders(above, sync)
            system.mkdir(path)
        _flushed.discard(path)  # an entry there is of an earlier folder with this name
    except FileExistsError:
        try:
            mode = os.lstat(path).st_mode
        except FileNotFoundError:  # another process has just removed it
            return make_folders(path, sync)
        is_new = False
        if not stat.S_ISDIR(mode) and not os.path.isdir(path):
            raise
    if sync:
        with contextlib.suppress(FileNotFoundError):  # another process has just removed it: `open_new` makes it again
            flush_entries_of(path)
    return is_new


def is_nameless(name: str) -> bool:
    """Return whether a name belongs to a removed, open file of FUSE or NFS."""
    return _NAMELESS.fullmatch(name) is not None


def remove_folder(folder: str, pauses_s: Sequence[float] = CLOSE_PAUSES_S) -> None:
    """Remove an empty folder, or a chunk folder whose files all go with it: `goes_along`.

    It waits a moment for files in it without names, just closed.
    """
    try:
        os.rmdir(folder)
    except OSError as error:
        if error.errno not in _NOT_EMPTY:
            raise
    else:
        return
    drop_alone(folder)
    for pause_s in pauses_s:
        try:
            os.rmdir(folder)
        except OSError as error:
            if error.errno not in _NOT_EMPTY or not all(map(is_nameless, os.listdir(folder))):
                raise
            time.sleep(pause_s)
        else:
            return
    os.rmdir(folder)


def remove_folder_if_empty(folder: str, pauses_s: Sequence[float] = CLOSE_PAUSES_S) -> bool:
    """Remove a folder, if it is an empty folder; return whether it is empty."""
    try:
        remove_folder(folder, pauses_s)
    except OSError as error:
        if error.errno not in (*_NOT_EMPTY, errno.ENOENT, errno.ENOTDIR):
            raise
        return error.errno not in _NOT_EMPTY
    return True


@contextlib.contextmanager
def temporary_folder(folder: str, sync: bool) -> Iterator[None]:
    """Make a folder if it is missing; afterwards, remove a folder made here if it is empty."""
    is_new = not os.path.isdir(folder)
    if is_new:
        make_folders(folder, sync)
    try:
        yield
    finally:
        if is_new:
            remove_folder_if_empty(folder)


# -- reserves -----------------------------------------------------------------------------------------------


def keep_reserve(header: str) -> None:
    """Make, or enlarge, the reserve of a segment with chunks on a nearly full disk; ignore errors."""
    folder = names.folder_of_header(header)
    try:
        free_bytes, free_files = system.room(folder)
        is_roomy = free_bytes >= FREE_BYTES_MIN and free_files >= FREE_FILES_MIN
        if is_roomy or not _has_chunks(folder):
            given_up.discard(header)
            return
        share = GIVEN_UP_SHARE if header in given_up else FREE_SHARE
        size = min(RESERVE_BYTES_MAX, free_bytes // share) // BLOCK_BYTES * BLOCK_BYTES
        if size <= _size(_file(folder, 0)):
            return
        for number in range(min(RESERVE_FILES, free_files // share)):
            descriptor = open_file(_file(folder, number), _MADE, 0o600)
            try:
                if not number:
                    system.allocate(descriptor, size)
            finally:
                os.close(descriptor)
        if size == RESERVE_BYTES_MAX:
            given_up.discard(header)
    except FileNotFoundError:
        given_up.discard(header)
    except OSError:
        pass  # it is a precaution


def give_up_reserve(path: str) -> bool:
    """Remove the reserve of a segment, or of a neighbour; return whether there was any.

    `path` is the path of the segment.
    """
    if drop(names.chunks_folder(path)):
        return True
    with contextlib.suppress(OSError), os.scandir(os.path.dirname(path)) as found:
        return any(drop(entry.path) for entry in found if entry.name.endswith(names.CHUNKS_SUFFIX))
    return False


def drop(folder: str) -> bool:
    """Remove the reserve in a chunk folder; return whether there was a reserve."""
    is_gone = False
    for number in range(RESERVE_FILES):
        with contextlib.suppress(OSError):
            system.unlink(_file(folder, number))
            is_gone = True
    if is_gone and len(given_up) < GIVEN_UP_MAX:
        given_up.add(names.header_path(names.segment_of_folder(folder)))
    return is_gone


def _size(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except FileNotFoundError:
        return 0


def drop_alone(folder: str) -> None:
    """Remove all files of a chunk folder that is about to go, if each of them goes with its folder."""
    found = os.listdir(folder) if folder.endswith(names.CHUNKS_SUFFIX) else []
    if all(map(goes_along, found)):
        for name in found:
            with contextlib.suppress(OSError):
                system.unlink(f"{folder}/{name}")


def goes_along(name: str) -> bool:
    """Return whether a file in a chunk folder goes with its folder: a reserve, or what file managers keep of a folder.

    Listings hide it.
    """
    return name.startswith((names.RESERVE_PREFIX, _APPLE_DOUBLE)) or name.lower() in OF_FILE_MANAGERS


def _file(folder: str, number: int) -> str:
    return f"{folder}/{names.RESERVE_PREFIX}{number}"


def _has_chunks(folder: str) -> bool:
    with os.scandir(folder) as found:
        return any(entry.name != names.LOCK_NAME and not goes_along(entry.name) for entry in found)
