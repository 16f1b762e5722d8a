"""Segments on a local disk: atomic by link and rename, under a lock that Java's writers respect as well."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
import uuid
from collections.abc import Iterator, Sequence
from functools import partial

from fsspec.implementations.local import LocalFileSystem

from rollingfs import names
from rollingfs.backend import disk
from rollingfs.backend.contract import ABSENT, Backend, Blob, Buffer, FileInfo, Listing, Part, Upload
from rollingfs.backend.local_upload import HiddenUpload, LocalUpload
from rollingfs.backend.record_lock import HAS_RECORD_LOCKS, record_lock
from rollingfs.errors import ConflictError, UnsafeBackendError

"""Temporary files lie in `$chunks` folders; those of dead processes are garbage for collection."""

LINK_AGE_S_MIN = 3600
"""A file unmodified for so long is copied by a hard link, which shares it with whoever has it open."""

DATE_TICK_S = 0.02
"""Two writes within it may leave one date: the clock of file dates ticks every 1 to 10 ms."""

_PRIVATE_MODE = 0o600
# a disk that has no hard links, another disk, someone else's file under `protected_hardlinks`, too many links
_CANNOT_LINK = {errno.EPERM, errno.EACCES, errno.EXDEV, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS}


class LocalBackend(Backend):
    """A backend over the local disk. It holds nothing open and no state, so threads and forks may share it.

    The conditional verbs take headers only (paths that end in ``$header``): their lock is the file ``lock`` in
    the segment's ``$chunks`` folder. Without record locks (Windows) they raise `UnsafeBackendError`.

    Files in ``$chunks`` folders are dated by when they got there (the inode's change date): a hard link to an
    old file is a young chunk, which collection must leave alone.

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
    has_folders = True
    finishes_aside = True

    def __init__(self, sync: bool = True) -> None:
        self.sync = sync

    # -- reading -------------------------------------------------------------------------------------------

    async def read(self, path: str) -> Blob:
        with disk.opened(path) as (descriptor, status):
            return _blob(path, descriptor, status)

    async def read_if_changed(self, path: str, token: str) -> Blob | None:
        with disk.opened(path) as (descriptor, status):
            if disk.token_of(descriptor, status) == token:
                return None
            return _blob(path, descriptor, status)

    async def read_range(self, path: str, start: int, end: int) -> bytes:
        with disk.opened(path) as (descriptor, status):
            return disk.read_exactly(descriptor, start, min(end, status.st_size))

    async def stat(self, path: str) -> FileInfo:
        with disk.opened(path) as (descriptor, status):
            return FileInfo(path, status.st_size, _date(path, status), disk.token_of(descriptor, status))

    async def is_folder(self, path: str) -> bool:
        return os.path.isdir(path)

    async def list(self, folder: str) -> Listing:
        now = time.time()
        prefix = folder if folder.endswith("/") else folder + "/"
        try:
            with os.scandir(folder) as found:
                infos = [_entry_info(prefix + entry.name, entry) for entry in found]
        except NotADirectoryError:
            if os.path.isfile(folder):
                raise
            raise FileNotFoundError(errno.ENOENT, "no such folder", folder) from None
        entries = sorted((info for info in infos if info is not None), key=lambda info: info.path)
        return Listing(tuple(entries), now)

    async def now(self) -> float:
        return time.time()

    # -- conditional writes --------------------------------------------------------------------------------

    async def create(self, path: str, data: Buffer) -> str:
        _check_conditional("create", path)
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, "a file or folder has this name", path)
        temporary = _temporary_path(path)
        # a link is atomic, and fails over whatever is there: no lock is needed, also beside the other verbs
        with disk.new_file(temporary, self.sync) as descriptor:
            token = _fill(descriptor, data, time.time_ns())
        try:
            os.link(temporary, path)
        finally:
            disk.remove_if_there(temporary)
        self._flush_folder_of(path)
        return token

    async def replace(self, path: str, data: Buffer, token: str) -> str:
        _check_conditional("replace", path)
        with self._locked(path):
            old = _expect(path, token)
            temporary = _temporary_path(path)
            with disk.new_file(temporary, self.sync, _PRIVATE_MODE) as descriptor:
                if stat.S_IMODE(old.st_mode) != _PRIVATE_MODE:
                    os.fchmod(descriptor, stat.S_IMODE(old.st_mode))
                new_token = _fill(descriptor, data, max(time.time_ns(), old.st_mtime_ns + 1))
            try:
                os.rename(temporary, path)
            except BaseException:
                disk.remove_if_there(temporary)
                raise
        # after the lock: whoever commits upon this one flushes the same folder before he acknowledges
        self._flush_folder_of(path)
        return new_token

    async def delete_if(self, path: str, token: str) -> bool:
        try:
            if path.endswith(names.HEADER_SUFFIX):
                _check_conditional("delete_if", path)
                with self._locked(path):
                    _expect(path, token)
                    os.unlink(path)
            else:
                _expect(path, token)  # so that a file that is another is not moved at all
                _take_away(path, token)
        except FileNotFoundError:
            return True
        except ConflictError:
            return not os.path.lexists(path)
        self._flush_folder_of(path)
        return True

    # -- new files -----------------------------------------------------------------------------------------

    async def write(self, path: str, data: Sequence[Buffer]) -> None:
        with disk.new_file(path, self.sync) as descriptor:
            disk.write_all(descriptor, data)
        self._flush_folder_of(path)

    async def open_write(self, path: str, over: str | None = None) -> Upload:
        if over is None:
            return LocalUpload(path, self.sync)
        temporary = _temporary_path(path)
        return HiddenUpload(temporary, self.sync, partial(self._appear, temporary, path, over))

    async def copy(self, source: str, target: str, token: str | None = None) -> None:
        origin = os.path.realpath(source)  # a link to a symbolic link would be one more symbolic link
        age_s = time.time() - os.stat(origin).st_mtime
        if token is not None:
            _expect(source, token)
        if age_s < LINK_AGE_S_MIN or not self._link(origin, target):
            self._copy_bytes(source, target)
        try:
            if token is not None:
                _expect(source, token)
        except BaseException:
            disk.remove_if_there(target)
            raise
        self._flush_folder_of(target)

    async def join(self, parts: Sequence[Part], target: str, over: str | None = None) -> str | None:
        if over is None:
            self._join(parts, target)
            self._flush_folder_of(target)
            return None
        temporary = _temporary_path(target)
        self._join(parts, temporary)
        return await self._appear(temporary, target, over)

    def _join(self, parts: Sequence[Part], target: str) -> None:
        with disk.new_file(target, self.sync) as descriptor:
            for part in parts:
                with disk.opened(part.path) as (source, _status):
                    disk.copy_bytes(source, descriptor, part.start, part.end)

    async def _appear(self, temporary: str, target: str, over: str) -> str:
        """Give a whole temporary file its name, if nothing is there, or in place of the file with the token `over`.

        Other programs know of no lock: one that is replaced is first taken away as `delete_if` does it.
        """
        try:
            with disk.opened(temporary) as (descriptor, status):
                token = disk.token_of(descriptor, status)
            if over != ABSENT and not await self.delete_if(target, over):
                raise ConflictError(f"{target!r} has not the token {over} any more")
            os.link(temporary, target)  # fails over whatever is there
        finally:
            disk.remove_if_there(temporary)
        self._flush_folder_of(target)
        return token

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

    async def remove_folder(self, path: str) -> None:
        if not path.endswith(names.CHUNKS_SUFFIX) or not _holds_only_lock(path):
            os.rmdir(path)
            return
        lock = f"{path}/{names.LOCK_NAME}"
        with record_lock(lock):
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
                    stack.enter_context(record_lock(lock))
                    break
                except FileNotFoundError:  # the folder was never made, or is just being removed
                    disk.make_folders(os.path.dirname(lock), self.sync)
            yield

    def _link(self, source: str, target: str) -> bool:
        disk.make_folders(os.path.dirname(target), self.sync)
        try:
            os.link(source, target)
        except OSError as error:
            if error.errno in _CANNOT_LINK:
                return False
            raise
        if self.sync:
            with disk.opened(target) as (descriptor, _status):
                disk.flush(descriptor)  # whoever wrote it may not have
        return True

    def _copy_bytes(self, source: str, target: str) -> None:
        with disk.opened(source) as (origin, status), disk.new_file(target, self.sync) as descriptor:
            age_s = time.time() - status.st_mtime
            if 0 <= age_s < DATE_TICK_S:
                # else a write in place during the copy could leave the date, and so the token, as it is
                time.sleep(DATE_TICK_S - age_s)
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


