"""Segments on a local disk: atomic by link and rename, under a lock that Java's writers respect as well."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from collections.abc import Iterator, Sequence

from fsspec.implementations.local import LocalFileSystem

from rollingfs.backend.contract import Backend, Blob, Buffer, FileInfo, Listing, Over, Part, Upload
from rollingfs.backend.local import disk
from rollingfs.backend.local.held import held_file, hold_file
from rollingfs.backend.local.record_lock import HAS_RECORD_LOCKS, gives_locks_back, record_lock
from rollingfs.backend.local.upload import HiddenUpload, LocalUpload
from rollingfs.errors import ConflictError, UnsafeBackendError
from rollingfs.format import names
from rollingfs.runtime.concurrency import until_s

# temporary files lie in `$chunks` folders; those of dead processes are garbage for collection
DATE_TICK_S = 0.02
"""Two writes within it may leave one date: the clock of file dates ticks every 1 to 10 ms."""

_PRIVATE_MODE = 0o600
_CANNOT_WRITE = {errno.EACCES, errno.EPERM, errno.EROFS}


class LocalBackend(Backend):
    """A backend over the local disk. It has no state of its own, so threads and forks may share it.

    The conditional verbs take headers only (paths that end in ``$header``): their lock is the file ``lock`` in
    the segment's ``$chunks`` folder. Without record locks (Windows) they raise `UnsafeBackendError`.

    Files in ``$chunks`` folders are dated by when they got there (the inode's change date): an old file that was
    moved there is young, and collection must leave it alone. Dates and `now` are the filesystem's, which on a shared
    disk are not this machine's.

    Parameters
    ----------
    sync : bool
        Whether what is written survives a loss of power when a verb returns. Without it, it still survives the
        death of the process.
    """

    can_write = HAS_RECORD_LOCKS
    can_copy = True
    can_join = True
    can_delete_if = True
    conflicts_are_final = True
    has_folders = True
    finishes_aside = True

    def __init__(self, sync: bool = True) -> None:
        self.sync = sync
        self.shows_unflushed = sync

    # -- reading -------------------------------------------------------------------------------------------

    async def read(self, path: str) -> Blob:
        with disk.opened(path) as (descriptor, status):
            return _blob(path, descriptor, status)

    async def read_if_changed(self, path: str, token: str) -> Blob | None:
        with disk.opened(path) as (descriptor, status):
            if disk.token_of(descriptor, status) == token:
                return None
            return _blob(path, descriptor, status)

    async def read_range(self, path: str, start: int, end: int, token: str | None = None) -> bytes:
        if token is not None and (file := held_file(path, token)) is not None:
            return file.read(start, end)
        with disk.opened(path) as (descriptor, status):
            data = disk.read_exactly(descriptor, start, min(end, status.st_size))
            if token is not None:
                # after the read: no two contents have one token, so it is that of all that was read
                disk.check_same_or_grown(path, descriptor, token)
            return data

    def hold(self, path: str, token: str) -> object | None:
        return hold_file(path, token)

    async def stat(self, path: str) -> FileInfo:
        with disk.opened(path) as (descriptor, status):
            return FileInfo(path, status.st_size, _date(path, status), disk.token_of(descriptor, status))

    async def is_folder(self, path: str) -> bool:
        return os.path.isdir(path)

    async def list(self, folder: str) -> Listing:
        prefix = folder if folder.endswith("/") else folder + "/"
        try:
            with os.scandir(folder) as found:
                infos = [_entry_info(prefix + entry.name, entry) for entry in found]
        except NotADirectoryError:
            if os.path.isfile(folder):
                raise
            raise FileNotFoundError(errno.ENOENT, "no such folder", folder) from None
        entries = sorted((info for info in infos if info is not None), key=lambda info: info.path)
        return Listing(tuple(entries))

    async def now(self, path: str) -> float:
        """The filesystem's own clock: the date of a new file, made for a moment in the `$chunks` folder of `path`.

        Where none can be made, it is this machine's: nothing can be written or deleted there either.
        """
        temporary = names.temporary_path(path)
        try:
            with disk.made_for_a_moment(os.path.dirname(temporary), self.sync):
                try:
                    with disk.new_file(temporary, False) as descriptor:
                        return os.fstat(descriptor).st_mtime
                finally:
                    disk.remove_if_there(temporary)
        except OSError as error:
            if error.errno not in _CANNOT_WRITE:
                raise
            return time.time()

    # -- conditional writes --------------------------------------------------------------------------------

    async def create(self, path: str, data: Buffer) -> str:
        _check_conditional("create", path)
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, "a file or folder has this name", path)
        temporary = names.temporary_path(path)
        # a link is atomic, and fails over whatever is there: no lock is needed, also beside the other verbs
        with disk.new_file(temporary, self.sync) as descriptor:
            token = disk.fill(descriptor, data, 0)
        try:
            if self.sync:
                disk.flush_entries_of(os.path.dirname(path))  # so whoever sees the header need not think of them
            os.link(temporary, path)
        finally:
            disk.remove_if_there(temporary)
        self._flush_folder_of(path)
        return token

    @gives_locks_back
    async def replace(self, path: str, data: Buffer, token: str) -> str:
        _check_conditional("replace", path)
        with self._locked(path):
            old = disk.expect(path, token)
            temporary = names.temporary_path(path)
            with disk.new_file(temporary, self.sync, _PRIVATE_MODE) as descriptor:
                if stat.S_IMODE(old.st_mode) != _PRIVATE_MODE:
                    os.fchmod(descriptor, stat.S_IMODE(old.st_mode))
                new_token = disk.fill(descriptor, data, old.st_mtime_ns + 1)
            try:
                os.rename(temporary, path)
            except BaseException:
                disk.remove_if_there(temporary)
                raise
        # after the lock: whoever commits upon this one, or concludes from it, flushes the same folder first
        self._flush_folder_of(path)
        return new_token

    async def flush(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):  # no folder, and nothing in it to be lost
            self._flush_folder_of(path)

    @gives_locks_back
    async def delete_if(self, path: str, token: str) -> bool:
        try:
            if path.endswith(names.HEADER_SUFFIX):
                _check_conditional("delete_if", path)
                with self._locked(path):
                    disk.expect(path, token)
                    os.unlink(path)
            else:
                disk.expect(path, token)  # so that a file that is another is not moved at all
                _take_away(path, token, self.sync)
        except (FileNotFoundError, ConflictError):
            if os.path.lexists(path):
                return False
            await self.flush(path)  # whoever deleted it may not have
            return True
        self._flush_folder_of(path)
        return True

    # -- new files -----------------------------------------------------------------------------------------

    async def write(self, path: str, data: Sequence[Buffer]) -> None:
        with disk.new_file(path, self.sync) as descriptor:
            disk.write_all(descriptor, data)
        self._flush_folder_of(path)

    async def open_write(self, path: str, over: Over | None = None) -> Upload:
        if over is None:
            return LocalUpload(path, self.sync)
        return HiddenUpload(names.export_path(path), path, over, self.sync)

    async def copy(self, source: str, target: str, token: str | None = None) -> None:
        """Copy the bytes, within the kernel: as a reflink, where the filesystem shares blocks until one is changed.

        Never by a hard link: who opens the old name for writing would change the copy.
        """
        self._copy_bytes(source, target, token)
        try:
            if token is not None:
                disk.expect(source, token)
        except BaseException:
            disk.remove_if_there(target)
            raise
        self._flush_folder_of(target)

    async def join(self, parts: Sequence[Part], target: str) -> None:
        with disk.new_file(target, self.sync) as descriptor:
            for part in parts:
                with disk.opened(part.path) as (source, _status):
                    disk.copy_bytes(source, descriptor, part.start, part.end)
        self._flush_folder_of(target)

    # -- removing and folders ------------------------------------------------------------------------------

    async def delete(self, paths: Sequence[str]) -> None:
        failed: list[tuple[str, OSError]] = []
        for path in paths:
            try:
                os.unlink(path)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                failed.append((path, error))
        if failed:
            path, first = failed[0]
            message = f"{len(failed)} of {len(paths)} files not deleted: {first.strerror}"
            raise OSError(first.errno, message, path) from first

    async def make_folder(self, path: str) -> None:
        disk.make_folders(path, self.sync)

    @gives_locks_back
    async def remove_folder(self, path: str) -> None:
        if not path.endswith(names.CHUNKS_SUFFIX) or not _holds_only_lock(path):
            os.rmdir(path)
            return
        lock = f"{path}/{names.LOCK_NAME}"
        with record_lock(lock, until_s()):
            # who waits for it finds it gone and makes another; who came first has files in the folder
            if _holds_only_lock(path):
                os.unlink(lock)
            os.rmdir(path)

    # -- names and processes -------------------------------------------------------------------------------

    def strip(self, path: str) -> str:
        """The absolute path; ``""`` is the root, where fsspec would take the current folder."""
        if path in ("", "file://", "local://", "file:", "local:"):
            return str(LocalFileSystem.root_marker)
        stripped: str = LocalFileSystem._strip_protocol(path)
        return stripped

    def unstrip(self, path: str) -> str:
        return f"file://{path}"

    def root(self, path: str) -> str:
        while True:
            try:
                return f"local-{os.stat(path).st_dev:x}"
            except (FileNotFoundError, NotADirectoryError):
                above = os.path.dirname(path)
                if above == path:
                    raise
                path = above

    # -- within --------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _locked(self, header: str) -> Iterator[None]:
        lock = names.lock_path(header)
        if not os.path.lexists(header):
            raise ConflictError(f"{header!r} is gone")  # and no lock, no folder is made for it
        with contextlib.ExitStack() as stack:
            while True:
                try:
                    stack.enter_context(record_lock(lock, until_s()))
                    break
                except FileNotFoundError:  # the folder was never made, or is just being removed
                    disk.make_folders(os.path.dirname(lock), self.sync)
            yield

    def _copy_bytes(self, source: str, target: str, token: str | None) -> None:
        with disk.opened(source) as (origin, status):
            if token is not None:
                disk.check_token(source, disk.token_of(origin, status), token)
            with disk.new_file(target, self.sync) as descriptor:
                # both dates are the filesystem's. A write in place during the copy must not leave the date, and so
                # the token, as it is
                if abs(os.fstat(descriptor).st_mtime - status.st_mtime) < DATE_TICK_S:
                    time.sleep(DATE_TICK_S)
                disk.copy_bytes(origin, descriptor, 0, os.fstat(origin).st_size)

    def _flush_folder_of(self, path: str) -> None:
        if self.sync:
            disk.flush_folder(os.path.dirname(path))


def _check_conditional(verb: str, path: str) -> None:
    if not path.endswith(names.HEADER_SUFFIX):
        raise ValueError(f"{verb} is for headers, whose names end in {names.HEADER_SUFFIX!r}, not for {path!r}")
    if not HAS_RECORD_LOCKS:
        raise UnsafeBackendError(
            f"{names.shown(path)}: this system has no record locks, so two writers could lose each other's data; "
            "it can read segments, not write them; nothing was written"
        )


def _take_away(path: str, token: str, sync: bool) -> None:
    """Remove a plain file if it has `token`, though its writers know of no lock.

    It is renamed away, compared, and linked back if it is another after all. A crash between the two leaves
    that other file in the `$chunks` folder, dated now, until collection takes it after the grace.

    Raises
    ------
    ConflictError
        It has another token.
    FileNotFoundError
        It is gone.
    """
    if os.path.islink(path):
        os.unlink(path)  # a symbolic link is not changed in place, and a relative one breaks when it is moved
        return
    away = names.temporary_path(path)
    with disk.made_for_a_moment(os.path.dirname(away), sync):
        os.rename(path, away)
        try:
            disk.expect(away, token)
        except ConflictError:
            with contextlib.suppress(FileExistsError):  # somebody wrote a still newer one: that one stays
                os.link(away, path)
            if sync:
                disk.flush_folder(os.path.dirname(path))  # its only durable name may be the one that goes now
            os.unlink(away)
            raise
        os.unlink(away)


def _holds_only_lock(folder: str) -> bool:
    return HAS_RECORD_LOCKS and os.listdir(folder) == [names.LOCK_NAME]


def _date(path: str, status: os.stat_result) -> float:
    """When a file was modified; in a `$chunks` folder, when it got there if that was later."""
    if os.path.dirname(path).endswith(names.CHUNKS_SUFFIX):
        return max(status.st_mtime, status.st_ctime)
    return status.st_mtime


def _blob(path: str, descriptor: int, status: os.stat_result) -> Blob:
    data = disk.read_exactly(descriptor, 0, status.st_size)
    return Blob(data, disk.make_token(status, data), _date(path, status))


def _entry_info(path: str, entry: os.DirEntry[str]) -> FileInfo | None:
    """A folder's entry; None for a broken symbolic link, a pipe, a device, and what went meanwhile."""
    token = None
    try:
        status = entry.stat()
        if path.endswith(names.HEADER_SUFFIX) and stat.S_ISREG(status.st_mode):
            # for headers only: a listing's token saves the read of a header, and costs an open here
            with contextlib.suppress(PermissionError), disk.opened(path) as (descriptor, newer):
                token, status = disk.token_of(descriptor, newer), newer
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:
            return None
        raise
    if stat.S_ISDIR(status.st_mode):
        return FileInfo(path, 0, status.st_mtime, is_folder=True)
    if not stat.S_ISREG(status.st_mode):
        return None
    return FileInfo(path, status.st_size, _date(path, status), token)
