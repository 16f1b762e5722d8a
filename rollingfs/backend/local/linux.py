"""The names of `system` on Linux, and on systems that have fewer of its calls."""

import ctypes
import fcntl
import functools
import os
import struct
from functools import partial
from typing import Any

from rollingfs.backend.local import posix

_OFD_SETLK: int = getattr(fcntl, "F_OFD_SETLK", 37)
"""Linux has these locks since 3.15, also where an interpreter (uv's) has no name for them."""
DESCRIPTORS = "/proc/self/fd"
rename_free = posix.free_rename("renameat2", -100, 1)
_LOCAL = {0xEF53, 0x58465342, 0x9123683E, 0x2FC12FC1, 0xF2F52010, 0xCA451A4E, 0x794C7630, 0x01021994, 0x858458F6}
"""The filesystems, by the number that `statfs` gives, whose files only this kernel reads and writes.

They are ext4, XFS, Btrfs, ZFS, F2FS, bcachefs, overlay, tmpfs and ramfs. On the others (NFS, SMB, FUSE, clusters),
another machine may see a file's new size late, or before its bytes.
"""


def flush(descriptor: int) -> None:
    """Make the bytes of an open file survive a loss of power."""
    os.fsync(descriptor)


def allocate(descriptor: int, size: int) -> None:
    """Give an empty file its blocks."""
    os.posix_fallocate(descriptor, 0, size)


@functools.cache
def lock_request(kind: int) -> bytes:
    """Return a request for a lock of a whole file: type, whence, start, length, process id; "0q" pads."""
    return struct.pack("hhqqi0q", kind, os.SEEK_SET, 0, 0, 0)


lock = partial(posix.lock, _OFD_SETLK, lock_request)
unlock = partial(posix.unlock, _OFD_SETLK, lock_request)


def is_local(path: str) -> bool:
    """Return whether this kernel alone reads and writes the files of a disk."""
    (kind,) = struct.unpack_from("l", posix.statfs(path))
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
