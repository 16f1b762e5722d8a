"""The reserve of a segment on a disk that is nearly full: files that are given up once the disk is full.

A new header needs a block and an inode before the old header is gone. So a log that has filled its disk could not be
cut.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from rollingfs.backend.local import system
from rollingfs.backend.local.nofollow import open_file
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


def keep(header: str) -> None:
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


def give_up(path: str) -> bool:
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
        return any(_is_chunk(found))


def _is_chunk(found: Iterator[os.DirEntry[str]]) -> Iterator[bool]:
    return (entry.name != names.LOCK_NAME and not goes_along(entry.name) for entry in found)