def _expect(path: str, token: str) -> os.stat_result:
    """The status of a file that must have `token`."""
    try:
        with disk.opened(path) as (descriptor, status):
            found = disk.token_of(descriptor, status)
    except FileNotFoundError:
        raise ConflictError(f"{path!r} should have token {token}, but it is gone") from None
    if found != token:
        raise ConflictError(f"{path!r} should have token {token}; found {found}")
    return status


def _fill(descriptor: int, data: Buffer, date_ns: int) -> str:
    """Write a header into its temporary file and date it; returns its token."""
    disk.write_all(descriptor, [data])
    os.utime(descriptor, ns=(date_ns, date_ns))
    return disk.make_token(os.fstat(descriptor), data)


def _temporary_path(path: str) -> str:
    """A new name in the `$chunks` folder of a header, of a plain file or of the chunk itself."""
    folder = os.path.dirname(path)
    if path.endswith(names.HEADER_SUFFIX):
        folder = names.chunks_folder(names.segment_of_header(path))
    elif not folder.endswith(names.CHUNKS_SUFFIX):
        folder = names.chunks_folder(path)
    return f"{folder}/{names.TEMPORARY_PREFIX}{uuid.uuid4().hex}"


def _take_away(path: str, token: str) -> None:
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
    away = _temporary_path(path)
    folder = os.path.dirname(away)
    try:
        os.mkdir(folder)
        is_folder_mine = True
    except FileExistsError:
        is_folder_mine = False
    try:
        os.rename(path, away)
        try:
            _expect(away, token)
        except ConflictError:
            with contextlib.suppress(FileExistsError):  # somebody wrote a still newer one: that one stays
                os.link(away, path)
            os.unlink(away)
            raise
        os.unlink(away)
    finally:
        if is_folder_mine:
            disk.remove_folder_if_empty(folder)


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
