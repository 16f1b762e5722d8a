"""Removes and renames on a disk what others may be about to change."""

from __future__ import annotations

import contextlib
import errno
import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Self

from rollingfs.backend.local import extending, folders, system
from rollingfs.backend.local.folders import goes_along, unlink
from rollingfs.backend.local.record_lock import close_locks, hold, lock_of, record_lock
from rollingfs.errors import UNSUPPORTED, ConflictError
from rollingfs.format import names

CLOSERS_MAX = 4
"""Threads that close files which have no name any more."""
CLOSED_AT_ONCE = 4
"""Files that such a thread is given at once; at most six times as many are open: macOS may allow 256 in all."""
Take = Callable[[str], bool | None]
"""Removes or renames a header; returns False if it has left the header as it is."""
_CANNOT_RENAME = {errno.EEXIST, errno.EINVAL, errno.ENAMETOOLONG, errno.ENOSYS, errno.EXDEV} | UNSUPPORTED


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
        system.unlink(path)  # nobody changes a symbolic link in place, and a relative link breaks when it is moved
        return
    away = names.temporary_path(path)
    with folders.temporary_folder(os.path.dirname(away), sync):
        folders.in_place(away, lambda name, dir_fd=None: system.rename(path, name, dst_dir_fd=dir_fd))
        try:
            extending.expect(away, token)
        except ConflictError:
            with contextlib.suppress(FileExistsError):  # a still newer file has the name: it stays
                system.link(away, path)
            if sync:
                folders.flush_folder_of(path)  # the next name may be the file's only durable one
            system.unlink(away)
            raise
        system.unlink(away)


def holds_only_lock(folder: str) -> bool:
    """Return whether a chunk folder has only the lock and the reserve."""
    return [name for name in os.listdir(folder) if not goes_along(name)] == [names.LOCK_NAME]


class Closer:
    """Closes removed files in threads, while the caller goes on: the disk frees their blocks then, which takes time."""

    def __init__(self) -> None:
        self._threads: ThreadPoolExecutor | None = None
        self._parts: deque[Future[None]] = deque()
        self._open: list[int] = []
        self._folders: list[str] = []
        self._is_over = False

    def close(self) -> None:
        """Close all files, and remove the folders that are empty then."""
        self._is_over = True
        if self._threads is not None:
            self._threads.shutdown()
        _close_all(self._open)
        for folder in self._folders:
            folders.remove_folder_if_empty(folder)

    def remove(self, folder: str) -> None:
        """Remove a folder if it is empty, or is once all files are closed: FUSE and NFS keep an open file's entry."""
        if not folders.remove_folder_if_empty(folder, ()):
            self._folders.append(folder)

    def take(self, descriptor: int) -> None:
        """Close a file soon; at once if this is over: an error has kept a lock until then."""
        hold(descriptor)
        if self._is_over:
            close_locks([descriptor])
            return
        self._open.append(descriptor)
        if len(self._open) < CLOSED_AT_ONCE:
            return
        part, self._open = self._open, []
        try:
            self._threads = self._threads or ThreadPoolExecutor(CLOSERS_MAX, "rollingfs-close")
            self._parts.append(self._threads.submit(_close_all, part))
        except RuntimeError:  # no thread can begin: the program ends, or has too many; yet a thread may have the part
            _close_all(part)
        if len(self._parts) > CLOSERS_MAX:
            self._parts.popleft().result()


def _close_all(files: list[int]) -> None:
    """Close each file of a list once, however many threads are given the list."""
    try:
        while files:
            close_locks([files.pop()])
    except IndexError:  # another thread has closed the last
        return


