"""Plain files of a disk that readers hold open, so that each stays the same file for them."""

from __future__ import annotations

import errno
import os
import weakref

from rollingfs.backend.local import disk

HELD_MAX = 64
"""How many files a process holds open for its readers; a system may allow it no more than 256 in all (macOS)."""

_CANNOT_OPEN = {errno.EMFILE, errno.ENFILE}

_held: weakref.WeakValueDictionary[tuple[str, str], HeldFile] = weakref.WeakValueDictionary()


class HeldFile:
    """An open file; closed when nobody refers to it any more, be it a reader or a read under way in a thread."""

    def __init__(self, path: str, descriptor: int, token: str) -> None:
        self._path = path
        self._descriptor = descriptor
        self._token = token

    def __del__(self) -> None:
        os.close(self._descriptor)

    def read(self, start: int, end: int) -> bytes:
        """Bytes ``[start, end)``, fewer where it ends before.

        Raises
        ------
        ConflictError
            It was changed in place.
        """
        data = disk.read_exactly(self._descriptor, start, end)
        disk.check_same_or_grown(self._path, self._descriptor, self._token)
        return data


def hold_file(path: str, token: str) -> HeldFile | None:
    """The file of this path that has a token, open; None if too many are open already.

    Raises
    ------
    FileNotFoundError, ConflictError
        It is gone, or has another token.
    """
    file = held_file(path, token)
    if file is not None or len(_held) >= HELD_MAX or os.name == "nt":  # there, nobody could replace it meanwhile
        return file
    try:
        with disk.opened(path) as (descriptor, _status):
            disk.check_same_or_grown(path, descriptor, token)
            file = HeldFile(path, os.dup(descriptor), token)
    except OSError as error:
        if error.errno in _CANNOT_OPEN:
            return None
        raise
    _held[path, token] = file
    return file


def held_file(path: str, token: str) -> HeldFile | None:
    """The file of this path that had a token, if somebody holds it."""
    return _held.get((path, token))
