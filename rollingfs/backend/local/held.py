"""Plain files of a disk that readers hold open, so that a reader keeps reading the same file."""

from __future__ import annotations

import errno
import os
import weakref

from rollingfs.backend.local import disk

HELD_MAX = 64
"""A process holds at most this many files open for its readers; macOS may allow it 256 open files in all."""

_CANNOT_OPEN = {errno.EMFILE, errno.ENFILE}

_held: weakref.WeakValueDictionary[tuple[str, str], HeldFile] = weakref.WeakValueDictionary()


class HeldFile:
    """An open file. It is closed once no reader, and no read under way in a thread, refers to it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __del__(self) -> None:
        os.close(self._descriptor)

    def __enter__(self) -> tuple[int, os.stat_result]:
        return self._descriptor, os.fstat(self._descriptor)

    def __exit__(self, *_: object) -> None:
        """Keep it open for the next read."""


def hold_file(path: str, token: str) -> HeldFile | None:
    """Return the open file that has this path and `token`; None if too many files are open.

    Raises
    ------
    FileNotFoundError, ConflictError
        The file is gone, or has another token.
    """
    file = held_file(path, token)
    if file is not None or len(_held) >= HELD_MAX:
        return file
    try:
        with disk.opened(path) as (descriptor, _status):
            disk.check_same_or_grown(path, descriptor, token)
            file = HeldFile(os.dup(descriptor))
    except OSError as error:
        if error.errno in _CANNOT_OPEN:
            return None
        raise
    _held[path, token] = file
    return file


def held_file(path: str, token: str | None) -> HeldFile | None:
    """Return the file that had this path and `token`, if a reader holds it."""
    return None if token is None else _held.get((path, token))
