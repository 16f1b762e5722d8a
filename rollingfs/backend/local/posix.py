"""The names of `system` on Linux, and on systems that have fewer of its calls; macOS shares most of them."""

import contextlib
import ctypes
import errno
import fcntl
import functools
import os
import struct
import sys
from collections.abc import Callable
from functools import partial
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
_OFD_SETLK: int = getattr(fcntl, "F_OFD_SETLK", 37)
"""Linux has these locks since 3.15, also where an interpreter (uv's) has no name for them."""
DESCRIPTORS = "/proc/self/fd"
_LOCAL = {0xEF53, 0x58465342, 0x9123683E, 0x2FC12FC1, 0xF2F52010, 0xCA451A4E, 0x794C7630, 0x01021994, 0x858458F6}
"""The filesystems, by the number that `statfs` gives, whose files only this kernel reads and writes.

They are ext4, XFS, Btrfs, ZFS, F2FS, bcachefs, overlay, tmpfs and ramfs. On the others (NFS, SMB, FUSE, clusters),
another machine may see a file's new size late, or before its bytes.
"""

open_file, unlink, mkdir, link, rename = os.open, os.unlink, os.mkdir, os.link, os.rename
read_at, write_at, set_mode, number_of_disk = os.pread, os.pwrite, os.fchmod, os.major
open_folder = partial(os.open, flags=os.O_RDONLY | os.O_DIRECTORY)
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
    """Set the date of an open file."""
    os.utime(descriptor, ns=(date_ns, date_ns))


def arrived_s(_path: str, status: os.stat_result) -> float:
    """Return the time when a file got its name, or was changed."""
    return status.st_ctime


def room(folder: str) -> tuple[int, int]:
    """Return the free bytes of a disk, and its free inodes; on some, such as Btrfs, there is no end of inodes."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize, found.f_favail if found.f_files else 1 << 32


def lock_by(setlk: int, request: Callable[[int], bytes], descriptor: int) -> bool:
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


def unlock_by(setlk: int, request: Callable[[int], bytes], descriptor: int) -> None:
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


# -- Linux -----------------------------------------------------------------------------------------------------


flush = os.fsync


def allocate(descriptor: int, size: int) -> None:
    """Give an empty file its blocks."""
    os.posix_fallocate(descriptor, 0, size)


@functools.cache
def lock_request(kind: int) -> bytes:
    """Return a request for a lock of a whole file: type, whence, start, length, process id; "0q" pads."""
    return struct.pack("hhqqi0q", kind, os.SEEK_SET, 0, 0, 0)


lock = partial(lock_by, _OFD_SETLK, lock_request)
unlock = partial(unlock_by, _OFD_SETLK, lock_request)


def is_local(path: str) -> bool:
    """Return whether only this kernel reads and writes the files of a disk."""
    (kind,) = struct.unpack_from("l", statfs(path))
    return kind & 0xFFFFFFFF in _LOCAL


def true_name(_path: str) -> str:
    """Return "": the kernel knows an open file by the name that opened it."""
    return ""


def path_of(descriptor: int) -> str:
    """Return the path of an open file by now."""
    return os.readlink(f"{DESCRIPTORS}/{descriptor}")


@functools.cache
def notifier() -> Any:
    """Return the C library, if it can watch files; or None."""
    library = ctypes.CDLL(None)
    return library if hasattr(library, "inotify_init1") else None


rename_free = free_rename("renameat2", -100, 1)
