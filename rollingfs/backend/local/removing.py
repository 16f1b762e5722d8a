"""Removes and renames on a disk what others may be about to change."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
from collections.abc import Callable
from typing import Any

from rollingfs.backend.local import disk
from rollingfs.backend.local.nofollow import place_of
from rollingfs.backend.local.record_lock import HAS_RECORD_LOCKS
from rollingfs.errors import ConflictError
from rollingfs.format import names

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
