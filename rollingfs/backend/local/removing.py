"""Removes from a disk what others may be about to change."""

from __future__ import annotations

import contextlib
import os

from rollingfs.backend.local import disk
from rollingfs.backend.local.nofollow import place_of
from rollingfs.backend.local.record_lock import HAS_RECORD_LOCKS
from rollingfs.errors import ConflictError
from rollingfs.format import names


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
