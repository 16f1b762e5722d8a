"""Removes and renames on a disk what others may be about to change."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Self

from rollingfs.backend.local import disk
from rollingfs.backend.local.nofollow import place_of
from rollingfs.backend.local.record_lock import HAS_RECORD_LOCKS, close_locks
from rollingfs.errors import ConflictError
from rollingfs.format import names

CLOSERS_MAX = 4
"""Threads that close files which have no name any more."""
CLOSED_AT_ONCE = 16
"""Files that such a thread is given at once; at most six times as many are open."""
_HERE = -100
"""Linux: relative paths begin in the process's folder."""
_NO_REPLACE = 1
_CANNOT_RENAME = {errno.EEXIST, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP}


def take_away(path: str, token: str, sync: bool) -> None:
    """Remove a plain file if it has `token`, although its writers take no lock.

    1. Rename the file away.
    2. Compare its token.
    3. Delete the file; if the token is another, link the file back first.

    A crash before step 3 leaves the file in the `$chunks` folder, dated now, until collection deletes it after the
    grace.

    Raises
    ------
    ConflictError
        The file has another token.
    FileNotFoundError
        The file is gone.
    """
    if os.path.islink(path):
        os.unlink(path)  # nobody changes a symbolic link in place, and a relative link breaks when it is moved
        return
    away = names.temporary_path(path)
    with disk.temporary_folder(os.path.dirname(away), sync):
        with place_of(away) as (name, folder):
            os.rename(path, name, dst_dir_fd=folder)
        try:
            disk.expect(away, token)
        except ConflictError:
            with contextlib.suppress(FileExistsError):  # a still newer file has the name: it stays
                os.link(away, path)
            if sync:
                disk.flush_folder(os.path.dirname(path))  # the name that goes next may be the file's only durable one
            os.unlink(away)
            raise
        os.unlink(away)


def holds_only_lock(folder: str) -> bool:
    """Whether nothing but the lock of a segment is in its chunk folder."""
    return HAS_RECORD_LOCKS and os.listdir(folder) == [names.LOCK_NAME]


class Closer:
    """Closes removed files in threads, while the caller goes on: the disk frees their blocks then, which takes time."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(CLOSERS_MAX, "rollingfs-close")
        self._parts: deque[Future[None]] = deque()
        self._open: list[int] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown()
        close_locks(self._open)

    def take(self, descriptor: int) -> None:
        """Close a file soon."""
        self._open.append(descriptor)
        if len(self._open) < CLOSED_AT_ONCE:
            return
        part, self._open = self._open, []
        try:
            self._parts.append(self._threads.submit(close_locks, part))
        except RuntimeError:  # the program ends: no thread can begin
            close_locks(part)
        if len(self._parts) > CLOSERS_MAX:
            self._parts.popleft().result()


def rename_to_free(path: str, target: str) -> bool:
    """Rename a file in one step, unless something has the target's name; False: nothing was renamed.

    `os.rename` would replace a header that another process makes after a look, and a writer that holds the lock of
    that header would then replace the renamed one unseen. Where the system or the filesystem has no such step, nothing
    is renamed.
    """
    rename = _renameat2()
    if rename is None:
        return False
    if not rename(_HERE, os.fsencode(path), _HERE, os.fsencode(target), _NO_REPLACE):
        return True
    code = _last_error()
    if code in _CANNOT_RENAME:
        return False
    raise OSError(code, os.strerror(code), path, None, target)


@functools.cache
def _renameat2() -> Callable[..., int] | None:
    """The system's rename that replaces nothing; None where there is none (it is Linux's)."""
    import ctypes

    library: Any = ctypes.CDLL(None, use_errno=True)
    return getattr(library, "renameat2", None)


def _last_error() -> int:
    import ctypes

    return ctypes.get_errno()