class CarriedLock:
    """The lock of many segments in turn: a file that is renamed from chunk folder to chunk folder.

    So no file is made, locked and freed for each. The file stays locked, so it holds a segment from the moment when it
    gets there until it goes on. It is given up before any other wait. A single segment is taken under its own lock.
    """

    def __init__(self, sync: bool, count: int) -> None:
        self._sync = sync
        self.closer = Closer()
        self._lock: record_lock | None = None
        self._folder: int | None = None
        self._can_rename = count > 1 and bool(system.PLACE) and system.rename_free is not None
        self._is_over = False
        """The segment is gone, and its folder goes once the lock leaves it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._drop()
        finally:
            self.closer.close()

    def takes(self, header: str, token: str, take: Take) -> bool:
        """Let `take` have a header that has `token`, and whose chunk folder has no file; then the folder goes.

        A process that waits for the lock looks for the header before it makes a lock file.
        """
        lock = self._bring(header) if self._can_rename else None
        if lock is None:
            return takes_alone(header, token, take, self._sync)
        is_taken = False
        with contextlib.suppress(ConflictError):
            is_taken = _taken(header, token, lock, take)
        self._is_over = is_taken or not os.path.lexists(header)  # another process may have taken it just now
        return is_taken

    def _bring(self, header: str) -> record_lock | None:
        """Hold the lock of a header, and return it; None: no lock is held, and the usual way is open."""
        path = names.lock_path(header)
        folder = _opened_folder(os.path.dirname(path))
        try:
            if folder is not None and self._comes(path, folder):
                self._folder, folder = folder, None
                return self._lock
        finally:
            if folder is not None:
                os.close(folder)
        self._drop()
        return None

    def _comes(self, path: str, folder: int) -> bool:
        if self._lock is None or self._folder is None:
            lock = record_lock(path, close=self.closer.take)
            try:
                lock.acquire()
            except FileNotFoundError:  # another process is removing the folder
                return False
            self._lock = lock
            return True
        assert system.rename_free is not None
        code = system.rename_free(names.LOCK_NAME, names.LOCK_NAME, self._folder, folder)
        self._can_rename = code in (0, errno.EEXIST, errno.ENOENT)
        if code:
            return False
        before, self._lock.path = self._lock.path, path
        self._leave(before)
        return True

    def _leave(self, path: str) -> None:
        is_over, self._is_over = self._is_over, False
        folder, self._folder = self._folder, None
        try:
            if is_over:
                self.closer.remove(os.path.dirname(path))
        finally:
            if folder is not None:
                self.closer.take(folder)

    def _drop(self) -> None:
        lock, self._lock = self._lock, None
        if lock is None:
            return
        try:
            lock.remove_file()
        finally:
            try:
                lock.release()  # where an open file keeps a name, its folder cannot go before
            finally:
                self._leave(lock.path)


def takes_alone(header: str, token: str, take: Take, sync: bool) -> bool:
    """Let `take` have a header as `CarriedLock.takes` does, under the header's own lock."""
    try:
        with lock_of(header, sync) as lock:
            if not _taken(header, token, lock, take):
                return False
            unlink(lock.path)
    except ConflictError:
        return False
    # once the lock is closed: FUSE and NFS keep an open file's entry
    folders.remove_folder_if_empty(names.folder_of_header(header))
    return True


def _taken(header: str, token: str, lock: record_lock, take: Take) -> bool:
    is_local = folders.is_local(header)
    extending.expect_header(header, token, is_local)
    extending.expect_lock(header, lock, is_local)
    return holds_only_lock(names.folder_of_header(header)) and take(header) is not False


def remove_folder(path: str) -> None:
    """Remove an empty folder; a chunk folder also if its lock is in it."""
    if path.endswith(names.CHUNKS_SUFFIX) and holds_only_lock(path):
        lock = f"{path}/{names.LOCK_NAME}"
        with record_lock(lock):
            # a process that waits for the lock finds it gone and makes another; a faster one has files in the folder
            if holds_only_lock(path):
                system.unlink(lock)
    folders.remove_folder(path)


def _opened_folder(path: str) -> int | None:
    try:
        return os.open(path, system.PLACE | system.NO_FOLLOW)
    except OSError:  # missing, a link, or refused, as the usual way to the lock says
        return None


def rename_to_free(path: str, target: str) -> bool:
    """Rename a file in a single step to a free name; False: no file was renamed.

    `os.rename` would replace a header that another process makes after a look, and a writer that holds the lock of
    that header would then replace the renamed header unseen. Where the system or the filesystem has no such step, or
    the target is on another mount, no file is renamed.
    """
    code = errno.ENOSYS if system.rename_free is None else system.rename_free(path, target)
    if code and code not in _CANNOT_RENAME:
        raise OSError(code, os.strerror(code), path, None, target)
    return not code


def move_link(path: str, target: str) -> None:
    """Give a symbolic link another name, perhaps on another mount."""
    try:
        system.rename(path, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        os.symlink(os.readlink(path), target)
        system.unlink(path)
