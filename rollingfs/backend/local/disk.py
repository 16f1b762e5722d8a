"""Files of a disk: opened, read, written whole and flushed, copied within the kernel, uploaded piece by piece."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TypeVar

from rollingfs.backend import shared_errors
from rollingfs.backend.contract import Buffer, Over, Part, Upload
from rollingfs.backend.local import folders, system
from rollingfs.backend.local.folders import make_folders, open_file, refuse_link
from rollingfs.errors import UNSUPPORTED
from rollingfs.format import names

T = TypeVar("T")

TOKEN_HEAD_BYTES = 256
DATE_TICK_S = 0.02
"""Two writes within this time may leave the same date: the clock of file dates ticks every 1 to 10 ms."""
COPY_STEP_BYTES = 64 * 1024 * 1024
READ_STEP_BYTES = 1024 * 1024
NEW_FILE_MODE = 0o666
NO_LINKS = {errno.EPERM, errno.EMLINK, errno.ENOSYS, errno.EXDEV, errno.ERANGE} | UNSUPPORTED
"""Errors of a filesystem without hard links (FAT, FUSE; ERANGE: cryfs), and of one that joins several disks."""
RENAMED = {errno.ENOENT, errno.ESTALE}
"""Errors of FUSE and NFS for a name that is there, while another file is renamed to it."""
RENAMED_PAUSES_S = tuple(min(0.0005 * 2**number, 0.05) for number in range(56))
"""Pauses before such a name is opened again: GlusterFS may know the old file for more than a second."""
DENIALS_MIN = 3
"""A file that is missing so often in a row, by `open` and by `stat`, is missing."""
LOOKS_MAX = 4
"""Looks at a path whose file another machine removes each time while it is open."""

# without O_NONBLOCK, opening a named pipe waits for its writer; for files the flag means nothing
_READ_FLAGS = os.O_RDONLY | system.NO_WAIT
_NEW_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL
_NO_ROOM = "no segment can have this name: with '$header' behind it, the name is too long for this disk"
# the errors of a system, or of a pair of disks, that cannot copy within the kernel
_NO_KERNEL_COPY = {errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EBADF, errno.EPERM} | UNSUPPORTED


class opened:  # noqa: N801 - used as a function
    """Open a regular file for reading, with its status; `flags` are added to the flags for reading.

    Raises
    ------
    FileNotFoundError
        There is no such file; a folder, a pipe or a device is not a file.
    PermissionError
        It is a symbolic link, and the flags refuse to follow it; or the system forbids it.
    """

    def __init__(self, path: str, flags: int = 0) -> None:
        self._path, self._flags = path, _READ_FLAGS | flags
        self._descriptors: list[int] = []
        """Empty before the file is open, and after."""

    def close(self, *_: object) -> None:
        """Close the file; it may be closed already, or be gone from the disk."""
        if self._descriptors:
            try:
                any(map(os.close, map(self._descriptors.pop, [-1])))  # in one call, as in `_open`
            except OSError as error:  # what was read of it was read; after a write, a flush tells
                if error.errno != errno.ESTALE:
                    raise

    def open(self) -> tuple[int, os.stat_result]:
        try:
            try:
                status = self._open()
            except OSError as error:
                if error.errno not in RENAMED or folders.is_local(self._path):
                    raise
                status = self._open_in_time()
            if not stat.S_ISREG(status.st_mode):
                raise shared_errors.no_file(self._path)
            return self._descriptors[-1], status
        except (NotADirectoryError, IsADirectoryError) as error:
            raise shared_errors.no_file(self._path) from error
        except PermissionError:
            if os.path.isdir(self._path):  # the error of Windows for a folder
                raise shared_errors.no_file(self._path) from None
            raise
        except OSError as error:
            self.close()
            if self._flags & system.NO_FOLLOW:
                refuse_link(self._path, error)
            if error.errno == errno.ENAMETOOLONG:  # the header of a plain file whose name has no room for it
                raise shared_errors.no_file(self._path) from error
            raise
        except BaseException:
            self.close()
            raise

    __enter__, __exit__ = open, close

    def _open(self) -> os.stat_result:
        # Ctrl-C comes between two calls of the interpreter, so what opens the file notes that, in one call
        self._descriptors.extend(map(system.open_file, [self._path], [self._flags]))
        return os.fstat(self._descriptors[-1])

    def _open_in_time(self) -> os.stat_result:
        """Open a file whose name a disk may not find for a moment, while another file is renamed to it."""
        denials = 0
        for pause_s in RENAMED_PAUSES_S:  # not until a time, which passes while this process is stopped
            try:
                self.close()
                return self._open()
            except OSError as error:
                system.refresh(self._path)
                denials = 0 if os.path.exists(self._path) else denials + 1
                if error.errno not in RENAMED or denials == DENIALS_MIN:
                    raise
            if not denials:
                time.sleep(pause_s)
        self.close()
        return self._open()


Held = AbstractContextManager[tuple[int, os.stat_result]] | None
"""A file that is open already, with its status."""


def look(
    path: str, see: Callable[[int, os.stat_result], T], flags: int = 0, *, held: Held = None, looks_max: int = LOOKS_MAX
) -> T:
    """Return what `see` finds in an open file; if another machine removes it, in the file that is there now.

    Raises
    ------
    FileNotFoundError
        As `opened`; or the file went during each look.
    """
    for _ in range(looks_max):
        with held or opened(path, flags) as (descriptor, status):
            try:
                return see(descriptor, status)
            except OSError as error:
                if not is_gone(descriptor, error):
                    raise
        held = None  # the file that is held stays gone
    raise shared_errors.no_file(path)


def is_gone(descriptor: int, error: OSError) -> bool:
    """Return whether another machine has removed an open file; JuiceFS then answers EBADF."""
    if error.errno == errno.EBADF:
        os.get_inheritable(descriptor)  # raises EBADF if the descriptor is closed
    return error.errno in (errno.ESTALE, errno.EBADF)


def read_exactly(descriptor: int, start: int, end: int) -> bytes:
    """Return bytes ``[start, end)`` of an open file; fewer where the file ends before `end`."""
    if start >= end:
        return b""
    data = system.read_at(descriptor, end - start, start)  # threads may share the descriptor
    if len(data) == end - start:
        return data
    # one read gives at most 2 GiB
    pieces = [data]
    count = len(data)
    while pieces[-1] and count < end - start:
        pieces.append(system.read_at(descriptor, end - start - count, start + count))
        count += len(pieces[-1])
    return b"".join(pieces)


def read_into(descriptor: int, start: int, target: memoryview) -> int:
    """Fill `target` from byte `start` of an open file on; returns the number of bytes, fewer where the file ends."""
    if system.read_into is None:
        data = read_exactly(descriptor, start, start + len(target))
        target[: len(data)] = data
        return len(data)
    count = 0
    while count < len(target):
        size = system.read_into(descriptor, [target[count:]], start + count)  # one read gives at most 2 GiB
        if not size:
            break
        count += size
    return count


def plain_token(descriptor: int, status: os.stat_result) -> str:
    """Return the token of an open file: see `make_plain_token`."""
    return make_plain_token(status, read_exactly(descriptor, 0, min(TOKEN_HEAD_BYTES, status.st_size)))


def make_plain_token(status: os.stat_result, content: Buffer) -> str:
    """Return the token that distinguishes a write of a file from every other write.

    The inode differs from the replaced file's, which existed until then. `replace` makes the date strictly later
    than the date of the replaced file, so a reused inode gives no equal token either. The first bytes of a header hold
    incarnation and version, which never repeat.
    """
    head = zlib.crc32(memoryview(content).cast("B")[:TOKEN_HEAD_BYTES])
    return f"{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}-{head:08x}"


def check_same_or_grown(path: str, descriptor: int, token: str) -> None:
    """Refuse an open file without `token`; the file may have grown.

    So a log that a program still writes can be read up to its old end. This check takes a file for grown that was
    overwritten in place with more bytes, if the first 256 are the same.

    Raises
    ------
    ConflictError
        The file is another, or was changed in place.
    """
    status = os.fstat(descriptor)
    found = plain_token(descriptor, status)
    if found == token:
        return
    if token.startswith(f"{status.st_ino:x}-") and status.st_size > (size := int(token.split("-")[2], 16)):
        head = zlib.crc32(read_exactly(descriptor, 0, min(TOKEN_HEAD_BYTES, size)))
        if token.endswith(f"-{head:08x}"):
            return
    raise shared_errors.changed(path, token, found)


def write_header(descriptor: int, data: Buffer, date_ns_min: int = 0) -> os.stat_result:
    """Write a header into its temporary file and date it by the filesystem's clock; return its status."""
    write_all(descriptor, [data])
    date_ns = max(os.fstat(descriptor).st_mtime_ns, date_ns_min)
    system.set_date(descriptor, date_ns)
    return os.fstat(descriptor)


