"""The names of `system` that Linux and macOS share."""

import contextlib
import ctypes
import errno
import fcntl
import functools
import os
import sys
from collections.abc import Callable
from typing import Any

NO_FOLLOW, NO_WAIT = os.O_NOFOLLOW, os.O_NONBLOCK
PLACE = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY
FLUSHABLE = os.O_RDONLY
GONE: tuple[type[OSError], ...] = (FileNotFoundError,)
_BUSY = {errno.EAGAIN, errno.EACCES}
_NO_LOCKS = (
    "this system, or this disk, has no locks of open files (F_OFD_SETLK), without which two writers could lose each "
    "other's data; nothing was written: write to another disk, or to an object store"
)

_STATFS_BYTES = 4096
"""Room for its answer: 120 bytes on Linux, 2,168 on macOS."""

open_file, unlink, mkdir, link, rename = os.open, os.unlink, os.mkdir, os.link, os.rename
read_at, write_at, set_mode, number_of_disk = os.pread, os.pwrite, os.fchmod, os.major
read_into = getattr(os, "preadv", None)  # macOS 11 has it
copy_in_kernel = getattr(os, "copy_file_range", None)


def refresh(path: str) -> None:
    """Let the kernel look up a name again (which JuiceFS needs), as it does before it refuses a link of a folder."""
    if sys.platform == "linux":  # HFS+ has links of folders
        with contextlib.suppress(OSError):
            os.link(os.path.dirname(path), path)


def look_up(path: str) -> None:
    """Ask the server of a mount for a name: for GlusterFS, by a change to the same owner."""
    refresh(path)
    os.chown(path, -1, -1, follow_symlinks=False)


def set_date(descriptor: int, date_ns: int) -> None:
    """Date an open file."""
    os.utime(descriptor, ns=(date_ns, date_ns))


def arrived_s(_path: str, status: os.stat_result) -> float:
    """Return the time when a file got its name, or was changed."""
    return status.st_ctime


def room(folder: str) -> tuple[int, int]:
    """Return the free bytes of a disk, and its free inodes."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize, found.f_favail


def open_folder(path: str) -> int:
    """Open a folder whose entries are to be flushed."""
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY)


def lock(setlk: int, request: Callable[[int], bytes], descriptor: int) -> bool:
    """Lock an open file now; False if another holds its lock."""
    try:
        fcntl.fcntl(descriptor, setlk, request(fcntl.F_WRLCK))
    except OSError as error:
        if error.errno in _BUSY:
            return False
        if error.errno == errno.EINVAL:
            raise OSError(errno.ENOTSUP, _NO_LOCKS) from error
        raise
    return True


def unlock(setlk: int, request: Callable[[int], bytes], descriptor: int) -> None:
    """Give back a lock of an open file."""
    fcntl.fcntl(descriptor, setlk, request(fcntl.F_UNLCK))


@functools.cache
def library_function(name: str) -> Any:
    """Return a function of the C library, or None."""
    return getattr(ctypes.CDLL(None, use_errno=True), name, None)


def statfs(path: str) -> bytes:
    """Return the kernel's answer for the filesystem of a path; only zeros if it has none."""
    answer = ctypes.create_string_buffer(_STATFS_BYTES)
    function = library_function("statfs$INODE64") or library_function("statfs")  # the first: Macs with Intel
    if function is not None:
        function(os.fsencode(path), answer)
    return answer.raw


def free_rename(name: str, here: int, flag: int) -> Callable[..., int] | None:
    """Return a rename to a free name by a function of the C library; None where the library has no such function.

    Parameters
    ----------
    name
        The name of the function.
    here
        Its number for the folder of the process.
    flag
        Its flag that spares a taken name.
    """
    function = library_function(name)
    if function is None:
        return None

    def rename_free(path: str, target: str, folder: int | None = None, target_folder: int | None = None) -> int:
        places = [here if place is None else place for place in (folder, target_folder)]
        failed = function(places[0], os.fsencode(path), places[1], os.fsencode(target), flag)
        return ctypes.get_errno() if failed else 0

    return rename_free
