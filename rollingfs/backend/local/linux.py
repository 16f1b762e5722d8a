"""The names of `system` on Linux, and on systems that have fewer of its calls."""

import ctypes
import fcntl
import functools
import os
import struct
import sys
from functools import partial
from typing import Any

from rollingfs.backend.local import posix

_OFD_SETLK: int = getattr(fcntl, "F_OFD_SETLK", 37)
"""Linux has these locks since 3.15, also where an interpreter (uv's) has no name for them."""
DESCRIPTORS = "/proc/self/fd"
rename_free = posix.free_rename("renameat2", -100, 1)
_STATFS_LONGS = 64
"""Room for its answer, which has 120 bytes and begins with the number of the filesystem."""
_LOCAL = {
    0xEF53: "ext4",
    0x58465342: "XFS",
    0x9123683E: "Btrfs",
    0x2FC12FC1: "ZFS",
    0xF2F52010: "F2FS",
    0xCA451A4E: "bcachefs",
    0x794C7630: "overlay",
    0x01021994: "tmpfs",
    0x858458F6: "ramfs",
}
"""The filesystems, by the number that `statfs` gives, whose files only this kernel reads and writes.

On the others (NFS, SMB, FUSE, clusters), another machine may see a file's new size late, or before its bytes.
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
    return _kind(path) in _LOCAL


def _kind(path: str) -> int:
    """Return the number that `statfs` gives a filesystem; 0 if it gives none."""
    answer, statfs = (ctypes.c_long * _STATFS_LONGS)(), _statfs()
    return 0 if statfs is None or statfs(os.fsencode(path), answer) else answer[0] & 0xFFFFFFFF


@functools.cache
def _statfs() -> Any:
    return getattr(ctypes.CDLL(None), "statfs", None) if sys.platform == "linux" else None


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
