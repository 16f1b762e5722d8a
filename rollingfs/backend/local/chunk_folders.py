"""Files in `$chunks` folders: names that lead through no symbolic link, and the reserve of a disk that is nearly full.

No file elsewhere is made, deleted or locked by a link in place of a chunk folder. A reserve is given up once the disk
is full: a new header needs a block and an inode before the old header is gone, so a log that has filled its disk could
not be cut.
"""

from __future__ import annotations

import contextlib
import errno
import os

from rollingfs.backend import shared_errors
from rollingfs.backend.local import system
from rollingfs.format import names

RESERVE_BYTES_MAX = 512 * 1024
"""Room for a header with a tail of twice the usual length."""
RESERVE_FILES = 8
"""A probe of a store, or a lock with its folder, needs several inodes at once."""
FREE_BYTES_MIN = 256 * 1024 * 1024
FREE_FILES_MIN = 4096
"""A disk with less than this is nearly full: its segments keep reserves."""
FREE_SHARE = 64
"""A reserve takes at most this part of what is free, so that reserves never fill a disk."""
BLOCK_BYTES = 4096
OF_FILE_MANAGERS = frozenset({".ds_store", "thumbs.db", "desktop.ini"})
"""Files that Finder and Explorer make in each folder that they show, and make again."""
_APPLE_DOUBLE = "._"
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL


class Opened:
    """A file that is open until `close`."""

    _descriptors: list[int]
    """Empty before it is open, and after."""

    def _open(self, path: str, flags: int) -> int:
        # Ctrl-C comes between two calls of the interpreter, so what opens the file notes that, in one call
        self._descriptors.extend(map(system.open_file, [path], [flags]))
        return self._descriptors[-1]

    def close(self) -> None:
        """Close the file; it may be closed already, or be gone from the disk."""
        if self._descriptors:
            try:
                any(map(os.close, map(self._descriptors.pop, [-1])))  # one call, too
            except OSError as error:  # what was read of it was read; after a write, a flush tells
                if error.errno != errno.ESTALE:
                    raise


class place_of(Opened):  # noqa: N801 - used as a function
    """The name and the folder's descriptor by which to open or unlink a file, as ``dir_fd`` takes them.

    The folders above a `$chunks` folder may be links. A file elsewhere keeps its path, without a descriptor.

    Raises
    ------
    PermissionError
        The `$chunks` folder is a symbolic link.
    """

    def __init__(self, path: str) -> None:
        self._path, self._descriptors = path, []

    def __enter__(self) -> tuple[str, int | None]:
        folder, _, name = self._path.rpartition("/")
        if not (system.PLACE and folder.endswith(names.CHUNKS_SUFFIX)):
            return self._path, None
        try:
            return name, self._open(folder, system.PLACE | system.NO_FOLLOW)
        except BaseException as error:
            self.close()
            if isinstance(error, OSError):
                refuse_link(folder, error)
            raise

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self.close()
        if isinstance(error, OSError) and error.filename == self._path.rpartition("/")[2]:
            error.filename = self._path


def refuse_link(path: str, error: OSError) -> None:
    """Raise the error that names a symbolic link, if that is why the system did not open it."""
    if error.errno in (errno.ELOOP, errno.ENOTDIR) and os.path.islink(path):
        raise shared_errors.linked(path) from None


def open_file(path: str, flags: int, mode: int) -> int:
    """Open a file, which may be new; a symbolic link of its name is refused."""
    with place_of(path) as (name, folder):
        try:
            return system.open_file(name, flags | system.NO_FOLLOW, mode, dir_fd=folder)
        except OSError as error:
            refuse_link(path, error)
            raise


def unlink(path: str) -> None:
    """Remove a file, or a symbolic link itself."""
    with place_of(path) as (name, folder):
        system.unlink(name, dir_fd=folder)


# -- reserves -----------------------------------------------------------------------------------------------


def keep_reserve(header: str) -> None:
    """Make a reserve for a segment with chunks on a nearly full disk; ignore errors."""
    folder = names.chunks_folder(names.segment_of_header(header))
    try:
        free_bytes, free_files = system.room(folder)
        is_low = free_bytes < FREE_BYTES_MIN or 0 < free_files < FREE_FILES_MIN
        if not is_low or os.path.lexists(_file(folder, 0)) or not _has_chunks(folder):
            return
        size = min(RESERVE_BYTES_MAX, free_bytes // FREE_SHARE) // BLOCK_BYTES * BLOCK_BYTES
        for number in range(min(RESERVE_FILES, free_files // FREE_SHARE) if size else 0):
            descriptor = open_file(_file(folder, number), _NEW, 0o600)
            try:
                if not number:
                    system.allocate(descriptor, size)
            finally:
                os.close(descriptor)
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
    return is_gone


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