def open_new(path: str, sync: bool, mode: int = NEW_FILE_MODE) -> int:
    """Open a new file for writing, its parents made; the umask applies to `mode`."""
    while True:
        try:
            return open_file(path, _NEW_FLAGS, mode)
        except FileNotFoundError:  # the folder is missing; perhaps another process has just removed it
            make_folders(os.path.dirname(path), sync)
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                error.strerror = _NO_ROOM
            raise


def new_file(path: str, sync: bool, fill: Callable[[int], T], mode: int = NEW_FILE_MODE) -> T:
    """Make a new file, which `fill` writes and which is then flushed; return what `fill` returns.

    After a failure it is removed.
    """
    descriptor = open_new(path, sync, mode)
    try:
        try:
            found = fill(descriptor)
            if sync:
                system.flush(descriptor)
        finally:
            os.close(descriptor)
    except BaseException as error:
        remove_if_there(path)
        if isinstance(error, OSError):
            error.filename = error.filename or path
        raise
    return found


@contextlib.contextmanager
def _naming(path: str) -> Iterator[None]:
    """Name the file in errors of calls that only have its descriptor."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or path
        raise


def link(path: str, target: str) -> None:
    """Give a file another name, which fails over anything that has it.

    Raises
    ------
    FileExistsError
        Something has the name.
    OSError
        The filesystem makes no hard links (``errno.ENOTSUP``), or failed.
    """
    try:
        system.link(path, target)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        raise shared_errors.no_links(target, error) from error


def remove_if_there(path: str) -> None:
    """Remove a file; a missing file is not an error."""
    with contextlib.suppress(FileNotFoundError):
        system.unlink(path)


def write_all(descriptor: int, data: Sequence[Buffer]) -> None:
    """Write all bytes of all buffers; a call of the system may write only a part."""
    for buffer in data:
        rest = memoryview(buffer).cast("B")
        while rest:
            rest = rest[os.write(descriptor, rest) :]


def copy_bytes(source: int, target: int, start: int, end: int) -> None:
    """Append bytes ``[start, end)`` of an open file to another, within the kernel where it can.

    Raises
    ------
    OSError
        The source ends before `end`.
    """
    position, copy = start, system.copy_in_kernel
    while position < end:
        step = min(end - position, COPY_STEP_BYTES)
        if copy is not None:
            try:
                count = copy(source, target, step, offset_src=position)
            except OSError as error:
                if error.errno not in _NO_KERNEL_COPY:
                    raise
                copy = None
                continue
        else:
            data = read_exactly(source, position, position + min(step, READ_STEP_BYTES))
            write_all(target, [data])
            count = len(data)
        if count == 0:
            raise OSError(errno.EIO, f"the file ends at byte {position}; expected at least {end} bytes")
        position += count


def copy_whole(source: int, status: os.stat_result, target: int) -> None:
    """Copy an open file, which had this status, into a new file; a write in place during the copy changes its token."""
    # the date must change as well: wait for the clock of file dates to tick (both dates here are the filesystem's)
    if abs(os.fstat(target).st_mtime - status.st_mtime) < DATE_TICK_S:
        time.sleep(DATE_TICK_S)
    copy_bytes(source, target, 0, os.fstat(source).st_size)


# -- uploads -------------------------------------------------------------------------------------------------


class LocalUpload(Upload):
    """A file under an unused name; it is visible while it grows.

    With `over`, others use its name as well: it grows under another, and gets its name once it is whole.
    """

    def __init__(self, path: str, over: Over | None, sync: bool) -> None:
        mode = None if over is None else _mode_of(path)
        self._path = path
        self._over = over
        self._sync = sync
        self._growing = path if over is None else names.export_path(path)
        # a file object: garbage collection closes it if its owner forgets to
        self._file = os.fdopen(open_new(self._growing, sync), "wb", buffering=0)
        if mode is not None and over is Over.ANYTHING:
            # a private file stays private; by its descriptor, because the next export may have removed the name
            with contextlib.suppress(OSError):  # not every disk has modes
                system.set_mode(self._file.fileno(), mode)

    async def write(self, data: Buffer) -> None:
        with _naming(self._path):
            write_all(self._file.fileno(), [data])

    async def copy(self, part: Part) -> None:
        """Append a range of a file, within the kernel where it can copy."""

        def see(source: int, _status: os.stat_result) -> None:
            copy_bytes(source, self._file.fileno(), part.start, part.end)
            if part.token is not None:
                check_same_or_grown(part.path, source, part.token)

        with _naming(self._path):
            look(part.path, see, looks_max=1)  # a part of it may be copied

    async def finish(self) -> None:
        if self._over is None:
            self._end()
            return
        try:
            self._end()
            _give_name(self._growing, self._path, self._over)
        except FileNotFoundError as error:
            raise shared_errors.export_ended(self._path) from error
        finally:
            self._clean()
        if self._sync:
            folders.flush_entries_of(os.path.dirname(self._path))
            folders.flush_folder_of(self._path)

    def _end(self) -> None:
        if self._sync:
            with _naming(self._path):
                system.flush(self._file.fileno())
        self._file.close()
        if self._sync:
            folders.flush_folder_of(self._growing)

    async def abort(self) -> None:
        if not self._file.closed:
            self._file.close()
            remove_if_there(self._growing)
        if self._over is not None:
            self._clean()

    def _clean(self) -> None:
        remove_if_there(self._growing)
        folders.remove_folder_if_empty(os.path.dirname(self._growing))


def _mode_of(path: str) -> int | None:
    """Return the mode of the file at a path, or None.

    Raises
    ------
    FileExistsError
        A pipe, a device or a socket is there, which a new file would destroy.
    """
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if not stat.S_ISREG(status.st_mode):
        raise FileExistsError(errno.EEXIST, "The target is not a regular file; nothing was written", path)
    return stat.S_IMODE(status.st_mode)


def _give_name(temporary: str, path: str, over: Over) -> None:
    if over is Over.ANYTHING:
        system.rename(temporary, path)
        return
    try:
        system.link(temporary, path)  # fails over anything that exists
    except OSError as error:
        if error.errno not in {errno.EEXIST, *NO_LINKS}:
            raise
        if error.errno == errno.EEXIST or os.path.lexists(path):
            raise shared_errors.name_taken(path) from error
        system.rename(temporary, path)
